//! Evictions of the pods of nodes that are removed, within their PodDisruptionBudgets.
//!
//! A budget's status says how many evictions it allows. One that allows none isn't asked again and again: its next status
//! comes by the watch. It is asked now and then all the same, since the watch may lag and a budget may let pods go that
//! aren't ready (`unhealthyPodEvictionPolicy`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::NodeClaim;
use croft_scheduler::PodKey;

use crate::{
    action::{Action, Key},
    definitions::events,
    disruption::facts::pdb_blocks,
    kube_api::{Call, Target, Verb},
    reconcile::{ReconcileContext, object_reference},
    state::Snapshot,
};

/// An eviction shows on the pod at once; this bounds how often it is repeated until then.
const BACKOFF: Duration = Duration::from_secs(2);
/// How long a pod waits for its budget before an event says so: the pod that replaces the last one is often ready by then.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// How long a pod waits for its budget before the API server is asked all the same.
const ASKED_EVERY: Duration = Duration::from_secs(15);

/// The evictions in flight. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    /// Why the API server refused the eviction of a pod.
    refused: BTreeMap<PodKey, String>,
    /// Pods whose eviction was asked for, and doesn't show on them yet: the status of their budgets may not count them.
    requested: BTreeSet<PodKey>,
    /// Since when a pod waits for its budget, or when the API server was last asked all the same.
    waiting_since: BTreeMap<PodKey, Duration>,
}

impl Evictions {
    pub(super) fn observe_refused(&mut self, pod: PodKey, why: String) {
        self.requested.remove(&pod);
        self.refused.insert(pod, why);
    }

    /// Forgets the refusal, since an action on `pod` has ended.
    pub(super) fn forget_refused(&mut self, pod: &PodKey) {
        self.refused.remove(pod);
    }

    pub(super) fn retain_known(&mut self, snapshot: &Snapshot) {
        self.refused.retain(|pod, _| snapshot.pods().contains_key(pod));
        self.waiting_since.retain(|pod, _| snapshot.pods().contains_key(pod));
    }

    /// Forgets the evictions that have shown or failed.
    pub(super) fn begin_pass(&mut self, ctx: &ReconcileContext<'_>) {
        let pods = ctx.snapshot.pods();
        self.requested.retain(|key| {
            pods.get(key).is_some_and(|pod| pod.deletion.is_none()) && !ctx.is_idle(&Key::Pod(key.clone()))
        });
    }

    /// Evicts a pod of a claim's node, once its budget allows it.
    pub(super) fn request(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        claim: &NodeClaim,
        key: &PodKey,
        uid: &str,
    ) {
        if !ctx.is_idle(&Key::Pod(key.clone())) {
            return;
        }
        let blocked = pdb_blocks(ctx.snapshot, key);
        if blocked.is_none() && self.has_room(ctx.snapshot, key) {
            self.waiting_since.remove(key);
        } else {
            let since = *self.waiting_since.entry(key.clone()).or_insert(ctx.now.mono);
            if let Some(why) = blocked
                && ctx.has_lasted(since, TOLD_AFTER)
            {
                let note = format!("pod {key} {why}");
                ctx.event(object_reference(claim), true, events::FAILED_DRAINING, note);
            }
            if !ctx.has_lasted(since, ASKED_EVERY) {
                return;
            }
            self.waiting_since.insert(key.clone(), ctx.now.mono);
        }
        if let Some(why) = self.refused.get(key) {
            let note = format!("pod {key} can't be evicted yet: {why}");
            ctx.event(object_reference(claim), true, events::FAILED_DRAINING, note);
        }
        self.requested.insert(key.clone());
        ctx.request(write_pod(key, Verb::Evict { uid: uid.to_owned() }));
    }

    /// True if the pod's budget allows one more eviction than those that it may not count yet.
    fn has_room(&self, snapshot: &Snapshot, key: &PodKey) -> bool {
        snapshot.budgets_of(key).all(|(name, budget)| {
            let is_uncounted = |other: &&PodKey| {
                other.namespace == key.namespace && snapshot.budgets_of(other).any(|(own, _)| own == name)
            };
            let uncounted = self.requested.iter().filter(is_uncounted).count();
            i64::try_from(uncounted).is_ok_and(|uncounted| uncounted < i64::from(budget.allowed))
        })
    }
}

/// Writes a pod of a node that is removed.
pub(super) fn write_pod(key: &PodKey, verb: Verb) -> Action {
    Action::Write {
        key: Key::Pod(key.clone()),
        call: Call { target: Target::Pod(key.namespace.to_string(), key.name.to_string()), verb },
        requeue_after: BACKOFF,
    }
}
