//! The log filter over HTTP, on loopback only: reached with `kubectl port-forward`, so RBAC on `pods/portforward` decides
//! who may change it. The port of health and metrics, which is open, has none of this.
//!
//! ```text
//! GET /log   the filter in force
//! PUT /log   replaces it by the body: a level, or target=level pairs
//! ```

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use http::uri::Authority;
use tokio::net::TcpListener;

use crate::{
    serve::{Limits, serve},
    shutdown::Shutdown,
    telemetry::LogFilter,
};

/// Maximum length of a filter in bytes.
const FILTER_BYTES: usize = 4 << 10;

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is reachable from other hosts.
    #[error("failed to listen on {0} for the log filter: write a loopback address, such as 127.0.0.1:8082")]
    NotLoopback(SocketAddr),
    /// The port is in use.
    #[error("failed to listen on {address} for the log filter: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

/// Starts to answer on `address` in the background, until `stop` begins. Returns the bound address.
///
/// # Errors
/// If the address isn't loopback, or can't be listened on.
pub async fn spawn(address: SocketAddr, filter: LogFilter, stop: Shutdown) -> Result<SocketAddr, AdminError> {
    if !address.ip().is_loopback() {
        return Err(AdminError::NotLoopback(address));
    }
    let named = |source| AdminError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(named)?;
    let bound = listener.local_addr().map_err(named)?;
    tokio::spawn(serve(listener, None, router(filter), Limits::for_probes(), Arc::default(), stop));
    Ok(bound)
}

fn router(filter: LogFilter) -> Router {
    Router::new()
        .route("/log", get(show).put(replace))
        .layer(DefaultBodyLimit::max(FILTER_BYTES))
        .with_state(filter)
}

async fn show(State(filter): State<LogFilter>, headers: HeaderMap) -> Response {
    if !names_loopback(&headers) {
        return refused();
    }
    format!("{}\n", filter.text()).into_response()
}

async fn replace(State(filter): State<LogFilter>, headers: HeaderMap, body: String) -> Response {
    if !names_loopback(&headers) {
        return refused();
    }
    let before = filter.text();
    match filter.set(body.trim()) {
        Ok(()) => {
            tracing::warn!(before, filter = body.trim(), "the log filter was replaced");
            show(State(filter), headers).await
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

/// True if the request was addressed to loopback. A page in a browser that made its own name resolve to loopback would send
/// that name.
fn names_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.and_then(|host| host.parse::<Authority>().ok()).is_some_and(|authority| {
        let host = authority.host().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

fn refused() -> Response {
    (StatusCode::FORBIDDEN, "write localhost or a loopback address as the host\n").into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use http::Request;
    use tower::ServiceExt as _;

    use super::*;
    use crate::telemetry::tests::{Lines, subscribed};

    async fn ask(filter: &LogFilter, method: &str, host: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri("/log").header(header::HOST, host);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = router(filter.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn put_replaces_the_filter_and_get_shows_it() {
        let lines = Lines::default();
        let (filter, _guard) = subscribed(&lines);
        assert_eq!(ask(&filter, "GET", "localhost:8082", "").await, (StatusCode::OK, "info\n".to_owned()));
        let (status, text) = ask(&filter, "PUT", "127.0.0.1:8082", "info,croft_runtime=debug\n").await;
        assert_eq!((status, text.as_str()), (StatusCode::OK, "info,croft_runtime=debug\n"));
        assert!(lines.text().contains("the log filter was replaced"), "{}", lines.text());
        let (status, text) = ask(&filter, "PUT", "[::1]:8082", "croft=loudly").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.contains("write a level such as info"), "{text}");
        assert_eq!(filter.text(), "info,croft_runtime=debug");
        let (status, _) = ask(&filter, "PUT", "localhost", &"x".repeat(FILTER_BYTES + 1)).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(ask(&filter, "POST", "localhost", "debug").await.0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn a_request_for_another_host_is_refused() {
        let lines = Lines::default();
        let (filter, _guard) = subscribed(&lines);
        for host in ["rebound.example:8082", "10.0.0.1", ""] {
            assert_eq!(ask(&filter, "PUT", host, "trace").await.0, StatusCode::FORBIDDEN, "{host}");
        }
        assert_eq!(filter.text(), "info");
    }

    #[tokio::test]
    async fn an_address_that_other_hosts_reach_is_refused() {
        let (filter, _guard) = subscribed(&Lines::default());
        let all = SocketAddr::from(([0, 0, 0, 0], 0));
        let error = spawn(all, filter.clone(), Shutdown::new()).await.unwrap_err();
        assert!(matches!(error, AdminError::NotLoopback(_)), "{error}");
        let stop = Shutdown::new();
        let bound = spawn(SocketAddr::from(([127, 0, 0, 1], 0)), filter, stop.clone()).await.unwrap();
        assert!(bound.ip().is_loopback() && bound.port() != 0);
        stop.begin();
    }
}
