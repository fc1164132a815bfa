//! Evictions of the pods of nodes that are removed, within their PodDisruptionBudgets.
//!
//! A budget's status says how many evictions it allows. One that allows none isn't asked again and again: its next status
//! comes by the watch. It is asked all the same, ever more seldom, since the watch may lag.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::NodeClaim;
use croft_disruption::eviction::Eviction;
use croft_scheduler::PodKey;

use crate::{
    action::{Action, Key},
    definitions::events,
    kube_api::{Target, Verb},
    reconcile::{ReconcileContext, object_reference},
    state::{Snapshot, blockers::eviction},
};

/// An eviction shows on the pod at once; this bounds how often it is repeated until then.
const BACKOFF: Duration = Duration::from_secs(2);
/// How long a pod waits for its budget before an event says so: the pod that replaces the last one is often ready by then.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// How long a pod waits for its budget before the API server is asked all the same. Each further time it waits twice as long,
/// up to [`ASKED_AT_LEAST_EVERY`].
const ASKED_AFTER: Duration = Duration::from_secs(15);
const ASKED_AT_LEAST_EVERY: Duration = Duration::from_secs(120);

/// The evictions in flight. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    /// Why the API server refused the eviction of a pod.
    refused: BTreeMap<PodKey, String>,
    /// Pods whose eviction was asked for, and doesn't show on them yet: the status of their budgets may not count them.
    requested: BTreeSet<PodKey>,
    /// Pods that wait for their budgets.
    waiting: BTreeMap<PodKey, Waiting>,
}

/// A pod that waits for its budget.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Its start, or when the API server was last asked all the same.
    since: Duration,
    /// How long until the API server is asked again.
    at_most: Duration,
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
        self.waiting.retain(|pod, _| snapshot.pods().contains_key(pod));
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
        let eviction = eviction(ctx.snapshot, key);
        let is_free = eviction == Eviction::Free;
        let blocked = eviction.blocked();
        if is_free || blocked.is_none() && self.has_room(ctx.snapshot, key) {
            self.waiting.remove(key);
        } else {
            let begun = Waiting { since: ctx.now.mono, at_most: ASKED_AFTER };
            let waiting = self.waiting.entry(key.clone()).or_insert(begun);
            if let Some(why) = blocked
                && ctx.has_lasted(waiting.since, TOLD_AFTER)
            {
                let note = format!("pod {key} {why}");
                ctx.event(object_reference(claim), true, events::FAILED_DRAINING, note);
            }
            if !ctx.has_lasted(waiting.since, waiting.at_most) {
                return;
            }
            let at_most = waiting.at_most.saturating_mul(2).min(ASKED_AT_LEAST_EVERY);
            *waiting = Waiting { since: ctx.now.mono, at_most };
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
            i64::try_from(uncounted).is_ok_and(|uncounted| uncounted < budget.facts.allowed)
        })
    }
}

/// Writes a pod of a node that is removed.
pub(super) fn write_pod(key: &PodKey, verb: Verb) -> Action {
    Action::write_and_wait(Target::Pod(key.namespace.to_string(), key.name.to_string()), verb, BACKOFF)
}
