//! Every metric of the webhook and its own annotation, each defined once with its documentation. Reference pages are
//! generated from [`METRICS`] and [`KEYS`].
//!
//! Outcomes and phases, the values of two labels, are in [`crate::outcome`]; names of webhooks, labels and annotations in
//! [`croft_policy::definitions`].

use croft_policy::documented_keys;

documented_keys! {
    /// Every annotation that the webhook alone reads.
    pub const KEYS;

    /// Requests a new `leaf` or `authority`. The webhook removes it when done.
    Annotation ROTATE_ANNOTATION = "croft.dev/rotate", on "the Secret of the webhook's certificate", by "users";
}

/// The prefix of every metric.
pub const PREFIX: &str = "croft_webhook";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A counter; its name ends in `_total`.
    Counter,
    /// A gauge.
    Gauge,
    /// A histogram.
    Histogram,
}

/// The unit of a metric, the suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// The suffix, without underscore.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, without prefix, unit and `_total`.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// Its unit, the suffix of its name.
    pub unit: Option<Unit>,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Its meaning, without a full stop.
    pub help: &'static str,
}

impl Metric {
    const fn new(kind: MetricKind, name: &'static str, help: &'static str) -> Self {
        Self { name, kind, unit: None, labels: &[], help }
    }

    const fn with_unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn with_labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    /// The name as it is scraped.
    #[must_use]
    pub fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let total = if self.kind == MetricKind::Counter { "_total" } else { "" };
        format!("{PREFIX}_{}{unit}{total}", self.name)
    }
}

/// Reviews by endpoint and outcome.
pub const ADMISSION_REQUESTS: Metric =
    Metric::new(MetricKind::Counter, "admission_requests", "Reviews by phase and outcome")
        .with_labels(&["phase", "outcome"]);
/// Time of an evaluation.
pub const ADMISSION_DURATION: Metric = Metric::new(
    MetricKind::Histogram,
    "admission_duration",
    "Time from a review that has been read to its answer, without waiting for an unknown namespace",
)
.with_unit(Unit::Seconds);
/// Open connections.
pub const OPEN_CONNECTIONS: Metric = Metric::new(MetricKind::Gauge, "open_connections", "Open connections");
/// Handshakes in flight.
pub const OPEN_HANDSHAKES: Metric =
    Metric::new(MetricKind::Gauge, "open_handshakes", "TLS handshakes in flight");
/// Reviews in flight.
pub const INFLIGHT_REVIEWS: Metric = Metric::new(MetricKind::Gauge, "inflight_reviews", "Reviews in flight");
/// Bytes of reviews in flight.
pub const INFLIGHT: Metric =
    Metric::new(MetricKind::Gauge, "inflight", "Bytes of reviews in flight").with_unit(Unit::Bytes);
/// End of the certificate.
pub const CERTIFICATE_EXPIRY: Metric = Metric::new(
    MetricKind::Gauge,
    "certificate_expiry_timestamp",
    "End of the validity of the certificate in use, since 1970; 0 without one",
)
.with_unit(Unit::Seconds);
/// Objects of which not all can be decoded.
pub const INVALID_OBJECTS: Metric = Metric::new(
    MetricKind::Gauge,
    "invalid_objects",
    "Tenants, TenantPools and CroftConfigs whose newest version can't be decoded in full",
);
/// Time of the last snapshot.
pub const INDEX_BUILD: Metric =
    Metric::new(MetricKind::Gauge, "index_build", "Time of the last snapshot of the index")
        .with_unit(Unit::Seconds);
/// Snapshots.
pub const INDEX_BUILDS: Metric = Metric::new(MetricKind::Counter, "index_builds", "Snapshots of the index");
/// Failed watches.
pub const WATCH_ERRORS: Metric =
    Metric::new(MetricKind::Counter, "watch_errors", "Watches that failed and were started again");
/// Refusals of a share.
pub const REFUSED: Metric = Metric::new(
    MetricKind::Counter,
    "refused",
    "Connections, handshakes and reviews that were refused because the client held its share already, or nothing was free",
)
.with_labels(&["resource"]);
/// Objects in the index.
pub const INDEX_OBJECTS: Metric =
    Metric::new(MetricKind::Gauge, "index_objects", "Objects in the index, by kind").with_labels(&["kind"]);

/// Every metric, in the order in which they are shown.
pub const METRICS: &[Metric] = &[
    ADMISSION_REQUESTS,
    ADMISSION_DURATION,
    OPEN_CONNECTIONS,
    OPEN_HANDSHAKES,
    INFLIGHT_REVIEWS,
    INFLIGHT,
    CERTIFICATE_EXPIRY,
    INVALID_OBJECTS,
    INDEX_BUILD,
    INDEX_BUILDS,
    WATCH_ERRORS,
    REFUSED,
    INDEX_OBJECTS,
];
