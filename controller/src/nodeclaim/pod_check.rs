//! The check that no pod is on an instance before it is terminated or its claim deleted: the API server itself is asked,
//! since watches may lag.

use std::time::Duration;

use croft_api::NodeClaim;
use croft_cloud::instance_id;

use crate::{
    action::{Action, PodCheck},
    reconcile::ReconcileContext,
    state::PodView,
};

/// A pod that still exists this long after its deletion was due has no kubelet left that would end it, or waits for a
/// finalizer of its own. Its containers no longer run, and it blocks no termination.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// The result of a check holds for this long. After a failed termination and its backoff, the check is repeated, since
/// a user may have uncordoned the node.
const VALID_FOR: Duration = Duration::from_secs(5);

/// The check for a claim's instance; none while the claim has no instance.
pub(crate) fn pod_check(ctx: &ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> Option<PodCheck> {
    let status = claim.status.as_ref()?;
    let provider_id = status.provider_id.clone()?;
    let node = status.node_name.clone()?;
    let pods = ctx.snapshot.pods_on(&node).filter(|(_, pod)| is_stuck(pod, ctx.now.mono));
    let ended = pods.map(|(_, pod)| pod.uid.clone()).collect();
    let instance = instance_id(&provider_id).to_owned();
    Some(PodCheck { subject: name.to_owned(), instance, provider_id, node, ended })
}

/// True if the API server has lately said that no pod must leave; otherwise asks it.
pub(crate) fn has_no_pods(ctx: &mut ReconcileContext<'_>, check: PodCheck) -> bool {
    let verified = ctx.evidence.no_pods_at(&check.subject);
    if verified.is_some_and(|at| ctx.now.mono.saturating_sub(at) < VALID_FOR) {
        return true;
    }
    ctx.request(Action::VerifyNoPods(check));
    false
}

/// When a pod that is being deleted counts as stuck, on the monotonic clock.
pub(crate) fn stuck_at(pod: &PodView) -> Option<Duration> {
    Some(pod.ends_by?.saturating_add(STUCK_AFTER))
}

/// True if the pod counts as stuck at `now` on the monotonic clock.
pub(crate) fn is_stuck(pod: &PodView, now: Duration) -> bool {
    stuck_at(pod).is_some_and(|at| at <= now)
}
