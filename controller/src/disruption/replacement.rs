//! Commands: replacements are launched first, then the replaced nodes are drained; without replacements, nothing is
//! drained.
//!
//! ```text
//!   claims created, naming those they replace ──▶ all initialized ──▶ validated ──▶ replaced claims deleted
//!        │                                            │                  │
//!        └── one isn't created, or is deleted ────────┴── pods no ───────┴──▶ rolled back: empty replacements are
//!                                                         longer fit          deleted, the nodes stay
//! ```

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{NodeClaim, condition::INITIALIZED, disruption::DisruptionReason};
use croft_scheduler::{
    Cluster, LaunchTemplates, Options, Plan, PlannedInstance, PodKey, Price,
    consolidation::{Rejection, complete},
};
use serde_json::json;

use crate::{
    action::{Action, Key},
    definitions::{events, keys},
    disruption::{
        budgets::BudgetLedger,
        emptiness,
        outcomes::{History, Outcome},
    },
    kube_api::{Target, Verb},
    merge_patch,
    nodeclaim::writes::delete_claim,
    nodepool::static_capacity,
    provisioning::new_claims::provision,
    reconcile::{
        ReconcileContext,
        commands::{Command, Commands},
        object_reference,
    },
    solver::{Purpose, Solver},
    state::{Snapshot, has_condition, price},
};

/// How long pods may not fit onto their replacements before the command is rolled back.
const UNFIT_FOR: Duration = Duration::from_secs(30);
/// A node whose command was rolled back is left alone for this long.
const BACKOFF: Duration = Duration::from_secs(600);

/// A claim with its name.
type NamedClaim<'a> = (&'a str, &'a Arc<NodeClaim>);

/// State that the steps of commands share.
struct Step<'p, 'c> {
    history: &'p mut History,
    ledger: &'p BudgetLedger<'c>,
    id: &'c str,
    command: &'p Command<'c>,
    /// Claims to be replaced that aren't deleted yet, in the order of removal.
    waiting: Vec<NamedClaim<'c>>,
}

/// Advances commands in flight.
#[derive(Debug, Default)]
pub struct Replacement {
    /// Commands whose replacements are initialized and whose pods don't fit there, and since when.
    unfit_since: BTreeMap<String, Duration>,
}

impl Replacement {
    /// Takes the next step of every command in flight.
    pub fn reconcile(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        history: &mut History,
        commands: &Commands<'_>,
        ledger: &BudgetLedger<'_>,
    ) {
        self.unfit_since.retain(|id, _| commands.contains(id));
        for (id, command) in commands.iter() {
            let stays = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none();
            let replaced = command.replaced.iter().filter(|(_, claim)| stays(claim));
            let mut waiting: Vec<NamedClaim<'_>> = replaced.map(|(name, claim)| (*name, *claim)).collect();
            waiting.sort_by_cached_key(|(_, claim)| removal_order(claim));
            // Claims of this command may still be in creation.
            let creating =
                || ctx.snapshot.pools().keys().any(|pool| !ctx.is_idle(&Key::CreateClaims(pool.clone())));
            if !waiting.is_empty() && !creating() {
                Step { history: &mut *history, ledger, id, command, waiting }
                    .advance(ctx, &mut self.unfit_since);
            }
        }
    }
}

impl Step<'_, '_> {
    fn advance(&mut self, ctx: &mut ReconcileContext<'_>, unfit_since: &mut BTreeMap<String, Duration>) {
        let snapshot = ctx.snapshot;
        if self.waiting.iter().any(|(_, claim)| !snapshot.is_provisioned_by_croft(&claim.spec.pool)) {
            self.roll_back(ctx, "its pool was handed to another provisioner");
            return;
        }
        let replacements = &self.command.replacements;
        if replacements.len() < self.command.expected
            || replacements.values().any(|claim| claim.metadata.deletion_timestamp.is_some())
        {
            self.roll_back(ctx, "a replacement wasn't launched");
            return;
        }
        if !replacements.values().all(|claim| has_condition(claim, INITIALIZED)) {
            return;
        }
        let nodes: Vec<&str> =
            self.waiting.iter().filter_map(|(_, claim)| Some(snapshot.node_of(claim)?.0)).collect();
        let any = LaunchTemplates::default();
        match plan_as_bound(snapshot, ctx.solver, snapshot.cluster(), &nodes, &any) {
            Ok(plan) if plan.instances.is_empty() => {
                self.history.count_command(self.id, self.command.reason, Outcome::Completed);
                self.remove_nodes(ctx);
            }
            other => {
                let since = *unfit_since.entry(self.id.to_owned()).or_insert(ctx.now.mono);
                if ctx.has_lasted(since, UNFIT_FOR) {
                    let why = other.err().map_or_else(String::new, |why| format!(": {why}"));
                    self.roll_back(ctx, &format!("its pods no longer fit onto their replacements{why}"));
                }
            }
        }
    }

    /// Deletes the replaced claims, as many at once as the budget allows.
    fn remove_nodes(&mut self, ctx: &mut ReconcileContext<'_>) {
        for (name, claim) in self.waiting.clone() {
            match self.pace(ctx, claim) {
                Pace::Now => {}
                Pace::Later => continue,
                Pace::Never => {
                    self.roll_back(ctx, "the pool's budget allows no more disruptions");
                    return;
                }
            }
            let note = format!(
                "{}: its replacement {} is ready; its pods are evicted now",
                self.command.reason,
                self.command.replacements.keys().copied().collect::<Vec<_>>().join(", "),
            );
            ctx.event(object_reference(&**claim), false, events::DISRUPTED, note);
            ctx.request(delete_claim(name, claim));
        }
    }

    /// Whether the pool's budget lets a node go now. Interrupted nodes go whatever the budget.
    fn pace(&self, ctx: &mut ReconcileContext<'_>, claim: &NodeClaim) -> Pace {
        let known = DisruptionReason::named(self.command.reason);
        let Some((reason, pool)) = known.zip(ctx.snapshot.pools().get(&claim.spec.pool)) else {
            return Pace::Now;
        };
        let allowance = self.ledger.allowance(ctx, pool, reason);
        if allowance.at_once == 0 {
            return Pace::Never;
        }
        if allowance.waiting == 0 {
            return Pace::Later;
        }
        self.ledger.remove_waiting(&claim.spec.pool);
        Pace::Now
    }

    /// Keeps the replaced nodes. Deletes the replacements that have no Node yet; the others become ordinary nodes. Those
    /// without pods are cordoned, and removed once they are certainly empty: the snapshot of pods may be outdated, and a
    /// claim's deletion can't be reverted.
    fn roll_back(&mut self, ctx: &mut ReconcileContext<'_>, why: &str) {
        self.history.count_command(self.id, self.command.reason, Outcome::RolledBack);
        for (name, claim) in &self.waiting {
            self.history.back_off(name, ctx.now.mono + BACKOFF);
            self.history.search_again(&claim.spec.pool);
            let note = format!("{}: {why}; the node stays", self.command.reason);
            ctx.event(object_reference(&***claim), true, events::DISRUPTION_FAILED, note);
        }
        for (name, claim) in &self.command.replacements {
            if claim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let snapshot = ctx.snapshot;
            let node = snapshot.node_of(claim);
            let is_nominated = snapshot.nominated_to(name).next().is_some();
            if node.is_none() && !is_nominated {
                ctx.request(delete_claim(name, claim));
                continue;
            }
            let is_used = |node| is_nominated || snapshot.pods_on(node).any(|(_, pod)| pod.counts_as_work());
            let empty = node.filter(|(name, node)| !is_used(name) && !node.is_cordoned_by_croft());
            // Once it is released, nothing else would cordon it.
            if let Some((node_name, node)) = empty
                && !emptiness::cordon(ctx, self.history, node_name, node)
            {
                ctx.requeue_after(Duration::from_secs(1));
                continue;
            }
            ctx.request(release(name, claim));
        }
    }
}

/// When a replaced node is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Now,
    Later,
    Never,
}

/// Removes the annotations of a command from a replacement.
fn release(name: &str, claim: &NodeClaim) -> Action {
    Action::write(
        Target::Claim(name.to_owned()),
        Verb::Patch(json!({"metadata": {
            "uid": claim.metadata.uid,
            "annotations": {keys::MOVE: null, keys::REPLACES: null},
        }})),
    )
}

/// The order in which a command's nodes are removed: the most expensive first, whose pods then have the most room. The
/// search assumes the same order.
fn removal_order(claim: &NodeClaim) -> (Reverse<Option<Price>>, Option<String>) {
    (Reverse(price(claim)), claim.status.as_ref().and_then(|status| status.node_name.clone()))
}

/// Plans the pods of `nodes` without these nodes, by `templates`; instances for other pods are left out.
///
/// # Errors
/// Which pod is unschedulable, and why.
pub(crate) fn plan_without(
    snapshot: &Snapshot,
    solver: &Solver,
    nodes: &[&str],
    templates: &LaunchTemplates,
) -> Result<Plan, String> {
    let options = Options { templates: templates.clone(), ..Options::default() };
    plan_pods(snapshot, solver, snapshot.cluster(), nodes, options)
}

/// [`plan_without`], with pods bound to existing nodes as kube-scheduler would, which knows no plan. Nodes are removed in
/// [`removal_order`].
fn plan_as_bound(
    snapshot: &Snapshot,
    solver: &Solver,
    cluster: &Cluster,
    nodes: &[&str],
    templates: &LaunchTemplates,
) -> Result<Plan, String> {
    let templates = templates.clone();
    let options = Options { simulate_default_scheduler: true, templates, ..Options::default() };
    plan_pods(snapshot, solver, cluster, nodes, options)
}

fn plan_pods(
    snapshot: &Snapshot,
    solver: &Solver,
    cluster: &Cluster,
    nodes: &[&str],
    options: Options,
) -> Result<Plan, String> {
    let pods: BTreeSet<PodKey> = nodes
        .iter()
        .flat_map(|node| snapshot.pods_on(node))
        .filter(|(_, pod)| pod.must_leave())
        .map(|(key, _)| key.clone())
        .collect();
    let without_nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
    let (closed_nodes, leaving) = (snapshot.closed_nodes(), snapshot.leaving_nodes());
    let options = Options { without_nodes, without_counts: true, closed_nodes, leaving, ..options };
    let planned = solver.plan(Purpose::Disruption, cluster, &options);
    let mut plan = planned.map_err(|panicked| panicked.to_string())?;
    if let Some(left) = plan.unschedulable.iter().find(|left| pods.contains(&left.pod)) {
        let why = left.reasons.first().map_or("", |r| r.detail.as_str());
        return Err(format!("pod {} is unschedulable: {why}", left.pod));
    }
    // Headroom pods on those nodes move like pods.
    let headroom = nodes.iter().any(|node| snapshot.has_headroom_on(node));
    plan.instances.retain(|instance| {
        instance.pods.iter().any(|pod| pods.contains(pod) || (headroom && Snapshot::is_headroom(pod)))
    });
    plan.existing.retain(|placement| placement.pods.iter().any(|pod| pods.contains(pod)));
    Ok(plan)
}

/// A plan with the additional instances that it needs for kube-scheduler to bring it about.
fn completed(
    snapshot: &Snapshot,
    solver: &Solver,
    nodes: &[&str],
    templates: &LaunchTemplates,
    mut plan: Plan,
) -> Result<Plan, String> {
    if plan.instances.len() + plan.existing.len() <= 1 {
        return Ok(plan);
    }
    let mut nodes = nodes.to_vec();
    nodes.sort_by_cached_key(|node| snapshot.claim_of_node(node).map(|claim| removal_order(claim)));
    let mut cluster = snapshot.cluster().clone();
    let lacking = |cluster: &Cluster| {
        plan_as_bound(snapshot, solver, cluster, &nodes, templates).map(|plan| plan.instances)
    };
    let instances = complete(&mut cluster, plan.instances, lacking)?;
    plan.instances = instances.ok_or_else(|| Rejection::SchedulerWouldNotFit.to_string())?;
    Ok(plan)
}

/// Plans the replacements of `claims`, whose nodes are `nodes`: for their pods, or, if they are of a fixed size, as many nodes as are
/// removed. Either all of them are of the same fixed size or none is. `leaving` are nodes of commands in flight: their pods are placed first.
/// New nodes for pods are launched by `templates` alone.
///
/// # Errors
/// Why the nodes can't be replaced.
pub(crate) fn plan_replacements<'a>(
    ctx: &ReconcileContext<'_>,
    claims: impl IntoIterator<Item = &'a Arc<NodeClaim>>,
    nodes: &[&str],
    leaving: &[&str],
    templates: &LaunchTemplates,
) -> Result<Plan, String> {
    let (snapshot, solver) = (ctx.snapshot, ctx.solver);
    let fixed = claims.into_iter().next().and_then(|claim| {
        let pool = snapshot.pools().get(&claim.spec.pool)?;
        Some((pool, static_capacity::size_of(snapshot, claim)?))
    });
    let Some((pool, size)) = fixed else {
        let nodes = [nodes, leaving].concat();
        let plan = plan_without(snapshot, solver, &nodes, templates)?;
        let plan = completed(snapshot, solver, &nodes, templates, plan)?;
        return check_launches(snapshot, &plan.instances).map(|()| plan);
    };
    let going = [nodes, leaving].concat();
    let planned = static_capacity::plan_nodes(snapshot, solver, pool, &size, nodes.len(), &going);
    let (plan, lack) = planned.map_err(|panicked| panicked.to_string())?;
    match lack {
        Some(lack) => {
            let what = size.describe(pool.metadata.name.as_deref().unwrap_or_default());
            Err(format!("{what} would lack a node: {}", lack.detail))
        }
        None => check_launches(snapshot, &plan.instances).map(|()| plan),
    }
}

/// Checks that a command's instances may be launched together: after failed launches one is tried at a time, and a command
/// launches all of its instances or none.
///
/// # Errors
/// How many may be launched now.
pub(crate) fn check_launches(snapshot: &Snapshot, instances: &[PlannedInstance]) -> Result<(), String> {
    if instances.len() <= 1 {
        return Ok(());
    }
    let plan = Plan { instances: instances.to_vec(), ..Plan::default() };
    let count: usize = provision(snapshot, &plan).claims.iter().map(|new| new.claims.len()).sum();
    // None: the pool is going, which a later pass sees.
    if count == 0 || count >= instances.len() {
        return Ok(());
    }
    Err(format!(
        "{} nodes would be launched, of which {count} may be launched now: after failed launches they are tried one at a \
         time",
        instances.len()
    ))
}

/// A command to start.
pub(crate) struct NewCommand<'p> {
    /// The disruption reason.
    pub(crate) reason: &'p str,
    /// The claims to replace.
    pub(crate) claims: &'p [NamedClaim<'p>],
    /// The instances to launch first.
    pub(crate) instances: &'p [PlannedInstance],
    /// Why, for events.
    pub(crate) note: &'p str,
}

/// Starts a command: launches its instances, or deletes the claims at once if it needs none. False if a key that it needs
/// is locked; then a later pass decides again.
pub(crate) fn start(ctx: &mut ReconcileContext<'_>, history: &mut History, command: &NewCommand<'_>) -> bool {
    let NewCommand { reason, claims, instances, note } = command;
    if !claims.iter().all(|(name, _)| ctx.is_idle(&Key::Claim((*name).to_owned()))) {
        return false;
    }
    if instances.is_empty() {
        history.count(reason, Outcome::Started);
        history.count(reason, Outcome::Completed);
        for (name, claim) in *claims {
            ctx.event(object_reference(&***claim), false, events::DISRUPTED, format!("{reason}: {note}"));
            ctx.request(delete_claim(name, claim));
        }
        return true;
    }
    let plan = Plan { instances: instances.to_vec(), ..Plan::default() };
    let mut created = provision(ctx.snapshot, &plan).claims;
    let count: usize = created.iter().map(|new| new.claims.len()).sum();
    if count < instances.len() {
        // A pool was deleted meanwhile.
        return false;
    }
    // Other claims that the same limit counts are in creation: the plan didn't know them.
    if created.iter().any(|new| ctx.is_limit_in_flight(&new.pool)) {
        return false;
    }
    let Some(id) = created.first().and_then(|new| new.claims.first()).map(|c| c.name.clone()) else {
        return false;
    };
    let replaces = claims.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    let mut launched = Vec::new();
    for claim in created.iter_mut().flat_map(|new| &mut new.claims) {
        launched.push(claim.name.clone());
        let annotations = json!({"metadata": {"annotations": {
            keys::MOVE: format!("{id}/{count}"),
            keys::REPLACES: replaces,
            keys::DISRUPTION_REASON: reason,
        }}});
        merge_patch::apply(&mut claim.object, &annotations);
    }
    let actions: Vec<Action> = created.into_iter().map(Action::CreateClaims).collect();
    if !actions.iter().flat_map(Action::keys).all(|key| ctx.is_idle(&key)) {
        return false;
    }
    history.count(reason, Outcome::Started);
    for (_, claim) in *claims {
        let note = format!("{reason}: {note}; its replacement {} is launched first", launched.join(", "));
        ctx.event(object_reference(&***claim), false, events::DISRUPTION_STARTED, note);
    }
    for action in actions {
        ctx.request(action);
    }
    true
}
