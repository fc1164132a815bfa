//! TenantPool: what a pool of machines is and how it grows.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{amount::Amount, disruption::Disruption};

/// Label and taint key of a pool that names no other.
pub const DEFAULT_KEY: &str = "node-restriction.kubernetes.io/pool";

/// A TenantPool is a set of machines with one label and taint, and says how it grows and shrinks.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "TenantPool",
    doc = "A TenantPool is a set of machines with one label and one taint key, and says how it grows and shrinks.",
    validation = ("size(self.metadata.name) <= 40", "a pool's name is at most 40 characters: it is a label value and the prefix of its claims' names"),
    plural = "tenantpools",
    shortname = "tp",
    category = "croft",
    status = "TenantPoolStatus",
    derive = "PartialEq",
    printcolumn(name = "Provisioner", json_path = ".spec.provisioner", type_ = "string"),
    printcolumn(name = "Class", json_path = ".spec.template.spec.nodeClassRef.name", type_ = "string"),
    printcolumn(name = "Nodes", json_path = ".status.nodes", type_ = "integer"),
    printcolumn(name = "CPU", json_path = ".status.resources.cpu", type_ = "string"),
    printcolumn(name = "Memory", json_path = ".status.resources.memory", type_ = "string"),
    printcolumn(name = "$/h", json_path = ".status.costPerHour", type_ = "string"),
    printcolumn(name = "Ready", json_path = ".status.conditions[?(@.type=='Ready')].status", type_ = "string"),
    printcolumn(name = "Age", json_path = ".metadata.creationTimestamp", type_ = "date")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = ("self.key == oldSelf.key", "key is immutable: the nodes carry it; make a new pool instead"),
    validation = ("has(self.value) == has(oldSelf.value) && (!has(self.value) || self.value == oldSelf.value)", "value is immutable: the nodes carry it; make a new pool instead"),
    validation = ("!has(self.replicas) || !has(self.headroom)", "a pool of a fixed size has no headroom: raise replicas, or leave replicas out"),
    validation = ("self.provisioner == 'Croft' || (!has(self.replicas) && !has(self.headroom))", "replicas and headroom need nodes that Croft makes: set provisioner: Croft, or leave them out"),
    validation = ("self.provisioner != 'Croft' || has(self.template)", "a pool that Croft provisions needs spec.template; write one, or set provisioner: None")
)]
pub struct TenantPoolSpec {
    /// Key of the label and the taint that every node of the pool carries.
    #[serde(default = "default_key")]
    #[schemars(
        length(min = 1, max = 317),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
        )
    )]
    pub key: String,
    /// Value of that label and taint. Default: the pool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub value: Option<String>,
    /// Effects of the pool's taint.
    #[serde(default = "default_effects")]
    #[schemars(length(min = 1, max = 2))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub effects: Vec<Effect>,
    /// Who makes the pool's nodes.
    #[serde(default)]
    pub provisioner: Provisioner,
    /// Among pools that a pod may use, a heavier one is used while it can be. 0 to 100.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// What the pool's nodes may have together: any resource name, `nodes`, and `costPerHour` in dollars.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Amount>,
    /// What a new node of the pool looks like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<NodeTemplate>,
    /// When nodes are given back.
    #[serde(default)]
    pub disruption: Disruption,
    /// A pool of a fixed size: this many nodes, whatever the demand. They are replaced when they expire, drift or
    /// break, and never given back for being empty. Left out, the pool grows and shrinks with the demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// Spare places that are kept ready, so that the next pods needn't wait for a machine. They count against
    /// limits like pods do, and give way to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    /// Namespaces whose pods may run on the pool's nodes too, such as those of node agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub shared_with: Vec<String>,
}

/// Spare places of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Headroom {
    /// How many pods must find a place at any time.
    #[schemars(range(min = 1, max = 1_000))]
    pub pods: i32,
    /// What each of them asks for, by resource name.
    pub requests: BTreeMap<String, Amount>,
}

fn default_key() -> String {
    DEFAULT_KEY.to_owned()
}

fn default_effects() -> Vec<Effect> {
    vec![Effect::NoSchedule]
}

/// Effect of a pool's taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Effect {
    /// Pods that don't tolerate the taint are not scheduled there.
    NoSchedule,
    /// Pods that don't tolerate the taint are evicted as well.
    NoExecute,
}

/// Who makes a pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provisioner {
    /// Croft launches and removes them.
    #[default]
    Croft,
    /// Karpenter does; only admission and audit apply.
    Karpenter,
    /// They come from elsewhere; only admission and audit apply.
    None,
}

/// What a new node of the pool looks like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeTemplate {
    /// Labels and annotations of the node.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// Requirements, taints and life time of the node.
    pub spec: NodeTemplateSpec,
}

/// Labels and annotations that every node of the pool gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateMetadata {
    /// Labels of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Requirements, taints and life time of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeTemplateSpec {
    /// Which machines the pool may launch, by label. Left out, they default to linux, the catalogue's
    /// architectures, and on-demand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub requirements: Vec<Requirement>,
    /// Taints of the node, beside the pool's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that something on the node takes off before it counts as initialized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// The class that says how the cloud makes the machine.
    pub node_class_ref: NodeClassRef,
    /// How old a node gets before it is replaced, up to a tenth less so that nodes launched together don't go
    /// together: a duration such as `720h`, or `Never`, which is also what leaving it out means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(([0-9]+(\.[0-9]+)?(ms|s|m|h))+|Never)$"))]
    pub expire_after: Option<String>,
    /// How long a node's pods have to leave once the node is given back; then they are deleted, whatever
    /// holds them: a disruption budget, a finalizer of their own, `do-not-disrupt`. A duration such as
    /// `1h`; without it, as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    pub termination_grace_period: Option<String>,
}

/// One requirement on a node's label, in the words of a node selector.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = ("!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)", "operators In and NotIn need values: write at least one"),
    validation = ("!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0", "operators Exists and DoesNotExist take no values: leave values out"),
    validation = ("!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(self.values) && size(self.values) == 1 && self.values[0].matches('^[0-9]{1,18}$'))", "operators Gt, Lt, Gte and Lte take exactly one value, a whole number that is not negative"),
    validation = ("!has(self.minValues) || self.operator in ['In', 'Exists']", "minValues counts values to choose from: it needs operator In or Exists")
)]
pub struct Requirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label's value relates to `values`.
    pub operator: Operator,
    /// Values for In and NotIn; exactly one integer for Gt, Lt, Gte and Lte; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000), inner(length(max = 63)))]
    pub values: Vec<String>,
    /// A launch must leave the cloud at least this many different values of the key to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub min_values: Option<i32>,
}

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is absent.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than the value.
    Gt,
    /// The label is an integer less than the value.
    Lt,
    /// The label is an integer greater than or equal to the value.
    Gte,
    /// The label is an integer less than or equal to the value.
    Lte,
}

/// Reference to the class of a pool's machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeClassRef {
    /// API group of the class.
    #[serde(default = "default_class_group")]
    pub group: String,
    /// Kind of the class.
    #[serde(default = "default_class_kind")]
    pub kind: String,
    /// Name of the class.
    pub name: String,
}

fn default_class_group() -> String {
    crate::GROUP.to_owned()
}

fn default_class_kind() -> String {
    "EC2NodeClass".to_owned()
}

/// What Croft observed of a pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantPoolStatus {
    /// `ClassReady` and `RequirementsValid`, and `Ready` over them; `CapacityAvailable`; `ReplicasReady` of a pool of
    /// a fixed size; `HeadroomReady` of one with headroom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Nodes of the pool, coming ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// Capacity of those nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Amount>,
    /// What they cost, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<String>,
    /// How many claims the pool has ever named; the next claim's name is a hash of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_counter: Option<i64>,
}
