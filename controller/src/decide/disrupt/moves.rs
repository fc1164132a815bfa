//! Replacement first, drain second; and no replacement, no drain.
//!
//! ```text
//!   claims made, naming what they replace ──▶ all initialized ──▶ looked at again ──▶ replaced claims deleted
//!        │                                         │                    │
//!        └── one isn't made, or goes ──────────────┴── the pods no ─────┴──▶ undone: what was made and is still
//!                                                      longer fit             empty goes, the nodes stay
//! ```
//!
//! A move is nothing but two annotations on the claims that it made, so that a restart loses none.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{NodeClaim, condition::INITIALIZED, disruption::DisruptionReason};
use croft_scheduler::{
    Cluster, Machine, Options, Plan, PodKey, Price,
    consolidation::{Stay, complete},
};
use serde_json::json;

use super::{
    budgets::Ledger,
    tally::{Outcome, Tally},
};
use crate::{
    action::{Action, Key},
    decide::{Memory, Round, lifecycle, provision::provision, reference, standing},
    names,
    seam::{Call, Target, Verb},
    snapshot::{Snapshot, is, price},
    solver::Run,
};

/// How long pods may find no place on what was launched for them before the move is undone.
const PATIENCE: Duration = Duration::from_secs(30);
/// A node whose move was undone is left alone for this long.
const HOLD: Duration = Duration::from_secs(600);

/// Whether a node of a move goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Now,
    Later,
    Never,
}

/// One move that is under way.
#[derive(Debug)]
pub struct Move<'a> {
    /// How many claims it made.
    expected: usize,
    reason: &'a str,
    /// Those that are there.
    members: BTreeMap<&'a str, &'a Arc<NodeClaim>>,
    /// Those to be replaced that are there.
    replaced: BTreeMap<&'a str, &'a Arc<NodeClaim>>,
}

/// All moves under way.
#[derive(Debug, Default)]
pub struct Moves<'a> {
    by_id: BTreeMap<&'a str, Move<'a>>,
    awaited: BTreeSet<&'a str>,
    replaced: BTreeSet<&'a str>,
    pools: BTreeSet<&'a str>,
}

impl<'a> Moves<'a> {
    /// Reads the moves off the claims. One whose replaced claims are all gone is over.
    #[must_use]
    pub fn read(snapshot: &'a Snapshot) -> Self {
        let mut moves = Self::default();
        for (name, claim) in snapshot.replacements() {
            let Some(annotations) = &claim.metadata.annotations else { continue };
            let (Some(id), Some(replaces)) = (annotations.get(names::MOVE), annotations.get(names::REPLACES))
            else {
                continue;
            };
            let there: Vec<_> =
                replaces.split(',').filter_map(|r| snapshot.claims.get_key_value(r)).collect();
            if there.is_empty() {
                continue;
            }
            let (id, expected) = id.split_once('/').unwrap_or((id, "1"));
            let entry = moves.by_id.entry(id).or_insert_with(|| Move {
                expected: expected.parse().unwrap_or(1),
                reason: annotations.get(names::DISRUPTION_REASON).map_or("", String::as_str),
                members: BTreeMap::new(),
                replaced: BTreeMap::new(),
            });
            entry.members.insert(name, claim);
            moves.awaited.insert(name);
            moves.pools.insert(&claim.spec.pool);
            for (name, claim) in there {
                entry.replaced.insert(name, claim);
                moves.replaced.insert(name);
                moves.pools.insert(&claim.spec.pool);
            }
        }
        moves
    }

    /// True for a claim that was made to replace others which are still there.
    #[must_use]
    pub fn is_awaited(&self, claim: &str) -> bool {
        self.awaited.contains(claim)
    }

    /// True for a claim that is to be replaced.
    #[must_use]
    pub fn is_replaced(&self, claim: &str) -> bool {
        self.replaced.contains(claim)
    }

    /// Nodes of this pool that are to be replaced.
    #[must_use]
    pub fn leaving(&self, snapshot: &'a Snapshot, pool: &str) -> Vec<&'a str> {
        let replaced = self.replaced.iter().filter_map(|name| snapshot.claims.get(*name));
        replaced
            .filter(|claim| claim.spec.pool == pool)
            .filter_map(|claim| Some(snapshot.node_of(claim)?.0))
            .collect()
    }

    /// True while a move of this pool is under way: what its new machines have free is spoken for.
    #[must_use]
    pub fn concerns(&self, pool: &str) -> bool {
        self.pools.contains(pool)
    }

    /// Decides the next step of every move.
    pub fn advance(&self, round: &mut Round<'_>, memory: &mut Memory, ledger: &Ledger<'_>) {
        memory.disruption.unfit_since.retain(|id, _| self.by_id.contains_key(id.as_str()));
        memory.disruption.ended.retain(|id| self.by_id.contains_key(id.as_str()));
        for (id, one) in &self.by_id {
            one.advance(id, round, memory, ledger);
        }
    }
}

impl Move<'_> {
    fn advance(&self, id: &str, round: &mut Round<'_>, memory: &mut Memory, ledger: &Ledger<'_>) {
        let mut waiting: Vec<(&str, &Arc<NodeClaim>)> = self
            .replaced
            .iter()
            .filter(|(_, claim)| claim.metadata.deletion_timestamp.is_none())
            .map(|(name, claim)| (*name, *claim))
            .collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort_by_cached_key(|(_, claim)| turn(claim));
        // Claims of this move may still be in the making.
        if round.snapshot.pools.keys().any(|pool| !round.is_idle(&Key::Plan(pool.clone()))) {
            return;
        }
        if waiting.iter().any(|(_, claim)| !round.snapshot.is_provisioned_by_croft(&claim.spec.pool)) {
            self.undo(id, round, memory, &waiting, "its pool was handed to another provisioner");
            return;
        }
        let goes = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_some();
        if self.members.len() < self.expected || self.members.values().any(|claim| goes(claim)) {
            self.undo(id, round, memory, &waiting, "a machine in its place didn't come");
            return;
        }
        if !self.members.values().all(|claim| is(claim, INITIALIZED)) {
            return;
        }
        let nodes: Vec<&str> =
            waiting.iter().filter_map(|(_, claim)| Some(round.snapshot.node_of(claim)?.0)).collect();
        match bound(round.snapshot, &round.snapshot.cluster, &nodes) {
            Ok(plan) if plan.machines.is_empty() => {
                self.ended(id, memory, Outcome::Done);
                for (name, claim) in &waiting {
                    match self.may_go(round, ledger, claim) {
                        Pace::Now => {}
                        Pace::Later => continue,
                        Pace::Never => {
                            self.undo(id, round, memory, &waiting, "the pool's budget lets no more nodes go");
                            return;
                        }
                    }
                    let note = format!(
                        "{}: {} in its place is ready; its pods move now",
                        self.reason,
                        self.members.keys().copied().collect::<Vec<_>>().join(", "),
                    );
                    round.tell(reference(&***claim), false, "Disrupted", note);
                    round.act(lifecycle::delete(name, claim));
                }
            }
            other => {
                let since = *memory.disruption.unfit_since.entry(id.to_owned()).or_insert(round.now.mono);
                if round.has_lasted(since, PATIENCE) {
                    let why = other.err().map_or_else(String::new, |why| format!(": {why}"));
                    let why = format!("its pods no longer fit on what was launched for them{why}");
                    self.undo(id, round, memory, &waiting, &why);
                }
            }
        }
    }

    /// Nodes go as many at once as the pool's budget says, and the rest when those are gone; one that the cloud takes
    /// away goes whatever it says.
    fn may_go(&self, round: &mut Round<'_>, ledger: &Ledger<'_>, claim: &NodeClaim) -> Pace {
        let known = DisruptionReason::named(self.reason);
        let Some((reason, pool)) = known.zip(round.snapshot.pools.get(&claim.spec.pool)) else {
            return Pace::Now;
        };
        let (most, left) = ledger.left_of_move(round, pool, reason);
        if most == 0 {
            return Pace::Never;
        }
        if left == 0 {
            return Pace::Later;
        }
        ledger.go(&claim.spec.pool);
        Pace::Now
    }

    /// Each move ends once, however often it is looked at until its claims are gone.
    fn ended(&self, id: &str, memory: &mut Memory, outcome: Outcome) {
        if memory.disruption.ended.insert(id.to_owned()) {
            memory.disruption.tally.note(self.reason, outcome);
        }
    }

    fn undo(
        &self,
        id: &str,
        round: &mut Round<'_>,
        memory: &mut Memory,
        waiting: &[(&str, &Arc<NodeClaim>)],
        why: &str,
    ) {
        self.ended(id, memory, Outcome::Undone);
        for (name, claim) in waiting {
            memory.disruption.held_until.insert((*name).to_owned(), round.now.mono + HOLD);
            if let Some(asked) = memory.disruption.asked.get_mut(&claim.spec.pool) {
                asked.forget();
            }
            let note = format!("{}: {why}; the node stays", self.reason);
            round.tell(reference(&***claim), true, "DisruptionUndone", note);
        }
        for (name, claim) in &self.members {
            if claim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let node = round.snapshot.node_of(claim).map(|(node, _)| node);
            let used = node.is_some_and(|node| round.snapshot.pods_on(node).any(|(_, p)| p.counts_as_work()))
                || round.snapshot.nominated_to(name).next().is_some();
            if used {
                // Others have found it: it is a node like any other from here on.
                round.act(forget(name, claim));
            } else {
                round.act(lifecycle::delete(name, claim));
            }
        }
    }
}

fn forget(name: &str, claim: &NodeClaim) -> Action {
    Action::Write {
        key: Key::Claim(name.to_owned()),
        call: Call {
            target: Target::Claim(name.to_owned()),
            verb: Verb::Patch(json!({"metadata": {
                "uid": claim.metadata.uid,
                "annotations": {names::MOVE: null, names::REPLACES: null},
            }})),
        },
        rest: Duration::ZERO,
    }
}

/// Where the pods of `nodes` go without them; machines of other pods are left out. The error says which pod finds no
/// place, and why.
pub(in crate::decide) fn places(snapshot: &Snapshot, nodes: &[&str]) -> Result<Plan, String> {
    planned(snapshot, &snapshot.cluster, nodes, Options::default())
}

/// [`places`], with pods bound to what is there by kube-scheduler, which knows of no plan. Nodes go in their [`turn`].
fn bound(snapshot: &Snapshot, cluster: &Cluster, nodes: &[&str]) -> Result<Plan, String> {
    planned(snapshot, cluster, nodes, Options { simulate_default_scheduler: true, ..Options::default() })
}

/// Which node of a move goes before which: the dearest first, whose pods then find the most room. The search has them
/// go in the same order.
fn turn(claim: &NodeClaim) -> (Reverse<Option<Price>>, Option<String>) {
    (Reverse(price(claim)), claim.status.as_ref().and_then(|status| status.node_name.clone()))
}

fn planned(snapshot: &Snapshot, cluster: &Cluster, nodes: &[&str], options: Options) -> Result<Plan, String> {
    let pods: BTreeSet<PodKey> = nodes
        .iter()
        .flat_map(|node| snapshot.pods_on(node))
        .filter(|(_, pod)| pod.must_leave())
        .map(|(key, _)| key.clone())
        .collect();
    let without_nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
    let options = Options { without_nodes, without_counts: true, ..options };
    let planned = snapshot.solver.plan(Run::Disruption, cluster, &options);
    let mut plan = planned.map_err(|panicked| panicked.to_string())?;
    if let Some(left) = plan.unschedulable.iter().find(|left| pods.contains(&left.pod)) {
        let why = left.reasons.first().map_or("", |r| r.detail.as_str());
        return Err(format!("pod {} finds no place: {why}", left.pod));
    }
    // Spare places on those nodes move like pods.
    let headroom = nodes.iter().any(|node| snapshot.keeps_headroom(node));
    plan.machines.retain(|machine| {
        machine.pods.iter().any(|pod| pods.contains(pod) || (headroom && Snapshot::is_headroom(pod)))
    });
    plan.existing.retain(|place| place.pods.iter().any(|pod| pods.contains(pod)));
    Ok(plan)
}

/// A plan with whatever machines more it takes to come about.
fn completed(snapshot: &Snapshot, nodes: &[&str], mut plan: Plan) -> Result<Plan, String> {
    if plan.machines.len() + plan.existing.len() <= 1 {
        return Ok(plan);
    }
    let mut nodes = nodes.to_vec();
    nodes.sort_by_cached_key(|node| snapshot.claim_of_node(node).map(|claim| turn(claim)));
    let mut cluster = snapshot.cluster.clone();
    let lacking = |cluster: &Cluster| bound(snapshot, cluster, &nodes).map(|plan| plan.machines);
    let machines = complete(&mut cluster, plan.machines, lacking)?;
    plan.machines = machines.ok_or_else(|| Stay::SchedulerWouldNotFit.to_string())?;
    Ok(plan)
}

/// What to launch in place of `claims`, whose nodes are `nodes`: what their pods need, or, in a pool of a fixed size,
/// as many machines as go. `leaving` are nodes that others replace already: their pods take their places first.
pub(in crate::decide) fn instead<'a>(
    snapshot: &Snapshot,
    claims: impl IntoIterator<Item = &'a Arc<NodeClaim>>,
    nodes: &[&str],
    leaving: &[&str],
) -> Result<Plan, String> {
    let fixed = claims.into_iter().next().and_then(|claim| {
        let pool = snapshot.pools.get(&claim.spec.pool)?;
        standing::replicas(pool).map(|_| (&claim.spec.pool, pool))
    });
    let Some((name, pool)) = fixed else {
        let nodes = [nodes, leaving].concat();
        return completed(snapshot, &nodes, places(snapshot, &nodes)?);
    };
    let planned = standing::machines(snapshot, pool, nodes.len());
    let (plan, lack) = planned.map_err(|panicked| panicked.to_string())?;
    match lack {
        Some(lack) => Err(format!("pool {name} would lack a machine: {}", lack.detail)),
        None => Ok(plan),
    }
}

/// Begins a move: launches `machines` in place of `claims`, or gives these back at once if none is needed. False if
/// something holds what it needs; then it is decided again.
pub(in crate::decide) fn begin(
    round: &mut Round<'_>,
    tally: &mut Tally,
    reason: &str,
    claims: &[(&str, &Arc<NodeClaim>)],
    machines: &[Machine],
    note: &str,
) -> bool {
    if !claims.iter().all(|(name, _)| round.is_idle(&Key::Claim((*name).to_owned()))) {
        return false;
    }
    if machines.is_empty() {
        tally.note(reason, Outcome::Begun);
        tally.note(reason, Outcome::Done);
        for (name, claim) in claims {
            round.tell(reference(&***claim), false, "Disrupted", format!("{}: {note}", reason));
            round.act(lifecycle::delete(name, claim));
        }
        return true;
    }
    let plan = Plan { machines: machines.to_vec(), ..Plan::default() };
    let mut made = provision(round.snapshot, &plan).claims;
    let count: usize = made.iter().map(|new| new.claims.len()).sum();
    if count < machines.len() {
        // A pool has gone meanwhile.
        return false;
    }
    // Other claims that the same limit counts are being created: the plan didn't know of them.
    if made.iter().any(|new| round.is_limit_in_flight(&new.pool)) {
        return false;
    }
    let Some(id) = made.first().and_then(|new| new.claims.first()).map(|c| c.name.clone()) else {
        return false;
    };
    let replaces = claims.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    let mut launched = Vec::new();
    for claim in made.iter_mut().flat_map(|new| &mut new.claims) {
        launched.push(claim.name.clone());
        let annotations = json!({"metadata": {"annotations": {
            names::MOVE: format!("{id}/{count}"),
            names::REPLACES: replaces,
            names::DISRUPTION_REASON: reason,
        }}});
        crate::merge::apply(&mut claim.object, &annotations);
    }
    let actions: Vec<Action> = made.into_iter().map(Action::CreateClaims).collect();
    if !actions.iter().flat_map(Action::keys).all(|key| round.is_idle(&key)) {
        return false;
    }
    tally.note(reason, Outcome::Begun);
    for (_, claim) in claims {
        let note = format!("{}: {note}; {} comes first", reason, launched.join(", "));
        round.tell(reference(&***claim), false, "Disrupting", note);
    }
    for action in actions {
        round.act(action);
    }
    true
}
