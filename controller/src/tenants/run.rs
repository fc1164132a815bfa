//! Watches, rounds and writes.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use croft_api::condition::{UNLIMITED, is_true};
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

use super::{
    act::{act, probe},
    decide::{Action, decide},
    state::{News, State},
};
use crate::{snapshot::Change, watch::QUEUE};

/// Changes closer together than this are judged together.
const TOGETHER: Duration = Duration::from_millis(50);
/// Between two rounds at least, so that a flood of changes costs a bounded share of a core.
const PAUSE: Duration = Duration::from_millis(200);
/// Without any change: replicas may have gone silent, and writes may have been lost.
const ROUND: Duration = Duration::from_secs(10);
/// The same write isn't repeated for this long, while the watch hasn't shown its effect.
const REPEAT_AFTER: Duration = Duration::from_secs(5);
/// Writes under way at once.
const AT_ONCE: usize = 8;
/// A leader starts nothing late, and what it started ends before another may start.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// What the upkeep of tenants measures.
#[derive(Clone, Debug, Default)]
pub struct Upkeep {
    misplaced: Gauge,
    unready: Gauge,
    unlimited: Gauge,
    failed: Gauge,
    violations: Family<ViolationLabels, Gauge>,
    invalid: Family<OfKind, Gauge>,
}

/// A kind of Croft's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

const OWN_KINDS: [&str; 5] = ["Tenant", "TenantPool", "EC2NodeClass", "NodeClaim", "CroftConfig"];

/// A rule that can be broken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ViolationLabels {
    rule: &'static str,
}

impl Upkeep {
    /// Metrics in `registry`.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "croft_tenants_not_isolated",
            "Tenants with pods outside their pools, or with others' pods inside them",
            metrics.misplaced.clone(),
        );
        registry.register(
            "croft_tenants_not_ready",
            "Tenants whose rules aren't enforced everywhere",
            metrics.unready.clone(),
        );
        registry.register(
            "croft_tenants_unlimited",
            "Tenants of which no limit bounds what their nodes cost",
            metrics.unlimited.clone(),
        );
        registry.register(
            "croft_tenants_writes_failed",
            "Writes of the last round that failed",
            metrics.failed.clone(),
        );
        registry.register(
            "croft_violations",
            "What breaks isolation or could, by rule; `croft audit` names each",
            metrics.violations.clone(),
        );
        registry.register(
            "croft_invalid_objects",
            "Objects whose newest version can't be read or breaks a rule of its CRD, by kind; the last good version stays in force",
            metrics.invalid.clone(),
        );
        metrics
    }

    fn count(&self, state: &State) {
        let not = |kind: &str| {
            let is_not = |t: &&Arc<croft_api::Tenant>| {
                let conditions = t.status.iter().flat_map(|s| &s.conditions);
                conditions.clone().any(|c| c.type_ == kind && c.status != "True")
            };
            i64::try_from(state.tenants.values().filter(is_not).count()).unwrap_or(i64::MAX)
        };
        self.misplaced.set(not("Isolated"));
        self.unready.set(not("Ready"));
        let is_unlimited = |t: &&Arc<croft_api::Tenant>| {
            t.status.as_ref().is_some_and(|status| is_true(&status.conditions, UNLIMITED))
        };
        let unlimited = state.tenants.values().filter(is_unlimited).count();
        self.unlimited.set(i64::try_from(unlimited).unwrap_or(i64::MAX));
        let invalid = state.unread_by_kind();
        for kind in OWN_KINDS {
            let count = invalid.get(kind).copied().unwrap_or_default();
            self.invalid.get_or_create(&OfKind { kind }).set(count);
        }
        for rule in Violation::ALL {
            let count = state.violations.get(rule).copied().unwrap_or_default();
            self.violations.get_or_create(&ViolationLabels { rule: rule.as_str() }).set(count);
        }
    }
}

/// Keeps tenants while `leader` leads, from the engine's own changes, which are passed on to the receiver that is
/// returned. Ends with the tasks.
#[must_use]
pub fn spawn(
    client: &Client,
    namespace: &str,
    mut changes: mpsc::Receiver<Change>,
    leader: Leader,
    clock: Arc<dyn Clock>,
    metrics: Upkeep,
) -> (mpsc::Receiver<Change>, JoinSet<()>) {
    let (on, passed) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let (sender, mut news) = mpsc::channel(QUEUE);
    watches(client, namespace, &sender, &mut tasks);
    let client = client.clone();
    let mut state = State::new(namespace);
    tasks.spawn(async move {
        let start = clock.monotonic();
        let mut upkeep = Rounds { client, leader, clock, metrics, start, done: BTreeMap::new(), sender };
        let (mut due, mut not_before) = (Duration::ZERO, Duration::ZERO);
        let mut writing = JoinSet::new();
        loop {
            let now = upkeep.now();
            tokio::select! {
                biased;
                change = changes.recv() => {
                    let Some(change) = change else { return };
                    if state.observe(&change) {
                        due = due.min(now + TOGETHER);
                    }
                    if on.send(change).await.is_err() {
                        return;
                    }
                }
                Some(item) = news.recv() => {
                    if state.learn(item, now) {
                        due = due.min(now + TOGETHER);
                    }
                }
                // The engine's changes pass while this writes.
                Some(failed) = writing.join_next() => {
                    upkeep.metrics.failed.set(failed.unwrap_or(1));
                    not_before = upkeep.now() + PAUSE;
                }
                () = time::sleep(due.max(not_before).saturating_sub(now)), if writing.is_empty() => {
                    due = now + ROUND;
                    upkeep.begin(&mut state, &mut writing);
                }
            }
        }
    });
    (passed, tasks)
}

struct Rounds {
    client: Client,
    leader: Leader,
    clock: Arc<dyn Clock>,
    metrics: Upkeep,
    start: Instant,
    /// What was written lately, and when.
    done: BTreeMap<String, (Action, Duration)>,
    /// For answers to probes.
    sender: mpsc::Sender<News>,
}

impl Rounds {
    fn now(&self) -> Duration {
        self.clock.monotonic().saturating_duration_since(self.start)
    }

    /// Decides, and begins to write what was decided; the task ends with how many writes failed.
    fn begin(&mut self, state: &mut State, writing: &mut JoinSet<i64>) {
        let now = self.now();
        if !self.leader.is_valid(self.clock.monotonic()) {
            self.done.clear();
            // The leader tells of these.
            state.left_pools.clear();
            writing.spawn(std::future::ready(0));
            return;
        }
        self.done.retain(|_, (_, at)| now.saturating_sub(*at) < REPEAT_AFTER);
        let wall = self.clock.wall();
        let mut actions = decide(state, now, wall);
        self.metrics.count(state);
        actions.retain(|action| self.done.get(&action.key()).is_none_or(|(done, _)| !same(done, action)));
        // A probe is repeated until its answer is yes.
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
                            ask(client, &namespace, revision, sender).await
                        }
                        action => write(client, leader, clock.as_ref(), action, wall).await,
                    }
                })
                .buffer_unordered(AT_ONCE);
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
    tracing::debug!(what = key, "writing");
    match time::timeout(WRITE_TIMEOUT, act(client, action, wall)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(what = key, %error, "failed to keep a tenant's affairs, tried again");
            false
        }
        Err(_) => {
            tracing::warn!(what = key, "failed to keep a tenant's affairs: no answer in time, tried again");
            false
        }
    }
}

/// Asks whether the parameters of `revision` are in force, and says so to `sender`. A dry run changes nothing, so a replica that
/// has just stopped leading may still ask.
async fn ask(client: &Client, namespace: &str, revision: String, sender: &mpsc::Sender<News>) -> bool {
    let (in_force, done) = match time::timeout(WRITE_TIMEOUT, probe(client, namespace, &revision)).await {
        Ok(Ok(in_force)) => (in_force, true),
        Ok(Err(error)) => {
            tracing::warn!(revision, %error, "failed to ask whether the policies' parameters are in force, asked again");
            (false, false)
        }
        Err(_) => (false, false),
    };
    // The receiver lives as long as the task that spawned this one.
    let _ = sender.try_send(News::Probed { revision, in_force });
    done
}

/// Times on conditions differ from round to round until the watch shows them; and counts, which change with every
/// pod, are worth a write only now and then.
fn same(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (Action::Status { status: a, .. }, Action::Status { status: b, .. }) => {
            let said = |s: &croft_api::TenantStatus| -> Vec<(String, String, String)> {
                s.conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.message.clone())).collect()
            };
            said(a) == said(b) && a.namespaces == b.namespaces
        }
        (
            Action::PoolStatus { conditions: a, version: of_a, .. },
            Action::PoolStatus { conditions: b, version: of_b, .. },
        ) => {
            let said = |list: &[Condition]| -> Vec<(String, String, String)> {
                list.iter().map(|c| (c.type_.clone(), c.status.clone(), c.message.clone())).collect()
            };
            of_a == of_b && said(a) == said(b)
        }
        (
            Action::ClassStatus { conditions: a, version: of_a, .. },
            Action::ClassStatus { conditions: b, version: of_b, .. },
        ) => {
            let said = |list: &[Condition]| -> Vec<(String, String, String)> {
                list.iter().map(|c| (c.type_.clone(), c.status.clone(), c.message.clone())).collect()
            };
            of_a == of_b && said(a) == said(b)
        }
        (a, b) => a == b,
    }
}

fn watches(client: &Client, namespace: &str, sender: &mpsc::Sender<News>, tasks: &mut JoinSet<()>) {
    let all = watcher::Config::default;
    let leases = all().labels(&format!("{REPLICA_LABEL}={WEBHOOK}"));
    tasks.spawn(follow::<Lease>(
        Api::namespaced(client.clone(), namespace),
        leases,
        "Replica",
        sender.clone(),
        |object, gone| {
            News::Replica(object.name_any(), (!gone).then(|| ReplicaStatus::read(object.annotations())))
        },
    ));
    let ours = || all().labels("app.kubernetes.io/part-of=croft");
    const POLICY: &str = "ValidatingAdmissionPolicy";
    const BINDING: &str = "ValidatingAdmissionPolicyBinding";
    tasks.spawn(follow::<ValidatingAdmissionPolicy>(
        Api::all(client.clone()),
        ours(),
        POLICY,
        sender.clone(),
        |object, gone| policy(POLICY, object, gone),
    ));
    tasks.spawn(follow::<ValidatingAdmissionPolicyBinding>(
        Api::all(client.clone()),
        ours(),
        BINDING,
        sender.clone(),
        |object, gone| policy(BINDING, object, gone),
    ));
}

fn policy<K: Resource<DynamicType = ()> + Serialize>(kind: &str, object: &K, gone: bool) -> News {
    let value = serde_json::to_value(object).ok().filter(|_| !gone).map(Box::new);
    News::Policy(kind.to_owned(), object.name_any(), value)
}

async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    kind: &'static str,
    sender: mpsc::Sender<News>,
    news: impl Fn(&K, bool) -> News + Send,
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
                let item = news(&object, false);
                listed.insert(object.name_any(), object);
                vec![item]
            }
            Ok(Event::InitDone) => {
                // What the new list lacks was deleted while nobody watched.
                let lost = held.iter().filter(|(name, _)| !listed.contains_key(*name));
                let mut items: Vec<News> = lost.map(|(_, object)| news(object, true)).collect();
                held = std::mem::take(&mut listed);
                items.push(News::Synced(kind));
                items
            }
            Ok(Event::Apply(object)) => {
                let item = news(&object, false);
                held.insert(object.name_any(), object);
                vec![item]
            }
            Ok(Event::Delete(object)) => {
                held.remove(&object.name_any());
                vec![news(&object, true)]
            }
            Err(error) => {
                tracing::warn!(kind, %error, "the watch broke and is set up again");
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
