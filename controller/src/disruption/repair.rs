//! Node repair: nodes that have not been Ready for long are removed, within the breaker's cap.

use croft_api::condition::INITIALIZED;

use crate::{
    action::Key,
    definitions::events,
    disruption::outcomes::{History, Outcome, UNHEALTHY},
    nodeclaim::writes::delete_claim,
    reconcile::{ReconcileContext, breaker::Cause, object_reference},
    state::has_condition,
};

/// Deletes the claims of nodes that have not been Ready for `repair_after`.
pub fn reconcile(ctx: &mut ReconcileContext<'_>, history: &mut History) {
    let snapshot = ctx.snapshot;
    for (name, claim) in snapshot.dirty_claims() {
        let Some((_, node)) = snapshot.node_of(claim) else { continue };
        let going = claim.metadata.deletion_timestamp.is_some() || !has_condition(claim, INITIALIZED);
        if !snapshot.is_provisioned_by_croft(&claim.spec.pool) {
            continue;
        }
        let Some(since) = node.ready_since.filter(|_| !node.ready && !going) else { continue };
        if !ctx.is_older(since, ctx.settings.repair_after)
            || !ctx.may_remove(Cause::Unhealthy, &claim.spec.pool, name)
            || !ctx.is_idle(&Key::Claim(name.clone()))
        {
            continue;
        }
        let lasted = ctx.now.since(since).as_secs();
        let note = format!("its node has not been Ready for {lasted} s; the node is removed");
        ctx.event(object_reference(&**claim), true, events::UNHEALTHY, note);
        ctx.request(delete_claim(name, claim));
        history.count(UNHEALTHY, Outcome::Completed);
    }
}
