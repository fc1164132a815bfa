//! The controller's metrics, as `definitions::metrics` defines them. The driver updates them after each pass.

use std::sync::{Arc, atomic::AtomicU64};

use async_trait::async_trait;
use croft_api::NodeClaim;
use croft_policy::Violation;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{
    definitions::metrics as definitions,
    engine::Engine,
    kube_api::{ApiError, Call, KubeApi, Response},
    tenant::isolation::TenantCounts,
};

/// One call to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    verb: &'static str,
    kind: &'static str,
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

/// A kind of Croft's objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    kind: &'static str,
}

const OWN_KINDS: [&str; 5] = ["Tenant", "TenantPool", "EC2NodeClass", "NodeClaim", "CroftConfig"];

/// The controller's metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    actions: Family<ActionLabels, Counter>,
    pending_pods: Gauge,
    unschedulable_pods: Gauge,
    nodeclaims: Gauge,
    nodes: Gauge,
    leader: Gauge,
    scheduling_runs: Counter,
    launch_failures: Counter,
    launches_unregistered: Counter,
    pools_in_launch_backoff: Gauge,
    pods_held_by_cluster_limits: Gauge,
    solver_panics: Family<RunLabels, Counter>,
    instances_terminated: Counter,
    disruptions: Family<DisruptionLabels, Counter>,
    nodes_consolidation_status: Family<ConsolidationLabels, Gauge>,
    consolidation_saved: Gauge<f64, AtomicU64>,
    interruptions: Counter,
    reconcile_duration: Histogram,
    cost: Gauge<f64, AtomicU64>,
    tenants_not_isolated: Gauge,
    tenants_not_ready: Gauge,
    tenants_unlimited: Gauge,
    violations: Family<ViolationLabels, Gauge>,
    invalid_objects: Family<KindLabels, Gauge>,
}

impl Metrics {
    /// Metrics in `registry`.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            actions: Family::default(),
            pending_pods: Gauge::default(),
            unschedulable_pods: Gauge::default(),
            nodeclaims: Gauge::default(),
            nodes: Gauge::default(),
            leader: Gauge::default(),
            scheduling_runs: Counter::default(),
            launch_failures: Counter::default(),
            launches_unregistered: Counter::default(),
            pools_in_launch_backoff: Gauge::default(),
            pods_held_by_cluster_limits: Gauge::default(),
            solver_panics: Family::default(),
            instances_terminated: Counter::default(),
            disruptions: Family::default(),
            nodes_consolidation_status: Family::default(),
            consolidation_saved: Gauge::default(),
            interruptions: Counter::default(),
            // From a tenth of a millisecond to three seconds.
            reconcile_duration: Histogram::new((0..16).map(|n| 0.0001 * f64::from(2_u32.pow(n)))),
            cost: Gauge::default(),
            tenants_not_isolated: Gauge::default(),
            tenants_not_ready: Gauge::default(),
            tenants_unlimited: Gauge::default(),
            violations: Family::default(),
            invalid_objects: Family::default(),
        };
        definitions::API_CALLS.register(registry, metrics.calls.clone());
        definitions::ACTIONS.register(registry, metrics.actions.clone());
        definitions::PENDING_PODS.register(registry, metrics.pending_pods.clone());
        definitions::UNSCHEDULABLE_PODS.register(registry, metrics.unschedulable_pods.clone());
        definitions::NODECLAIMS.register(registry, metrics.nodeclaims.clone());
        definitions::NODES.register(registry, metrics.nodes.clone());
        definitions::LEADER.register(registry, metrics.leader.clone());
        definitions::SCHEDULING_RUNS.register(registry, metrics.scheduling_runs.clone());
        definitions::LAUNCH_FAILURES.register(registry, metrics.launch_failures.clone());
        definitions::LAUNCHES_UNREGISTERED.register(registry, metrics.launches_unregistered.clone());
        definitions::POOLS_IN_LAUNCH_BACKOFF.register(registry, metrics.pools_in_launch_backoff.clone());
        let held = metrics.pods_held_by_cluster_limits.clone();
        definitions::PODS_HELD_BY_CLUSTER_LIMITS.register(registry, held);
        definitions::SOLVER_PANICS.register(registry, metrics.solver_panics.clone());
        definitions::INSTANCES_TERMINATED.register(registry, metrics.instances_terminated.clone());
        definitions::INTERRUPTIONS.register(registry, metrics.interruptions.clone());
        definitions::DISRUPTIONS.register(registry, metrics.disruptions.clone());
        let statuses = metrics.nodes_consolidation_status.clone();
        definitions::NODES_CONSOLIDATION_STATUS.register(registry, statuses);
        definitions::CONSOLIDATION_SAVED.register(registry, metrics.consolidation_saved.clone());
        definitions::RECONCILE_DURATION.register(registry, metrics.reconcile_duration.clone());
        definitions::COST.register(registry, metrics.cost.clone());
        definitions::TENANTS_NOT_ISOLATED.register(registry, metrics.tenants_not_isolated.clone());
        definitions::TENANTS_NOT_READY.register(registry, metrics.tenants_not_ready.clone());
        definitions::TENANTS_UNLIMITED.register(registry, metrics.tenants_unlimited.clone());
        definitions::VIOLATIONS.register(registry, metrics.violations.clone());
        definitions::INVALID_OBJECTS.register(registry, metrics.invalid_objects.clone());
        metrics
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
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let (snapshot, planning, results) = (engine.snapshot(), engine.planning(), engine.results());
        self.reconcile_duration.observe(seconds);
        self.pending_pods.set(count(snapshot.demand().len()));
        self.unschedulable_pods.set(i64::try_from(planning.unschedulable).unwrap_or(i64::MAX));
        self.nodeclaims.set(count(snapshot.claims().len()));
        self.nodes.set(count(snapshot.nodes().len()));
        raise(&self.scheduling_runs, planning.runs);
        raise(&self.launch_failures, results.launch_failures);
        raise(&self.launches_unregistered, engine.unregistered_launches());
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
        self.cost.set(snapshot.cost().dollars());
        self.observe_tenants(engine.isolation().counts());
    }

    fn observe_tenants(&self, counts: &TenantCounts) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
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
