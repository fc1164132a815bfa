//! Reviews over HTTP: what is read, how much of it, for how long, and what happens to the rest.
//!
//! A review is judged where it was read, without a queue behind it: what can pile up are reviews that are
//! still arriving or whose namespace isn't known yet. Both are counted, in number and in bytes; one too many is
//! answered at once with 429 and `Retry-After`, which the API server's client honours within the webhook's
//! timeout, on another replica if there is one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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
use croft_runtime::clock::Clock;
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
}

impl Reviews {
    /// Answers by `state`.
    #[must_use]
    pub fn new(
        state: Arc<State>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        bounds: BoundArgs,
    ) -> Arc<Self> {
        Arc::new(Self { state, metrics, clock, bounds })
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
        let _slot = Taken::take(&self.metrics.inflight, 1, self.bounds.max_inflight)?;
        let _room = Taken::take(&self.metrics.inflight_bytes, length, self.bounds.max_inflight_bytes)?;
        let body = match timeout(BODY_TIME, Limited::new(body, BODY_LIMIT).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(Trouble::TooLong),
            Ok(Err(_)) => return Err(Trouble::Broken),
            Err(_) => return Err(Trouble::TooSlow),
        };
        let mut waited = false;
        loop {
            let begun = self.clock.monotonic();
            let answer = respond(&body, &self.state.tenants(), phase);
            self.metrics.judged(self.clock.monotonic().saturating_duration_since(begun));
            match answer {
                Answer::Review { body, outcome } => {
                    self.metrics.ended(phase, outcome);
                    return Ok(body);
                }
                Answer::Malformed(reason) => return Err(Trouble::Malformed(reason)),
                Answer::UnknownNamespace { namespace, body } => {
                    let limit = self.bounds.namespace_wait.min(half_the_timeout(&parts.uri));
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
}

impl Trouble {
    const fn outcome(&self) -> Outcome {
        match self {
            Self::Length | Self::Broken | Self::Malformed(_) => Outcome::Malformed,
            Self::TooLong | Self::TooSlow => Outcome::Oversized,
            Self::Overload => Outcome::Overload,
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
            Self::Overload => (StatusCode::TOO_MANY_REQUESTS, "too many reviews are under way".to_owned()),
            Self::Malformed(reason) => (StatusCode::BAD_REQUEST, reason),
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

/// A part of a bounded amount, given back when dropped.
struct Taken<'a> {
    from: &'a AtomicUsize,
    amount: usize,
}

impl<'a> Taken<'a> {
    fn take(from: &'a AtomicUsize, amount: usize, limit: usize) -> Result<Self, Trouble> {
        let before = from.fetch_add(amount, Ordering::Relaxed);
        let taken = Self { from, amount };
        // Alone, anything is let in that the body limit lets in: a limit below that must not refuse for ever.
        if before != 0 && before.saturating_add(amount) > limit { Err(Trouble::Overload) } else { Ok(taken) }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.from.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
