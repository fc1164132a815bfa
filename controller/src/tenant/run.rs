//! Watches, passes and writes.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use croft_api::condition::{READY, UNLIMITED, is_true};
use croft_policy::{
    Violation,
    definitions::REPLICA_LABEL,
    replica_status::{ReplicaStatus, WEBHOOK},
};
use croft_runtime::{clock::Clock, lease::Leader};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        coordination::v1::Lease,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::mpsc, task::JoinSet, time};

use crate::{
    definitions::{conditions::ISOLATED, metrics as definitions},
    kube_api::watch::QUEUE,
    metrics::register,
    state::Change,
    tenant::{
        action::Action,
        reconcile::reconcile,
        state::{Observation, State},
        writes::{execute, probe},
    },
};

/// Changes within this time are handled in one pass.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Minimum time between two passes, so that a flood of changes costs a bounded share of a core.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// A pass without any change: the lease of a replica may have expired, or a write may have been lost.
const RESYNC_EVERY: Duration = Duration::from_secs(10);
/// A write isn't repeated for this long, until the watch shows its effect.
const REPEAT_AFTER: Duration = Duration::from_secs(5);
/// Concurrent writes.
const MAX_CONCURRENT: usize = 8;
/// A leader starts no write late, and its writes end before another leader may start.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Metrics of tenants.
#[derive(Clone, Debug, Default)]
pub struct TenantMetrics {
    not_isolated: Gauge,
    not_ready: Gauge,
    unlimited: Gauge,
    writes_failed: Gauge,
    violations: Family<ViolationLabels, Gauge>,
    invalid_objects: Family<KindLabel, Gauge>,
}

/// Label of a metric: a kind of Croft's objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

const OWN_KINDS: [&str; 5] = ["Tenant", "TenantPool", "EC2NodeClass", "NodeClaim", "CroftConfig"];

/// Label of a metric: a rule of isolation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ViolationLabels {
    rule: &'static str,
}

impl TenantMetrics {
    /// Metrics in `registry`.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        register(registry, definitions::TENANTS_NOT_ISOLATED, metrics.not_isolated.clone());
        register(registry, definitions::TENANTS_NOT_READY, metrics.not_ready.clone());
        register(registry, definitions::TENANTS_UNLIMITED, metrics.unlimited.clone());
        register(registry, definitions::TENANTS_WRITES_FAILED, metrics.writes_failed.clone());
        register(registry, definitions::VIOLATIONS, metrics.violations.clone());
        register(registry, definitions::INVALID_OBJECTS, metrics.invalid_objects.clone());
        metrics
    }

    fn count(&self, state: &State) {
        let count_without = |kind: &str| {
            let is_not = |t: &&Arc<croft_api::Tenant>| {
                let conditions = t.status.iter().flat_map(|s| &s.conditions);
                conditions.clone().any(|c| c.type_ == kind && c.status != "True")
            };
            i64::try_from(state.tenants.values().filter(is_not).count()).unwrap_or(i64::MAX)
        };
        self.not_isolated.set(count_without(ISOLATED));
        self.not_ready.set(count_without(READY));
        let is_unlimited = |t: &&Arc<croft_api::Tenant>| {
            t.status.as_ref().is_some_and(|status| is_true(&status.conditions, UNLIMITED))
        };
        let unlimited = state.tenants.values().filter(is_unlimited).count();
        self.unlimited.set(i64::try_from(unlimited).unwrap_or(i64::MAX));
        let invalid = state.invalid_by_kind();
        for kind in OWN_KINDS {
            let count = invalid.get(kind).copied().unwrap_or_default();
            self.invalid_objects.get_or_create(&KindLabel { kind }).set(count);
        }
        for rule in Violation::ALL {
            let count = state.violations.get(rule).copied().unwrap_or_default();
            self.violations.get_or_create(&ViolationLabels { rule: rule.as_str() }).set(count);
        }
    }
}

/// Reconciles tenants while `leader` is valid. Takes the changes of the engine's watches and forwards them to the
/// returned receiver. Ends with the tasks.
#[must_use]
pub fn spawn(
    client: &Client,
    namespace: &str,
    mut changes: mpsc::Receiver<Change>,
    leader: Leader,
    clock: Arc<dyn Clock>,
    metrics: TenantMetrics,
) -> (mpsc::Receiver<Change>, JoinSet<()>) {
    let (forward, forwarded) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let (sender, mut observations) = mpsc::channel(QUEUE);
    spawn_watches(client, namespace, &sender, &mut tasks);
    let client = client.clone();
    let mut state = State::new(namespace);
    tasks.spawn(async move {
        let start = clock.monotonic();
        let mut writer = Writer { client, leader, clock, metrics, start, done: BTreeMap::new(), sender };
        let (mut due, mut not_earlier_than) = (Duration::ZERO, Duration::ZERO);
        let mut writing = JoinSet::new();
        loop {
            let now = writer.now();
            tokio::select! {
                biased;
                change = changes.recv() => {
                    let Some(change) = change else { return };
                    if state.observe(&change) {
                        due = due.min(now + DEBOUNCE);
                    }
                    if forward.send(change).await.is_err() {
                        return;
                    }
                }
                Some(item) = observations.recv() => {
                    if state.observe_own(item, now) {
                        due = due.min(now + DEBOUNCE);
                    }
                }
                // The engine's changes are forwarded during writes.
                Some(failed) = writing.join_next() => {
                    writer.metrics.writes_failed.set(failed.unwrap_or(1));
                    not_earlier_than = writer.now() + MIN_PAUSE;
                }
                () = time::sleep(due.max(not_earlier_than).saturating_sub(now)), if writing.is_empty() => {
                    due = now + RESYNC_EVERY;
                    writer.run_pass(&mut state, &mut writing);
                }
            }
        }
    });
    (forwarded, tasks)
}

struct Writer {
    client: Client,
    leader: Leader,
    clock: Arc<dyn Clock>,
    metrics: TenantMetrics,
    start: Instant,
    /// Recent writes, with their time.
    done: BTreeMap<String, (Action, Duration)>,
    /// Receives the answers to probes.
    sender: mpsc::Sender<Observation>,
}

impl Writer {
    fn now(&self) -> Duration {
        self.clock.monotonic().saturating_duration_since(self.start)
    }

    /// Runs one pass and starts its writes; the task returns the number of failed writes.
    fn run_pass(&mut self, state: &mut State, writing: &mut JoinSet<i64>) {
        let now = self.now();
        if !self.leader.is_valid(self.clock.monotonic()) {
            self.done.clear();
            // The leader records events for these nodes.
            state.left_pools.clear();
            writing.spawn(std::future::ready(0));
            return;
        }
        self.done.retain(|_, (_, at)| now.saturating_sub(*at) < REPEAT_AFTER);
        let wall = self.clock.wall();
        let mut actions = reconcile(state, now, wall);
        self.metrics.count(state);
        actions.retain(|action| {
            self.done.get(&action.key()).is_none_or(|(done, _)| !is_same_write(done, action))
        });
        // A probe is repeated until the parameters are in force.
        for action in actions.iter().filter(|action| !matches!(action, Action::Probe { .. })) {
            self.done.insert(action.key(), (action.clone(), now));
        }
        let (client, leader, clock) = (self.client.clone(), self.leader.clone(), Arc::clone(&self.clock));
        let sender = self.sender.clone();
        writing.spawn(async move {
            let (client, leader, clock, sender) = (&client, &leader, &clock, &sender);
            let results = stream::iter(actions)
                .map(|action| async move {
                    match action {
                        Action::Probe { namespace, revision } => {
                            send_probe(client, &namespace, revision, sender).await
                        }
                        action => write(client, leader, clock.as_ref(), action, wall).await,
                    }
                })
                .buffer_unordered(MAX_CONCURRENT);
            let failed = results.filter(|done| std::future::ready(!done)).count().await;
            i64::try_from(failed).unwrap_or(i64::MAX)
        });
    }
}

async fn write(client: &Client, leader: &Leader, clock: &dyn Clock, action: Action, wall: Timestamp) -> bool {
    if !leader.is_valid(clock.monotonic()) {
        return false;
    }
    let key = action.key();
    tracing::debug!(object = key, "writing");
    match time::timeout(WRITE_TIMEOUT, execute(client, action, wall)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(object = key, %error, "failed to write; retried by a later pass");
            false
        }
        Err(_) => {
            tracing::warn!(object = key, "write timed out; retried by a later pass");
            false
        }
    }
}

/// Probes whether the parameters of `revision` are in force, and sends the answer to `sender`. A dry run changes
/// nothing, so a replica that has just stopped leading may still send it.
async fn send_probe(
    client: &Client,
    namespace: &str,
    revision: String,
    sender: &mpsc::Sender<Observation>,
) -> bool {
    let (in_force, done) = match time::timeout(WRITE_TIMEOUT, probe(client, namespace, &revision)).await {
        Ok(Ok(in_force)) => (in_force, true),
        Ok(Err(error)) => {
            tracing::warn!(revision, %error, "failed to probe the parameters of the admission policies; retried by a later pass");
            (false, false)
        }
        Err(_) => (false, false),
    };
    // The receiver lives as long as the task that spawned this one.
    let _ = sender.try_send(Observation::ParametersProbed { revision, in_force });
    done
}

/// Compares two writes without the times of conditions, which differ from pass to pass until the watch shows the
/// write, and without counts, which change with every pod.
fn is_same_write(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (Action::Status { status: a, .. }, Action::Status { status: b, .. }) => {
            without_times(&a.conditions) == without_times(&b.conditions) && a.namespaces == b.namespaces
        }
        (
            Action::PoolStatus { conditions: a, version: version_a, .. },
            Action::PoolStatus { conditions: b, version: version_b, .. },
        )
        | (
            Action::ClassStatus { conditions: a, version: version_a, .. },
            Action::ClassStatus { conditions: b, version: version_b, .. },
        ) => version_a == version_b && without_times(a) == without_times(b),
        (a, b) => a == b,
    }
}

fn without_times(conditions: &[Condition]) -> Vec<(&str, &str, &str)> {
    conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.message.as_str())).collect()
}

fn spawn_watches(
    client: &Client,
    namespace: &str,
    sender: &mpsc::Sender<Observation>,
    tasks: &mut JoinSet<()>,
) {
    let all = watcher::Config::default;
    let leases = all().labels(&format!("{REPLICA_LABEL}={WEBHOOK}"));
    tasks.spawn(watch::<Lease>(
        Api::namespaced(client.clone(), namespace),
        leases,
        "Replica",
        sender.clone(),
        |object, gone| {
            Observation::Replica(
                object.name_any(),
                (!gone).then(|| ReplicaStatus::read(object.annotations())),
            )
        },
    ));
    let part_of_croft = || all().labels("app.kubernetes.io/part-of=croft");
    const POLICY: &str = "ValidatingAdmissionPolicy";
    const BINDING: &str = "ValidatingAdmissionPolicyBinding";
    tasks.spawn(watch::<ValidatingAdmissionPolicy>(
        Api::all(client.clone()),
        part_of_croft(),
        POLICY,
        sender.clone(),
        |object, gone| policy_observation(POLICY, object, gone),
    ));
    tasks.spawn(watch::<ValidatingAdmissionPolicyBinding>(
        Api::all(client.clone()),
        part_of_croft(),
        BINDING,
        sender.clone(),
        |object, gone| policy_observation(BINDING, object, gone),
    ));
}

fn policy_observation<K: Resource<DynamicType = ()> + Serialize>(
    kind: &str,
    object: &K,
    gone: bool,
) -> Observation {
    let value = serde_json::to_value(object).ok().filter(|_| !gone).map(Box::new);
    Observation::Policy(kind.to_owned(), object.name_any(), value)
}

async fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    kind: &'static str,
    sender: mpsc::Sender<Observation>,
    observation: impl Fn(&K, bool) -> Observation + Send,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let mut stream = pin!(watcher::watcher(api, config).default_backoff());
    let mut held: BTreeMap<String, K> = BTreeMap::new();
    let mut listed: BTreeMap<String, K> = BTreeMap::new();
    while let Some(event) = stream.next().await {
        let items = match event {
            Ok(Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(Event::InitApply(object)) => {
                let item = observation(&object, false);
                listed.insert(object.name_any(), object);
                vec![item]
            }
            Ok(Event::InitDone) => {
                // Objects that are missing from the new list were deleted while the watch was down.
                let lost = held.iter().filter(|(name, _)| !listed.contains_key(*name));
                let mut items: Vec<Observation> = lost.map(|(_, object)| observation(object, true)).collect();
                held = std::mem::take(&mut listed);
                items.push(Observation::Synced(kind));
                items
            }
            Ok(Event::Apply(object)) => {
                let item = observation(&object, false);
                held.insert(object.name_any(), object);
                vec![item]
            }
            Ok(Event::Delete(object)) => {
                held.remove(&object.name_any());
                vec![observation(&object, true)]
            }
            Err(error) => {
                tracing::warn!(kind, %error, "watch failed; it is restarted");
                Vec::new()
            }
        };
        for item in items {
            if sender.send(item).await.is_err() {
                return;
            }
        }
    }
}
