//! The controller's metrics, as `defined::metrics` defines them. The driver updates them after each pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use croft_api::NodeClaim;
use croft_cloud::CallCount;
use croft_policy::Violation;
use croft_runtime::{clock::Clock, metric::Metric};
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{self, Registry},
};

use crate::{
    definitions::metrics as defined,
    engine::Engine,
    kube_api::{ApiError, Call, KubeApi, Response},
    pool_figures::{PoolFigures, PoolLabels, TemplateLabels},
    record::ClosedCosts,
    record_store::archive::ArchiveCounts,
    solver::{Purpose, SolveMeter},
    state::Snapshot,
    tenant::TenantCounts,
};

/// One call to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    verb: &'static str,
    kind: &'static str,
    result: &'static str,
}

/// One call to the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CloudCallLabels {
    call: &'static str,
    result: &'static str,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ActionLabels {
    action: &'static str,
}

/// Outcomes of disruptions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DisruptionLabels {
    reason: &'static str,
    outcome: &'static str,
}

/// A closed zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct ZoneLabels {
    zone: String,
    state: &'static str,
}

/// Instances by the status check that they fail.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StatusCheckLabels {
    check: &'static str,
}

/// Nodes by their claims' condition Consolidatable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ConsolidationLabels {
    consolidatable: &'static str,
    reason: &'static str,
}

/// The purpose of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RunLabels {
    run: &'static str,
}

/// A rule of isolation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ViolationLabels {
    rule: &'static str,
}

/// Headroom pods of a pool, by their state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct HeadroomLabels {
    tenant: String,
    pool: String,
    state: &'static str,
}

/// Costs of a tenant on a pool, by purpose.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct LedgerLabels {
    tenant: String,
    pool: String,
    purpose: &'static str,
}

/// Pending pods of a pool, by reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct PendingLabels {
    tenant: String,
    pool: String,
    reason: &'static str,
}

/// Launches of a pool, by outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct LaunchLabels {
    tenant: String,
    pool: String,
    outcome: &'static str,
}

/// A kind of Croft's objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    kind: &'static str,
}

const OWN_KINDS: [&str; 5] = ["Tenant", "TenantPool", "EC2NodeClass", "NodeClaim", "CroftConfig"];

/// A family whose series go with the objects that their labels name.
#[derive(Clone, Debug)]
struct Bounded<L, M> {
    family: Family<L, M>,
    shown: Arc<Mutex<BTreeSet<L>>>,
}

impl<L, M> Bounded<L, M>
where
    L: Clone + Hash + Ord,
    M: Clone,
    Family<L, M>: registry::Metric,
{
    fn new(registry: &mut Registry, definition: Metric, constructor: fn() -> M) -> Self {
        let family = definition.register(registry, Family::new_with_constructor(constructor));
        Self { family, shown: Arc::default() }
    }

    /// The metric of `labels`.
    fn of(&self, labels: L) -> M {
        let metric = self.family.get_or_create_owned(&labels);
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).insert(labels);
        metric
    }

    /// Removes the series whose labels `keep` doesn't approve.
    fn retain(&self, keep: impl Fn(&L) -> bool) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for labels in shown.extract_if(.., |labels| !keep(labels)) {
            self.family.remove(&labels);
        }
    }

    /// Shows `values` and nothing else.
    fn replace<V>(&self, values: BTreeMap<L, V>, set: impl Fn(&M, V)) {
        self.retain(|labels| values.contains_key(labels));
        for (labels, value) in values {
            set(&self.of(labels), value);
        }
    }
}

/// The controller's metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    cloud_calls: Family<CloudCallLabels, Counter>,
    actions: Family<ActionLabels, Counter>,
    pending_pods: Gauge,
    unschedulable_pods: Gauge,
    nodeclaims: Gauge,
    nodes: Gauge,
    leader: Gauge,
    scheduling_runs: Counter,
    solve_duration: Family<RunLabels, Histogram>,
    plan_gap: Gauge<f64, AtomicU64>,
    launches: Bounded<LaunchLabels, Counter>,
    launches_unregistered: Counter,
    launches_uninitialized: Counter,
    pools_in_launch_backoff: Gauge,
    pods_held_by_cluster_limits: Gauge,
    solver_panics: Family<RunLabels, Counter>,
    instances_terminated: Counter,
    failed_status_checks: Family<StatusCheckLabels, Gauge>,
    disruptions: Family<DisruptionLabels, Counter>,
    nodes_consolidation_status: Family<ConsolidationLabels, Gauge>,
    consolidation_saved: Gauge<f64, AtomicU64>,
    interruptions: Counter,
    reconcile_duration: Histogram,
    cost: Gauge<f64, AtomicU64>,
    pool_nodes: Bounded<PoolLabels, Gauge>,
    pool_cost: Bounded<PoolLabels, Gauge<f64, AtomicU64>>,
    template_nodes: Bounded<TemplateLabels, Gauge>,
    template_cost: Bounded<TemplateLabels, Gauge<f64, AtomicU64>>,
    pool_disruption_paused: Bounded<PoolLabels, Gauge>,
    zones_closed: Bounded<ZoneLabels, Gauge>,
    pool_headroom: Bounded<HeadroomLabels, Gauge>,
    pool_pending_pods: Bounded<PendingLabels, Gauge>,
    pool_oldest_pending_pod: Bounded<PoolLabels, Gauge>,
    pool_evictions: Bounded<PoolLabels, Counter>,
    pod_to_node_duration: Bounded<PoolLabels, Histogram>,
    tenants_not_isolated: Gauge,
    tenants_not_ready: Gauge,
    tenants_unlimited: Gauge,
    violations: Family<ViolationLabels, Gauge>,
    invalid_objects: Family<KindLabels, Gauge>,
    record_entries: Counter,
    record_lost_entries: Counter,
    record_last_write: Gauge,
    record_unarchived: Gauge,
    record_lost_segments: Counter,
    record_last_archived: Gauge,
    ledger_cost: Bounded<LedgerLabels, Counter<f64, AtomicU64>>,
    ledger_closed: Gauge,
    /// Changes of the figures per pool, and end of the last closed hour, that the series of tenants and pools show. Passes are
    /// many, and most change neither.
    shown: Arc<Mutex<Option<(u64, i64)>>>,
}

impl Metrics {
    /// Metrics in `registry`.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            calls: defined::API_CALLS.register(registry, Family::default()),
            cloud_calls: defined::CLOUD_CALLS.register(registry, Family::default()),
            actions: defined::ACTIONS.register(registry, Family::default()),
            pending_pods: defined::PENDING_PODS.register(registry, Gauge::default()),
            unschedulable_pods: defined::UNSCHEDULABLE_PODS.register(registry, Gauge::default()),
            nodeclaims: defined::NODECLAIMS.register(registry, Gauge::default()),
            nodes: defined::NODES.register(registry, Gauge::default()),
            leader: defined::LEADER.register(registry, Gauge::default()),
            scheduling_runs: defined::SCHEDULING_RUNS.register(registry, Counter::default()),
            solve_duration: defined::SOLVE_DURATION
                .register(registry, Family::new_with_constructor(pass_times)),
            plan_gap: defined::PLAN_GAP.register(registry, Gauge::default()),
            pods_held_by_cluster_limits: defined::PODS_HELD_BY_CLUSTER_LIMITS
                .register(registry, Gauge::default()),
            solver_panics: defined::SOLVER_PANICS.register(registry, Family::default()),
            instances_terminated: defined::INSTANCES_TERMINATED.register(registry, Counter::default()),
            interruptions: defined::INTERRUPTIONS.register(registry, Counter::default()),
            disruptions: defined::DISRUPTIONS.register(registry, Family::default()),
            nodes_consolidation_status: defined::NODES_CONSOLIDATION_STATUS
                .register(registry, Family::default()),
            consolidation_saved: defined::CONSOLIDATION_SAVED.register(registry, Gauge::default()),
            reconcile_duration: defined::RECONCILE_DURATION.register(registry, pass_times()),
            launches: Bounded::new(registry, defined::LAUNCHES, Counter::default),
            launches_unregistered: defined::LAUNCHES_UNREGISTERED.register(registry, Counter::default()),
            launches_uninitialized: defined::LAUNCHES_UNINITIALIZED.register(registry, Counter::default()),
            pools_in_launch_backoff: defined::POOLS_IN_LAUNCH_BACKOFF.register(registry, Gauge::default()),
            cost: defined::COST.register(registry, Gauge::default()),
            failed_status_checks: defined::FAILED_STATUS_CHECKS.register(registry, Family::default()),
            pool_nodes: Bounded::new(registry, defined::POOL_NODES, Gauge::default),
            pool_cost: Bounded::new(registry, defined::POOL_COST, Gauge::default),
            template_nodes: Bounded::new(registry, defined::TEMPLATE_NODES, Gauge::default),
            template_cost: Bounded::new(registry, defined::TEMPLATE_COST, Gauge::default),
            pool_disruption_paused: Bounded::new(registry, defined::POOL_DISRUPTION_PAUSED, Gauge::default),
            zones_closed: Bounded::new(registry, defined::ZONES_CLOSED, Gauge::default),
            pool_headroom: Bounded::new(registry, defined::POOL_HEADROOM, Gauge::default),
            pool_pending_pods: Bounded::new(registry, defined::POOL_PENDING_PODS, Gauge::default),
            pool_oldest_pending_pod: Bounded::new(registry, defined::POOL_OLDEST_PENDING_POD, Gauge::default),
            pool_evictions: Bounded::new(registry, defined::POOL_EVICTIONS, Counter::default),
            pod_to_node_duration: Bounded::new(registry, defined::POD_TO_NODE_DURATION, pod_to_node),
            record_entries: defined::RECORD_ENTRIES.register(registry, Counter::default()),
            record_lost_entries: defined::RECORD_LOST_ENTRIES.register(registry, Counter::default()),
            record_last_write: defined::RECORD_LAST_WRITE.register(registry, Gauge::default()),
            record_unarchived: defined::RECORD_UNARCHIVED.register(registry, Gauge::default()),
            record_lost_segments: defined::RECORD_LOST_SEGMENTS.register(registry, Counter::default()),
            record_last_archived: defined::RECORD_LAST_ARCHIVED.register(registry, Gauge::default()),
            ledger_cost: Bounded::new(registry, defined::LEDGER_COST, Counter::default),
            ledger_closed: defined::LEDGER_CLOSED.register(registry, Gauge::default()),
            tenants_not_isolated: defined::TENANTS_NOT_ISOLATED.register(registry, Gauge::default()),
            tenants_not_ready: defined::TENANTS_NOT_READY.register(registry, Gauge::default()),
            tenants_unlimited: defined::TENANTS_UNLIMITED.register(registry, Gauge::default()),
            violations: defined::VIOLATIONS.register(registry, Family::default()),
            invalid_objects: defined::INVALID_OBJECTS.register(registry, Family::default()),
            shown: Arc::default(),
        }
    }

    /// Measures the time of plans by `clock`.
    #[must_use]
    pub fn solve_meter(&self, clock: Arc<dyn Clock>) -> Arc<dyn SolveMeter> {
        Arc::new(PlanTimes { clock, durations: self.solve_duration.clone() })
    }

    /// Counts an action that starts.
    pub fn count_action(&self, action: &'static str) {
        self.actions.get_or_create(&ActionLabels { action }).inc();
    }

    /// Records whether this process leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Records the duration of a pass, and the engine's state after it.
    pub fn observe_pass(&self, engine: &Engine, seconds: f64) {
        let (snapshot, planning, results) = (engine.snapshot(), engine.planning(), engine.results());
        self.reconcile_duration.observe(seconds);
        self.pending_pods.set(count(snapshot.demand().len()));
        self.unschedulable_pods.set(i64::try_from(planning.unschedulable).unwrap_or(i64::MAX));
        self.nodeclaims.set(count(snapshot.claims().len()));
        self.nodes.set(count(snapshot.nodes().len()));
        raise(&self.scheduling_runs, planning.runs);
        self.plan_gap.set(planning.gap);
        raise(&self.launches_unregistered, engine.unregistered_launches());
        raise(&self.launches_uninitialized, engine.uninitialized_launches());
        self.pools_in_launch_backoff.set(count(snapshot.pools_with_launch_hold()));
        self.pods_held_by_cluster_limits.set(count(planning.held_by_limits));
        for (purpose, panics) in engine.solver().panics() {
            raise(&self.solver_panics.get_or_create(&RunLabels { run: purpose.as_str() }), panics);
        }
        raise(&self.instances_terminated, results.terminated);
        raise(&self.interruptions, results.interruptions);
        for (reason, outcome, count) in engine.disruption().history().outcomes() {
            let labels = DisruptionLabels { reason, outcome: outcome.as_str() };
            raise(&self.disruptions.get_or_create(&labels), count);
        }
        for (consolidatable, reason, nodes) in engine.disruption().statuses().counts() {
            let consolidatable = if consolidatable { "true" } else { "false" };
            let labels = ConsolidationLabels { consolidatable, reason };
            self.nodes_consolidation_status.get_or_create(&labels).set(count(nodes));
        }
        self.consolidation_saved.set(engine.disruption().history().saved().dollars());
        self.observe_checks(snapshot);
        let closed = snapshot
            .closed_zones()
            .values()
            .map(|zone| (ZoneLabels { zone: zone.name.clone(), state: zone.state.as_str() }, 1));
        self.zones_closed.replace(closed.collect(), |gauge, one| {
            gauge.set(one);
        });
        self.cost.set(snapshot.cost().dollars());
        let record = engine.record_counts();
        raise(&self.record_entries, record.written);
        raise(&self.record_lost_entries, record.lost);
        self.record_last_write.set(record.last_write);
        let shown = Some((engine.figures().changes(), engine.closed_costs().until));
        let mut last = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != shown {
            self.observe_ledger(snapshot, engine.closed_costs());
            self.observe_pools(snapshot, engine.figures());
            *last = shown;
        }
        drop(last);
        self.observe_tenants(engine.isolation().counts());
    }

    fn observe_checks(&self, snapshot: &Snapshot) {
        let Some(failed) = snapshot.failed_checks() else {
            self.failed_status_checks.clear();
            return;
        };
        for (check, instances) in failed {
            self.failed_status_checks
                .get_or_create(&StatusCheckLabels { check: check.as_str() })
                .set(count(instances));
        }
    }

    /// Records what the object store has of the decision log.
    pub fn observe_archive(&self, counts: &ArchiveCounts) {
        self.record_unarchived.set(count(counts.waiting));
        raise(&self.record_lost_segments, counts.lost);
        self.record_last_archived.set(counts.last_copy);
    }

    /// Records how long pods waited for the nodes that were launched for them.
    pub fn observe_bound(&self, bound: &[(PoolLabels, Duration)]) {
        for (labels, waited) in bound {
            self.pod_to_node_duration.of(labels.clone()).observe(waited.as_secs_f64());
        }
    }

    /// Records the calls to the cloud.
    pub fn observe_cloud(&self, calls: &[CallCount]) {
        for &CallCount { call, result, count } in calls {
            raise(&self.cloud_calls.get_or_create(&CloudCallLabels { call, result }), count);
        }
    }

    /// Forgets the cluster's figures, which from now on another process shows.
    pub fn stop_leading(&self) {
        let gauges = [
            &self.pending_pods,
            &self.unschedulable_pods,
            &self.nodeclaims,
            &self.nodes,
            &self.pools_in_launch_backoff,
            &self.pods_held_by_cluster_limits,
        ];
        for gauge in gauges {
            gauge.set(0);
        }
        self.failed_status_checks.clear();
        self.nodes_consolidation_status.clear();
        self.cost.set(0.0);
        self.pool_nodes.retain(|_| false);
        self.pool_cost.retain(|_| false);
        self.template_nodes.retain(|_| false);
        self.template_cost.retain(|_| false);
        self.pool_disruption_paused.retain(|_| false);
        self.zones_closed.retain(|_| false);
        self.pool_headroom.retain(|_| false);
        self.pool_pending_pods.retain(|_| false);
        self.pool_oldest_pending_pod.retain(|_| false);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.observe_tenants(&TenantCounts::default());
    }

    fn observe_ledger(&self, snapshot: &Snapshot, costs: &ClosedCosts) {
        let existing = costs.by_purpose.iter().filter(|((labels, _), _)| labels.exists(snapshot));
        let costs_of = existing.map(|((labels, purpose), amount)| {
            let PoolLabels { tenant, pool } = labels.clone();
            (LedgerLabels { tenant, pool, purpose }, amount.dollars())
        });
        self.ledger_cost.replace(costs_of.collect(), |counter, dollars| {
            counter.inc_by((dollars - counter.get()).max(0.0));
        });
        self.ledger_closed.set(costs.until);
    }

    fn observe_pools(&self, snapshot: &Snapshot, figures: &PoolFigures) {
        let held: BTreeMap<_, _> = figures.holdings().map(|(labels, held)| (labels.clone(), held)).collect();
        let headroom = held.iter().filter_map(|(PoolLabels { tenant, pool }, held)| {
            let (wanted, placed) = held.headroom?;
            Some([("wanted", wanted), ("placed", placed)].map(|(state, pods)| {
                (HeadroomLabels { tenant: tenant.clone(), pool: pool.clone(), state }, pods)
            }))
        });
        self.pool_headroom.replace(headroom.flatten().collect(), |gauge, pods| {
            gauge.set(count(pods));
        });
        self.pool_disruption_paused.replace(held.clone(), |gauge, held| {
            gauge.set(i64::from(held.paused));
        });
        self.pool_nodes.replace(held.clone(), |gauge, held| {
            gauge.set(count(held.nodes));
        });
        self.pool_cost.replace(held, |gauge, held| {
            gauge.set(held.cost.dollars());
        });
        let held: BTreeMap<_, _> = figures.template_holdings().collect();
        self.template_nodes.replace(held.clone(), |gauge, held| {
            gauge.set(count(held.nodes));
        });
        self.template_cost.replace(held, |gauge, held| {
            gauge.set(held.cost.dollars());
        });
        let pending = figures.pending().iter().map(|((labels, reason), pods)| {
            let PoolLabels { tenant, pool } = labels.clone();
            (PendingLabels { tenant, pool, reason }, *pods)
        });
        self.pool_pending_pods.replace(pending.collect(), |gauge, pods| {
            gauge.set(count(pods));
        });
        self.pool_oldest_pending_pod.replace(figures.oldest().clone(), |gauge, since| {
            gauge.set(since.as_second());
        });
        self.pool_evictions.replace(figures.evictions().clone(), raise);
        let launches = figures.launches().iter().map(|((labels, outcome), launches)| {
            let PoolLabels { tenant, pool } = labels.clone();
            (LaunchLabels { tenant, pool, outcome }, *launches)
        });
        self.launches.replace(launches.collect(), raise);
        self.pod_to_node_duration.retain(|labels| labels.exists(snapshot));
    }

    fn observe_tenants(&self, counts: &TenantCounts) {
        self.tenants_not_isolated.set(count(counts.not_isolated));
        self.tenants_not_ready.set(count(counts.not_ready));
        self.tenants_unlimited.set(count(counts.unlimited));
        for kind in OWN_KINDS {
            let invalid = counts.invalid_objects.get(kind).copied().unwrap_or_default();
            self.invalid_objects.get_or_create(&KindLabels { kind }).set(invalid);
        }
        for rule in Violation::ALL {
            let violations = counts.violations.get(rule).copied().unwrap_or_default();
            self.violations.get_or_create(&ViolationLabels { rule: rule.as_str() }).set(violations);
        }
    }
}

/// Measures plans for [`Metrics`].
struct PlanTimes {
    clock: Arc<dyn Clock>,
    durations: Family<RunLabels, Histogram>,
}

impl SolveMeter for PlanTimes {
    fn start(&self) -> Instant {
        self.clock.monotonic()
    }

    fn stop(&self, purpose: Purpose, started: Instant) {
        let took = self.clock.monotonic().saturating_duration_since(started);
        self.durations.get_or_create(&RunLabels { run: purpose.as_str() }).observe(took.as_secs_f64());
    }
}

/// Around 120 s, the objective of docs/slo.md for the time until a pod is bound to the node that was launched for it.
fn pod_to_node() -> Histogram {
    Histogram::new([
        5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 600.0, 1800.0, 3600.0,
    ])
}

/// Times of plans and passes: from a tenth of a millisecond to three seconds, each bound twice the one before.
fn pass_times() -> Histogram {
    Histogram::new((0..16).map(|n| 0.0001 * f64::from(2_u32.pow(n))))
}

/// A number as a gauge takes it.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Raises `counter` to the engine's count.
fn raise(counter: &Counter, counted: u64) {
    counter.inc_by(counted.saturating_sub(counter.get()));
}

/// Counts calls to the API server.
#[derive(Clone)]
pub struct MeteredApi<T> {
    inner: T,
    metrics: Metrics,
}

impl<T: KubeApi> MeteredApi<T> {
    /// Counts calls to `inner`.
    #[must_use]
    pub fn new(inner: T, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }

    /// Shared, for the executor.
    #[must_use]
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    fn count<R>(&self, verb: &'static str, kind: &'static str, response: &Result<R, ApiError>) {
        let result = response.as_ref().map_or_else(ApiError::reason, |_| "ok");
        self.metrics.calls.get_or_create(&CallLabels { verb, kind, result }).inc();
    }
}

#[async_trait]
impl<T: KubeApi> KubeApi for MeteredApi<T> {
    async fn call(&self, call: Call) -> Result<Response, ApiError> {
        let (verb, kind) = (call.verb.name(), call.target.kind());
        let response = self.inner.call(call).await;
        self.count(verb, kind, &response);
        response
    }

    async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        let response = self.inner.list_claims().await;
        self.count("list", "NodeClaim", &response);
        response
    }

    async fn list_pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        let response = self.inner.list_pods_on(node).await;
        self.count("list", "Pod", &response);
        response
    }
}
