//! What becomes of the search's answer. By the time that it comes, the picture has moved on: each move is looked at
//! again on the present one, just before it is made.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::NodeClaim;
use croft_scheduler::{
    Price,
    consolidation::{Consolidation, Move},
};

use super::{
    budgets::Ledger,
    moves::{self, Moves},
    seek::{REASON, pods},
    standing::{self, Standing, Verdict},
    tally::Outcome,
};
use crate::decide::{Memory, Round};

/// Makes what was found, move by move, as far as it still holds.
pub fn decide<'a>(round: &mut Round<'a>, memory: &mut Memory, ledger: &Ledger<'_>, moves: &Moves<'_>) {
    let Some(found) = memory.disruption.found.take() else { return };
    say(round, memory, &found);
    let mut made = Made::default();
    for one in &found.moves {
        let claims: Vec<(&str, &'a Arc<NodeClaim>)> = one
            .nodes
            .iter()
            .filter_map(|node| round.snapshot.claim_of_node(node))
            .filter_map(|claim| Some((claim.metadata.name.as_deref()?, claim)))
            .collect();
        if !holds(round, memory, ledger, moves, one, &claims) || !made.fits(round, one) {
            forget(memory, &claims);
            memory.disruption.tally.note(REASON.as_str(), Outcome::Dropped);
            continue;
        }
        let note = format!(
            "moving its pods saves ${}/h (${}/h instead of ${}/h)",
            one.saves(),
            one.after,
            one.before
        );
        if moves::begin(round, &mut memory.disruption.tally, REASON.as_str(), &claims, &one.machines, &note) {
            made.note(one);
            for (name, claim) in &claims {
                ledger.take(&claim.spec.pool);
                memory.disruption.saying.judge(name, Verdict::goes("Moving", note.clone()));
            }
            memory.disruption.saved = memory.disruption.saved.saturating_add(one.saves());
        } else {
            // A pool's names are reserved by one action at a time.
            forget(memory, &claims);
        }
    }
}

fn forget(memory: &mut Memory, claims: &[(&str, &Arc<NodeClaim>)]) {
    for (_, claim) in claims {
        if let Some(asked) = memory.disruption.asked.get_mut(&claim.spec.pool) {
            asked.forget();
        }
    }
}

/// Says of every node that was asked about what the search thinks.
fn say(round: &Round<'_>, memory: &mut Memory, found: &Consolidation) {
    let saying = &mut memory.disruption.saying;
    let name = |node: &String| round.snapshot.claim_of_node(node)?.metadata.name.as_deref();
    for (node, stay) in &found.stays {
        if let Some(claim) = name(node) {
            saying.judge(claim, Verdict::of(stay));
        }
    }
    for one in &found.moves {
        for claim in one.nodes.iter().filter_map(name) {
            let message =
                format!("moving its pods would save ${}/h; the move is looked at again first", one.saves());
            saying.judge(claim, Verdict::goes("Cheaper", message));
        }
    }
}

/// True if the nodes are as they were asked about, and may still go.
fn holds<'a>(
    round: &mut Round<'a>,
    memory: &Memory,
    ledger: &Ledger<'_>,
    moves: &Moves<'_>,
    one: &Move,
    claims: &[(&str, &'a Arc<NodeClaim>)],
) -> bool {
    let snapshot = round.snapshot;
    if claims.len() != one.nodes.len() {
        return false;
    }
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for ((name, claim), node) in claims.iter().zip(&one.nodes) {
        let Some(pool) = snapshot.pools.get(&claim.spec.pool) else { return false };
        let asked = memory.disruption.asked.get(&claim.spec.pool);
        let unchanged = asked.and_then(|a| a.pods.get(node)) == Some(&pods(snapshot, node));
        let standing = standing::look(round, memory, moves, name, claim, pool);
        if !unchanged || !matches!(standing, Standing::Candidate { .. }) || moves.concerns(&claim.spec.pool) {
            return false;
        }
        *wanted.entry(&claim.spec.pool).or_default() += 1;
    }
    // With machines in their place, they go one after the other if need be.
    wanted.iter().all(|(pool, count)| {
        let least = if one.machines.is_empty() { *count } else { 1 };
        snapshot.pools.get(*pool).is_some_and(|pool| ledger.left(round, pool, REASON) >= least)
    })
}

/// What this round has begun.
#[derive(Default)]
struct Made {
    without: Vec<String>,
    launched: Price,
}

impl Made {
    /// True if the move holds on the present picture, together with what was begun already.
    fn fits(&self, round: &Round<'_>, one: &Move) -> bool {
        let all: Vec<&str> = self.without.iter().chain(&one.nodes).map(String::as_str).collect();
        match moves::places(round.snapshot, &all) {
            Ok(plan) if plan.cost <= self.launched.saturating_add(one.after) => true,
            Ok(plan) => {
                tracing::debug!(now = %plan.cost, planned = %one.after, "a move has become dearer");
                false
            }
            Err(why) => {
                tracing::debug!(why, "a move no longer holds");
                false
            }
        }
    }

    fn note(&mut self, one: &Move) {
        self.launched = self.launched.saturating_add(one.after);
        self.without.extend(one.nodes.iter().cloned());
    }
}
