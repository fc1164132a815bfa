//! Node repair: nodes that have not been Ready for long, or that their monitoring agent reports as defective, are removed, within
//! the breaker's cap.

use std::time::Duration;

use croft_api::{NodeClaim, condition::INITIALIZED};
use jiff::SignedDuration;

use crate::{
    action::Key,
    definitions::events,
    disruption::outcomes::{History, Outcome, UNHEALTHY},
    nodeclaim::{conditions::find_condition, writes::delete_claim},
    reconcile::{ReconcileContext, breaker::Cause, object_reference},
    state::{NodeView, has_condition},
};

/// A broken accelerator wastes the most, and doesn't heal by itself.
const BROKEN_ACCELERATOR: Duration = Duration::from_secs(600);
/// A defect that began so soon after its node was initialized came with it: the driver of an image, or an agent that
/// doesn't know the instance type. The next node has it most likely, too.
const FROM_THE_BEGINNING: SignedDuration = SignedDuration::from_secs(1_800);
/// A defect from the beginning is tolerated at least for so long: each replacement is paid for twice while pods move, and
/// an hour between two of them costs little where a single device is broken.
const NO_SOONER: Duration = Duration::from_secs(3_600);
/// The condition about accelerators.
const ACCELERATORS: &str = "AcceleratedHardwareReady";

/// Deletes the claims of nodes that have not been Ready for `repair_after`, or that have been defective for as long as is
/// tolerated.
pub fn reconcile(ctx: &mut ReconcileContext<'_>, history: &mut History) {
    let snapshot = ctx.snapshot;
    for (name, claim) in snapshot.dirty_claims() {
        let Some((_, node)) = snapshot.node_of(claim) else { continue };
        let going = claim.metadata.deletion_timestamp.is_some() || !has_condition(claim, INITIALIZED);
        if going || !snapshot.is_provisioned_by_croft(&claim.spec.pool) {
            continue;
        }
        let Some(why) = defect(ctx, claim, node) else { continue };
        if !ctx.may_remove(Cause::Unhealthy, &claim.spec.pool, name)
            || !ctx.is_idle(&Key::Claim(name.clone()))
        {
            continue;
        }
        let note = format!("{why}; the node is removed");
        ctx.event(object_reference(&**claim), true, events::UNHEALTHY, note);
        ctx.request(delete_claim(name, claim));
        history.count(UNHEALTHY, Outcome::Completed);
    }
}

/// Why a node is to be removed, if it is.
fn defect(ctx: &mut ReconcileContext<'_>, claim: &NodeClaim, node: &NodeView) -> Option<String> {
    let repair_after = ctx.settings.repair_after;
    if let Some(since) = node.ready_since.filter(|_| !node.ready)
        && ctx.is_older(since, repair_after)
    {
        return Some(format!("its node has not been Ready for {} s", ctx.now.since(since).as_secs()));
    }
    let initialized = claim.status.as_ref().and_then(|status| find_condition(status, INITIALIZED));
    let initialized = initialized.map(|condition| condition.last_transition_time.0);
    node.defects.iter().find_map(|defect| {
        let usual =
            if defect.kind == ACCELERATORS { BROKEN_ACCELERATOR.min(repair_after) } else { repair_after };
        let came_with_node =
            initialized.is_some_and(|at| defect.since.duration_since(at) < FROM_THE_BEGINNING);
        let tolerated = if came_with_node { usual.max(NO_SOONER) } else { usual };
        ctx.is_older(defect.since, tolerated).then(|| {
            let lasted = ctx.now.since(defect.since).as_secs();
            let said = match &*defect.message {
                "" => String::new(),
                message => format!(" ({message})"),
            };
            format!("its node's condition {} has been False for {lasted} s{said}", defect.kind)
        })
    })
}
