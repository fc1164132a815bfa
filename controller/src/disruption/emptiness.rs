//! Emptiness: empty nodes are cordoned, checked after a delay, and removed.
//!
//! A pod may be bound to a node at the moment in which the node is found empty. So the node is cordoned first. Its claim is
//! deleted only if no pod has appeared by the time that every earlier binding must show, and the API server itself has no
//! pod there. Otherwise the cordon is reverted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::{NodeClaim, condition::INITIALIZED, disruption::DisruptionReason};
use croft_cloud::InterruptionKind;
use croft_disruption::eligibility::ConsolidationStatus;
use croft_scheduler::consolidation::Rejection;

use crate::{
    action::Key,
    definitions::{events, keys},
    disruption::{
        budgets::BudgetLedger,
        consolidation_status::ConsolidationStatuses,
        node_blocker::standing_blocker,
        outcomes::{History, Outcome},
        shares::{ShareConflict, ShareGuard},
    },
    kube_api::Verb,
    nodeclaim::{
        conditions::interruption_kind,
        node_patch,
        pod_check::{has_no_pods, pod_check},
        writes::{delete_claim, patch_node},
    },
    nodepool::static_capacity,
    reconcile::{ReconcileContext, commands::Commands, object_reference},
    state::{NodeView, has_condition},
};

const REASON: DisruptionReason = DisruptionReason::Empty;

/// Removes empty nodes. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub struct Emptiness {
    /// Since when nodes are empty.
    empty_since: BTreeMap<String, Duration>,
    /// Since when empty nodes are cordoned.
    cordoned_since: BTreeMap<String, Duration>,
    /// Claims whose empty node stays, and the share of its pool that it stays for.
    kept_for_share: BTreeMap<String, String>,
}

/// An initialized node with its claim.
struct EmptyNode<'a> {
    name: &'a str,
    claim: &'a NodeClaim,
    node_name: &'a str,
    node: &'a NodeView,
}

impl Emptiness {
    /// Since when each empty node is cordoned.
    #[must_use]
    pub const fn cordoned_since(&self) -> &BTreeMap<String, Duration> {
        &self.cordoned_since
    }

    /// Says of each empty node that stays for a share why it does.
    pub fn report(&self, statuses: &mut ConsolidationStatuses) {
        for (claim, share) in &self.kept_for_share {
            statuses.set(claim, ConsolidationStatus::from(&Rejection::PoolShare(share.clone())));
        }
    }

    /// Takes the next step of every empty node.
    pub(crate) fn reconcile(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        history: &mut History,
        commands: &Commands<'_>,
        ledger: &BudgetLedger<'_>,
        shares: &mut ShareGuard,
    ) {
        let snapshot = ctx.snapshot;
        let mono = ctx.now.mono;
        let mut seen = BTreeSet::new();
        self.kept_for_share.clear();
        for (name, claim) in snapshot.dirty_claims() {
            // A recommendation to leave may be kept waiting for as long as too many nodes would be out.
            let is_going = interruption_kind(claim).is_some_and(InterruptionKind::is_final);
            if claim.metadata.deletion_timestamp.is_some() || !has_condition(claim, INITIALIZED) || is_going {
                continue;
            }
            let Some((node_name, node)) = snapshot.node_of(claim) else { continue };
            seen.insert(node_name.to_owned());
            // A replacement isn't empty: it is about to get the pods of the nodes that it replaces.
            let has_work = commands.is_replacement(name) || snapshot.has_work(name, node_name);
            if has_work {
                self.empty_since.remove(node_name);
            } else {
                self.empty_since.entry(node_name.to_owned()).or_insert(mono);
            }
            let elsewhere = !snapshot.is_provisioned_by_croft(&claim.spec.pool);
            let empty = EmptyNode { name, claim, node_name, node };
            if node.has_taint(keys::DISRUPTED_TAINT) {
                let stays = if has_work {
                    Some("got pods")
                } else {
                    elsewhere.then_some("was handed to another provisioner with its pool")
                };
                match stays {
                    Some(why) => self.uncordon(ctx, history, &empty, why),
                    None => self.remove(ctx, history, &empty),
                }
            } else if !has_work && !elsewhere {
                self.cordoned_since.remove(node_name);
                self.cordon(ctx, history, ledger, &empty, shares);
            }
        }
        self.empty_since.retain(|node, _| seen.contains(node));
        self.cordoned_since.retain(|node, _| seen.contains(node));
    }

    /// Cordons a node that has been empty for its pool's consolidateAfter.
    fn cordon(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        history: &mut History,
        ledger: &BudgetLedger<'_>,
        empty: &EmptyNode<'_>,
        shares: &mut ShareGuard,
    ) {
        let EmptyNode { name, claim, node_name, node } = empty;
        let Some(pool) = ctx.snapshot.pools().get(&claim.spec.pool) else { return };
        let after = croft_api::duration::parse(pool.spec.disruption.consolidate_after());
        let Ok(Some(after)) = after else { return };
        if static_capacity::size_of(ctx.snapshot, claim).is_some()
            || standing_blocker(ctx, claim, node, pool).is_some()
        {
            return;
        }
        let Some(since) = self.empty_since.get(*node_name).copied() else { return };
        if !ctx.has_lasted(since, after) || ledger.allowance(ctx, pool, REASON).more == 0 {
            return;
        }
        match shares.check(ctx, &claim.spec.pool, &[*node_name], &[]) {
            Ok(()) => {}
            Err(ShareConflict::Creating) => return,
            Err(ShareConflict::Broken(share)) => {
                self.kept_for_share.insert((*name).to_owned(), share);
                return;
            }
        }
        if cordon(ctx, history, node_name, node) {
            ledger.take(&claim.spec.pool);
            shares.take(ctx, &[*node_name], &[]);
        }
    }

    /// Reverts the cordon of a node that stays.
    fn uncordon(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        history: &mut History,
        empty: &EmptyNode<'_>,
        why: &str,
    ) {
        let EmptyNode { claim, node_name, node, .. } = empty;
        self.cordoned_since.remove(*node_name);
        if !ctx.is_idle(&Key::Node((*node_name).to_owned())) {
            return;
        }
        history.count(REASON.as_str(), Outcome::RolledBack);
        let note = format!("node {node_name} {why} while it was being removed; it stays");
        ctx.event(object_reference(*claim), false, events::DISRUPTION_FAILED, note);
        ctx.request(patch_node(node_name, Verb::JsonPatch(node_patch::uncordon(node))));
    }

    /// Deletes the claim of a cordoned node that is certainly empty.
    fn remove(&mut self, ctx: &mut ReconcileContext<'_>, history: &mut History, empty: &EmptyNode<'_>) {
        let EmptyNode { name, claim, node_name, .. } = empty;
        let since = *self.cordoned_since.entry((*node_name).to_owned()).or_insert(ctx.now.mono);
        if !ctx.has_lasted(since, ctx.settings.cordon_delay) {
            return;
        }
        // A claim's deletion can't be reverted, and the snapshot of pods may be outdated.
        let Some(check) = pod_check(ctx, name, claim) else { return };
        if !has_no_pods(ctx, check) {
            return;
        }
        let note = format!("node {node_name} is empty and is removed");
        ctx.event(object_reference(*claim), false, events::EMPTY, note);
        if ctx.is_idle(&Key::Claim((*name).to_owned())) {
            history.count(REASON.as_str(), Outcome::Completed);
        }
        ctx.request(delete_claim(name, claim));
    }
}

/// Cordons a node without pods, which is removed once it is certainly empty. False if it must be tried again.
pub(super) fn cordon(
    ctx: &mut ReconcileContext<'_>,
    history: &mut History,
    node_name: &str,
    node: &NodeView,
) -> bool {
    if !ctx.is_idle(&Key::Node(node_name.to_owned())) {
        return false;
    }
    history.count(REASON.as_str(), Outcome::Started);
    ctx.request(patch_node(node_name, Verb::JsonPatch(node_patch::cordon(node, ctx.now.wall))));
    true
}
