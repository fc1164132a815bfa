//! What the controller measures of itself.

use std::sync::{Arc, atomic::AtomicU64};

use async_trait::async_trait;
use croft_api::NodeClaim;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{
    engine::Engine,
    seam::{Answer, ApiError, Call, KubeApi},
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

/// Decisions to give nodes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DisruptionLabels {
    reason: &'static str,
    outcome: &'static str,
}

/// Nodes as the condition Consolidatable of their claims has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VerdictLabels {
    consolidatable: &'static str,
    reason: &'static str,
}

/// What plans are made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RunLabels {
    run: &'static str,
}

/// The controller's metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    actions: Family<ActionLabels, Counter>,
    pending: Gauge,
    unplaced: Gauge,
    claims: Gauge,
    nodes: Gauge,
    leading: Gauge,
    plans: Counter,
    launch_failures: Counter,
    unregistered: Counter,
    held_pools: Gauge,
    held_by_limits: Gauge,
    panics: Family<RunLabels, Counter>,
    terminated: Counter,
    disruptions: Family<DisruptionLabels, Counter>,
    verdicts: Family<VerdictLabels, Gauge>,
    saved: Gauge<f64, AtomicU64>,
    interruptions: Counter,
    step_seconds: Histogram,
    cost: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Metrics in `registry`.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            actions: Family::default(),
            pending: Gauge::default(),
            unplaced: Gauge::default(),
            claims: Gauge::default(),
            nodes: Gauge::default(),
            leading: Gauge::default(),
            plans: Counter::default(),
            launch_failures: Counter::default(),
            unregistered: Counter::default(),
            held_pools: Gauge::default(),
            held_by_limits: Gauge::default(),
            panics: Family::default(),
            terminated: Counter::default(),
            disruptions: Family::default(),
            verdicts: Family::default(),
            saved: Gauge::default(),
            interruptions: Counter::default(),
            // From a tenth of a millisecond to three seconds.
            step_seconds: Histogram::new((0..16).map(|n| 0.0001 * f64::from(2_u32.pow(n)))),
            cost: Gauge::default(),
        };
        let r = registry.sub_registry_with_prefix("croft_controller");
        r.register("api_calls", "Calls to the API server that write", metrics.calls.clone());
        r.register("actions", "Actions that decisions asked for", metrics.actions.clone());
        r.register("pending_pods", "Pods that wait for a place", metrics.pending.clone());
        r.register("unplaced_pods", "Pods that the last plan couldn't place", metrics.unplaced.clone());
        r.register("nodeclaims", "NodeClaims", metrics.claims.clone());
        r.register("nodes", "Nodes", metrics.nodes.clone());
        r.register("leading", "1 while this process leads", metrics.leading.clone());
        r.register("plans", "Plans made", metrics.plans.clone());
        r.register(
            "launch_failures",
            "Launches that ended without a machine",
            metrics.launch_failures.clone(),
        );
        r.register(
            "launches_unregistered",
            "Instances that were launched and whose node never registered",
            metrics.unregistered.clone(),
        );
        r.register(
            "pools_in_launch_backoff",
            "Pools whose launches are held back, in whole or some instance types, because nodes don't register",
            metrics.held_pools.clone(),
        );
        r.register(
            "pods_held_by_cluster_limits",
            "Pods and spare places that the limits of the CroftConfig keep waiting",
            metrics.held_by_limits.clone(),
        );
        r.register(
            "solver_panics",
            "Plans that panicked, by what they were made for: pods, replicas, disruption, or consolidation. The pools \
             concerned have the condition PlanningFailed",
            metrics.panics.clone(),
        );
        r.register("machines_terminated", "Machines confirmed gone", metrics.terminated.clone());
        r.register(
            "interruptions",
            "Machines that the cloud said it would take away",
            metrics.interruptions.clone(),
        );
        r.register(
            "disruptions",
            "Decisions to give nodes back, by reason and by what came of them: begun, done, undone, or dropped when \
             looked at again",
            metrics.disruptions.clone(),
        );
        r.register(
            "nodes_by_verdict",
            "Nodes by the status and reason of the condition Consolidatable: which are to go, and what keeps the others",
            metrics.verdicts.clone(),
        );
        r.register(
            "consolidation_saved_dollars_per_hour",
            "What the moves that were begun to save money save together",
            metrics.saved.clone(),
        );
        r.register_with_unit(
            "step",
            "Time that one round of decisions takes",
            Unit::Seconds,
            metrics.step_seconds.clone(),
        );
        r.register("cost_dollars_per_hour", "Price of all machines with a claim", metrics.cost.clone());
        metrics
    }

    /// Notes an action that is carried out.
    pub fn action(&self, action: &'static str) {
        self.actions.get_or_create(&ActionLabels { action }).inc();
    }

    /// Notes whether this process leads.
    pub fn leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }

    /// Notes how long a round of decisions took, and what the picture holds after it.
    pub fn stepped(&self, engine: &Engine, seconds: f64) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let (snapshot, counts) = (&engine.snapshot, engine.counts);
        self.step_seconds.observe(seconds);
        self.pending.set(count(snapshot.demand.len()));
        self.unplaced.set(i64::try_from(counts.unplaced).unwrap_or(i64::MAX));
        self.claims.set(count(snapshot.claims.len()));
        self.nodes.set(count(snapshot.nodes.len()));
        raise(&self.plans, counts.plans);
        raise(&self.launch_failures, counts.launch_failures);
        raise(&self.unregistered, counts.unregistered);
        self.held_pools.set(count(snapshot.held_pools()));
        self.held_by_limits.set(count(counts.held_by_limits));
        for (run, panics) in snapshot.solver.panics() {
            raise(&self.panics.get_or_create(&RunLabels { run: run.as_str() }), panics);
        }
        raise(&self.terminated, counts.terminated);
        raise(&self.interruptions, counts.interruptions);
        for (reason, outcome, count) in engine.disruption().tally.iter() {
            let labels = DisruptionLabels { reason, outcome: outcome.as_str() };
            raise(&self.disruptions.get_or_create(&labels), count);
        }
        for (goes, reason, nodes) in engine.disruption().saying.counts() {
            let consolidatable = if goes { "true" } else { "false" };
            self.verdicts.get_or_create(&VerdictLabels { consolidatable, reason }).set(count(nodes));
        }
        self.saved.set(counts.saved.dollars());
        self.cost.set(snapshot.cost.dollars());
    }
}

/// Lets `counter` say what the engine has counted.
fn raise(counter: &Counter, counted: u64) {
    counter.inc_by(counted.saturating_sub(counter.get()));
}

/// Counts calls.
#[derive(Clone)]
pub struct Metered<T> {
    inner: T,
    metrics: Metrics,
}

impl<T: KubeApi> Metered<T> {
    /// Counts calls to `inner`.
    #[must_use]
    pub fn new(inner: T, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }

    /// Shared, as the executor wants it.
    #[must_use]
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}

#[async_trait]
impl<T: KubeApi> KubeApi for Metered<T> {
    async fn call(&self, call: Call) -> Result<Answer, ApiError> {
        let (verb, kind) = (call.verb.name(), call.target.kind());
        let answer = self.inner.call(call).await;
        let result = answer.as_ref().map_or_else(ApiError::reason, |_| "ok");
        self.metrics.calls.get_or_create(&CallLabels { verb, kind, result }).inc();
        answer
    }

    async fn claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        let answer = self.inner.claims().await;
        let result = answer.as_ref().map_or_else(ApiError::reason, |_| "ok");
        let labels = CallLabels { verb: "list", kind: "NodeClaim", result };
        self.metrics.calls.get_or_create(&labels).inc();
        answer
    }

    async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        let answer = self.inner.pods_on(node).await;
        let result = answer.as_ref().map_or_else(ApiError::reason, |_| "ok");
        let labels = CallLabels { verb: "list", kind: "Pod", result };
        self.metrics.calls.get_or_create(&labels).inc();
        answer
    }
}
