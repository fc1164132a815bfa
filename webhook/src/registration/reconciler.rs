//! The loop of the replica that holds the certificate's Lease: it reconciles the certificate, the webhook configurations,
//! and the Leases of replicas that are gone.
//!
//! Handles the Secret of the certificate, the MutatingWebhookConfigurations and ValidatingWebhookConfigurations of the
//! arguments, and Leases. Started by [`run`](crate::run::run).

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use croft_policy::{Mutation, model::CERTIFICATE_LEASE};
use croft_runtime::{
    certificate::{
        bundle::Rotation,
        secret::{SecretError, SecretReconciler},
        watcher::CertificateWatcher,
    },
    clock::Clock,
    health::Gate,
    lease::{Leader, LeaseConfig, elect},
    restore::Restores,
    shutdown::Shutdown,
    tls::TlsSlot,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::{sync::watch as channel, task::JoinHandle, time::sleep};

use crate::{
    args::{RegistrationArgs, TlsArgs, TlsMode},
    cluster::state::State,
    definitions::ROTATE_ANNOTATION,
    registration::{
        configurations::{Registration, RegistrationError},
        hooks::{Address, Hooks},
        replica::Replica,
        scope::Scope,
    },
};

/// Pause between two reconciliations.
const ROUND: Duration = Duration::from_secs(5);
/// Pause while a starting replica isn't registered yet.
const REGISTERED_POLL: Duration = Duration::from_millis(200);
/// The policies of Policy mode act for this long before the webhook leaves pods to them: another API server may lag.
const SETTLES: Duration = Duration::from_secs(5);
/// Rounds between two deletions of Leases of replicas that are gone.
const DELETE_LEASES_EVERY: u32 = 60;

/// Inputs of the tasks of the registration.
pub(crate) struct Setup<'a> {
    pub(crate) client: &'a Client,
    pub(crate) clock: &'a Arc<dyn Clock>,
    /// Croft's own namespace.
    pub(crate) namespace: &'a str,
    /// The name of this replica.
    pub(crate) replica: &'a str,
    /// Restorations of older data, after which watches begin again.
    pub(crate) restores: &'a Restores,
    /// Begins when the process is asked to stop.
    pub(crate) stop: &'a Shutdown,
}

impl Setup<'_> {
    /// Starts the tasks of the TLS mode. Returns the election, which releases its Lease when the process is asked
    /// to stop.
    pub(crate) fn start(
        &self,
        tls: TlsArgs,
        (registration, hooks): (RegistrationArgs, Hooks),
        serving: Serving,
        declared: Declared,
        registered: &Gate,
    ) -> JoinHandle<()> {
        let TlsArgs {
            tls_mode,
            tls_secret,
            tls_cert,
            tls_key,
            tls_ca,
            ca_propagation_delay,
            client_ca: _,
            client_name: _,
        } = tls;
        let Serving { watcher, trust, registered: mode } = serving;
        let names = registration.names(self.namespace);
        let server_name = names.first().cloned().unwrap_or_default();
        let RegistrationArgs { service, url, mutating_configuration, validating_configuration } =
            registration;
        let address = url.map_or_else(
            || Address::Service { namespace: self.namespace.to_owned(), name: service },
            Address::Url,
        );
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        match (tls_mode, tls_cert, tls_key) {
            (TlsMode::Files, Some(certificate), Some(key)) => {
                tokio::spawn(watcher.files(certificate, key));
            }
            _ => {
                tokio::spawn(watcher.secret(secrets.clone(), tls_secret.clone(), self.restores.clone()));
            }
        }
        let authority = match (tls_mode, tls_ca) {
            (TlsMode::SelfManaged, _) => Authority::SelfManaged(Box::new(SecretReconciler {
                api: secrets,
                name: tls_secret,
                names,
                rotation: Rotation { ca_propagation_delay, ..Rotation::default() },
                rotate_annotation: ROTATE_ANNOTATION,
                clock: self.clock.clone(),
            })),
            (TlsMode::Files, Some(path)) => Authority::File(path),
            // Another process writes the caBundle; the address may still be ours to write.
            _ => Authority::External,
        };
        let registration = Arc::new(Registration::new(
            self.client.clone(),
            mutating_configuration,
            validating_configuration,
            hooks,
            address,
        ));
        tokio::spawn(open_when_registered(registration.clone(), registered.clone()));
        // A restarted container has the same name and must not take its predecessor's record for its own.
        let identity = format!("{}-{}", self.replica, self.clock.wall().as_microsecond());
        let lease = LeaseConfig::new(self.namespace, CERTIFICATE_LEASE, identity);
        let (leader, election) = elect(self.client.clone(), lease, self.clock.clone(), self.stop.clone());
        let replicas = Replica::new(self.client.clone(), self.namespace, self.replica, self.clock.clone());
        let clock = self.clock.clone();
        let reconciler = CertificateReconciler {
            authority,
            declared,
            registration,
            replicas,
            trust,
            mode,
            server_name,
            clock,
        };
        tokio::spawn(reconciler.run(leader));
        election
    }
}

/// The certificate in use, whether API servers trust it, and the mode that webhooks are written for.
pub(crate) struct Serving {
    pub(crate) watcher: CertificateWatcher,
    pub(crate) trust: Trust,
    pub(crate) registered: channel::Sender<Option<Mutation>>,
}

/// Whether API servers trust the certificate in use.
pub(crate) struct Trust {
    pub(crate) slot: Arc<TlsSlot>,
    pub(crate) error: channel::Sender<Option<String>>,
}

impl Trust {
    fn report(&self, error: Option<String>) {
        report(&self.error, error);
    }
}

fn report<T: PartialEq>(to: &channel::Sender<T>, news: T) {
    to.send_if_modified(|last| {
        let differs = *last != news;
        *last = news;
        differs
    });
}

/// The declarations, once they are listed, and whether this replica can answer.
pub(crate) struct Declared {
    pub(crate) state: Arc<State>,
    /// Open once every kind has been listed.
    pub(crate) listed: Gate,
    /// Open while there is a certificate, and while requests are accepted.
    pub(crate) answering: [Gate; 3],
}

impl Declared {
    fn scope(&self) -> Option<Scope> {
        self.listed.is_open().then(|| Scope::of(&self.state.tenants()))
    }

    /// True once this replica can answer; no API server may ask before.
    fn can_answer(&self) -> bool {
        self.listed.is_open() && self.answering.iter().all(Gate::is_open)
    }

    /// Returns once the scope differs from `before`.
    async fn changed(&self, before: &Option<Scope>) {
        let mut changes = self.state.observed();
        while self.scope() == *before {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Opens `registered` once API servers can reach and trust this replica, as far as the configurations go. Only the start
/// is watched: a later edit of a configuration doesn't take a replica out of service.
async fn open_when_registered(registration: Arc<Registration>, registered: Gate) {
    let mut logged = false;
    loop {
        match registration.is_complete().await {
            Ok(true) => return registered.set(true),
            Ok(false) => {}
            Err(error) if !logged => {
                tracing::warn!(%error, "failed to check the registration of the webhook");
                logged = true;
            }
            Err(_) => {}
        }
        sleep(REGISTERED_POLL).await;
    }
}

/// The source of the authority that the webhook configurations trust.
enum Authority {
    SelfManaged(Box<SecretReconciler>),
    File(PathBuf),
    External,
}

#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error("failed to read the authority {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("failed to delete leases of replicas that are gone: {0}")]
    DeleteLeases(#[from] kube::Error),
}

/// The reconciler of the leading replica.
struct CertificateReconciler {
    authority: Authority,
    declared: Declared,
    registration: Arc<Registration>,
    replicas: Replica,
    trust: Trust,
    /// Told the mode that the webhooks are written for.
    mode: channel::Sender<Option<Mutation>>,
    /// The name that API servers ask for.
    server_name: String,
    clock: Arc<dyn Clock>,
}

impl CertificateReconciler {
    async fn run(self, mut leader: Leader) {
        let mut logged: Option<String> = None;
        let mut rounds: u32 = 0;
        let mut scope = None;
        let mut by_policy_since: Option<Instant> = None;
        loop {
            leader.acquired().await;
            let mut pause = Duration::ZERO;
            while leader.is_valid(self.clock.monotonic()) {
                tokio::select! {
                    () = sleep(pause) => {}
                    // A new pool's key is registered at once, not in the next round.
                    () = self.declared.changed(&scope) => {}
                }
                // The first certificate is there soon, and the registration waits for it.
                pause = if self.declared.can_answer() { ROUND } else { REGISTERED_POLL };
                scope = self.declared.scope();
                let now = self.clock.monotonic();
                let by_policy = scope.as_ref().is_some_and(|scope| scope.mutation() == Mutation::Policy);
                by_policy_since = by_policy.then(|| by_policy_since.unwrap_or(now));
                let is_settling = by_policy_since.is_some_and(|since| now.duration_since(since) < SETTLES);
                let settling = scope.as_ref().filter(|_| is_settling).map(Scope::settling);
                let may_act = || leader.is_valid(self.clock.monotonic());
                let result = self.reconcile(settling.as_ref().or(scope.as_ref()), rounds, may_act).await;
                rounds = rounds.wrapping_add(1);
                let error = result.err().map(|error| croft_runtime::process::chain(&error));
                match &error {
                    // It lasts: API servers ask by what was written before.
                    Some(_) if error == logged => self.trust.report(error.clone()),
                    Some(error) => tracing::warn!(
                        error,
                        "failed to reconcile the certificate or the webhook configurations"
                    ),
                    None => {}
                }
                logged = error;
            }
            // All replicas share the certificate: the next leader reports whether it is trusted.
            self.trust.report(None);
            report(&self.mode, None);
        }
    }

    async fn reconcile(
        &self,
        scope: Option<&Scope>,
        rounds: u32,
        may_act: impl Fn() -> bool,
    ) -> Result<(), ReconcileError> {
        let fill = self.declared.can_answer();
        let mode = self.reconcile_registration(scope, fill, may_act).await?;
        report(&self.mode, mode);
        let now = self.clock.wall();
        self.trust.report(self.registration.distrust(&self.trust.slot, &self.server_name, now).await?);
        if rounds.is_multiple_of(DELETE_LEASES_EVERY) {
            self.replicas.delete_expired().await?;
        }
        Ok(())
    }

    /// Widens the trust first and then changes the certificate: see [`SecretReconciler::plan`]. Returns the mode that the
    /// webhooks are written for.
    async fn reconcile_registration(
        &self,
        scope: Option<&Scope>,
        fill: bool,
        may_act: impl Fn() -> bool,
    ) -> Result<Option<Mutation>, ReconcileError> {
        if !may_act() {
            return Ok(None);
        }
        match &self.authority {
            Authority::SelfManaged(secret) => loop {
                let plan = secret.plan().await?;
                if !may_act() {
                    return Ok(None);
                }
                let mode = self.registration.ensure(Some(&plan.bundle.trusted_pem()), scope, fill).await?;
                if !may_act() || secret.commit(&plan).await? {
                    return Ok(mode);
                }
            },
            Authority::File(path) => {
                let bundle = tokio::fs::read_to_string(path)
                    .await
                    .map_err(|source| ReconcileError::File { path: path.clone(), source })?;
                Ok(self.registration.ensure(Some(&bundle), scope, fill).await?)
            }
            Authority::External => Ok(self.registration.ensure(None, scope, fill).await?),
        }
    }
}
