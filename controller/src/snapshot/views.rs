//! The few fields of pods and nodes that decisions read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::definitions::FINALIZER;
use croft_policy::selector::Selector;
use croft_scheduler::Resources;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, Pod, Taint, Toleration},
    policy::v1::PodDisruptionBudget,
};

use crate::names;

/// Who schedules a pod that says nothing about it.
const DEFAULT_SCHEDULER: &str = "default-scheduler";
const DEFAULT_GRACE_SECONDS: i64 = 30;
const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A pod, as far as decisions read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// Its uid.
    pub uid: Box<str>,
    /// Version of the object that this was read from.
    pub version: u64,
    /// Where it runs.
    pub node: Option<Box<str>>,
    /// What it was told to try first.
    pub nominated: Option<Box<str>>,
    /// Its priority.
    pub priority: i32,
    /// Seconds that its containers get to end.
    pub grace_seconds: i64,
    /// When its deletion is due by the API server's clock, if it is being deleted.
    pub deletion: Option<Timestamp>,
    /// Seconds that its deletion gives its containers.
    pub deletion_grace_seconds: i64,
    /// When its containers must have ended, on this process's monotonic clock, if it is being deleted.
    pub ends_by: Option<Duration>,
    /// Its labels; pods of one owner share them.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The uid of the object that controls it, and would make another one.
    pub owner: Option<Box<str>>,
    /// When its containers began to start.
    pub started: Option<Timestamp>,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// The bits below.
    pub is: PodTraits,
}

/// What a pod is, yes or no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each read alone")]
pub struct PodTraits {
    /// It waits for a place that Croft may give it.
    pub demand: bool,
    /// A DaemonSet owns it: it comes and goes with its node.
    pub daemon: bool,
    /// The kubelet made it from a file; the API server can't remove it.
    pub mirror: bool,
    /// It has ended.
    pub finished: bool,
    /// It asks to be left alone while Croft has a choice.
    pub do_not_disrupt: bool,
    /// kube-scheduler has tried, and found no node for it.
    pub unschedulable: bool,
    /// It tolerates the taint of a node that is given back, so draining leaves it.
    pub tolerates_disruption: bool,
}

impl PodView {
    /// Reads `pod`.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let daemon = meta.owner_references.iter().flatten().any(|o| {
            o.controller == Some(true) && o.kind == "DaemonSet" && o.api_version.starts_with("apps/")
        });
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key));
        let finished =
            status.and_then(|s| s.phase.as_deref()).is_some_and(|p| matches!(p, "Succeeded" | "Failed"));
        let deletion = meta.deletion_timestamp.as_ref().map(|t| t.0);
        let node = spec.and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty());
        let scheduler = spec.and_then(|s| s.scheduler_name.as_deref()).unwrap_or(DEFAULT_SCHEDULER);
        let gated = spec.and_then(|s| s.scheduling_gates.as_ref()).is_some_and(|g| !g.is_empty());
        let demand = node.is_none()
            && deletion.is_none()
            && !finished
            && !gated
            && !daemon
            && (scheduler == DEFAULT_SCHEDULER || scheduler.is_empty());
        let grace_seconds =
            spec.and_then(|s| s.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE_SECONDS);
        let stays =
            spec.and_then(|s| s.tolerations.as_deref()).is_some_and(|t| t.iter().any(tolerates_disruption));
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: version(meta.resource_version.as_deref()),
            node: node.map(Into::into),
            nominated: status
                .and_then(|s| s.nominated_node_name.as_deref())
                .filter(|n| !n.is_empty())
                .map(Into::into),
            priority: spec.and_then(|s| s.priority).unwrap_or(0),
            grace_seconds,
            deletion,
            deletion_grace_seconds: meta.deletion_grace_period_seconds.unwrap_or(grace_seconds),
            ends_by: None,
            labels: Arc::new(meta.labels.clone().unwrap_or_default()),
            owner: meta
                .owner_references
                .iter()
                .flatten()
                .find(|o| o.controller == Some(true))
                .map(|o| o.uid.as_str().into()),
            started: status.and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            deletion_cost: annotation(DELETION_COST).and_then(|v| v.parse().ok()).unwrap_or(0),
            is: PodTraits {
                demand,
                daemon,
                mirror: annotation(MIRROR).is_some(),
                finished,
                do_not_disrupt: [names::DO_NOT_DISRUPT, names::KARPENTER_DO_NOT_DISRUPT]
                    .iter()
                    .any(|key| annotation(key).is_some_and(|v| v == "true")),
                unschedulable: status.and_then(|s| s.conditions.as_ref()).is_some_and(|conditions| {
                    conditions.iter().any(|c| {
                        c.type_ == "PodScheduled"
                            && c.status == "False"
                            && c.reason.as_deref() == Some("Unschedulable")
                    })
                }),
                tolerates_disruption: stays,
            },
        }
    }

    /// True if its presence makes a node worth keeping.
    #[must_use]
    pub fn counts_as_work(&self) -> bool {
        !self.is.daemon && !self.is.mirror && !self.is.finished
    }

    /// True if it has to leave before its node goes.
    #[must_use]
    pub fn must_leave(&self) -> bool {
        !self.is.daemon && !self.is.mirror && !self.is.finished && !self.is.tolerates_disruption
    }
}

/// A node, as far as decisions read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Its uid.
    pub uid: Box<str>,
    /// Version of the object that this was read from.
    pub version: u64,
    /// The machine, as its kubelet or the cloud's controller wrote it.
    pub provider_id: Option<Box<str>>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations of Croft.
    pub annotations: BTreeMap<String, String>,
    /// True if it has any annotation, anybody's.
    pub annotated: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// True if it is cordoned.
    pub unschedulable: bool,
    /// True if its Ready condition is True.
    pub ready: bool,
    /// Since when that has been so.
    pub ready_since: Option<Timestamp>,
    /// When this process first saw it, on its monotonic clock.
    pub seen_at: Duration,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// True if it is being deleted.
    pub deleting: bool,
    /// What it has.
    pub capacity: Resources,
    /// What pods may use of that.
    pub allocatable: Resources,
}

impl NodeView {
    /// Reads `node`. A quantity that can't be read counts as absent: the scheduler's own reading reports it.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let meta = &node.metadata;
        let status = node.status.as_ref();
        let ready = status.and_then(|s| s.conditions.iter().flatten().find(|c| c.type_ == "Ready"));
        let resources = |map: Option<&BTreeMap<String, _>>| {
            map.and_then(|m| Resources::from_api(m).ok()).unwrap_or_default()
        };
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: version(meta.resource_version.as_deref()),
            provider_id: node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).map(Into::into),
            labels: meta.labels.clone().unwrap_or_default(),
            annotated: meta.annotations.as_ref().is_some_and(|annotations| !annotations.is_empty()),
            annotations: meta
                .annotations
                .iter()
                .flatten()
                .filter(|(key, _)| names::is_ours(key) || names::keeps(key))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
            taints: node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default(),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
            ready: ready.is_some_and(|c| c.status == "True"),
            ready_since: ready.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0),
            seen_at: Duration::ZERO,
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            capacity: resources(status.and_then(|s| s.capacity.as_ref())),
            allocatable: resources(status.and_then(|s| s.allocatable.as_ref())),
        }
    }

    /// True if Croft's finalizer keeps it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|f| f == FINALIZER)
    }

    /// True if it carries a taint with this key.
    #[must_use]
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|t| t.key == key)
    }
}

/// The rule of `ToleratesTaint` in k8s.io/component-helpers for the one taint that matters here, whose value
/// is empty and whose effect is NoSchedule.
fn tolerates_disruption(toleration: &Toleration) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key_matches = if key.is_empty() { exists } else { key == names::DISRUPTED_TAINT };
    let value_matches = exists || toleration.value.as_deref().unwrap_or_default().is_empty();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    key_matches && value_matches && (effect.is_empty() || effect == names::DISRUPTED_EFFECT)
}

/// The number in a resourceVersion, by which objects of one kind can be put in order (KEP-5504); 0 if absent.
#[must_use]
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|t| t.parse().ok()).unwrap_or(0)
}

/// A PodDisruptionBudget, as far as decisions read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetView {
    /// Version of the object that this was read from.
    pub version: u64,
    /// Pods that it counts; `None` selects nothing.
    pub selector: Option<Selector>,
    /// How many of them may go now.
    pub allowed: i32,
}

impl BudgetView {
    /// Reads `budget`. A selector that can't be read counts nothing here; the API server refuses such ones.
    #[must_use]
    pub fn of(budget: &PodDisruptionBudget) -> Self {
        let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
        Self {
            version: version(budget.metadata.resource_version.as_deref()),
            selector: selector.and_then(|s| croft_api::convert::policy::selector(s).ok()),
            allowed: budget.status.as_ref().and_then(|s| s.disruptions_allowed).unwrap_or(0),
        }
    }
}
