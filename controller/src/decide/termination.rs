//! Claims being deleted, until their machine is gone.
//!
//! ```text
//!   deleted ──▶ cordoned ──▶ pods evicted ──▶ volumes detached ──▶ terminated ──▶ confirmed ──▶ node deleted
//!      │                     (budgets hold)                                                         │
//!      └── never launched: looked for, and released when there is certainly nothing ──▶ released ◀──┘
//! ```
//!
//! What isn't in the picture may be there all the same: watches of different kinds lag independently, so that the
//! cordon's answer may come before a binding that preceded it, and a node that another leader took in may not have
//! been shown at all. And kube-scheduler may bind to a node for as long as it hasn't seen the cordon. So a machine
//! goes only after a moment's wait and a look at the API server itself, as `kubectl drain` lists a node's pods.

use std::{sync::Arc, time::Duration};

use croft_api::{NodeClaim, definitions::FINALIZER};
use croft_scheduler::PodKey;
use serde_json::json;

use super::{Memory, Round, instances, lifecycle::WATCH_LAG, nodes, reference};
use crate::{
    action::{Action, Key, Look},
    names,
    seam::{Call, Target, Verb},
    snapshot::{NodeView, PodView, Snapshot},
};

/// Priority from which a pod serves the node or the cluster: it leaves after those that it serves. The value
/// of `HighestUserDefinablePriority` in k8s.io/kubernetes/pkg/apis/scheduling.
const CRITICAL_PRIORITY: i32 = 1_000_000_000;
/// A detached volume frees its zone for the pod's next place; one whose driver hangs must not hold a machine
/// for ever. The time after which kube-controller-manager detaches by force.
const DETACH_PATIENCE: Duration = Duration::from_secs(360);
/// A pod that is still there this long after its deletion was due has nobody left who would end it, or waits for
/// a finalizer of its own: its containers don't run any more, and it holds no machine.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// What the API server said of a machine's pods holds for this long: an attempt to terminate that failed and rested
/// begins with another look, since somebody may have opened the node meanwhile.
const VACANCY_HOLDS: Duration = Duration::from_secs(5);
/// An eviction that went through shows on the pod at once; this bounds how often one is repeated until then.
const EVICTION_REST: Duration = Duration::from_secs(2);

/// Decides the next step of a claim that is being deleted.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory, name: &str, claim: &Arc<NodeClaim>) {
    if !claim.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER) {
        return;
    }
    let status = claim.status.as_ref();
    let Some(provider_id) = status.and_then(|s| s.provider_id.as_deref()) else {
        unlaunched(round, memory, name, claim);
        return;
    };
    let id = machine_id(provider_id).to_owned();
    let node = round.snapshot.node_of(claim);
    let view = node.map(|(_, view)| view);
    if instances::is_no_more(round, memory, &id, view) {
        match node {
            Some((node_name, node)) => {
                forget_pods(round, node_name);
                let_go(round, node_name, node);
            }
            None => round.act(release(name, claim)),
        }
        return;
    }
    if !instances::is_going(memory, &id) && !is_emptied(round, memory, name, claim, node) {
        return;
    }
    round.act(Action::Terminate { ids: vec![id] });
}

/// True once nothing has to be waited for: pods have left within their budgets, volumes are detached, and the API server
/// itself has nothing there.
fn is_emptied(
    round: &mut Round<'_>,
    memory: &mut Memory,
    name: &str,
    claim: &Arc<NodeClaim>,
    node: Option<(&str, &NodeView)>,
) -> bool {
    if let Some((node_name, node)) = node {
        if !node.has_taint(names::DISRUPTED_TAINT) || !node.unschedulable {
            memory.closed_since.remove(name);
            memory.vacant_at.remove(name);
            round.act(Action::Write {
                key: Key::Node(node_name.to_owned()),
                call: Call {
                    target: Target::Node(node_name.to_owned()),
                    verb: Verb::JsonPatch(nodes::cordon(node, round.now.wall)),
                },
                rest: Duration::ZERO,
            });
            return false;
        }
        // One that was found empty is closed since then.
        let since = memory.cordoned_since.get(node_name).copied().unwrap_or(round.now.mono);
        memory.closed_since.entry(name.to_owned()).or_insert(since);
        if !drained(round, memory, name, claim, node_name) {
            return false;
        }
    } else if let Some(node_name) = claim.status.as_ref().and_then(|s| s.node_name.as_deref())
        && !round.snapshot.nodes.contains_key(node_name)
        && !drained(round, memory, name, claim, node_name)
    {
        // A Node that was taken away by force ends no pod: they run on.
        return false;
    }
    is_past_deadline(round, name, claim) || vacant(round, memory, name, claim)
}

/// The cloud's id in a provider id such as `aws:///us-east-1a/i-0123456789abcdef0`.
#[must_use]
pub fn machine_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

/// How long the pods of a claim's node have once it is being deleted. What the pool says now holds for all of its nodes;
/// the claim's own word, from its launch, holds once the pool is gone.
pub(super) fn grace_period<'a>(snapshot: &'a Snapshot, claim: &'a NodeClaim) -> Option<&'a str> {
    let template = snapshot.pools.get(&claim.spec.pool).and_then(|pool| pool.spec.template.as_ref());
    let of_pool = template.map(|template| &template.spec.termination_grace_period);
    of_pool.unwrap_or(&claim.spec.termination_grace_period).as_deref()
}

/// When whatever is left on the node has to be gone, on the monotonic clock.
fn deadline(round: &Round<'_>, name: &str, claim: &NodeClaim) -> Option<Duration> {
    let period = grace_period(round.snapshot, claim)?;
    let period = croft_api::duration::parse(period).ok()??;
    Some(round.snapshot.milestones(name).deleted?.saturating_add(period))
}

fn is_past_deadline(round: &Round<'_>, name: &str, claim: &NodeClaim) -> bool {
    deadline(round, name, claim).is_some_and(|deadline| deadline <= round.now.mono)
}

/// True if the API server itself has said, after every binding of before the cordon, that nothing is there.
fn vacant(round: &mut Round<'_>, memory: &Memory, name: &str, claim: &Arc<NodeClaim>) -> bool {
    // A machine that has no name for its node was never taken in: nothing can be there.
    if claim.status.as_ref().is_none_or(|s| s.node_name.is_none()) {
        return true;
    }
    if let Some(closed) = memory.closed_since.get(name)
        && !round.has_lasted(*closed, round.settings.settle)
    {
        return false;
    }
    let Some(look) = look(round, name, claim) else { return true };
    is_vacant(round, memory, look)
}

/// Where to look for the pods of a claim's instance.
pub(super) fn look(round: &Round<'_>, name: &str, claim: &NodeClaim) -> Option<Look> {
    let status = claim.status.as_ref()?;
    let provider_id = status.provider_id.clone()?;
    let node = status.node_name.clone()?;
    let pods = round.snapshot.pods_on(&node).filter(|(_, pod)| is_stuck(pod, round.now.mono));
    let ended = pods.map(|(_, pod)| pod.uid.clone()).collect();
    let instance = machine_id(&provider_id).to_owned();
    Some(Look { subject: name.to_owned(), instance, provider_id, node, ended })
}

/// True if the API server itself has said a moment ago that nothing is there; otherwise asks it.
pub(super) fn is_vacant(round: &mut Round<'_>, memory: &Memory, look: Look) -> bool {
    let said = memory.vacant_at.get(&look.subject);
    if said.is_some_and(|at| round.now.mono.saturating_sub(*at) < VACANCY_HOLDS) {
        return true;
    }
    round.act(Action::LookForPods(look));
    false
}

/// True if a machine has to wait for `pod`.
fn holds_machine(pod: &PodView, now: Duration) -> bool {
    pod.must_leave() && !is_stuck(pod, now)
}

fn is_stuck(pod: &PodView, now: Duration) -> bool {
    stuck_at(pod).is_some_and(|at| at <= now)
}

fn stuck_at(pod: &PodView) -> Option<Duration> {
    Some(pod.ends_by?.saturating_add(STUCK_AFTER))
}

/// Lets a Node go whose instance is gone: takes Croft's finalizer off, then deletes it.
pub(super) fn let_go(round: &mut Round<'_>, name: &str, node: &NodeView) {
    if let Some(patch) = nodes::unhold(node) {
        round.act(Action::Write {
            key: Key::Node(name.to_owned()),
            call: Call { target: Target::Node(name.to_owned()), verb: Verb::JsonPatch(patch) },
            rest: Duration::ZERO,
        });
    } else if !node.deleting {
        round.act(delete_node(name, node));
    }
}

/// Pods of a machine that is certainly gone end nowhere by themselves. Removing them lets their controllers make
/// others now, instead of when kube-controller-manager notices that their node is gone.
fn forget_pods(round: &mut Round<'_>, node: &str) {
    let snapshot = round.snapshot;
    for (key, pod) in snapshot.pods_on(node).filter(|(_, pod)| !pod.is.mirror) {
        round.act(Action::Write {
            key: Key::Pod(key.clone()),
            call: Call {
                target: Target::Pod(key.namespace.to_string(), key.name.to_string()),
                verb: Verb::Delete { uid: pod.uid.to_string(), grace_seconds: Some(0) },
            },
            rest: EVICTION_REST,
        });
    }
}

fn drained(round: &mut Round<'_>, memory: &mut Memory, name: &str, claim: &NodeClaim, node: &str) -> bool {
    let deadline = deadline(round, name, claim);
    if let Some(deadline) = deadline {
        wake_at(round, deadline);
    }
    let snapshot = round.snapshot;
    let mut left: Vec<(&PodKey, &PodView)> =
        snapshot.pods_on(node).filter(|(_, pod)| pod.must_leave()).collect();
    left.retain(|(_, pod)| {
        if let Some(at) = stuck_at(pod) {
            wake_at(round, at);
        }
        holds_machine(pod, round.now.mono)
    });
    let critical = |pod: &PodView| pod.priority >= CRITICAL_PRIORITY;
    let only_critical = left.iter().all(|(_, pod)| critical(pod));
    for (key, pod) in left.iter().filter(|(_, pod)| critical(pod) == only_critical) {
        remove(round, memory, claim, key, pod, deadline);
    }
    // The hard end: whatever is left goes with the machine.
    if is_past_deadline(round, name, claim) {
        return true;
    }
    if !left.is_empty() {
        return false;
    }
    if round.snapshot.attachments_on(node) == 0 {
        return true;
    }
    let since = *memory.drained_since.entry(name.to_owned()).or_insert(round.now.mono);
    round.has_lasted(since, DETACH_PATIENCE)
}

/// Looks again at `at`, if that is still to come.
fn wake_at(round: &mut Round<'_>, at: Duration) {
    if at > round.now.mono {
        round.wake_at(at);
    }
}

/// Asks a pod to leave; deletes it, whatever holds it, so late that its grace period ends with the deadline.
fn remove(
    round: &mut Round<'_>,
    memory: &Memory,
    claim: &NodeClaim,
    key: &PodKey,
    pod: &PodView,
    deadline: Option<Duration>,
) {
    let target = Target::Pod(key.namespace.to_string(), key.name.to_string());
    let uid = pod.uid.to_string();
    if let Some(deadline) = deadline {
        let left = i64::try_from(deadline.saturating_sub(round.now.mono).as_secs()).unwrap_or(i64::MAX);
        if left > pod.grace_seconds {
            round.wake_in(Duration::from_secs(u64::try_from(left - pod.grace_seconds).unwrap_or(0)));
        } else if pod.ends_by.is_none_or(|due| due > deadline) {
            round.act(Action::Write {
                key: Key::Pod(key.clone()),
                call: Call { target, verb: Verb::Delete { uid, grace_seconds: Some(left) } },
                rest: EVICTION_REST,
            });
            return;
        }
    }
    if pod.deletion.is_some() {
        return;
    }
    if let Some(why) = memory.blocked.get(key) {
        let note = format!("pod {key} can't be evicted yet: {why}");
        round.tell(reference(claim), true, "DrainBlocked", note);
    }
    round.act(Action::Write {
        key: Key::Pod(key.clone()),
        call: Call { target, verb: Verb::Evict { uid } },
        rest: EVICTION_REST,
    });
}

fn unlaunched(round: &mut Round<'_>, memory: &mut Memory, name: &str, claim: &Arc<NodeClaim>) {
    let attempt = claim.status.as_ref().and_then(|s| s.attempt.as_ref());
    // One that was made for a machine which is there has that machine, though it doesn't say so yet.
    let adopts = claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(names::ADOPTS));
    if !adopts && attempt.is_none_or(|a| a.request.is_none()) {
        // No request was ever sent, or each was refused for certain.
        round.act(release(name, claim));
        return;
    }
    // A launch may still become visible: only patience tells it from one that never was. What shows up later
    // all the same is found by its tag.
    if let Some(since) = memory.machineless_since.get(name).copied()
        && round.has_lasted(since, round.settings.orphan_grace)
    {
        round.act(release(name, claim));
        return;
    }
    round.act(Action::FindMachine(Arc::clone(claim)));
}

fn delete_node(name: &str, node: &NodeView) -> Action {
    Action::Write {
        key: Key::Node(name.to_owned()),
        call: Call {
            target: Target::Node(name.to_owned()),
            verb: Verb::Delete { uid: node.uid.to_string(), grace_seconds: None },
        },
        rest: WATCH_LAG,
    }
}

fn release(name: &str, claim: &NodeClaim) -> Action {
    let others: Vec<_> = claim.metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER).collect();
    Action::Write {
        key: Key::Claim(name.to_owned()),
        call: Call {
            target: Target::Claim(name.to_owned()),
            verb: Verb::Patch(json!({"metadata": {
                "uid": claim.metadata.uid,
                "resourceVersion": claim.metadata.resource_version,
                "finalizers": others,
            }})),
        },
        rest: WATCH_LAG,
    }
}
