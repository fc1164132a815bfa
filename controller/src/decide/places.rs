//! Places on nodes that are there, which kube-scheduler doesn't give.
//!
//! The plan says that a pod fits onto a node, and kube-scheduler says that it doesn't: one of the two doesn't know
//! something, such as a plugin of the scheduler's own. Planned there again and again, the pod would wait for ever. So
//! after two rounds the node is ruled out for it and its like, for a while.

use std::{collections::BTreeMap, time::Duration};

use croft_scheduler::{Plan, PodKey};

use crate::{
    snapshot::Snapshot,
    time::{Now, earliest},
};

/// kube-scheduler tries a pod again within this time once something has changed: the longest of its back-off
/// (`podMaxBackoffSeconds`).
const ROUND: Duration = Duration::from_secs(10);
const ROUNDS: u32 = 2;
/// How long a node stays ruled out: what kept the pod off may be gone by then.
const RULED_OUT_FOR: Duration = Duration::from_secs(300);

/// What plans say about pods and nodes that are there, and what is known better by now.
#[derive(Debug, Default)]
pub struct Places {
    /// Where the last plan put each pod, and since when plans have said so.
    planned: BTreeMap<PodKey, (String, Duration)>,
    /// Until when a node is ruled out for a pod and its like.
    out: BTreeMap<(PodKey, String), Duration>,
}

impl Places {
    /// Takes in what a plan says.
    pub fn planned(&mut self, plan: &Plan, now: Now) {
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

    /// Looks which pods have waited too long for what they were promised. True if that changes the next plan; and
    /// when to look again.
    pub fn look(&mut self, snapshot: &Snapshot, now: Now) -> (bool, Option<Duration>) {
        let known = self.out.len();
        self.out.retain(|(pod, _), until| *until > now.mono && snapshot.demand.contains(pod));
        let mut changed = self.out.len() != known;
        let mut wake = self.out.values().copied().min();
        self.planned.retain(|pod, (node, since)| {
            // One that kube-scheduler hasn't judged is in its queue.
            let Some(view) = snapshot.pods.get(pod).filter(|view| view.is.demand) else { return false };
            let until = since.saturating_add(ROUND * ROUNDS);
            if !view.is.unschedulable || until > now.mono {
                wake = earliest(wake, Some(until.max(now.mono.saturating_add(ROUND))));
                return true;
            }
            tracing::warn!(%pod, node, "kube-scheduler doesn't put the pod where it was planned; the node is ruled out");
            self.out.insert((pod.clone(), node.clone()), now.mono.saturating_add(RULED_OUT_FOR));
            changed = true;
            false
        });
        (changed, wake)
    }

    /// Pods, and nodes that they and their like aren't planned onto.
    #[must_use]
    pub fn ruled_out(&self) -> Vec<(PodKey, String)> {
        self.out.keys().cloned().collect()
    }
}
