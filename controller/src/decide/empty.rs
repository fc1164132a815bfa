//! Nodes without work: cordoned, watched for a moment, given up.
//!
//! A pod may be bound to a node in the very moment in which it is found empty. So the node is cordoned first,
//! and its claim deleted only when nothing has come by the time that every binding made before must have
//! shown, and the API server itself has no pod there; otherwise the cordon is taken back.

use std::{collections::BTreeSet, time::Duration};

use croft_api::{
    NodeClaim,
    condition::{INITIALIZED, INTERRUPTED},
    disruption::DisruptionReason,
};

use super::{
    Memory, Round,
    disrupt::{budgets::Ledger, guard, moves::Moves, tally::Outcome},
    lifecycle, nodes, reference, termination,
};
use crate::{
    action::{Action, Key},
    names,
    seam::{Call, Target, Verb},
    snapshot::{NodeView, is},
};

/// Decides about every node of Croft that has no work.
pub fn decide<'a>(round: &mut Round<'a>, memory: &mut Memory, ledger: &Ledger<'_>, moves: &Moves<'_>) {
    let snapshot = round.snapshot;
    let mono = round.now.mono;
    memory.expected_until.retain(|_, until| *until > mono);
    let mut seen = BTreeSet::new();
    for (name, claim) in snapshot.restless() {
        if claim.metadata.deletion_timestamp.is_some() || !is(claim, INITIALIZED) || is(claim, INTERRUPTED) {
            continue;
        }
        let Some((node_name, node)) = snapshot.node_of(claim) else { continue };
        seen.insert(node_name.to_owned());
        // What was launched to take another's pods isn't empty: they are on their way.
        let has_work = moves.is_awaited(name) || has_work(round, memory, name, node_name);
        if has_work {
            memory.empty_since.remove(node_name);
        } else {
            memory.empty_since.entry(node_name.to_owned()).or_insert(mono);
        }
        let handed_over = !snapshot.is_provisioned_by_croft(&claim.spec.pool);
        if node.has_taint(names::DISRUPTED_TAINT) {
            let why = if has_work {
                Some("got pods")
            } else {
                handed_over.then_some("was handed to another provisioner with its pool")
            };
            cordoned(round, memory, name, claim, node_name, node, why);
        } else if !has_work && !handed_over {
            memory.cordoned_since.remove(node_name);
            free(round, memory, ledger, claim, node_name, node);
        }
    }
    memory.empty_since.retain(|node, _| seen.contains(node));
    memory.cordoned_since.retain(|node, _| seen.contains(node));
}

/// True if pods are there, or are meant to be.
pub fn has_work(round: &Round<'_>, memory: &Memory, claim: &str, node: &str) -> bool {
    let snapshot = round.snapshot;
    snapshot.pods_on(node).any(|(_, pod)| pod.counts_as_work())
        || snapshot.nominated_to(claim).next().is_some()
        || memory.expected_until.contains_key(node)
        || snapshot.keeps_headroom(node)
        || snapshot.keeps_headroom(claim)
}

fn free<'a>(
    round: &mut Round<'a>,
    memory: &mut Memory,
    ledger: &Ledger<'_>,
    claim: &'a NodeClaim,
    node_name: &str,
    node: &NodeView,
) {
    let Some(pool) = round.snapshot.pools.get(&claim.spec.pool) else { return };
    let Ok(Some(after)) = croft_api::duration::parse(&pool.spec.disruption.consolidate_after) else { return };
    if guard::asked(claim, node, pool).is_some() || pool.spec.replicas.is_some() {
        return;
    }
    let Some(since) = memory.empty_since.get(node_name).copied() else { return };
    if !round.has_lasted(since, after) || ledger.left(round, pool, DisruptionReason::Empty) == 0 {
        return;
    }
    if !round.is_idle(&Key::Node(node_name.to_owned())) {
        return;
    }
    ledger.take(&claim.spec.pool);
    memory.disruption.tally.note(DisruptionReason::Empty.as_str(), Outcome::Begun);
    round.act(Action::Write {
        key: Key::Node(node_name.to_owned()),
        call: Call {
            target: Target::Node(node_name.to_owned()),
            verb: Verb::JsonPatch(nodes::cordon(node, round.now.wall)),
        },
        rest: Duration::ZERO,
    });
}

fn cordoned(
    round: &mut Round<'_>,
    memory: &mut Memory,
    name: &str,
    claim: &NodeClaim,
    node_name: &str,
    node: &NodeView,
    stays: Option<&str>,
) {
    if let Some(why) = stays {
        memory.cordoned_since.remove(node_name);
        if !round.is_idle(&Key::Node(node_name.to_owned())) {
            return;
        }
        memory.disruption.tally.note(DisruptionReason::Empty.as_str(), Outcome::Undone);
        let note = format!("node {node_name} {why} while it was being removed; it stays");
        round.tell(reference(claim), false, "DisruptionUndone", note);
        round.act(Action::Write {
            key: Key::Node(node_name.to_owned()),
            call: Call {
                target: Target::Node(node_name.to_owned()),
                verb: Verb::JsonPatch(nodes::uncordon(node)),
            },
            rest: Duration::ZERO,
        });
        return;
    }
    let since = *memory.cordoned_since.entry(node_name.to_owned()).or_insert(round.now.mono);
    if round.has_lasted(since, round.settings.settle) {
        // A claim's deletion can't be taken back, and the picture of pods may be old.
        let Some(look) = termination::look(round, name, claim) else { return };
        if !termination::is_vacant(round, memory, look) {
            return;
        }
        let note = format!("node {node_name} is empty and is given back");
        round.tell(reference(claim), false, "Empty", note);
        if round.is_idle(&Key::Claim(name.to_owned())) {
            memory.disruption.tally.note(DisruptionReason::Empty.as_str(), Outcome::Done);
        }
        round.act(lifecycle::delete(name, claim));
    }
}
