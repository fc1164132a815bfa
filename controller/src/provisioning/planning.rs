//! Planning: when a scheduling run is due for the pending pods, and what follows from its plan.
//!
//! ```text
//!   pods arrive ──▶ batch ends ──▶ scheduling run ──▶ claims to create, nominations, events
//!                                   ▲
//!   snapshot changed, and a second has passed
//! ```

use std::{collections::BTreeMap, time::Duration};

use croft_api::condition::INITIALIZED;
use croft_scheduler::{Options, Plan, PlannedInstance, PodKey, Price, ReasonKind};

use crate::{
    action::{Action, Key, UserEvent},
    config::settings::Settings,
    definitions::metrics::{NODE_EXISTS, NODE_IN_FLIGHT},
    in_flight::InFlight,
    provisioning::{
        batch::Batch,
        new_claims::{ProvisioningPlan, main_reason, provision},
        panic_isolation::PanicIsolation,
        rejected_placements::{RejectedPlacements, Rejections},
    },
    solver::Solver,
    state::{Snapshot, has_condition},
    time::{Now, earliest},
};

/// How long a nominated pod may take to be bound once its node is initialized.
const NOMINATION_KEPT: Duration = Duration::from_secs(5);
/// Between two scheduling runs for the same pods when only the rest of the cluster has changed.
const REPLAN_EVERY: Duration = Duration::from_secs(1);

/// The inputs of a scheduling run.
pub struct PlanningContext<'a> {
    /// The snapshot; nominations are written into it.
    pub snapshot: &'a mut Snapshot,
    /// Makes plans.
    pub solver: &'a Solver,
    /// Isolates pods whose plans panic.
    pub panics: &'a mut PanicIsolation,
    /// Times and sizes.
    pub settings: &'a Settings,
    /// In-flight actions and backoff.
    pub in_flight: &'a InFlight,
    /// The time.
    pub now: Now,
}

/// Requests of planning.
#[derive(Debug, Default)]
pub struct Planned {
    /// Claims to create, and nominations of pods that wait for an existing node.
    pub actions: Vec<Action>,
    /// Events about pending pods.
    pub events: Vec<UserEvent>,
    /// When planning is due again, on the monotonic clock.
    pub requeue: Option<Duration>,
    /// The figures of the scheduling run, if there was one.
    pub run: Option<RunSummary>,
}

/// Figures of a scheduling run. Headroom pods count as pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSummary {
    /// Instances to launch.
    pub instances: usize,
    /// Pods that they are launched for.
    pub pods: usize,
    /// Pods placed on existing nodes, or on nodes in flight.
    pub placed: usize,
    /// Pods that stay pending.
    pub unschedulable: usize,
    /// Price of the instances to launch.
    pub cost: Price,
    /// No plan can be below this cost.
    pub bound: Price,
    /// Steps that the search counted.
    pub steps: u64,
}

impl RunSummary {
    fn of(plan: &Plan) -> Self {
        Self {
            instances: plan.instances.len(),
            pods: plan.instances.iter().map(|instance| instance.pods.len()).sum(),
            placed: plan.existing.iter().map(|placement| placement.pods.len()).sum(),
            unschedulable: plan.unschedulable.len(),
            cost: plan.cost,
            bound: plan.bound,
            steps: plan.steps,
        }
    }
}

/// Counts of scheduling runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanningCounts {
    /// Scheduling runs.
    pub runs: u64,
    /// Work steps of all runs.
    pub steps: u64,
    /// Claims asked for.
    pub claims: u64,
    /// Pods that the last run left unschedulable.
    pub unschedulable: u64,
    /// Pods and headroom pods that the cluster's limits left unschedulable in the last run.
    pub held_by_limits: usize,
    /// Gap to the lower bound of the last plan that launched instances.
    pub gap: f64,
}

/// Plans for pending pods.
#[derive(Debug, Default)]
pub struct Planning {
    batch: Batch,
    rejected: RejectedPlacements,
    /// Nominations that the next reconcile asks for.
    nominations: Vec<Action>,
    /// Claims with nominated pods whose node is initialized, and since when.
    initialized_since: BTreeMap<String, Duration>,
    /// Pool and reason of the pods that the last run left pending, or put onto a node or a new claim.
    pending: BTreeMap<PodKey, (String, &'static str)>,
    counts: PlanningCounts,
}

impl Planning {
    /// Counts of scheduling runs.
    #[must_use]
    pub const fn counts(&self) -> &PlanningCounts {
        &self.counts
    }

    /// Why a pod is still pending after the last run: the pool, which may be empty, and a reason.
    #[must_use]
    pub fn pending(&self, pod: &PodKey) -> Option<(&str, &'static str)> {
        self.pending.get(pod).map(|(pool, reason)| (pool.as_str(), *reason))
    }

    /// True while a batch of pods is open, so that a run is about to follow.
    #[must_use]
    pub const fn is_batch_open(&self) -> bool {
        self.batch.opened.is_some()
    }

    /// Releases what no longer holds of earlier plans. Returns when to check again.
    pub fn release_outdated(&mut self, snapshot: &mut Snapshot, now: Now) -> Option<Duration> {
        let Rejections { changed, nominations, requeue } = self.rejected.update(snapshot, now);
        snapshot.expect_pods_on(self.rejected.awaiting());
        if changed {
            snapshot.request_plan();
        }
        self.nominations = nominations;
        earliest(self.release_lost_nominations(snapshot, now), requeue)
    }

    /// Releases the nominations to initialized nodes whose pods weren't bound in time: other pods took their places.
    fn release_lost_nominations(&mut self, snapshot: &mut Snapshot, now: Now) -> Option<Duration> {
        let mut requeue = None;
        let nominated = snapshot.nominated_claims();
        self.initialized_since.retain(|claim, _| nominated.contains(claim));
        for claim in nominated {
            if !snapshot.claims().get(&claim).is_some_and(|c| has_condition(c, INITIALIZED)) {
                continue;
            }
            let since = *self.initialized_since.entry(claim.clone()).or_insert(now.mono);
            let until = since.saturating_add(NOMINATION_KEPT);
            if until <= now.mono {
                snapshot.release_nominations(&claim);
            } else {
                requeue = earliest(requeue, Some(until));
            }
        }
        requeue
    }

    /// Makes a scheduling run, if one is due. `offerings_known` tells whether the offerings of every usable class are
    /// known: a plan without some pools' offerings would send pods to a lighter pool for good.
    pub fn reconcile(&mut self, ctx: &mut PlanningContext<'_>, offerings_known: bool) -> Planned {
        let mut planned = match self.due(ctx, offerings_known) {
            Due::Now => {
                let mut planned = self.run(ctx);
                release_locked(ctx, &mut planned.actions);
                planned
            }
            Due::Later(requeue) => Planned { requeue, ..Planned::default() },
        };
        planned.actions.append(&mut self.nominations);
        planned
    }

    fn due(&mut self, ctx: &PlanningContext<'_>, offerings_known: bool) -> Due {
        let snapshot = &*ctx.snapshot;
        self.batch.observe(snapshot.arrivals(), ctx.now.mono);
        if snapshot.unnominated_demand().next().is_none() {
            self.batch.opened = None;
            self.counts.held_by_limits = 0;
            self.pending.clear();
            if !snapshot.has_headroom() {
                return Due::Later(None);
            }
        }
        // The next plan must know every claim that the last one asked for. Names are reserved on the version of the
        // pool's status, which a status write in flight is about to change.
        if ctx.in_flight.any_in_flight(|key| matches!(key, Key::CreateClaims(_) | Key::Pool(_))) {
            return Due::Later(None);
        }
        // Limits also count the cloud's instances, which are first listed in the first pass.
        if !offerings_known || snapshot.instances().is_none() {
            return Due::Later(None);
        }
        let due = match (self.batch.opened, self.batch.planned) {
            (Some(opened), _) => self.batch_end(ctx.settings).min(opened + ctx.settings.batch_max),
            (None, Some((version, _))) if version == snapshot.plan_version() => return Due::Later(None),
            (None, Some((_, at))) => at + REPLAN_EVERY,
            (None, None) => ctx.now.mono,
        };
        if ctx.now.mono < due { Due::Later(Some(due)) } else { Due::Now }
    }

    fn batch_end(&self, settings: &Settings) -> Duration {
        self.batch.ends(settings.batch_idle, settings.batch_max)
    }

    fn run(&mut self, ctx: &mut PlanningContext<'_>) -> Planned {
        let now = ctx.now;
        let options = Options {
            effort: ctx.settings.effort,
            ruled_out: self.rejected.ruled_out(),
            leaving: ctx.snapshot.leaving_nodes(),
            ..Options::default()
        };
        ctx.snapshot.release_headroom();
        let mut plan = ctx.panics.plan(ctx.snapshot, ctx.solver, &options, now);
        let pods_arrive = self.batch.opened.is_some() && now.mono < self.batch_end(ctx.settings);
        let has_shares =
            |pool: &str| ctx.snapshot.pools().get(pool).is_some_and(|pool| !pool.spec.shares.is_empty());
        // Shares hold for a plan as a whole: nothing of it is left for later.
        let whole: Vec<PlannedInstance> =
            plan.instances.extract_if(.., |instance| has_shares(&instance.pool)).collect();
        let deferred = pods_arrive && self.batch.defer(&mut plan.instances, now.mono, ctx.settings.batch_max);
        plan.instances.extend(whole);
        if !pods_arrive {
            self.batch.end();
        }
        self.count(&plan);
        for warning in &plan.warnings {
            tracing::debug!(warning, "scheduling run");
        }
        self.pending = still_pending(ctx.snapshot, &plan);
        let ProvisioningPlan { claims, nominations, events } = provision(ctx.snapshot, &plan);
        if !plan.instances.is_empty() {
            tracing::info!(
                instances = plan.instances.len(),
                pods = nominations.len(),
                cost_per_hour = %plan.cost,
                unpriced = plan.unpriced(),
                bound_per_hour = %plan.bound,
                steps = plan.steps,
                "planned"
            );
        }
        let snapshot = &mut *ctx.snapshot;
        for (pod, claim) in &nominations {
            snapshot.nominate(pod, claim);
        }
        self.rejected.observe_plan(snapshot, &plan, now);
        snapshot.expect_pods_on(self.rejected.awaiting());
        let headroom_of_new_claims: BTreeMap<PodKey, String> = nominations
            .into_iter()
            .filter(|(pod, claim)| Snapshot::is_headroom(pod) && !snapshot.claims().contains_key(claim))
            .collect();
        snapshot.assign_headroom(&plan, &headroom_of_new_claims);
        self.batch.record_plan(snapshot.plan_version(), snapshot.arrivals(), deferred, now.mono);
        self.counts.claims += claims.iter().map(|c| c.claims.len() as u64).sum::<u64>();
        let actions = claims.into_iter().map(Action::CreateClaims).collect();
        Planned { actions, events, requeue: None, run: Some(RunSummary::of(&plan)) }
    }

    fn count(&mut self, plan: &Plan) {
        let of_pods = plan.unschedulable.iter().filter(|left| !Snapshot::is_headroom(&left.pod)).count();
        let by_limits = plan
            .unschedulable
            .iter()
            .filter(|left| left.reasons.iter().any(|reason| reason.reason == ReasonKind::ClusterLimit));
        self.counts.runs += 1;
        self.counts.steps = self.counts.steps.saturating_add(plan.steps);
        self.counts.unschedulable = of_pods as u64;
        self.counts.held_by_limits = by_limits.count();
        if !plan.instances.is_empty() {
            self.counts.gap = plan.gap();
        }
    }
}

/// Why each pod of `plan` is pending after it, headroom pods left out.
fn still_pending(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<PodKey, (String, &'static str)> {
    let mut pending = BTreeMap::new();
    let mut insert = |pods: &[PodKey], pool: &str, reason| {
        for pod in pods.iter().filter(|pod| !Snapshot::is_headroom(pod)) {
            pending.insert(pod.clone(), (pool.to_owned(), reason));
        }
    };
    for instance in &plan.instances {
        insert(&instance.pods, &instance.pool, NODE_IN_FLIGHT);
    }
    for placement in plan.existing.iter().filter(|placement| !placement.coming) {
        let pool = snapshot.pool_of_node(&placement.node).unwrap_or_default();
        insert(&placement.pods, pool, NODE_EXISTS);
    }
    for left in &plan.unschedulable {
        let (pool, reason) = main_reason(&left.reasons);
        insert(std::slice::from_ref(&left.pod), pool, reason.as_str());
    }
    pending
}

enum Due {
    Now,
    Later(Option<Duration>),
}

/// Releases what was planned for a pool whose last claims couldn't be created and that is in backoff: it is planned
/// again, and the claims of other pools don't wait.
fn release_locked(ctx: &mut PlanningContext<'_>, actions: &mut Vec<Action>) {
    let (in_flight, mono) = (ctx.in_flight, ctx.now.mono);
    let locked = |action: &mut Action| !action.keys().iter().all(|key| in_flight.is_idle(key, mono));
    for action in actions.extract_if(.., locked) {
        if let Action::CreateClaims(new) = action {
            for claim in &new.claims {
                ctx.snapshot.release_nominations(&claim.name);
            }
            ctx.snapshot.request_plan();
        }
    }
}
