//! Termination of claims that are being deleted, until their instance is terminated.
//!
//! ```text
//!   deleted ──▶ cordoned ──▶ pods evicted ──▶ volumes detached ──▶ terminated ──▶ confirmed ──▶ node deleted
//!      │                     (within PDBs)                                                          │
//!      └── never launched: searched for, and released once there is certainly no instance ──▶ released ◀┘
//! ```
//!
//! The snapshot may lack objects that exist: watches of different kinds lag independently. So the cordon's response may
//! arrive before an earlier binding, and a node that a former leader registered may be missing. kube-scheduler may bind
//! to a node until it observes the cordon. So an instance is terminated only after a delay and a check at the API server
//! itself, as `kubectl drain` lists a node's pods.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{NodeClaim, condition::REGISTERED, definitions::FINALIZER};
use croft_cloud::instance_id;
use croft_scheduler::PodKey;
use serde_json::json;

use crate::{
    action::Action,
    definitions::keys,
    kube_api::{Target, Verb},
    nodeclaim::{
        evictions::{Evictions, write_pod},
        instances, node_patch,
        pod_check::{has_no_pods, is_stuck, pod_check, stuck_at},
        writes::{WATCH_LAG, patch_node},
    },
    reconcile::ReconcileContext,
    state::{NodeView, PodView, Snapshot, has_condition},
};

/// Priority from which a pod serves the node or the cluster: it is evicted after the pods that it serves. The value of
/// `HighestUserDefinablePriority` in k8s.io/kubernetes/pkg/apis/scheduling.
const CRITICAL_PRIORITY: i32 = 1_000_000_000;
/// How long the detachment of volumes is waited for, once the node's pods have ended. A detached volume is free for the
/// pod's next node; a volume whose driver hangs must not block the termination forever. kube-controller-manager detaches
/// by force after this time.
const DETACH_TIMEOUT: Duration = Duration::from_secs(360);

/// Terminates the instances of deleted claims. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub struct Termination {
    /// Claims without an instance whose launch has an unknown outcome: since when no instance was found.
    not_found_since: BTreeMap<String, Duration>,
    /// Claims whose node has attached volumes and no pods left but those that don't end: since when, and how many those are.
    drained_since: BTreeMap<String, (Duration, usize)>,
    /// Claims whose node is cordoned.
    cordoned_since: BTreeMap<String, Duration>,
    evictions: Evictions,
    /// Nodes that the API server doesn't let the controller write, with the message.
    refused_nodes: BTreeMap<String, String>,
}

impl Termination {
    /// Records that the cloud shows no instance of `claim`.
    pub fn observe_no_instance(&mut self, claim: String, mono: Duration) {
        self.not_found_since.entry(claim).or_insert(mono);
    }

    /// Records that the API server refused the eviction of `pod`.
    pub fn observe_eviction_blocked(&mut self, pod: PodKey, why: String) {
        self.evictions.observe_refused(pod, why);
    }

    /// Records that the API server refused a write of `node`.
    pub fn observe_refused_node(&mut self, node: String, why: String) {
        self.refused_nodes.insert(node, why);
    }

    /// Forgets the refusal, since a write of `node` has succeeded.
    pub fn forget_refused_node(&mut self, node: &str) {
        self.refused_nodes.remove(node);
    }

    /// Why the API server doesn't let the controller write `node`, if it refused that.
    #[must_use]
    pub fn refusal(&self, node: &str) -> Option<&str> {
        self.refused_nodes.get(node).map(String::as_str)
    }

    /// Forgets the refusal, since an action on `pod` has ended.
    pub fn forget_eviction(&mut self, pod: &PodKey) {
        self.evictions.forget_refused(pod);
    }

    /// Forgets deleted claims and pods.
    pub fn retain_known(&mut self, snapshot: &Snapshot) {
        let is_there = |claim: &String| snapshot.claims().contains_key(claim);
        self.not_found_since.retain(|claim, _| is_there(claim));
        self.drained_since.retain(|claim, _| is_there(claim));
        self.cordoned_since.retain(|claim, _| is_there(claim));
        self.evictions.retain_known(snapshot);
        self.refused_nodes.retain(|node, _| snapshot.nodes().contains_key(node));
    }

    /// Called once in a pass, before the claims' steps.
    pub(crate) fn begin_pass(&mut self, ctx: &ReconcileContext<'_>) {
        self.evictions.begin_pass(ctx);
    }

    /// Takes the next step of a claim that is being deleted.
    pub(crate) fn reconcile(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        cordoned_since: &BTreeMap<String, Duration>,
        name: &str,
        claim: &Arc<NodeClaim>,
    ) {
        if !claim.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER) {
            return;
        }
        let status = claim.status.as_ref();
        let Some(provider_id) = status.and_then(|s| s.provider_id.as_deref()) else {
            self.release_unlaunched(ctx, name, claim);
            return;
        };
        let id = instance_id(provider_id).to_owned();
        let node = ctx.snapshot.node_of(claim);
        let view = node.map(|(_, view)| view);
        if instances::is_gone(ctx, &id, view) {
            match node {
                Some((node_name, node)) => {
                    delete_pods(ctx, node_name);
                    if self.is_foreign(claim, node_name) {
                        ctx.request(release_claim(name, claim));
                    } else {
                        release_node(ctx, node_name, node);
                    }
                }
                None => ctx.request(release_claim(name, claim)),
            }
            return;
        }
        if !ctx.evidence.is_going(&id) && !self.is_emptied(ctx, cordoned_since, name, claim) {
            return;
        }
        ctx.request(Action::Terminate { ids: vec![id] });
    }

    /// True once the instance may be terminated: pods are evicted within their budgets, volumes are detached, and the
    /// API server itself has no pod there.
    fn is_emptied(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        cordoned_since: &BTreeMap<String, Duration>,
        name: &str,
        claim: &Arc<NodeClaim>,
    ) -> bool {
        if let Some((node_name, node)) = ctx.snapshot.node_of(claim) {
            if !node.is_cordoned_by_croft() && !self.is_foreign(claim, node_name) {
                self.cordoned_since.remove(name);
                ctx.evidence.forget_pods_of(name);
                let cordon = Verb::JsonPatch(node_patch::cordon(node, ctx.now.wall));
                ctx.request(patch_node(node_name, cordon));
                return false;
            }
            // A node that was removed as empty has been cordoned since then.
            let since = cordoned_since.get(node_name).copied().unwrap_or(ctx.now.mono);
            self.cordoned_since.entry(name.to_owned()).or_insert(since);
            if !self.is_drained(ctx, name, claim, node_name) {
                return false;
            }
        } else if let Some(node_name) = claim.status.as_ref().and_then(|s| s.node_name.as_deref())
            && !ctx.snapshot.nodes().contains_key(node_name)
            && !self.is_drained(ctx, name, claim, node_name)
        {
            // Pods of a Node that was deleted by force still run.
            return false;
        }
        is_past_deadline(ctx, name, claim) || self.is_verified_empty(ctx, name, claim)
    }

    /// True for a node that was never registered and can't be written: it has nothing of its pool. It is drained
    /// without a cordon, and its Node is left to the cloud controller; otherwise its instance would be paid for ever.
    fn is_foreign(&self, claim: &NodeClaim, node: &str) -> bool {
        !has_condition(claim, REGISTERED) && self.refusal(node).is_some()
    }

    /// True if the API server has said, after every binding before the cordon, that no pod is there.
    fn is_verified_empty(&self, ctx: &mut ReconcileContext<'_>, name: &str, claim: &Arc<NodeClaim>) -> bool {
        // An instance without a node's name never registered: no pod can be there.
        if claim.status.as_ref().is_none_or(|s| s.node_name.is_none()) {
            return true;
        }
        if let Some(cordoned) = self.cordoned_since.get(name)
            && !ctx.has_lasted(*cordoned, ctx.settings.cordon_delay)
        {
            return false;
        }
        is_said_empty(ctx, name, claim)
    }

    /// Evicts the pods of a node. True once they are gone and its volumes are detached, or time is up.
    fn is_drained(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        name: &str,
        claim: &NodeClaim,
        node: &str,
    ) -> bool {
        let deadline = deadline(ctx, name, claim);
        if let Some(deadline) = deadline {
            requeue_at(ctx, deadline);
        }
        let snapshot = ctx.snapshot;
        let mut left: Vec<(&PodKey, &PodView)> =
            snapshot.pods_on(node).filter(|(_, pod)| pod.must_leave()).collect();
        let there = left.len();
        left.retain(|(_, pod)| {
            if let Some(at) = stuck_at(pod) {
                requeue_at(ctx, at);
            }
            !is_stuck(pod, ctx.now.mono)
        });
        let stuck = there - left.len();
        let critical = |pod: &PodView| pod.priority >= CRITICAL_PRIORITY;
        let only_critical = left.iter().all(|(_, pod)| critical(pod));
        for (key, pod) in left.iter().filter(|(_, pod)| critical(pod) == only_critical) {
            self.remove_pod(ctx, claim, key, pod, deadline);
        }
        // At the deadline the remaining pods end with the instance.
        if is_past_deadline(ctx, name, claim) {
            return true;
        }
        // Pods may come again, as from a restored backup: their volumes have the whole time.
        let known = self.drained_since.remove(name);
        if !left.is_empty() {
            return false;
        }
        if snapshot.attachments_on(node) == 0 {
            return true;
        }
        // The volumes of a pod that ended after all are detached from then on.
        let since = match known.filter(|(_, counted)| *counted == stuck) {
            Some((since, _)) => since,
            // The watch of pods may lag behind that of volumes: pods that it doesn't show yet may use them.
            None if is_said_empty(ctx, name, claim) => ctx.now.mono,
            None => return false,
        };
        self.drained_since.insert(name.to_owned(), (since, stuck));
        ctx.has_lasted(since, DETACH_TIMEOUT)
    }

    /// Evicts a pod. Deletes it in time for its grace period to end with the deadline, whatever blocks its eviction.
    fn remove_pod(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        claim: &NodeClaim,
        key: &PodKey,
        pod: &PodView,
        deadline: Option<Duration>,
    ) {
        let uid = pod.uid.to_string();
        if let Some(deadline) = deadline {
            let left = i64::try_from(deadline.saturating_sub(ctx.now.mono).as_secs()).unwrap_or(i64::MAX);
            if left > pod.grace_seconds {
                ctx.requeue_after(Duration::from_secs(u64::try_from(left - pod.grace_seconds).unwrap_or(0)));
            } else if pod.ends_by.is_none_or(|due| due > deadline) {
                ctx.request(write_pod(key, Verb::Delete { uid, grace_seconds: Some(left) }));
                return;
            }
        }
        if pod.deletion.is_some() {
            return;
        }
        self.evictions.request(ctx, claim, key, &uid);
    }

    /// Releases a claim without an instance, once there is certainly none.
    fn release_unlaunched(&mut self, ctx: &mut ReconcileContext<'_>, name: &str, claim: &Arc<NodeClaim>) {
        let attempt = claim.status.as_ref().and_then(|s| s.attempt.as_ref());
        // A claim that adopts an instance has it, even before its status says so.
        let adopts = claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(keys::ADOPTS));
        if !adopts && attempt.is_none_or(|a| a.request.is_none()) {
            // No request was ever sent, or each was certainly refused.
            ctx.request(release_claim(name, claim));
            return;
        }
        // A launch may become visible late. An instance that shows up after the grace period is found by its tag.
        if let Some(since) = self.not_found_since.get(name).copied()
            && ctx.has_lasted(since, ctx.settings.orphan_grace)
        {
            ctx.request(release_claim(name, claim));
            return;
        }
        ctx.request(Action::FindInstance(Arc::clone(claim)));
    }
}

/// How long the pods of a claim's node have once the claim is deleted. The pool's current value holds for all of its
/// nodes; the claim's own value, from its launch, holds once the pool or its template is deleted.
pub(crate) fn grace_period<'a>(snapshot: &'a Snapshot, claim: &'a NodeClaim) -> Option<&'a str> {
    let template = snapshot.template_of(claim).and_then(|pool| pool.spec.template.as_ref());
    let of_pool = template.map(|template| &template.spec.termination_grace_period);
    of_pool.unwrap_or(&claim.spec.termination_grace_period).as_deref()
}

/// When the remaining pods end with the instance, on the monotonic clock.
fn deadline(ctx: &ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> Option<Duration> {
    let period = grace_period(ctx.snapshot, claim)?;
    let period = croft_api::duration::parse(period).ok()??;
    Some(ctx.snapshot.milestones(name).deleted?.saturating_add(period))
}

/// True if the API server has lately said that no pod is on the claim's node, or if there is no node; otherwise asks it.
fn is_said_empty(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> bool {
    pod_check(ctx, name, claim).is_none_or(|check| has_no_pods(ctx, check))
}

fn is_past_deadline(ctx: &ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> bool {
    deadline(ctx, name, claim).is_some_and(|deadline| deadline <= ctx.now.mono)
}

/// Asks for another pass at `at`, if that is in the future.
fn requeue_at(ctx: &mut ReconcileContext<'_>, at: Duration) {
    if at > ctx.now.mono {
        ctx.requeue_at(at);
    }
}

/// Releases a Node whose instance is gone: removes Croft's finalizer, then deletes it.
pub(crate) fn release_node(ctx: &mut ReconcileContext<'_>, name: &str, node: &NodeView) {
    if let Some(patch) = node_patch::remove_finalizer(node) {
        ctx.request(patch_node(name, Verb::JsonPatch(patch)));
    } else if !node.deleting {
        ctx.request(Action::write_and_wait(
            Target::Node(name.to_owned()),
            Verb::Delete { uid: node.uid.to_string(), grace_seconds: None },
            WATCH_LAG,
        ));
    }
}

/// Deletes the pods of a node whose instance is gone: their controllers recreate them now, instead of when
/// kube-controller-manager notices that the node is gone.
fn delete_pods(ctx: &mut ReconcileContext<'_>, node: &str) {
    let snapshot = ctx.snapshot;
    for (key, pod) in snapshot.pods_on(node).filter(|(_, pod)| !pod.traits.mirror) {
        ctx.request(write_pod(key, Verb::Delete { uid: pod.uid.to_string(), grace_seconds: Some(0) }));
    }
}

/// Removes Croft's finalizer from a claim.
fn release_claim(name: &str, claim: &NodeClaim) -> Action {
    let others: Vec<_> = claim.metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER).collect();
    Action::write_and_wait(
        Target::Claim(name.to_owned()),
        Verb::Patch(json!({"metadata": {
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
            "finalizers": others,
        }})),
        WATCH_LAG,
    )
}
