//! Reviews over HTTP: what is read, how much of it, for how long, and what happens to the rest.
//!
//! A review is judged where it was read, without a queue behind it: what can pile up are reviews that are
//! still arriving or whose namespace isn't known yet. Both are counted, in number and in bytes, and shared out among
//! clients (see [`croft_runtime::share`]), so that a flood from one doesn't keep out another; one too many is answered
//! at once with 429 and `Retry-After`, which the API server's client honours within the webhook's timeout, on another
//! replica if there is one.

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
use croft_policy::Tenants;
use croft_runtime::{clock::Clock, share::Peer};
use http::{HeaderValue, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::{
    admit::{Answer, Phase, respond},
    args::BoundArgs,
    metrics::{Metrics, Outcome},
    state::State,
};

/// The longest review that is read. The API server's own limit on objects is 3 MB, and an UPDATE carries two.
pub const BODY_LIMIT: usize = 8 << 20;
/// How long a body may take. The API server writes it in one go.
const BODY_TIME: Duration = Duration::from_secs(2);
/// After how many seconds a client should try again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Everything that answers reviews.
pub struct Reviews {
    state: Arc<State>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    bounds: BoundArgs,
    /// [`respond`]; a test puts one in its place that panics.
    respond: Respond,
    /// Holds what requests hold that came over no connection, as in tests.
    nameless: Peer,
}

type Respond = fn(&[u8], &Tenants, Phase) -> Answer;

impl Reviews {
    /// Answers by `state`.
    #[must_use]
    pub fn new(
        state: Arc<State>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        bounds: BoundArgs,
    ) -> Arc<Self> {
        Arc::new(Self { state, metrics, clock, bounds, respond, nameless: Peer::default() })
    }

    /// `/mutate`, `/validate` and `/warn`.
    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/mutate", post(|shared, request| answer(Phase::Mutate, shared, request)))
            .route("/validate", post(|shared, request| answer(Phase::Validate, shared, request)))
            .route("/warn", post(|shared, request| answer(Phase::Warn, shared, request)))
            .with_state(self)
    }

    async fn answer(&self, phase: Phase, request: Request) -> Result<Bytes, Trouble> {
        let (parts, body) = request.into_parts();
        let length = match parts.headers.get(header::CONTENT_LENGTH) {
            Some(value) => value.to_str().ok().and_then(|text| text.parse().ok()).ok_or(Trouble::Length)?,
            None => BODY_LIMIT,
        };
        if length > BODY_LIMIT {
            return Err(Trouble::TooLong);
        }
        let peer = parts.extensions.get::<Arc<Peer>>().map_or(&self.nameless, |peer| &**peer);
        let BoundArgs { max_inflight, max_inflight_bytes, namespace_wait } = self.bounds;
        let slot = self.metrics.inflight.take(&peer.requests, 1, max_inflight);
        let _slot = slot.ok_or(Trouble::Overload)?;
        let room = self.metrics.inflight_bytes.take(&peer.bytes, length, max_inflight_bytes);
        let _room = room.ok_or(Trouble::Overload)?;
        let body = match timeout(BODY_TIME, Limited::new(body, BODY_LIMIT).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(Trouble::TooLong),
            Ok(Err(_)) => return Err(Trouble::Broken),
            Err(_) => return Err(Trouble::TooSlow),
        };
        let mut waited = false;
        loop {
            let begun = self.clock.monotonic();
            // An evaluation reads the body and the snapshot, and changes neither: what panics half-way leaves nothing
            // behind. The API server takes a 500 for a failure of the webhook, so that the request is refused.
            let respond = AssertUnwindSafe(|| (self.respond)(&body, &self.state.tenants(), phase));
            let answer = catch_unwind(respond).map_err(|_| Trouble::Panicked)?;
            self.metrics.judged(self.clock.monotonic().saturating_duration_since(begun));
            match answer {
                Answer::Review { body, outcome } => {
                    self.metrics.ended(phase, outcome);
                    return Ok(body);
                }
                Answer::Malformed(reason) => return Err(Trouble::Malformed(reason)),
                Answer::UnknownNamespace { namespace, body } => {
                    let limit = namespace_wait.min(half_the_timeout(&parts.uri));
                    if waited || !self.state.wait_for(&namespace, limit).await {
                        self.metrics.ended(phase, Outcome::Unknown);
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
        Err(trouble) => {
            reviews.metrics.ended(phase, trouble.outcome());
            trouble.into_response()
        }
    }
}

/// The API server says how long it will wait, as in `?timeout=3s`.
fn half_the_timeout(uri: &Uri) -> Duration {
    let stated = uri.query().and_then(|query| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
        value.strip_suffix('s')?.parse::<u32>().ok()
    });
    stated.map_or(Duration::MAX, |seconds| Duration::from_millis(u64::from(seconds).saturating_mul(500)))
}

/// What kept a review from being judged.
#[derive(Debug)]
enum Trouble {
    Length,
    TooLong,
    TooSlow,
    Broken,
    Overload,
    Malformed(String),
    Panicked,
}

impl Trouble {
    const fn outcome(&self) -> Outcome {
        match self {
            Self::Length | Self::Broken | Self::Malformed(_) => Outcome::Malformed,
            Self::TooLong | Self::TooSlow => Outcome::Oversized,
            Self::Overload => Outcome::Overload,
            Self::Panicked => Outcome::Panicked,
        }
    }

    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Length => (StatusCode::BAD_REQUEST, "the Content-Length is no number".to_owned()),
            Self::TooLong => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the review is longer than {BODY_LIMIT} bytes"))
            }
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                format!("the review didn't arrive within {} s", BODY_TIME.as_secs()),
            ),
            Self::Broken => (StatusCode::BAD_REQUEST, "the review ended before its end".to_owned()),
            Self::Overload => {
                (StatusCode::TOO_MANY_REQUESTS, "this client has too many reviews under way".to_owned())
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
        // What is left of a body that wasn't read is no next request.
        if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
