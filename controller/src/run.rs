//! The process: watches, Lease, metrics, and the loop that drives the engine.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use croft_api::NodeClaim;
use croft_cloud::CloudProvider;
use croft_runtime::{
    clock::{Clock, SystemClock},
    connect::connect,
    health::Health,
    lease::{self, Leader, LeaseConfig},
    observe,
    shutdown::Shutdown,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use prometheus_client::registry::Registry;
use tokio::{
    sync::{Semaphore, mpsc},
    task::{Id, JoinSet},
};

use crate::{
    act::Executor,
    action::{Action, Key, Report, Rest},
    args::Args,
    engine::{Engine, KINDS},
    fence::Fence,
    metrics::{Metered, Metrics},
    names, provider,
    seam::{KubeApi, KubeClient},
    snapshot::Change,
    time::Now,
    watch,
};

/// The controllers' Lease.
const LEASE: &str = "croft-controller";
/// Actions at once; more would only wait in the API server's queues.
const ACTIONS_AT_ONCE: usize = 128;
/// Changes taken in before the next round of decisions.
const CHANGES_AT_ONCE: usize = 2_048;
/// A round takes at most a third of the time, however much happens.
const ROUND_SHARE: u32 = 2;
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// How long actions under way may take to end when the process stops.
const FAREWELL: Duration = Duration::from_secs(5);
const API_SERVER_RETRY: Duration = Duration::from_secs(1);

/// Runs the controller until `stop` begins.
///
/// # Errors
/// When the cluster or the cloud can't be reached with what is given, or the metrics' port is taken.
pub async fn run(args: Args, stop: Shutdown) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let client = connect(args.process.kubeconfig.as_deref()).await?;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let health = Health::default();
    let synced = health.gate("synced");
    let observe_stop = Shutdown::new();
    observe::spawn(args.process.health_listen, Arc::new(registry), health, observe_stop.clone()).await?;
    let Some(cluster_uid) = cluster_uid(&client, &stop).await else { return Ok(()) };
    let cloud: Arc<dyn CloudProvider> =
        provider::connect(&args, &cluster_uid).await.context("failed to set up the cloud")?;

    let identity = args.identity.clone().unwrap_or_else(|| identity(clock.as_ref()));
    let lease_stop = Shutdown::new();
    let lease = LeaseConfig::new(args.namespace.clone(), LEASE, identity.clone());
    let (leader, election) = lease::elect(client.clone(), lease, Arc::clone(&clock), lease_stop.clone());

    let api = Metered::new(KubeClient::new(client.clone()), metrics.clone()).shared();
    let api: Arc<dyn KubeApi> = Arc::new(Fence::new(api, leader.clone(), Arc::clone(&clock)));
    let cloud: Arc<dyn CloudProvider> = Arc::new(Fence::new(cloud, leader.clone(), Arc::clone(&clock)));
    let executor = Executor::new(api, cloud, Arc::clone(&clock), clock.monotonic(), &identity);
    let (changes, _watches) = watch::everything(&client);
    let mut driver = Driver {
        engine: Engine::new(args.settings()),
        executor,
        metrics,
        leader,
        clock,
        client,
        tasks: JoinSet::new(),
        held: BTreeMap::new(),
        slots: Arc::new(Semaphore::new(ACTIONS_AT_ONCE)),
        led: false,
    };
    driver.drive(changes, &stop, &synced).await;
    driver.farewell().await;
    lease_stop.begin();
    if let Err(error) = election.await {
        tracing::warn!(%error, "the election's task failed");
    }
    observe_stop.begin();
    Ok(())
}

/// Who this process is: nobody else ever was.
fn identity(clock: &dyn Clock) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "croft-controller".to_owned());
    let pid = std::process::id().to_string();
    format!("{host}-{}", names::hash(&[&host, &pid, &clock.wall().to_string()], 10))
}

/// The uid of kube-system stands for the cluster: it is there from the first moment and never changes.
async fn cluster_uid(client: &Client, stop: &Shutdown) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    loop {
        match namespaces.get("kube-system").await {
            Ok(namespace) => return namespace.metadata.uid,
            Err(error) => tracing::warn!(%error, "failed to read Namespace kube-system, tried again"),
        }
        tokio::select! {
            () = stop.wait() => return None,
            () = tokio::time::sleep(API_SERVER_RETRY) => {}
        }
    }
}

struct Driver {
    engine: Engine,
    executor: Executor,
    metrics: Metrics,
    leader: Leader,
    clock: Arc<dyn Clock>,
    client: Client,
    tasks: JoinSet<Report>,
    held: BTreeMap<Id, Vec<Key>>,
    slots: Arc<Semaphore>,
    led: bool,
}

impl Driver {
    async fn drive(
        &mut self,
        mut changes: mpsc::Receiver<Change>,
        stop: &Shutdown,
        synced: &croft_runtime::health::Gate,
    ) {
        let stopping = stop.wait();
        tokio::pin!(stopping);
        let mut next: Option<Duration> = Some(Duration::ZERO);
        let mut not_before = Duration::ZERO;
        loop {
            let now = self.executor.now();
            let due = next.map(|at| at.max(not_before).saturating_sub(now.mono));
            let mut moved = true;
            tokio::select! {
                biased;
                () = &mut stopping => return,
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                Some(change) = changes.recv() => {
                    let now = self.executor.now();
                    self.engine.observe(change, now);
                    for _ in 1..CHANGES_AT_ONCE {
                        let Ok(change) = changes.try_recv() else { break };
                        self.engine.observe(change, now);
                    }
                }
                () = tokio::time::sleep(due.unwrap_or(Duration::from_secs(1))) => moved = due.is_some(),
                else => return,
            }
            while let Some(ended) = self.tasks.try_join_next_with_id() {
                self.ended(ended);
            }
            let leads = self.leader.is_valid(self.clock.monotonic());
            self.metrics.leading(leads);
            if !synced.is_open() && self.engine.snapshot.is_synced(&KINDS) {
                synced.set(true);
            }
            if !leads {
                self.led = false;
                next = Some(self.executor.now().mono + Duration::from_millis(200));
                continue;
            }
            let now = self.executor.now();
            if moved && now.mono < not_before {
                next = Some(not_before);
                continue;
            }
            if !self.led && !self.take_over(now).await {
                next = Some(self.executor.now().mono + API_SERVER_RETRY);
                continue;
            }
            next = self.round();
            let took = self.executor.now().mono.saturating_sub(now.mono);
            not_before = self.executor.now().mono + (took * ROUND_SHARE).max(SHORTEST_PAUSE);
        }
    }

    /// What the leader before wrote last may not have come by the watch yet, and a plan made without its last
    /// claims would launch them again.
    async fn take_over(&mut self, now: Now) -> bool {
        if !self.engine.snapshot.is_synced(&KINDS) {
            return false;
        }
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        match claims.list(&ListParams::default()).await {
            Ok(list) => {
                for claim in list.items {
                    self.engine.observe(Change::Claim(Box::new(claim)), now);
                }
                self.led = true;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "failed to list NodeClaims, tried again");
                false
            }
        }
    }

    fn round(&mut self) -> Option<Duration> {
        let now = self.executor.now();
        let step = self.engine.step(now);
        for action in step.actions {
            self.start(action);
        }
        let took = self.executor.now().mono.saturating_sub(now.mono);
        self.metrics.stepped(&self.engine, took.as_secs_f64());
        step.wake
    }

    fn start(&mut self, action: Action) {
        self.metrics.action(action.name());
        let keys = action.keys();
        let executor = self.executor.clone();
        let slots = Arc::clone(&self.slots);
        let task = self.tasks.spawn(async move {
            let _slot = slots.acquire_owned().await;
            executor.run(action).await
        });
        self.held.insert(task.id(), keys);
    }

    fn ended(&mut self, ended: Result<(Id, Report), tokio::task::JoinError>) {
        let now = self.executor.now();
        match ended {
            Ok((id, report)) => {
                self.held.remove(&id);
                self.engine.complete(report, now);
            }
            Err(error) => {
                tracing::error!(%error, "an action's task failed; it is decided anew");
                let keys = self.held.remove(&error.id()).unwrap_or_default();
                self.engine.complete(Report { rest: Rest::Grow, ..Report::done(keys) }, now);
            }
        }
    }

    async fn farewell(&mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            tracing::info!("actions under way are left to the next leader");
        }
    }
}

/// Zero of the monotonic clock for tests that have no process.
#[must_use]
pub fn epoch(clock: &dyn Clock) -> Instant {
    clock.monotonic()
}
