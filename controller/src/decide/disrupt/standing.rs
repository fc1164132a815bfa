//! How a node stands towards consolidation: whether the search is asked about it, and what keeps it otherwise.

use std::time::Duration;

use croft_api::{
    NodeClaim, TenantPool,
    condition::{INITIALIZED, Statement},
    disruption::ConsolidationPolicy,
    duration,
    pool::Provisioner,
};
use croft_scheduler::{CapacityType, Price, consolidation::Stay};

use super::{guard, moves::Moves};
use crate::{
    decide::{Memory, Round, empty},
    names,
    snapshot::{is, price},
};

/// The condition's name on claims.
pub const CONSOLIDATABLE: &str = croft_api::condition::CONSOLIDATABLE;

/// What is said of a claim in its condition `Consolidatable`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// True if it is to go, or goes.
    pub goes: bool,
    /// A CamelCase word from a closed set.
    pub reason: &'static str,
    /// Why, in words.
    pub message: String,
}

impl Verdict {
    pub(super) fn goes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { goes: true, reason, message: message.into() }
    }

    pub(super) fn stays(reason: &'static str, message: impl Into<String>) -> Self {
        Self { goes: false, reason, message: message.into() }
    }

    /// True if it will be another one soon, by itself.
    pub(super) fn passes(&self) -> bool {
        !self.goes && matches!(self.reason, "Unsteady" | "Awaited" | "Waiting" | "Busy" | "Budget")
    }

    pub(super) fn of(stay: &Stay) -> Self {
        Self::stays(stay.reason(), stay.to_string())
    }

    pub(super) fn statement(&self) -> Statement {
        Statement {
            kind: CONSOLIDATABLE,
            status: Some(self.goes),
            reason: self.reason,
            message: self.message.clone(),
        }
    }
}

/// How a claim stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has no working node yet, or none any more.
    Outside,
    /// Something keeps it, or it goes already.
    Settled(Verdict),
    /// The search may be asked about its node.
    Candidate {
        /// Its node's name.
        node: String,
        /// What it costs.
        price: Price,
        /// How it is paid for.
        capacity_type: CapacityType,
    },
}

/// Looks at everything but the pool's budget.
pub fn look(
    round: &mut Round<'_>,
    memory: &Memory,
    moves: &Moves<'_>,
    name: &str,
    claim: &NodeClaim,
    pool: &TenantPool,
) -> Standing {
    let snapshot = round.snapshot;
    let Some((node, view)) = snapshot.node_of(claim) else { return Standing::Outside };
    if claim.metadata.deletion_timestamp.is_some() || !is(claim, INITIALIZED) {
        return Standing::Outside;
    }
    let stays = |reason, message: &str| Standing::Settled(Verdict::stays(reason, message));
    if pool.spec.provisioner != Provisioner::Croft {
        return stays("ProvisionedElsewhere", "the pool's provisioner is not Croft");
    }
    if moves.is_replaced(name) {
        return Standing::Settled(Verdict::goes(
            "Moving",
            "its pods move once what takes its place is ready",
        ));
    }
    if moves.is_awaited(name) {
        return stays("Awaited", "it was launched to take other nodes' pods, which come next");
    }
    if view.deleting || !view.ready {
        return stays("NotReady", "the node is not Ready");
    }
    if view.unschedulable && !view.has_taint(names::DISRUPTED_TAINT) {
        return stays("Cordoned", "somebody has cordoned the node");
    }
    if let Some(keeps) = guard::asked(claim, view, pool) {
        return stays(keeps.reason(), &keeps.to_string());
    }
    let Ok(Some(after)) = duration::parse(&pool.spec.disruption.consolidate_after) else {
        return stays("Never", "the pool's consolidateAfter is Never");
    };
    if !empty::has_work(round, memory, name, node) {
        let message = format!(
            "it has no pods, and goes {} after the last one went",
            pool.spec.disruption.consolidate_after
        );
        return Standing::Settled(Verdict::goes("Empty", message));
    }
    if view.unschedulable {
        return stays("Cordoned", "it was to go as empty and has got pods");
    }
    if pool.spec.disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty {
        return stays("Policy", "it has pods, and the pool's consolidationPolicy is WhenEmpty");
    }
    if snapshot.nominated_to(name).next().is_some() {
        return stays("Awaited", "pods are on their way to it");
    }
    let keeps = guard::pods(snapshot, node).or_else(|| guard::bare(snapshot, node));
    if let Some(keeps) = keeps {
        return stays(keeps.reason(), &keeps.to_string());
    }
    if memory.disruption.holds(name, round) {
        return stays("Held", "a move of it was undone lately; it is left alone for a while");
    }
    let since = memory.disruption.steady_since.get(node).map_or(round.now.mono, |(_, since)| *since);
    if !round.has_lasted(since, after) {
        let message = format!(
            "its pods have changed within the pool's consolidateAfter of {}",
            pool.spec.disruption.consolidate_after
        );
        return Standing::Settled(Verdict::stays("Unsteady", message));
    }
    let Some(price) = price(claim) else {
        return stays("NoPrice", "nobody knows what it costs");
    };
    Standing::Candidate {
        node: node.to_owned(),
        price,
        capacity_type: CapacityType::parse(&claim.spec.capacity_type).unwrap_or_default(),
    }
}

/// Between two writes of the same reason in other words: dollars and names change more often than anybody reads.
pub const REWORDED_AFTER: Duration = Duration::from_secs(600);
