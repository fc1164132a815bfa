//! The fields of pods, nodes and PodDisruptionBudgets that deciders read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use croft_api::{NodeClaim, TenantPool, condition, definitions::FINALIZER};
use croft_cloud::instance_id;
use croft_disruption::{
    blockers::{PodWish, is_do_not_disrupt},
    eviction::{BudgetFacts, Guard, is_daemon, is_mirror},
};
use croft_policy::selector::Selector;
use croft_scheduler::{Price, Resources};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, NodeCondition, Pod, PodCondition, Taint, Toleration},
    policy::v1::PodDisruptionBudget,
};

use crate::definitions::keys;

/// The scheduler of a pod that names none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// Conditions that EKS's node monitoring agent writes: False is a defect of the node.
/// Source: aws/eks-node-monitoring-agent, and the repair policies of aws/karpenter-provider-aws.
const MONITORED: [&str; 5] =
    ["AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "StorageReady"];
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The fields of a pod that deciders read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// Its uid.
    pub uid: Box<str>,
    /// Version of the object.
    pub version: u64,
    /// The node that it is bound to.
    pub node: Option<Box<str>>,
    /// The node that it is nominated for.
    pub nominated: Option<Box<str>>,
    /// A digest of what kube-scheduler wrote about its last attempt that it wrote anything about: its condition
    /// PodScheduled. Zero before the first.
    pub attempt: u64,
    /// Its scheduler, if it isn't kube-scheduler's default profile.
    pub scheduler: Option<Box<str>>,
    /// Its priority.
    pub priority: i32,
    /// Its termination grace period, in seconds.
    pub grace_seconds: i64,
    /// Its deletion timestamp, by the API server's clock.
    pub deletion: Option<Timestamp>,
    /// The grace period of its deletion, in seconds.
    pub deletion_grace_seconds: i64,
    /// When its containers must have ended, on this process's monotonic clock, while it is being deleted.
    pub ends_by: Option<Duration>,
    /// How far PodDisruptionBudgets guard it.
    pub guard: Guard,
    /// Its labels; pods of one owner share them.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The uid of its controller.
    pub owner: Option<Box<str>>,
    /// Its workload, as `Kind/name`: its controller, or the Deployment of its ReplicaSet; `Pod/name` without one.
    pub workload: Box<str>,
    /// When its containers started.
    pub started: Option<Timestamp>,
    /// Since when it is demand: its creation, unless this process has seen it gated before.
    pub pending_since: Option<Timestamp>,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// Whether and how long it forbids its disruption.
    pub do_not_disrupt: PodWish,
    /// Yes-or-no facts.
    pub traits: PodTraits,
}

/// Yes-or-no facts about a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each read alone")]
pub struct PodTraits {
    /// It is pending, without a gate.
    pub pending: bool,
    /// It is pending, and Croft may launch a node for it.
    pub demand: bool,
    /// A DaemonSet owns it.
    pub daemon: bool,
    /// It mirrors a static pod of the kubelet; the API server can't remove it.
    pub mirror: bool,
    /// It has succeeded or failed.
    pub finished: bool,
    /// kube-scheduler has found no node for it.
    pub unschedulable: bool,
    /// It may preempt pods, so kube-scheduler takes its nomination back when an attempt fails.
    pub preempts: bool,
    /// It tolerates the taint of a node that is being removed, so draining leaves it.
    pub tolerates_disruption: bool,
}

/// A Deployment's ReplicaSet is named after it and the hash of its template.
fn workload(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let Some(owner) = meta.owner_references.iter().flatten().find(|o| o.controller == Some(true)) else {
        return format!("Pod/{}", meta.name.as_deref().unwrap_or_default());
    };
    let hash = meta.labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    match deployment {
        Some(name) if owner.kind == "ReplicaSet" => format!("Deployment/{name}"),
        _ => format!("{}/{}", owner.kind, owner.name),
    }
}

fn digest(condition: &PodCondition) -> u64 {
    let mut hasher = DefaultHasher::new();
    let since = condition.last_transition_time.as_ref().map(|at| at.0);
    (&condition.status, &condition.reason, &condition.message, since).hash(&mut hasher);
    hasher.finish()
}

impl PodView {
    /// Reads `pod`.
    #[must_use]
    pub fn read(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let daemon = is_daemon(pod);
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key));
        let finished =
            status.and_then(|s| s.phase.as_deref()).is_some_and(|p| matches!(p, "Succeeded" | "Failed"));
        let deletion = meta.deletion_timestamp.as_ref().map(|t| t.0);
        let node = spec.and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty());
        let scheduler = spec.and_then(|s| s.scheduler_name.as_deref());
        let gated = spec.and_then(|s| s.scheduling_gates.as_ref()).is_some_and(|g| !g.is_empty());
        let pending = node.is_none() && deletion.is_none() && !finished && !gated && !daemon;
        let grace_seconds =
            spec.and_then(|s| s.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE_SECONDS);
        let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        let scheduled = conditions.iter().find(|c| c.type_ == "PodScheduled");
        let stays =
            spec.and_then(|s| s.tolerations.as_deref()).is_some_and(|t| t.iter().any(tolerates_disruption));
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: resource_version(meta.resource_version.as_deref()),
            node: node.map(Into::into),
            nominated: status
                .and_then(|s| s.nominated_node_name.as_deref())
                .filter(|n| !n.is_empty())
                .map(Into::into),
            attempt: scheduled.map_or(0, digest),
            priority: spec.and_then(|s| s.priority).unwrap_or(0),
            scheduler: scheduler.filter(|s| !s.is_empty() && *s != DEFAULT_SCHEDULER).map(Into::into),
            grace_seconds,
            deletion,
            deletion_grace_seconds: meta.deletion_grace_period_seconds.unwrap_or(grace_seconds),
            ends_by: None,
            guard: Guard::of(pod),
            labels: Arc::new(meta.labels.clone().unwrap_or_default()),
            owner: meta
                .owner_references
                .iter()
                .flatten()
                .find(|o| o.controller == Some(true))
                .map(|o| o.uid.as_str().into()),
            workload: workload(pod).into(),
            started: status.and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            pending_since: meta.creation_timestamp.as_ref().map(|t| t.0).filter(|_| pending),
            deletion_cost: annotation(DELETION_COST).and_then(|v| v.parse().ok()).unwrap_or(0),
            do_not_disrupt: PodWish::read(meta.annotations.iter().flatten()),
            traits: PodTraits {
                pending,
                demand: pending,
                daemon,
                mirror: is_mirror(pod),
                finished,
                unschedulable: scheduled
                    .is_some_and(|c| c.status == "False" && c.reason.as_deref() == Some("Unschedulable")),
                preempts: spec.and_then(|s| s.preemption_policy.as_deref()) != Some("Never"),
                tolerates_disruption: stays,
            },
        }
    }

    /// True if a node with this pod is not empty.
    #[must_use]
    pub fn counts_as_work(&self) -> bool {
        !self.traits.daemon && !self.traits.mirror && !self.traits.finished
    }

    /// True if the pod must be evicted before its node is removed.
    #[must_use]
    pub fn must_leave(&self) -> bool {
        !self.traits.daemon
            && !self.traits.mirror
            && !self.traits.finished
            && !self.traits.tolerates_disruption
    }
}

/// A condition of a node's monitoring agent that is False.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The type of the condition.
    pub kind: &'static str,
    /// Since when it is False.
    pub since: Timestamp,
    /// What the agent says.
    pub message: Box<str>,
}

/// What a node's monitoring agent reports. `Unknown` is no evidence: the agent may be away.
fn defects(conditions: &[NodeCondition]) -> Vec<Defect> {
    let failing = conditions.iter().filter(|condition| condition.status == "False");
    let defect = |condition: &NodeCondition| {
        Some(Defect {
            kind: MONITORED.into_iter().find(|kind| *kind == condition.type_)?,
            since: condition.last_transition_time.as_ref()?.0,
            message: condition.message.as_deref().unwrap_or_default().into(),
        })
    };
    failing.filter_map(defect).collect()
}

/// The fields of a node that deciders read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Its uid.
    pub uid: Box<str>,
    /// Version of the object.
    pub version: u64,
    /// Its provider id, as its kubelet or the cloud controller wrote it.
    pub provider_id: Option<Box<str>>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations that are in Croft's group, or are do-not-disrupt.
    pub annotations: BTreeMap<String, String>,
    /// True if it has any annotation.
    pub annotated: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// True if it is cordoned.
    pub unschedulable: bool,
    /// True if its Ready condition is True.
    pub ready: bool,
    /// When its Ready condition last changed.
    pub ready_since: Option<Timestamp>,
    /// Conditions of a monitoring agent that are False.
    pub defects: Vec<Defect>,
    /// When this process first observed it, on its monotonic clock.
    pub seen_at: Duration,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// True if it is being deleted.
    pub deleting: bool,
    /// Its capacity.
    pub capacity: Resources,
    /// Its allocatable resources.
    pub allocatable: Resources,
}

impl NodeView {
    /// Reads `node`. A quantity that can't be read counts as absent: the scheduler reports it.
    #[must_use]
    pub fn read(node: &Node) -> Self {
        let meta = &node.metadata;
        let status = node.status.as_ref();
        let ready = status.and_then(|s| s.conditions.iter().flatten().find(|c| c.type_ == "Ready"));
        let resources = |map: Option<&BTreeMap<String, _>>| {
            map.and_then(|m| Resources::from_api(m).ok()).unwrap_or_default()
        };
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: resource_version(meta.resource_version.as_deref()),
            provider_id: node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).map(Into::into),
            labels: meta.labels.clone().unwrap_or_default(),
            annotated: meta.annotations.as_ref().is_some_and(|annotations| !annotations.is_empty()),
            annotations: meta
                .annotations
                .iter()
                .flatten()
                .filter(|(key, _)| keys::is_croft_key(key) || is_do_not_disrupt(key))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
            taints: node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default(),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
            ready: ready.is_some_and(|c| c.status == "True"),
            ready_since: ready.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0),
            defects: defects(status.and_then(|s| s.conditions.as_deref()).unwrap_or_default()),
            seen_at: Duration::ZERO,
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            capacity: resources(status.and_then(|s| s.capacity.as_ref())),
            allocatable: resources(status.and_then(|s| s.allocatable.as_ref())),
        }
    }

    /// True if it has Croft's finalizer.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|f| f == FINALIZER)
    }

    /// True if Croft has cordoned it.
    #[must_use]
    pub fn is_cordoned_by_croft(&self) -> bool {
        self.unschedulable && self.has_taint(keys::DISRUPTED_TAINT)
    }

    /// True if it carries a taint with this key.
    #[must_use]
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|t| t.key == key)
    }
}

/// The rule of `ToleratesTaint` in k8s.io/component-helpers for the disrupted taint, whose value is empty and whose
/// effect is NoSchedule.
fn tolerates_disruption(toleration: &Toleration) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key_matches = if key.is_empty() { exists } else { key == keys::DISRUPTED_TAINT };
    let value_matches = exists || toleration.value.as_deref().unwrap_or_default().is_empty();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    key_matches && value_matches && (effect.is_empty() || effect == keys::DISRUPTED_EFFECT)
}

/// The number in a resourceVersion, by which objects of one kind can be put in order (KEP-5504); 0 if absent.
#[must_use]
pub fn resource_version(text: Option<&str>) -> u64 {
    text.and_then(|t| t.parse().ok()).unwrap_or(0)
}

/// Price of a claim's instance, if it is known.
#[must_use]
pub fn price(claim: &NodeClaim) -> Option<Price> {
    claim.status.as_ref()?.price_per_hour.as_deref()?.parse().ok()
}

/// True if the claim's condition `kind` is True.
#[must_use]
pub fn has_condition(claim: &NodeClaim, kind: &str) -> bool {
    claim.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, kind))
}

/// The id of a claim's instance.
#[must_use]
pub fn instance_of(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.provider_id.as_deref().map(instance_id)
}

/// True if a pool may take nodes: the admission policies know it, and no waiting pod could enter, which the condition `Accepted`
/// says. A pool takes none before that is written.
#[must_use]
pub fn is_accepted(pool: &TenantPool) -> bool {
    pool.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, condition::ACCEPTED))
}

/// The fields of a PodDisruptionBudget that deciders read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetView {
    /// Version of the object.
    pub version: u64,
    /// The pods that it covers; `None` selects nothing.
    pub selector: Option<Selector>,
    /// The facts that decide about their eviction.
    pub facts: BudgetFacts,
}

impl BudgetView {
    /// Reads `budget`. A selector that can't be read covers nothing; the API server refuses such selectors.
    #[must_use]
    pub fn read(budget: &PodDisruptionBudget) -> Self {
        let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
        Self {
            version: resource_version(budget.metadata.resource_version.as_deref()),
            selector: selector.and_then(|s| croft_api::convert::policy::selector(s).ok()),
            facts: BudgetFacts::read(budget),
        }
    }
}
