//! Placements onto existing nodes that kube-scheduler rejects.
//!
//! The plan puts a pod onto an existing node, and kube-scheduler finds that it doesn't fit: one of the two lacks a
//! fact, such as a scheduler plugin. Planned there again and again, the pod would wait forever. So after two failed
//! attempts the node is ruled out for the pod and its equals, for a while.
//!
//! Time is no evidence of an attempt: kube-scheduler may be busy with thousands of other pods for minutes. The pod shows
//! an attempt. A pod that waits is nominated for the node, which kube-scheduler then tries first; it takes the nomination
//! back when the attempt fails (`Evaluator.Preempt` in `pkg/scheduler/framework/preemption`), and writes the condition
//! PodScheduled if its message differs.

use std::{collections::BTreeMap, time::Duration};

use croft_scheduler::{Plan, PodKey};
use serde_json::json;

use crate::{
    action::Action,
    kube_api::{Target, Verb},
    state::{PodView, Snapshot},
    time::{Now, earliest},
};

/// kube-scheduler retries a pod within this time after a change: its longest backoff (`podMaxBackoffSeconds`). A pod that
/// waits for longer is nominated.
const RETRY_WITHIN: Duration = Duration::from_secs(10);
/// Attempts of a pod that never preempts leave no trace if they fail as before. kube-scheduler makes one at least this
/// often (`podMaxInUnschedulablePodsDuration`).
const FLUSHED_WITHIN: Duration = Duration::from_secs(300);
const ATTEMPTS: u32 = 2;
/// How long a node stays ruled out: the obstacle may be gone by then.
const RULED_OUT_FOR: Duration = Duration::from_secs(300);

/// The placements of plans, and those that were rejected.
#[derive(Debug, Default)]
pub struct RejectedPlacements {
    /// The placement of each pod by the last plan.
    planned: BTreeMap<PodKey, Placement>,
    /// Until when a node is ruled out for a pod and its equals.
    ruled_out: BTreeMap<(PodKey, String), Duration>,
}

/// A pod's placement onto an existing node, and kube-scheduler's attempts since.
#[derive(Debug)]
struct Placement {
    node: String,
    /// Since when plans place the pod there.
    since: Duration,
    /// Failed attempts since then.
    failed: u32,
    /// The last attempt that the pod shows.
    attempt: u64,
    /// The pod was seen with a nomination for the node.
    nominated: bool,
}

impl Placement {
    /// Counts the attempts that a new version of the pod shows.
    fn observe(&mut self, pod: &PodView) {
        let nominated = pod.nominated.as_deref() == Some(&self.node);
        if self.attempt != pod.attempt || (self.nominated && !nominated) {
            self.failed += 1;
        }
        (self.attempt, self.nominated) = (pod.attempt, nominated);
    }

    /// True if kube-scheduler has rejected the placement.
    fn is_rejected(&self, pod: &PodView, now: Now) -> bool {
        self.failed >= ATTEMPTS
            || !pod.traits.preempts && self.since.saturating_add(FLUSHED_WITHIN * ATTEMPTS) <= now.mono
    }
}

/// The consequences of what pods show.
#[derive(Debug, Default)]
pub struct Rejections {
    /// The next plan differs.
    pub changed: bool,
    /// Nominations to write.
    pub nominations: Vec<Action>,
    /// When to check again.
    pub requeue: Option<Duration>,
}

impl RejectedPlacements {
    /// Takes in a plan.
    pub fn observe_plan(&mut self, snapshot: &Snapshot, plan: &Plan, now: Now) {
        let mut before = std::mem::take(&mut self.planned);
        for placement in plan.existing.iter().filter(|p| !p.coming) {
            for pod in placement.pods.iter().filter(|pod| !Snapshot::is_headroom(pod)) {
                let Some(view) = snapshot.pods().get(pod) else { continue };
                let known = before.remove(pod).filter(|known| known.node == placement.node);
                let new = || Placement {
                    node: placement.node.clone(),
                    since: now.mono,
                    failed: 0,
                    attempt: view.attempt,
                    nominated: view.nominated.as_deref() == Some(&placement.node),
                };
                self.planned.insert(pod.clone(), known.unwrap_or_else(new));
            }
        }
    }

    /// Rules out the placements that kube-scheduler has rejected, and nominates the pods that wait.
    pub fn update(&mut self, snapshot: &Snapshot, now: Now) -> Rejections {
        let known = self.ruled_out.len();
        self.ruled_out.retain(|(pod, _), until| *until > now.mono && snapshot.demand().contains(pod));
        let mut result = Rejections {
            changed: self.ruled_out.len() != known,
            nominations: Vec::new(),
            requeue: self.ruled_out.values().copied().min(),
        };
        self.planned.retain(|key, placement| {
            // A pod that kube-scheduler hasn't tried yet is in its queue.
            let Some(pod) = snapshot.pods().get(key).filter(|pod| pod.traits.demand) else { return false };
            placement.observe(pod);
            if placement.is_rejected(pod, now) {
                let node = &placement.node;
                tracing::warn!(pod = %key, node, "kube-scheduler rejects a planned placement; the node is ruled out");
                let until = now.mono.saturating_add(RULED_OUT_FOR);
                self.ruled_out.insert((key.clone(), placement.node.clone()), until);
                result.changed = true;
                return false;
            }
            let waits_from = placement.since.saturating_add(RETRY_WITHIN);
            if waits_from > now.mono {
                result.requeue = earliest(result.requeue, Some(waits_from));
            } else if pod.traits.unschedulable && !placement.nominated && pod.scheduler.is_none() {
                // Another scheduler may read a nomination as its own.
                result.nominations.push(nomination(key, pod, &placement.node));
            }
            if !pod.traits.preempts {
                let flushed = placement.since.saturating_add(FLUSHED_WITHIN * ATTEMPTS);
                result.requeue = earliest(result.requeue, Some(flushed));
            }
            true
        });
        result
    }

    /// The nodes that wait for pods, which may come minutes later. A node is named once for each of its pods.
    pub fn awaiting(&self) -> impl Iterator<Item = &str> {
        self.planned.values().map(|placement| placement.node.as_str())
    }

    /// Pods, and nodes that they and their equals aren't planned onto.
    #[must_use]
    pub fn ruled_out(&self) -> Vec<(PodKey, String)> {
        self.ruled_out.keys().cloned().collect()
    }
}

fn nomination(key: &PodKey, pod: &PodView, node: &str) -> Action {
    let status = json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}});
    Action::write(Target::Pod(key.namespace.to_string(), key.name.to_string()), Verb::PatchStatus(status))
}
