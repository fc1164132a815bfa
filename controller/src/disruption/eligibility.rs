//! Fills the facts by which `croft_disruption` evaluates a node.

use std::time::Duration;

use croft_api::{
    NodeClaim, TenantPool, condition::INITIALIZED, convert::static_capacity::size_of, pool::Provisioner,
};
use croft_disruption::{
    blockers::DisruptionBlocker,
    eligibility::{self, ConsolidationStatus, Cordon, NodeFacts},
};
use croft_scheduler::{CapacityType, Price};

use crate::{
    definitions::keys,
    disruption::{
        node_blocker::{requeue_at_end, standing_blocker},
        outcomes::History,
    },
    reconcile::{ReconcileContext, commands::Commands},
    state::{
        NodeView,
        blockers::{bare_pod_blocker, pod_blocker},
        has_condition, price,
    },
};

/// Whether the search may consider a claim's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Eligibility {
    /// The claim has no initialized node, or is being terminated.
    NoNode,
    /// No, and the status says why.
    Settled(ConsolidationStatus),
    /// Yes.
    Candidate {
        /// The node's name.
        node: String,
        /// Its price.
        price: Price,
        /// Its capacity type.
        capacity_type: CapacityType,
    },
}

/// The inputs of the evaluation of nodes beside the snapshot.
#[derive(Clone, Copy)]
pub(crate) struct Past<'p> {
    /// Commands in flight.
    pub(crate) commands: &'p Commands<'p>,
    /// Backoff after failed disruptions.
    pub(crate) history: &'p History,
}

/// Evaluates a claim's node, but for its pool's budgets. `steady_since` is when its pods last changed.
pub(crate) fn evaluate(
    ctx: &mut ReconcileContext<'_>,
    past: Past<'_>,
    name: &str,
    claim: &NodeClaim,
    pool: &TenantPool,
    steady_since: Option<Duration>,
) -> Eligibility {
    let snapshot = ctx.snapshot;
    let Some((node_name, node)) = snapshot.node_of(claim) else { return Eligibility::NoNode };
    if claim.metadata.deletion_timestamp.is_some() || !has_condition(claim, INITIALIZED) {
        return Eligibility::NoNode;
    }
    let mono = ctx.now.mono;
    let facts = NodeFacts {
        provisioned_by_croft: pool.spec.provisioner == Provisioner::Croft,
        is_replaced: past.commands.is_replaced(name),
        is_replacement: past.commands.is_replacement(name),
        is_of_fixed_size: size_of(pool, claim.template()).is_some(),
        works: node.ready && !node.deleting,
        cordon: cordon(node),
        standing: standing_blocker(ctx, claim, node, pool),
        has_work: snapshot.has_work(name, node_name),
        pods_nominated: snapshot.nominated_to(name).next().is_some(),
        backoff_left: past.history.backoff_left(name, mono),
        steady_for: steady_since.map_or(Duration::ZERO, |since| mono.saturating_sub(since)),
        price: price(claim),
    };
    let (now, mut ends) = (ctx.now.wall, None);
    let blocker = || {
        let by_pod = pod_blocker(snapshot, node_name, now);
        ends = by_pod.as_ref().and_then(DisruptionBlocker::ends);
        by_pod.or_else(|| bare_pod_blocker(snapshot, node_name, now))
    };
    let evaluated = eligibility::evaluate(&facts, &pool.spec.disruption, blocker);
    requeue_at_end(ctx, ends);
    match evaluated {
        eligibility::Eligibility::Settled { status, recheck_after } => {
            if let Some(after) = recheck_after {
                ctx.requeue_after(after);
            }
            Eligibility::Settled(status)
        }
        eligibility::Eligibility::Candidate { price } => Eligibility::Candidate {
            node: node_name.to_owned(),
            price,
            capacity_type: CapacityType::parse(&claim.spec.capacity_type).unwrap_or_default(),
        },
    }
}

fn cordon(node: &NodeView) -> Cordon {
    match (node.unschedulable, node.has_taint(keys::DISRUPTED_TAINT)) {
        (false, _) => Cordon::None,
        (true, false) => Cordon::ByUser,
        (true, true) => Cordon::ByCroft,
    }
}
