//! Every metric of the webhook and its own annotation, each defined once with its documentation. Reference pages are
//! generated from [`METRICS`] and [`KEYS`].
//!
//! Outcomes and phases, the values of two labels, are in [`crate::outcome`]; names of webhooks, labels and annotations in
//! [`croft_policy::definitions`].

use croft_policy::documented_keys;
use croft_runtime::metrics;

documented_keys! {
    /// Every annotation that the webhook alone reads.
    pub const KEYS;

    /// Requests a new `leaf` or `authority`. The webhook removes it when done.
    Annotation ROTATE_ANNOTATION = "croft.dev/rotate", on "the Secret of the webhook's certificate", by "users";
}

metrics! {
    /// Reviews by phase and outcome.
    ADMISSION_REQUESTS = Stable Counter "croft_webhook_admission_requests" ["phase", "outcome"];
    /// Reviews that were evaluated, by the rule that decided them.
    ADMISSION_DECISIONS = Beta Counter "croft_webhook_admission_decisions" ["rule"];
    /// Time from a review that has been read to its answer, without waiting for an unknown namespace.
    ADMISSION_DURATION = Stable Histogram "croft_webhook_admission_duration" [] in Seconds;
    /// Open connections.
    OPEN_CONNECTIONS = Beta Gauge "croft_webhook_open_connections" [];
    /// TLS handshakes in flight.
    OPEN_HANDSHAKES = Alpha Gauge "croft_webhook_open_handshakes" [];
    /// Reviews in flight.
    INFLIGHT_REVIEWS = Beta Gauge "croft_webhook_inflight_reviews" [];
    /// Bytes of reviews in flight.
    INFLIGHT = Beta Gauge "croft_webhook_inflight" [] in Bytes;
    /// End of the validity of the certificate in use, since 1970; 0 without one.
    CERTIFICATE_EXPIRY = Stable Gauge "croft_webhook_certificate_expiry_timestamp" [] in Seconds;
    /// Tenants, TenantPools and CroftConfigs whose newest version can't be decoded in full.
    INVALID_OBJECTS = Beta Gauge "croft_webhook_invalid_objects" [];
    /// Time of the last snapshot of the index.
    INDEX_BUILD = Alpha Gauge "croft_webhook_index_build" [] in Seconds;
    /// Snapshots of the index.
    INDEX_BUILDS = Alpha Counter "croft_webhook_index_builds" [];
    /// Watches that failed and were started again.
    WATCH_ERRORS = Beta Counter "croft_webhook_watch_errors" [];
    /// Connections, handshakes and reviews that were refused because the client held its share already, or nothing was free.
    REFUSED = Beta Counter "croft_webhook_refused" ["resource"];
    /// Objects in the index, by kind.
    INDEX_OBJECTS = Beta Gauge "croft_webhook_index_objects" ["kind"];
}
