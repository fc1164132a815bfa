//! Reviews over HTTP: what is read of a review, for how long, and how many at once.
//!
//! A review is evaluated by the task that read it, without a queue. Reviews can only pile up while they are still arriving
//! or wait for a namespace that isn't in the index yet. Both are counted, in number and in bytes, and shared among clients
//! (see [`croft_runtime::share`]), so that a flood from one client doesn't keep out another. A review beyond the share is
//! answered at once with 429 and `Retry-After`, which the API server's client honours within the webhook's timeout, on
//! another replica if there is one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State as Shared},
    response::Response,
    routing::post,
};
use bytes::Bytes;
use croft_policy::{Rule, Tenants};
use croft_runtime::{clock::Clock, share::Peer};
use http::{HeaderValue, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::{
    admit::{Answer, respond},
    args::BoundArgs,
    cluster::state::State,
    metrics::Metrics,
    outcome::{Outcome, Phase},
};

/// Maximum length of a review in bytes. The API server's own limit on objects is 3 MB, and an UPDATE carries two.
pub const BODY_LIMIT: usize = 8 << 20;
/// Time limit of a body. The API server writes it at once.
const BODY_TIME: Duration = Duration::from_secs(2);
/// Seconds after which a client should retry.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The handler of reviews.
pub struct Reviews {
    state: Arc<State>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    bounds: BoundArgs,
    /// [`respond`]; a test replaces it by a function that panics.
    respond: Respond,
    /// The peer of requests without a connection, as in tests.
    default_peer: Peer,
}

type Respond = fn(&[u8], &Tenants, Phase) -> Answer;

impl Reviews {
    /// A handler that answers by `state`.
    #[must_use]
    pub fn new(
        state: Arc<State>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        bounds: BoundArgs,
    ) -> Arc<Self> {
        Arc::new(Self { state, metrics, clock, bounds, respond, default_peer: Peer::default() })
    }

    /// `/mutate`, `/validate` and `/warn`.
    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/mutate", post(|handler, request| answer(Phase::Mutate, handler, request)))
            .route("/validate", post(|handler, request| answer(Phase::Validate, handler, request)))
            .route("/warn", post(|handler, request| answer(Phase::Warn, handler, request)))
            .with_state(self)
    }

    async fn answer(&self, phase: Phase, request: Request) -> Result<Bytes, RequestError> {
        let (parts, body) = request.into_parts();
        let length = match parts.headers.get(header::CONTENT_LENGTH) {
            Some(value) => {
                value.to_str().ok().and_then(|text| text.parse().ok()).ok_or(RequestError::InvalidLength)?
            }
            None => BODY_LIMIT,
        };
        if length > BODY_LIMIT {
            return Err(RequestError::TooLong);
        }
        let peer = parts.extensions.get::<Arc<Peer>>().map_or(&self.default_peer, |peer| &**peer);
        let BoundArgs { max_inflight, max_inflight_bytes, namespace_wait } = self.bounds;
        let slot = self.metrics.inflight.take(&peer.requests, 1, max_inflight);
        let _slot = slot.ok_or(RequestError::Overload)?;
        let room = self.metrics.inflight_bytes.take(&peer.bytes, length, max_inflight_bytes);
        let _room = room.ok_or(RequestError::Overload)?;
        let body = match timeout(BODY_TIME, Limited::new(body, BODY_LIMIT).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(RequestError::TooLong),
            Ok(Err(_)) => return Err(RequestError::Incomplete),
            Err(_) => return Err(RequestError::TooSlow),
        };
        let mut waited = false;
        loop {
            let begun = self.clock.monotonic();
            // An evaluation changes neither the body nor the snapshot, so a panic leaves no broken state. The API server
            // takes a 500 for a failure of the webhook and refuses the request.
            let respond = AssertUnwindSafe(|| (self.respond)(&body, &self.state.tenants(), phase));
            let answer = catch_unwind(respond).map_err(|_| RequestError::Panicked)?;
            self.metrics.observe_duration(self.clock.monotonic().saturating_duration_since(begun));
            match answer {
                Answer::Review { body, outcome, rule } => {
                    self.metrics.count_request(phase, outcome);
                    self.metrics.count_decision(rule);
                    return Ok(body);
                }
                Answer::Malformed(reason) => return Err(RequestError::Malformed(reason)),
                Answer::UnknownNamespace { namespace, body } => {
                    let limit = namespace_wait.min(half_the_timeout(&parts.uri));
                    if waited || !self.state.wait_for(&namespace, limit).await {
                        self.metrics.count_request(phase, Outcome::UnknownNamespace);
                        self.metrics.count_decision(Rule::UnknownNamespace);
                        return Ok(body);
                    }
                    waited = true;
                }
            }
        }
    }
}

async fn answer(phase: Phase, Shared(reviews): Shared<Arc<Reviews>>, request: Request) -> Response {
    match reviews.answer(phase, request).await {
        Ok(review) => {
            let mut response = Response::new(Body::new(Full::new(review)));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            reviews.metrics.count_request(phase, error.outcome());
            error.into_response()
        }
    }
}

/// Half the time that the API server waits, which it states as in `?timeout=3s`.
fn half_the_timeout(uri: &Uri) -> Duration {
    let stated = uri.query().and_then(|query| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
        value.strip_suffix('s')?.parse::<u32>().ok()
    });
    stated.map_or(Duration::MAX, |seconds| Duration::from_millis(u64::from(seconds).saturating_mul(500)))
}

/// Why a review could not be evaluated.
#[derive(Debug)]
enum RequestError {
    InvalidLength,
    TooLong,
    TooSlow,
    Incomplete,
    Overload,
    Malformed(String),
    Panicked,
}

impl RequestError {
    const fn outcome(&self) -> Outcome {
        match self {
            Self::InvalidLength | Self::Incomplete | Self::Malformed(_) => Outcome::Malformed,
            Self::TooLong | Self::TooSlow => Outcome::Oversized,
            Self::Overload => Outcome::Overload,
            Self::Panicked => Outcome::Panicked,
        }
    }

    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::InvalidLength => (StatusCode::BAD_REQUEST, "the Content-Length is not a number".to_owned()),
            Self::TooLong => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the review is longer than {BODY_LIMIT} bytes"))
            }
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                format!("the review didn't arrive within {} s", BODY_TIME.as_secs()),
            ),
            Self::Incomplete => (StatusCode::BAD_REQUEST, "the body of the review ended early".to_owned()),
            Self::Overload => {
                (StatusCode::TOO_MANY_REQUESTS, "this client has too many reviews in flight".to_owned())
            }
            Self::Malformed(reason) => (StatusCode::BAD_REQUEST, reason),
            Self::Panicked => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the evaluation of this review panicked; see the log of croft-webhook and report it"
                    .to_owned(),
            ),
        };
        let mut response = Response::new(Body::from(format!("{text}\n")));
        *response.status_mut() = status;
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        // The rest of an unread body must not be taken for the next request.
        if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
#[path = "server_test.rs"]
mod tests;
