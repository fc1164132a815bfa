//! The initialization timeout: a node that registers and isn't initialized in time is replaced. A device plugin that never
//! comes, a startup taint that no agent removes, a network plugin that isn't ready: the next node would most likely lack the
//! same, so its template launches less ([`launch_backoff`](super::launch_backoff)).

use croft_api::{NodeClaim, condition::REGISTERED};

use crate::{
    definitions::events,
    nodeclaim::{launch_failures::is_counted, writes::delete_claim},
    reconcile::{ReconcileContext, breaker::Cause, object_reference},
};

/// True if a registered node should have been initialized by now; otherwise asks for another pass when it should.
pub(super) fn is_overdue(ctx: &mut ReconcileContext<'_>, claim: &NodeClaim) -> bool {
    let Some(pool) = ctx.snapshot.pools().get(&claim.spec.pool) else { return false };
    let registered = claim.status.as_ref().and_then(|status| {
        status.conditions.iter().find(|c| c.type_ == REGISTERED).map(|c| c.last_transition_time.0)
    });
    let within = pool.spec.disruption.initialization_timeout();
    let Some((since, within)) = registered.zip(within) else { return false };
    ctx.snapshot.is_provisioned_by_croft(&claim.spec.pool) && ctx.is_older(since, within)
}

/// Deletes the claim of an overdue node, within the breaker's cap, once the pool's status counts it: a failure that is
/// forgotten with its claim would be repeated without end. False if it stays for now.
pub(super) fn replace(
    ctx: &mut ReconcileContext<'_>,
    name: &str,
    claim: &NodeClaim,
    node_name: &str,
    missing: &str,
) -> bool {
    if !is_counted(ctx, name, claim) || !ctx.may_remove(Cause::Uninitialized, &claim.spec.pool, name) {
        return false;
    }
    let pool = ctx.snapshot.pools().get(&claim.spec.pool);
    let within = pool.and_then(|pool| pool.spec.disruption.initialization_timeout()).unwrap_or_default();
    let note = format!(
        "node {node_name} isn't initialized {} s after its registration: {missing}. It is drained and terminated; the pool's \
         initializationTimeout says when",
        within.as_secs()
    );
    ctx.event(object_reference(claim), true, events::INITIALIZATION_TIMEOUT, note);
    ctx.request(delete_claim(name, claim));
    true
}
