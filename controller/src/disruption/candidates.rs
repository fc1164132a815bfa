//! Underutilised nodes: the candidates of the search for a cheaper cluster.
//!
//! The search takes long on a large cluster, so it is an action and works on a copy; [`validation`](super::validation)
//! handles its result. Each pool is a question of its own: a change in one tenant's pools asks nothing about another's.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use croft_api::{
    TenantPool,
    convert::{static_capacity::is_fixed, template_return::of_consolidation},
    disruption::{ConsolidationPolicy, DisruptionReason},
};
use croft_disruption::{
    budgets::constraints,
    cost::{self, MovedPod},
    eligibility::ConsolidationStatus,
};
use croft_scheduler::{
    Options, Price,
    consolidation::{Ask, Candidate, Rejection},
};

use crate::{
    action::{Action, ConsolidationSearch, Key},
    definitions::conditions as reasons,
    disruption::{
        budgets::BudgetLedger,
        consolidation_status::ConsolidationStatuses,
        eligibility::{Eligibility, Past, evaluate},
        outcomes::History,
    },
    reconcile::ReconcileContext,
    state::Snapshot,
    time::earliest,
};

pub(crate) const REASON: DisruptionReason = DisruptionReason::Underutilized;
/// Between two evaluations of a pool.
const EVALUATE_EVERY: Duration = Duration::from_secs(3);
/// A pool without changes is evaluated again after this long: pods get older, and cheaper to move.
const EVALUATE_AGAIN: Duration = Duration::from_secs(300);
/// The same question is asked again after this long, in case the result depends on more than the question shows.
const SEARCH_AGAIN: Duration = Duration::from_secs(3_600);

/// The last search about a pool. Times are on the monotonic clock.
#[derive(Clone, Debug, Default)]
struct PoolSearch {
    evaluated: Duration,
    /// The pool's version then.
    pool_version: u64,
    /// When the evaluation changes by time alone.
    changes_at: Option<Duration>,
    searched: Option<Duration>,
    /// A hash of the question that the result holds for.
    question: Option<u64>,
    /// Hashes of the pods of each candidate.
    pods: BTreeMap<String, u64>,
}

impl PoolSearch {
    /// Repeats the search, even for the same question: a part of its result came to nothing.
    fn invalidate(&mut self) {
        self.question = None;
        self.changes_at = Some(Duration::ZERO);
    }

    /// True if the evaluation may differ now; otherwise asks for another pass when it may.
    fn is_outdated(&self, ctx: &mut ReconcileContext<'_>, pool: &str) -> bool {
        let again =
            self.changes_at.unwrap_or(Duration::MAX).min(self.evaluated.saturating_add(EVALUATE_AGAIN));
        if again <= ctx.now.mono || self.pool_version != ctx.snapshot.pool_version(pool) {
            return true;
        }
        ctx.requeue_at(again);
        false
    }
}

/// The pods of a node, as a hash, and since when they are these.
#[derive(Clone, Copy, Debug)]
struct SteadyPods {
    hash: u64,
    since: Duration,
}

/// Chooses candidates, and asks for searches.
#[derive(Debug, Default)]
pub struct Candidates {
    pools: BTreeMap<String, PoolSearch>,
    /// By node.
    steady: BTreeMap<String, SteadyPods>,
}

/// A pool that is evaluated in this pass.
struct Evaluation<'a> {
    pool: &'a TenantPool,
    /// Nodes that may be disrupted now.
    nodes: usize,
    hasher: DefaultHasher,
    /// When the evaluation changes by time alone.
    changes_at: Option<Duration>,
    candidates: Vec<(&'a str, Candidate)>,
}

impl Candidates {
    /// When a node's pods last changed.
    #[must_use]
    pub fn steady_since(&self, node: &str) -> Option<Duration> {
        self.steady.get(node).map(|pods| pods.since)
    }

    /// The hash of a node's pods in the last search about its pool.
    #[must_use]
    pub fn searched_pods(&self, pool: &str, node: &str) -> Option<u64> {
        self.pools.get(pool)?.pods.get(node).copied()
    }

    /// Records since when each node's pods are what they are.
    pub fn observe_pods(&mut self, ctx: &ReconcileContext<'_>) {
        let snapshot = ctx.snapshot;
        for (_, claim) in snapshot.dirty_claims() {
            let Some((node, _)) = snapshot.node_of(claim) else { continue };
            let now = SteadyPods { hash: pods_hash(snapshot, node), since: ctx.now.mono };
            match self.steady.get_mut(node) {
                Some(known) if known.hash == now.hash => {}
                Some(known) => *known = now,
                None => {
                    self.steady.insert(node.to_owned(), now);
                }
            }
        }
        if self.steady.len() > snapshot.nodes().len() {
            self.steady.retain(|node, _| snapshot.nodes().contains_key(node));
        }
    }

    /// Asks for a search in the pools that have changed.
    pub(crate) fn reconcile(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        past: Past<'_>,
        ledger: &BudgetLedger<'_>,
        statuses: &mut ConsolidationStatuses,
    ) {
        if !ctx.is_idle(&Key::Consolidation) {
            return;
        }
        let mut evaluations = self.due(ctx, past, ledger);
        if evaluations.is_empty() {
            return;
        }
        let options = Options {
            effort: ctx.settings.effort,
            without_counts: true,
            closed_nodes: ctx.snapshot.closed_nodes(),
            leaving: ctx.snapshot.leaving_nodes(),
            ..Options::default()
        };
        let mut ask = Ask { options, ..Ask::default() };
        for (name, evaluation) in &mut evaluations {
            let ((), changes_at) =
                ctx.collect_requeue(|ctx| self.gather(ctx, past, statuses, name, evaluation));
            evaluation.changes_at = earliest(evaluation.changes_at, changes_at);
        }
        for (name, evaluation) in evaluations {
            let search = self.pools.entry(name.to_owned()).or_default();
            search.evaluated = ctx.now.mono;
            search.pool_version = ctx.snapshot.pool_version(name);
            search.changes_at = evaluation.changes_at;
            let question = evaluation.hasher.finish();
            let lately = search.searched.is_some_and(|at| ctx.now.mono.saturating_sub(at) < SEARCH_AGAIN);
            let same = lately && search.question == Some(question);
            if same {
                continue;
            }
            // The last search's result holds no longer: statuses that say why there is none would outlast their cause.
            search.question = None;
            if evaluation.candidates.is_empty() {
                continue;
            }
            if evaluation.nodes == 0 {
                let status = if past.commands.concern(name) {
                    let message = "another command of its pool is in flight";
                    ConsolidationStatus::stays(reasons::COMMAND_IN_FLIGHT, message)
                } else {
                    (&Rejection::Budget).into()
                };
                for (claim, _) in evaluation.candidates {
                    statuses.set(claim, status.clone());
                }
                continue;
            }
            search.searched = Some(ctx.now.mono);
            search.question = Some(question);
            let own = evaluation.candidates.iter();
            search.pods = own.map(|(_, c)| (c.node.clone(), pods_hash(ctx.snapshot, &c.node))).collect();
            let disruption = &evaluation.pool.spec.disruption;
            ask.constraints.insert(name.to_owned(), constraints(disruption, evaluation.nodes));
            ask.candidates.extend(evaluation.candidates.into_iter().map(|(_, candidate)| candidate));
        }
        if !ask.candidates.is_empty() {
            let search = ConsolidationSearch { cluster: ctx.snapshot.cluster().clone(), ask };
            ctx.request(Action::Consolidate(Box::new(search)));
        }
    }

    /// Repeats the search for these pools.
    pub fn invalidate(&mut self, history: &mut History) {
        for pool in history.take_searches() {
            if let Some(search) = self.pools.get_mut(&pool) {
                search.invalidate();
            }
        }
    }

    /// Pools that are due for an evaluation.
    fn due<'a>(
        &mut self,
        ctx: &mut ReconcileContext<'a>,
        past: Past<'_>,
        ledger: &BudgetLedger<'_>,
    ) -> BTreeMap<&'a str, Evaluation<'a>> {
        let snapshot = ctx.snapshot;
        self.pools.retain(|name, _| snapshot.pools().contains_key(name));
        let mut waiting = None;
        let mut evaluations = BTreeMap::new();
        for (name, pool) in snapshot.pools() {
            // Static capacity isn't consolidated.
            if pool.metadata.deletion_timestamp.is_some() || is_fixed(pool) {
                continue;
            }
            if let Some(search) = self.pools.get(name) {
                let every = ctx.settings.consolidate_every;
                if !search.is_outdated(ctx, name)
                    || !ctx.has_lasted(search.evaluated, EVALUATE_EVERY)
                    || search.searched.is_some_and(|at| !ctx.has_lasted(at, every))
                {
                    continue;
                }
                ctx.requeue_after(EVALUATE_AGAIN);
            }
            let policy = pool.spec.disruption.consolidation_policy;
            let allowed =
                policy == ConsolidationPolicy::WhenEmptyOrUnderutilized && !past.commands.concern(name);
            let (mut nodes, mut changes_at) = (0, None);
            if allowed {
                (nodes, changes_at) = ctx.collect_requeue(|ctx| ledger.allowance(ctx, pool, REASON).more);
            }
            let mut hasher = DefaultHasher::new();
            // Not the pool's resourceVersion: the controller's own status writes change it.
            (nodes, serde_json::to_string(&pool.spec).unwrap_or_default()).hash(&mut hasher);
            for class in snapshot.classes_of(name) {
                // A new list of offerings replaces the whole allocation.
                class.types.as_ref().map(|types| types.as_ptr().addr()).hash(&mut hasher);
            }
            let waiting = waiting.get_or_insert_with(|| snapshot.cluster().waiting());
            waiting.for_pool(snapshot.cluster(), name).hash(&mut hasher);
            let evaluation = Evaluation { pool, nodes, hasher, changes_at, candidates: Vec::new() };
            evaluations.insert(name.as_str(), evaluation);
        }
        evaluations
    }

    /// Collects a pool's candidates, and sets the status of each other node.
    fn gather<'a>(
        &self,
        ctx: &mut ReconcileContext<'a>,
        past: Past<'_>,
        statuses: &mut ConsolidationStatuses,
        pool: &str,
        evaluation: &mut Evaluation<'a>,
    ) {
        let snapshot = ctx.snapshot;
        for (name, claim) in snapshot.claims_of_pool(pool) {
            let node = snapshot.node_of(claim).map(|(node, _)| node);
            let steady = node.and_then(|node| self.steady.get(node));
            if node.is_some() {
                (name, steady.map(|pods| pods.hash)).hash(&mut evaluation.hasher);
            }
            match evaluate(ctx, past, name, claim, evaluation.pool, steady.map(|pods| pods.since)) {
                Eligibility::NoNode => {}
                Eligibility::Settled(status) => statuses.set(name, status),
                Eligibility::Candidate { node, price, capacity_type } => {
                    let disruption_cost = disruption_cost(ctx, evaluation.pool, &node);
                    (name, disruption_cost.micros()).hash(&mut evaluation.hasher);
                    let pool = claim.spec.pool.clone();
                    let templates = of_consolidation(evaluation.pool, claim.template());
                    let candidate =
                        Candidate { node, pool, price, capacity_type, disruption_cost, templates };
                    evaluation.candidates.push((name.as_str(), candidate));
                }
            }
        }
    }
}

/// A hash of the pods that keep a node from being empty.
pub(crate) fn pods_hash(snapshot: &Snapshot, node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (_, pod) in snapshot.pods_on(node).filter(|(_, pod)| pod.counts_as_work()) {
        pod.uid.hash(&mut hasher);
        pod.deletion.is_some().hash(&mut hasher);
    }
    hasher.finish()
}

/// The disruption cost of moving a node's pods.
fn disruption_cost(ctx: &ReconcileContext<'_>, pool: &TenantPool, node: &str) -> Price {
    let disruption = &pool.spec.disruption;
    let rest = ctx.settings.pod_rest.unwrap_or(disruption.rest());
    let pods = ctx.snapshot.pods_on(node).filter(|(_, pod)| pod.must_leave() && pod.deletion.is_none());
    let moved = pods.map(|(_, pod)| {
        let owner = pod.owner.as_deref().unwrap_or_default();
        let age = pod.started.map_or(Duration::ZERO, |at| ctx.now.since(at));
        MovedPod {
            owner,
            age_seconds: age.as_secs() * ctx.settings.pod_age_percent / 100,
            rests: age < rest,
            ends: pod.workload.starts_with("Job/"),
            replicas: ctx.snapshot.replicas(owner),
            deletion_cost: pod.deletion_cost,
        }
    });
    cost::of_node(cost::eviction_cost(disruption), moved)
}
