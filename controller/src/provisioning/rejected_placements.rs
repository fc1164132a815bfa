//! Placements onto existing nodes that kube-scheduler rejects.
//!
//! The plan puts a pod onto an existing node, and kube-scheduler finds that it doesn't fit: one of the two lacks a
//! fact, such as a scheduler plugin. Planned there again and again, the pod would wait forever. So after two
//! scheduling attempts the node is ruled out for the pod and its equals, for a while.

use std::{collections::BTreeMap, time::Duration};

use croft_scheduler::{Plan, PodKey};

use crate::{
    state::Snapshot,
    time::{Now, earliest},
};

/// kube-scheduler retries a pod within this time after a change: its longest backoff (`podMaxBackoffSeconds`).
const RETRY_WITHIN: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 2;
/// How long a node stays ruled out: the obstacle may be gone by then.
const RULED_OUT_FOR: Duration = Duration::from_secs(300);

/// The placements of plans, and those that were rejected.
#[derive(Debug, Default)]
pub struct RejectedPlacements {
    /// Where the last plan put each pod, and since when plans have done so.
    planned: BTreeMap<PodKey, (String, Duration)>,
    /// Until when a node is ruled out for a pod and its equals.
    ruled_out: BTreeMap<(PodKey, String), Duration>,
}

impl RejectedPlacements {
    /// Takes in a plan.
    pub fn observe_plan(&mut self, plan: &Plan, now: Now) {
        let mut before = std::mem::take(&mut self.planned);
        for placement in plan.existing.iter().filter(|p| !p.coming) {
            for pod in placement.pods.iter().filter(|pod| !Snapshot::is_headroom(pod)) {
                let entry = match before.remove(pod) {
                    Some((node, since)) if node == placement.node => (node, since),
                    _ => (placement.node.clone(), now.mono),
                };
                self.planned.insert(pod.clone(), entry);
            }
        }
    }

    /// Rules out the placements that pods have waited for too long. True if that changes the next plan; and when to
    /// check again.
    pub fn update(&mut self, snapshot: &Snapshot, now: Now) -> (bool, Option<Duration>) {
        let known = self.ruled_out.len();
        self.ruled_out.retain(|(pod, _), until| *until > now.mono && snapshot.demand().contains(pod));
        let mut changed = self.ruled_out.len() != known;
        let mut wake = self.ruled_out.values().copied().min();
        self.planned.retain(|pod, (node, since)| {
            // A pod that kube-scheduler hasn't tried yet is in its queue.
            let Some(view) = snapshot.pods().get(pod).filter(|view| view.traits.demand) else { return false };
            let until = since.saturating_add(RETRY_WITHIN * ATTEMPTS);
            if !view.traits.unschedulable || until > now.mono {
                wake = earliest(wake, Some(until.max(now.mono.saturating_add(RETRY_WITHIN))));
                return true;
            }
            tracing::warn!(%pod, node, "kube-scheduler rejects a planned placement; the node is ruled out");
            self.ruled_out.insert((pod.clone(), node.clone()), now.mono.saturating_add(RULED_OUT_FOR));
            changed = true;
            false
        });
        (changed, wake)
    }

    /// Pods, and nodes that they and their equals aren't planned onto.
    #[must_use]
    pub fn ruled_out(&self) -> Vec<(PodKey, String)> {
        self.ruled_out.keys().cloned().collect()
    }
}
