//! Definitions of the page's metrics, from which the reference page is generated.

use croft_runtime::metrics;

metrics! {
    /// Requests by route and status. A route is named as the router has it, so no label has the name of an object.
    REQUESTS = Beta Counter "croft_page_requests" ["route", "code"];
    /// Time from a request's head to the head of its answer.
    REQUEST_DURATION = Alpha Histogram "croft_page_request_duration" [] in Seconds;
    /// Requests in flight; a stream of events is in flight until its first event.
    INFLIGHT_REQUESTS = Beta Gauge "croft_page_inflight_requests" [];
    /// Open streams of events.
    OPEN_STREAMS = Beta Gauge "croft_page_open_streams" [];
    /// Open connections.
    OPEN_CONNECTIONS = Beta Gauge "croft_page_open_connections" [];
    /// Connections, handshakes, requests and streams that were refused because the client, or the user, held its share already, or
    /// nothing was free.
    REFUSED = Beta Counter "croft_page_refused" ["resource"];
    /// TokenReviews and SubjectAccessReviews that were sent to the API server; cached answers need none.
    REVIEWS = Beta Counter "croft_page_reviews" ["kind"];
    /// Models that were built after changes.
    MODEL_BUILDS = Alpha Counter "croft_page_model_builds" [];
    /// Time of the last build of the model.
    MODEL_BUILD = Alpha Gauge "croft_page_model_build" [] in Seconds;
    /// Objects in the model, by kind.
    MODEL_OBJECTS = Beta Gauge "croft_page_model_objects" ["kind"];
    /// Watches that failed and were started again.
    WATCH_ERRORS = Beta Counter "croft_page_watch_errors" [];
    /// End of the validity of the certificate in use, since 1970; 0 without one.
    CERTIFICATE_EXPIRY = Stable Gauge "croft_page_certificate_expiry_timestamp" [] in Seconds;
}
