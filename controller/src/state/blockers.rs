//! Blockers of a node's disruption and of a pod's eviction: annotations, bare pods and PodDisruptionBudgets of the snapshot, by the
//! rules of `croft_disruption`.

use croft_api::{NodeClaim, TenantPool};
use croft_disruption::{
    blockers::{DisruptionBlocker, PodFacts, annotated, blocks, by_bare_pod, by_pods},
    eviction::Eviction,
};
use croft_scheduler::PodKey;
use jiff::Timestamp;

use crate::state::{NodeView, Snapshot};

/// The blocker by annotation of a node, its pool or its claim.
pub(crate) fn annotation_blocker(
    claim: &NodeClaim,
    node: &NodeView,
    pool: &TenantPool,
) -> Option<DisruptionBlocker> {
    annotated(
        blocks(&node.annotations),
        blocks(pool.metadata.annotations.iter().flatten()),
        blocks(claim.metadata.annotations.iter().flatten()),
    )
}

/// The blocker of the eviction of a node's pods at `now`.
pub(crate) fn pod_blocker(snapshot: &Snapshot, node: &str, now: Timestamp) -> Option<DisruptionBlocker> {
    by_pods(evictable_pods(snapshot, node, now), |pod| eviction(snapshot, pod).blocked())
}

/// The first bare pod of a node.
pub(crate) fn bare_pod_blocker(snapshot: &Snapshot, node: &str, now: Timestamp) -> Option<DisruptionBlocker> {
    by_bare_pod(evictable_pods(snapshot, node, now))
}

/// Pods of a node that would have to be evicted.
fn evictable_pods<'a>(
    snapshot: &'a Snapshot,
    node: &str,
    now: Timestamp,
) -> impl Iterator<Item = PodFacts<'a>> {
    let pods = snapshot.pods_on(node).filter(|(_, pod)| pod.must_leave() && pod.deletion.is_none());
    pods.map(move |(key, pod)| PodFacts {
        key,
        forbidden: pod.do_not_disrupt.forbids(pod.started, now),
        has_controller: pod.owner.is_some(),
    })
}

/// Whether a pod can be evicted now.
pub(crate) fn eviction(snapshot: &Snapshot, key: &PodKey) -> Eviction {
    let guard = snapshot.pods().get(key).map(|pod| pod.guard).unwrap_or_default();
    Eviction::of(guard, snapshot.budgets_of(key).map(|(name, budget)| (name, budget.facts)))
}
