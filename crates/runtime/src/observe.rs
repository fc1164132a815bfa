//! `/metrics`, `/healthz` and `/readyz`, on a port of their own without TLS, so that they don't depend on certificates.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;

use crate::{
    health::Health,
    serve::{Limits, serve},
    shutdown::Shutdown,
};

/// The content type of what [`encode`] writes.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The port is in use, or the address isn't local.
    #[error("failed to listen on {address} for health and metrics: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

#[derive(Clone)]
struct Observed {
    registry: Arc<Registry>,
    health: Health,
}

/// Starts to answer on `address` in the background, until `stop` begins. Returns the bound address.
///
/// `stop` should begin after the process's work has ended: a draining server still answers its probes.
///
/// # Errors
/// If the address can't be listened on.
pub async fn spawn(
    address: SocketAddr,
    registry: Arc<Registry>,
    health: Health,
    stop: Shutdown,
) -> Result<SocketAddr, ObserveError> {
    let named = |source| ObserveError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(named)?;
    let bound = listener.local_addr().map_err(named)?;
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(Observed { registry, health });
    tokio::spawn(serve(listener, None, router, Limits::for_probes(), Arc::default(), stop));
    Ok(bound)
}

async fn metrics(State(observed): State<Observed>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &observed.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("failed to write the metrics: {error}\n"))
            .into_response(),
    }
}

async fn readyz(State(observed): State<Observed>) -> Response {
    let (ready, text) = observed.health.report();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}
