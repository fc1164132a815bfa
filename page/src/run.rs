//! The process: from arguments to the end of its drain.

use std::{sync::Arc, time::Duration};

use croft_runtime::{
    certificate::{
        bundle::{BundleError, CertificateBundle, Rotation, next_bundle},
        watcher::CertificateWatcher,
    },
    clock::{Clock, SystemClock},
    connect::{ConnectError, connect},
    health::Health,
    observe::{self, ObserveError},
    serve::{BindError, Limits, bind, serve},
    shutdown::Shutdown,
    tls::TlsSlot,
};
use jiff::Timestamp;
use prometheus_client::registry::Registry;

use crate::{
    access::Reviewer,
    args::Args,
    http::{page::Page, router::router},
    state::{build, store::State, usage, watch},
};

/// The life of a certificate that the process creates; it is replaced by the next start.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A stream of events is opened again after this time at the latest.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// Why the server can't start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No client of the API server can be created.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Health and metrics can't be served.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// No certificate can be created.
    #[error(transparent)]
    Certificate(#[from] BundleError),
    /// The port is in use, or the address isn't local.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Serves until `stop` begins and the drain is over.
///
/// # Errors
/// If the server can't start.
pub async fn run(args: Args, stop: Shutdown) -> Result<(), RunError> {
    let Args {
        process,
        listen,
        forward_listen,
        tls_cert,
        tls_key,
        service,
        audience,
        namespace,
        cluster_name,
        bounds,
        drain,
    } = args;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let client = connect(process.kubeconfig.as_deref()).await?;
    let health = Health::default();

    let slot = Arc::new(TlsSlot::new(None));
    let gate = health.gate("certificate");
    let state = Arc::new(State::named(cluster_name));
    let metrics = state.metrics().clone();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let expiry = metrics.certificate_expiry.clone();
    let watcher = CertificateWatcher::new(slot.clone(), gate, clock.clone(), expiry);
    match (tls_cert, tls_key) {
        (Some(certificate), Some(key)) => {
            tokio::spawn(watcher.files(certificate, key));
        }
        _ => watcher.apply("this process", own_certificate(&service, &namespace, clock.wall())?.identity()),
    }

    let (listed, built) = (health.gate("lists"), health.gate("model"));
    watch::start(&client, &namespace, &state, listed.clone());
    tokio::spawn(usage::run(client.clone(), state.clone(), stop.clone()));
    tokio::spawn(build::run(state.clone(), clock.clone(), listed, built.clone(), stop.clone()));

    let reviewer = Reviewer::new(client, audience, clock.clone(), metrics.clone());
    let page = Page::new(state, reviewer, clock, bounds, built, stop.clone());
    let routes = router(page);
    let end = Shutdown::new();
    let observed = observe::spawn(process.health_listen, Arc::new(registry), health, end.clone()).await?;
    let limits = Limits { connections: bounds.max_connections, idle: IDLE, ..Limits::for_reviews(drain) };
    let (listener, address) = bind(listen, "the page").await?;
    tracing::info!(%address, health = %observed, "serving the page");
    let forwarded = match forward_listen {
        Some(address) => {
            let (listener, address) = bind(address, "forwarded connections").await?;
            tracing::info!(%address, "serving forwarded connections");
            let shares = metrics.shares.clone();
            Some(tokio::spawn(serve(listener, None, routes.clone(), limits, shares, stop.clone())))
        }
        None => None,
    };
    serve(listener, Some(slot), routes, limits, metrics.shares.clone(), stop).await;
    if let Some(forwarded) = forwarded {
        // A server that panicked is logged by the runtime.
        let _ = forwarded.await;
    }
    end.begin();
    tracing::info!("drained");
    Ok(())
}

/// A certificate that this process alone has, for the names of its Service.
fn own_certificate(service: &str, namespace: &str, now: Timestamp) -> Result<CertificateBundle, BundleError> {
    let names = [service.to_owned(), format!("{service}.{namespace}"), format!("{service}.{namespace}.svc")];
    let names: Vec<String> = names.into_iter().chain(["localhost".to_owned()]).collect();
    let rotation =
        Rotation { authority_life: CERTIFICATE_LIFE, leaf_life: CERTIFICATE_LIFE, ..Rotation::default() };
    next_bundle(None, &names, &rotation, None, now)
}
