//! Node repair: nodes that have not been Ready for long, that their monitoring agent reports as defective, or whose instance
//! fails a status check of the cloud are removed, within the breaker's cap.

use std::time::Duration;

use croft_api::{NodeClaim, condition::INITIALIZED, disruption::Disruption};
use croft_cloud::StatusCheck;
use jiff::{SignedDuration, Timestamp};

use crate::{
    action::Key,
    definitions::events,
    disruption::outcomes::{History, Outcome, UNHEALTHY},
    nodeclaim::{conditions::find_condition, writes::delete_claim},
    reconcile::{ReconcileContext, breaker::Cause, object_reference},
    state::{NodeView, has_condition},
};

/// A defect that began so soon after its node was initialized came with it: the driver of an image, or an agent that
/// doesn't know the instance type. The next node has it most likely, too.
const FROM_THE_BEGINNING: SignedDuration = SignedDuration::from_secs(1_800);
/// A defect from the beginning is tolerated at least for so long, unless the pool says for how long: each replacement is paid
/// for twice while pods move, and an hour between two of them costs little where a single device is broken.
const NO_SOONER: Duration = Duration::from_secs(3_600);
/// A list of instances that is older than so many intervals proves nothing of a status check: it may pass again.
const LISTS: u32 = 3;

/// Deletes the claims of nodes that have not been Ready, or that have been defective, for longer than their pools tolerate.
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

/// A defect of a node.
struct Defect {
    /// The condition or the status check.
    kind: &'static str,
    since: Timestamp,
    /// What it is, without its time.
    what: String,
}

/// What the node's monitoring agent and the cloud report.
fn defects(ctx: &ReconcileContext<'_>, claim: &NodeClaim, node: &NodeView) -> Vec<Defect> {
    let reported = node.defects.iter().map(|defect| {
        let said = match &*defect.message {
            "" => String::new(),
            message => format!(" ({message})"),
        };
        let what = format!("its node's condition {} has been False{said}", defect.kind);
        Defect { kind: defect.kind, since: defect.since, what }
    });
    let age = ctx.snapshot.instances().map(|list| ctx.now.mono.saturating_sub(list.asked.mono));
    let is_late = age.is_none_or(|age| age > ctx.settings.list_instances_every.saturating_mul(LISTS));
    let health = ctx.snapshot.health_of(claim).filter(|_| !is_late);
    let failed = health.into_iter().flat_map(|health| &health.failed).filter_map(|failed| {
        let kind = failed.check.as_str();
        let what = format!("its instance's {kind} has failed");
        Some(Defect { kind, since: Timestamp::from_second(failed.since).ok()?, what })
    });
    reported.chain(failed).collect()
}

/// Why a node is to be removed, if it is.
fn defect(ctx: &mut ReconcileContext<'_>, claim: &NodeClaim, node: &NodeView) -> Option<String> {
    let snapshot = ctx.snapshot;
    if node.ready && node.defects.is_empty() && !snapshot.fails_checks(claim) {
        return None;
    }
    let usual = Disruption::default();
    let disruption = snapshot.pools().get(&claim.spec.pool).map_or(&usual, |pool| &pool.spec.disruption);
    if let Some(since) = node.ready_since.filter(|_| !node.ready)
        && let Some(tolerated) = disruption.repair_after("Ready")
        && ctx.is_older(since, tolerated)
    {
        return Some(format!("its node has not been Ready for {} s", ctx.now.since(since).as_secs()));
    }
    let initialized = claim.status.as_ref().and_then(|status| find_condition(status, INITIALIZED));
    let initialized = initialized.map(|condition| condition.last_transition_time.0);
    defects(ctx, claim, node).into_iter().find_map(|defect| {
        let tolerated = disruption.repair_after(defect.kind)?;
        // No image and no agent breaks a host.
        let came_with_node = defect.kind != StatusCheck::System.as_str()
            && initialized.is_some_and(|at| defect.since.duration_since(at) < FROM_THE_BEGINNING);
        let is_default = !disruption.repair_after.contains_key(defect.kind);
        let tolerated = if came_with_node && is_default { tolerated.max(NO_SOONER) } else { tolerated };
        let lasted = ctx.now.since(defect.since).as_secs();
        ctx.is_older(defect.since, tolerated).then(|| format!("{} for {lasted} s", defect.what))
    })
}
