//! The process: from arguments to the end of its drain.
//!
//! Puts together the certificate, the cluster's watches, the registration, the replica's Lease and the server.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use croft_runtime::{
    certificate::watcher::CertificateWatcher,
    clock::{Clock, SystemClock},
    connect::{ConnectError, connect},
    health::{Gate, Health},
    kubernetes::{TooOld, require_supported},
    observe::{self, ObserveError},
    serve::{BindError, Limits, bind, serve},
    shutdown::Shutdown,
    tls::{ClientRule, TlsSlot},
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{sync::watch as channel, task::JoinHandle, time::timeout};

use crate::{
    args::{Args, TlsArgs},
    cluster::{
        state::State,
        watch::{self, Source},
    },
    metrics::Metrics,
    registration::{
        hooks::{Hooks, HooksError},
        reconciler::{Declared, Serving, Setup, Trust},
        replica::{Replica, Reports},
    },
    server::Reviews,
};

/// Time for the release of Leases at the end.
const RELEASE_TIME: Duration = Duration::from_secs(3);

/// Why the server can't start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No client of the API server can be created.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Health and metrics can't be served.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The port is in use, or the address isn't local.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Croft doesn't support the API server's release.
    #[error(transparent)]
    TooOld(#[from] TooOld),
    /// The built-in webhooks can't be read.
    #[error(transparent)]
    Hooks(#[from] HooksError),
    /// A file of the arguments can't be read.
    #[error("failed to read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Serves until `stop` begins and the drain is over.
///
/// # Errors
/// If the server can't start.
pub async fn run(args: Args, stop: Shutdown) -> Result<(), RunError> {
    let Args { process, listen, tls, registration, bounds, max_connections, namespace, replica, drain } =
        args;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let client = connect(process.kubeconfig.as_deref()).await?;
    let replica = replica.or_else(hostname).unwrap_or_else(|| "croft-webhook".to_owned());
    let (health, metrics, state) =
        (Health::default(), Arc::new(Metrics::default()), Arc::new(State::default()));
    let mut registry = Registry::default();
    metrics.register(&mut registry);

    let slot = Arc::new(TlsSlot::new(client_rule(&tls)?));
    let certificate_gate = health.gate("certificate");
    let expiry = metrics.certificate_expiry.clone();
    let watcher = CertificateWatcher::new(slot.clone(), certificate_gate.clone(), clock.clone(), expiry);
    let listed = health.gate("tenants");
    let serving = health.gate("serving");
    let registered = health.gate("registered");
    let supported = health.gate("kubernetes");

    let (listener, address) = bind(listen, "reviews").await?;
    // Probes are answered until the very end, which is why the process has a stop of its own.
    let end = Shutdown::new();
    let observed =
        observe::spawn(process.health_listen, Arc::new(registry), health.clone(), end.clone()).await?;
    tracing::info!(%address, health = %observed, replica, "serving reviews");

    let release = check_release(&client, &stop, &supported);
    let lease = Replica::new(client.clone(), &namespace, &replica, clock.clone());
    let restores = lease.restores();
    let source = Source { client: client.clone(), namespace: namespace.clone(), restores: restores.clone() };
    let watched = watch::run(source, state.clone(), metrics.clone(), clock.clone(), listed.clone());
    tokio::spawn(watched);
    let (certificate_error, trust_error) = (watcher.error(), channel::Sender::default());
    let trust = Trust { slot: slot.clone(), error: trust_error.clone() };
    let mode = channel::Sender::default();
    let in_use = Serving { watcher, trust, registered: mode.clone() };
    let answering = [certificate_gate, serving.clone(), supported];
    let declared = Declared { state: state.clone(), listed, answering };
    let setup = Setup {
        client: &client,
        clock: &clock,
        namespace: &namespace,
        replica: &replica,
        restores: &restores,
        stop: &stop,
    };
    let reconciling = setup.start(tls, (registration, Hooks::built_in()?), in_use, declared, &registered);
    let reports = Reports {
        observed: state.observed(),
        errors: [certificate_error, trust_error.subscribe()],
        registered: mode.subscribe(),
    };
    let reporting = tokio::spawn(lease.run(reports, stop.clone()));

    serving.set(true);
    tokio::spawn({
        let stop = stop.clone();
        async move {
            stop.wait().await;
            serving.set(false);
        }
    });
    let shares = metrics.shares.clone();
    let reviews = Reviews::new(state, metrics, clock.clone(), bounds).router();
    let limits = Limits { connections: max_connections, ..Limits::for_reviews(drain) };
    serve(listener, Some(slot), reviews, limits, shares, stop).await;
    for task in [reconciling, reporting] {
        // A Lease that isn't released expires.
        let _ = timeout(RELEASE_TIME, task).await;
    }
    end.begin();
    tracing::info!("drained");
    // A check that panicked is logged by the runtime.
    release.await.unwrap_or(Ok(()))?;
    Ok(())
}

/// Checks the API server's release, and ends the process if it is too old: reviews are answered only once the watches
/// have listed, so nothing waits for the check.
fn check_release(client: &Client, stop: &Shutdown, gate: &Gate) -> JoinHandle<Result<(), TooOld>> {
    let (client, stop, gate) = (client.clone(), stop.clone(), gate.clone());
    tokio::spawn(async move {
        let checked = require_supported(&client, &stop, &gate).await;
        if checked.is_err() {
            stop.begin();
        }
        checked
    })
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn client_rule(tls: &TlsArgs) -> Result<Option<ClientRule>, RunError> {
    let Some(path) = &tls.client_ca else { return Ok(None) };
    let authority_pem =
        std::fs::read_to_string(path).map_err(|source| RunError::File { path: path.clone(), source })?;
    Ok(Some(ClientRule { authority_pem, names: tls.client_name.clone() }))
}
