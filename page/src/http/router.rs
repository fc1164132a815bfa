//! Routes, the bound of requests in flight, and the headers of every answer.

use std::sync::Arc;

use axum::{
    Router,
    extract::{MatchedPath, Request, State as Shared},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::{delete, get, post},
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

/// Routes of data from a list of methods, paths and handlers, and that list for tests, so that a test of every route can't miss one.
macro_rules! endpoints {
    ($($method:ident $path:literal => $handler:path;)*) => {
        /// Method and path of each route of data. A name in braces stands for a segment.
        pub const ENDPOINTS: &[(&str, &str)] = &[$((stringify!($method), $path)),*];

        fn endpoints() -> Router<Arc<Page>> {
            Router::new()$(.route($path, $method($handler)))*
        }
    };
}

endpoints! {
    get "/api/v1/session" => session::show;
    post "/api/v1/session" => session::sign_in;
    delete "/api/v1/session" => session::sign_out;
    get "/api/v1/overview" => api::overview;
    get "/api/v1/map" => api::map;
    get "/api/v1/curves" => api::curves;
    get "/api/v1/at" => api::at;
    get "/api/v1/at/pools/{name}" => api::pool_at;
    get "/api/v1/at/tenants/{name}" => api::tenant_at;
    get "/api/v1/tenants/{name}" => api::tenant;
    get "/api/v1/tenants/{name}/pods" => api::tenant_pods;
    get "/api/v1/tenants/{name}/advice" => api::tenant_advice;
    get "/api/v1/pools/{name}" => api::pool;
    get "/api/v1/nodes/{name}" => api::node;
    get "/api/v1/nodes/{name}/removal" => api::node_removal;
    get "/api/v1/nodes/{name}/advice" => api::node_advice;
    get "/api/v1/pods/{namespace}/{name}" => api::pod;
    get "/api/v1/pods/{namespace}/{name}/advice" => api::pod_advice;
    get "/api/v1/plans" => api::plans;
    get "/api/v1/history" => api::history;
    get "/api/v1/cost" => api::cost;
    post "/api/v1/what-if" => api::what_if;
    get "/api/v1/events" => events::events;
}

/// The routes. Each of those below `/api/v1` but the sign-in and the sign-out takes a reader.
pub fn router(page: Arc<Page>) -> Router {
    let mut router = endpoints();
    for path in assets::paths() {
        router = router.route(path, get(asset));
    }
    router
        .fallback(missing)
        .layer(from_fn_with_state(page.clone(), bounded))
        .layer(from_fn_with_state(page.clone(), counted))
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
    let permit = page.metrics.inflight.take(&peer.requests, 1, page.bounds.max_inflight);
    if permit.is_none() {
        return ApiError::Busy.into_response();
    }
    next.run(request).await
}

/// Counts an answer by the route as the router has it: paths have names of objects.
async fn counted(Shared(page): Shared<Arc<Page>>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let begun = page.clock.monotonic();
    let response = next.run(request).await;
    let took = page.clock.monotonic().saturating_duration_since(begun);
    let route = route.as_ref().map(MatchedPath::as_str);
    page.metrics.count_request(route, response.status().as_u16(), took);
    response
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
