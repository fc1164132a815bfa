//! Routes, the bound of requests in flight, and the headers of every answer.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State as Shared},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use croft_runtime::share::Peer;
use http::{HeaderMap, HeaderValue, Uri, header};

use super::{api, assets, error::ApiError, events, page::Page, session};

/// Scripts, styles, images and connections of this origin, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// The routes. Each of those below `/api/v1` but the sign-in takes a reader.
pub fn router(page: Arc<Page>) -> Router {
    let mut router = Router::new()
        .route("/api/v1/session", get(session::show).post(session::sign_in).delete(session::sign_out))
        .route("/api/v1/overview", get(api::overview))
        .route("/api/v1/at", get(api::at))
        .route("/api/v1/tenants/{name}", get(api::tenant))
        .route("/api/v1/pools/{name}", get(api::pool))
        .route("/api/v1/nodes/{name}", get(api::node))
        .route("/api/v1/pods/{namespace}/{name}", get(api::pod))
        .route("/api/v1/plans", get(api::plans))
        .route("/api/v1/history", get(api::history))
        .route("/api/v1/cost", get(api::cost))
        .route("/api/v1/what-if", post(api::what_if))
        .route("/api/v1/events", get(events::events));
    for path in assets::paths() {
        router = router.route(path, get(asset));
    }
    router
        .fallback(missing)
        .layer(from_fn_with_state(page.clone(), bounded))
        .layer(from_fn(with_headers))
        .with_state(page)
}

async fn asset(uri: Uri, headers: HeaderMap) -> Response {
    assets::answer(uri.path(), &headers)
}

async fn missing() -> Response {
    ApiError::Missing("such route".to_owned()).into_response()
}

/// Refuses a client's requests beyond its share.
async fn bounded(Shared(page): Shared<Arc<Page>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Arc<Peer>>().cloned().unwrap_or_default();
    let permit = page.inflight.take(&peer.requests, 1, page.bounds.max_inflight);
    if permit.is_none() {
        return ApiError::Busy.into_response();
    }
    next.run(request).await
}

async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Whatever isn't a static file is private.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
