//! The server from arguments to the end of its drain.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use croft_policy::model::CERTIFICATE_LEASE;
use croft_runtime::{
    certificate::{
        follow::Follower,
        keeper::{Keeper, KeeperError},
        material::Rotation,
    },
    clock::{Clock, SystemClock},
    connect::{ConnectError, connect},
    health::{Gate, Health},
    lease::{Leader, LeaseConfig, elect},
    observe::{self, ObserveError},
    serve::{Limits, serve},
    shutdown::Shutdown,
    tls::{ClientRule, TlsSlot},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tokio::{
    net::TcpListener,
    sync::watch as channel,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    args::{Args, RegistrationArgs, TlsArgs, TlsMode},
    hooks::{Address, Hooks, HooksError},
    metrics::Metrics,
    registration::{Registration, RegistrationError},
    replica::Replica,
    scope::Scope,
    server::Reviews,
    state::State,
    watch,
};

/// How often certificate and configurations are looked at.
const ROUND: Duration = Duration::from_secs(5);
/// How often a starting replica looks whether it is registered.
const REGISTERED_POLL: Duration = Duration::from_millis(200);
/// How often Leases of replicas that are gone are looked for, in rounds.
const FORGET_EVERY: u32 = 60;
/// For giving back Leases, at the end.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What keeps the server from starting.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no way to the cluster.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Health and metrics can't be served.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The port is taken, or the address isn't ours.
    #[error("failed to listen on {address} for reviews: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The built-in webhooks can't be read.
    #[error(transparent)]
    Hooks(#[from] HooksError),
    /// A file of the arguments can't be read.
    #[error("failed to read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Serves until `stop` begins and the drain is over.
///
/// # Errors
/// When it can't start.
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

    let slot = Arc::new(TlsSlot::new(clients(&tls)?));
    let certificate_gate = health.gate("certificate");
    let follower = Follower::new(
        slot.clone(),
        certificate_gate.clone(),
        clock.clone(),
        metrics.certificate_expires.clone(),
    );
    let known = health.gate("tenants");
    let serving = health.gate("serving");
    let registered = health.gate("registered");

    let bind = |source| RunError::Bind { address: listen, source };
    let listener = TcpListener::bind(listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    // Probes are answered until the very end, which is why the whole has a stop of its own.
    let end = Shutdown::new();
    let observed =
        observe::spawn(process.health_listen, Arc::new(registry), health.clone(), end.clone()).await?;
    tracing::info!(%address, health = %observed, replica, "serving reviews");

    tokio::spawn(watch::run(
        client.clone(),
        namespace.clone(),
        state.clone(),
        metrics.clone(),
        clock.clone(),
        known.clone(),
    ));
    let (certificate, distrust) = (follower.trouble(), channel::Sender::default());
    let served = Served { follower, trust: Trust { slot: slot.clone(), trouble: distrust.clone() } };
    let certificates =
        Certificates { client: &client, clock: &clock, namespace: &namespace, replica: &replica };
    let declared = Declared { state: state.clone(), known, answering: [certificate_gate, serving.clone()] };
    let hooks = Hooks::built_in()?;
    let keeping = certificates.start(tls, (registration, hooks), served, &registered, declared, &stop);
    let saying = {
        let replica = Replica::new(client.clone(), &namespace, &replica, clock.clone());
        tokio::spawn(replica.run(state.seen(), [certificate, distrust.subscribe()], stop.clone()))
    };

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
    for task in keeping.into_iter().chain([saying]) {
        // A Lease that isn't given back expires.
        let _ = timeout(LAST_WORDS, task).await;
    }
    end.begin();
    tracing::info!("drained");
    Ok(())
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn clients(tls: &TlsArgs) -> Result<Option<ClientRule>, RunError> {
    let Some(path) = &tls.client_ca else { return Ok(None) };
    let authority_pem =
        std::fs::read_to_string(path).map_err(|source| RunError::File { path: path.clone(), source })?;
    Ok(Some(ClientRule { authority_pem, names: tls.client_name.clone() }))
}

struct Certificates<'a> {
    client: &'a Client,
    clock: &'a Arc<dyn Clock>,
    namespace: &'a str,
    replica: &'a str,
}

impl Certificates<'_> {
    /// Starts what the mode needs; gives the tasks that have something to finish when `stop` begins.
    fn start(
        &self,
        tls: TlsArgs,
        (registration, hooks): (RegistrationArgs, Hooks),
        served: Served,
        registered: &Gate,
        declared: Declared,
        stop: &Shutdown,
    ) -> Vec<JoinHandle<()>> {
        let TlsArgs {
            tls_mode,
            tls_secret,
            tls_cert,
            tls_key,
            tls_ca,
            announce,
            client_ca: _,
            client_name: _,
        } = tls;
        let Served { follower, trust } = served;
        let names = registration.names(self.namespace);
        let asked_as = names.first().cloned().unwrap_or_default();
        let RegistrationArgs { service, url, mutating_configuration, validating_configuration } =
            registration;
        let address = url.map_or_else(
            || Address::Service { namespace: self.namespace.to_owned(), name: service },
            Address::Url,
        );
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        match (tls_mode, tls_cert, tls_key) {
            (TlsMode::Files, Some(certificate), Some(key)) => {
                tokio::spawn(follower.files(certificate, key));
            }
            _ => {
                tokio::spawn(follower.secret(secrets.clone(), tls_secret.clone()));
            }
        }
        let source = match (tls_mode, tls_ca) {
            (TlsMode::SelfManaged, _) => Source::Made(Box::new(Keeper {
                api: secrets,
                name: tls_secret,
                names,
                rotation: Rotation { announce, ..Rotation::default() },
                clock: self.clock.clone(),
            })),
            (TlsMode::Files, Some(path)) => Source::File(path),
            // The bundle is somebody else's, but the address may still be ours to write.
            _ => Source::Foreign,
        };
        let registration = Arc::new(Registration::new(
            self.client.clone(),
            mutating_configuration,
            validating_configuration,
            hooks,
            address,
        ));
        tokio::spawn(until_complete(registration.clone(), registered.clone()));
        // A restarted container has the same name and must not take its predecessor's record for its own.
        let identity = format!("{}-{}", self.replica, self.clock.wall().as_microsecond());
        let lease = LeaseConfig::new(self.namespace, CERTIFICATE_LEASE, identity);
        let (leader, election) = elect(self.client.clone(), lease, self.clock.clone(), stop.clone());
        let replicas = Replica::new(self.client.clone(), self.namespace, self.replica, self.clock.clone());
        let keeping =
            Keeping { source, declared, registration, replicas, trust, asked_as, clock: self.clock.clone() };
        tokio::spawn(keeping.run(leader));
        vec![election]
    }
}

/// The certificate in use, and what is said of it.
struct Served {
    follower: Follower,
    trust: Trust,
}

/// Whether API servers trust the certificate in use.
struct Trust {
    slot: Arc<TlsSlot>,
    trouble: channel::Sender<Option<String>>,
}

impl Trust {
    fn say(&self, trouble: Option<String>) {
        self.trouble.send_if_modified(|told| {
            let differs = *told != trouble;
            *told = trouble;
            differs
        });
    }
}

/// What is declared, once it is known, and whether this replica can answer.
struct Declared {
    state: Arc<State>,
    known: Gate,
    /// Open while there is a certificate, and while requests are taken.
    answering: [Gate; 2],
}

impl Declared {
    fn scope(&self) -> Option<Scope> {
        self.known.is_open().then(|| Scope::of(self.state.tenants().rules()))
    }

    /// True once this replica can answer: before, no API server is to ask.
    fn can_answer(&self) -> bool {
        self.known.is_open() && self.answering.iter().all(Gate::is_open)
    }

    /// Returns when the scope is another than `before`.
    async fn another(&self, before: &Option<Scope>) {
        let mut changes = self.state.seen();
        while self.scope() == *before {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Opens `registered` once API servers can reach and trust this replica as far as the configurations go. Only the
/// start is watched: a replica isn't taken out of service for what somebody writes into a configuration later.
async fn until_complete(registration: Arc<Registration>, registered: Gate) {
    let mut told = false;
    loop {
        match registration.is_complete().await {
            Ok(true) => return registered.set(true),
            Ok(false) => {}
            Err(error) if !told => {
                tracing::warn!(%error, "failed to see whether the webhook is registered");
                told = true;
            }
            Err(_) => {}
        }
        sleep(REGISTERED_POLL).await;
    }
}

/// Where the authority comes from that the webhook configurations trust.
enum Source {
    Made(Box<Keeper>),
    File(PathBuf),
    Foreign,
}

#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error("failed to read the authority {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("failed to delete leases of replicas that are gone: {0}")]
    Forget(#[from] kube::Error),
}

/// What the replica that leads keeps.
struct Keeping {
    source: Source,
    declared: Declared,
    registration: Arc<Registration>,
    replicas: Replica,
    trust: Trust,
    /// The name that API servers ask for.
    asked_as: String,
    clock: Arc<dyn Clock>,
}

impl Keeping {
    async fn run(self, mut leader: Leader) {
        let mut told_of: Option<String> = None;
        let mut rounds: u32 = 0;
        let mut scope = None;
        loop {
            leader.acquired().await;
            let mut pause = Duration::ZERO;
            while leader.is_valid(self.clock.monotonic()) {
                tokio::select! {
                    () = sleep(pause) => {}
                    // A new pool's key is asked about at once, not at the next look.
                    () = self.declared.another(&scope) => {}
                }
                // The first certificate is there soon, and the webhooks wait for it.
                pause = if self.declared.can_answer() { ROUND } else { REGISTERED_POLL };
                scope = self.declared.scope();
                let may_act = || leader.is_valid(self.clock.monotonic());
                let result = self.round(scope.as_ref(), rounds, may_act).await;
                rounds = rounds.wrapping_add(1);
                let error = result.err().map(|error| croft_runtime::process::chain(&error));
                if let Some(error) = &error
                    && told_of.as_ref() != Some(error)
                {
                    tracing::warn!(error, "failed to keep the certificate or the webhook configurations");
                }
                told_of = error;
            }
            // Whoever leads now says whether the certificate, which all share, is trusted.
            self.trust.say(None);
        }
    }

    async fn round(
        &self,
        scope: Option<&Scope>,
        rounds: u32,
        may_act: impl Fn() -> bool,
    ) -> Result<(), RoundError> {
        let fill = self.declared.can_answer();
        round(&self.source, (scope, fill), &self.registration, may_act).await?;
        let now = self.clock.wall();
        self.trust.say(self.registration.distrust(&self.trust.slot, &self.asked_as, now).await?);
        if rounds.is_multiple_of(FORGET_EVERY) {
            self.replicas.forget_others().await?;
        }
        Ok(())
    }
}

/// Trust first, then serve: see [`Keeper::plan`].
async fn round(
    source: &Source,
    (scope, fill): (Option<&Scope>, bool),
    registration: &Registration,
    may_act: impl Fn() -> bool,
) -> Result<(), RoundError> {
    if !may_act() {
        return Ok(());
    }
    match source {
        Source::Made(keeper) => loop {
            let round = keeper.plan().await?;
            if !may_act() {
                return Ok(());
            }
            registration.ensure(Some(&round.material.bundle()), scope, fill).await?;
            if !may_act() || keeper.commit(&round).await? {
                return Ok(());
            }
        },
        Source::File(path) => {
            let bundle = tokio::fs::read_to_string(path)
                .await
                .map_err(|source| RoundError::File { path: path.clone(), source })?;
            Ok(registration.ensure(Some(&bundle), scope, fill).await?)
        }
        Source::Foreign => Ok(registration.ensure(None, scope, fill).await?),
    }
}
