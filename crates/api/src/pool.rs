//! TenantPool: what a pool of machines is and how it grows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{amount::Amount, bounds, disruption::Disruption};

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
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self.key == oldSelf.key", "key is immutable: the nodes carry it; make a new pool instead"),
    validation = ("has(self.value) == has(oldSelf.value) && (!has(self.value) || self.value == oldSelf.value)", "value is immutable: the nodes carry it; make a new pool instead"),
    validation = ("!has(self.replicas) || !has(self.headroom)", "a pool of a fixed size has no headroom: raise replicas, or leave replicas out"),
    validation = ("self.provisioner == 'Croft' || (!has(self.replicas) && !has(self.headroom))", "replicas and headroom need nodes that Croft makes: set provisioner: Croft, or leave them out"),
    validation = ("!has(self.template) || ((!has(self.template.spec.requirements) || !self.template.spec.requirements.exists(r, r.key == self.key)) && (!has(self.template.metadata) || !has(self.template.metadata.labels) || !(self.key in self.template.metadata.labels)))", "every node of the pool has the pool's key already: leave it out of template.metadata.labels and requirements"),
    validation = ("!has(self.template) || ((!has(self.template.spec.taints) || !self.template.spec.taints.exists(t, t.key == self.key)) && (!has(self.template.spec.startupTaints) || !self.template.spec.startupTaints.exists(t, t.key == self.key)))", "every node of the pool has the taint of the pool's key already: write spec.effects, and leave the key out of taints and startupTaints"),
    validation = ("self.provisioner != 'Croft' || has(self.template)", "a pool that Croft provisions needs spec.template; write one, or set provisioner: None")
)]
pub struct TenantPoolSpec {
    /// Key of the label and the taint that every node of the pool carries: one of your own, or one under
    /// `node-restriction.kubernetes.io/`, which no kubelet may write. Immutable.
    #[serde(default = "default_key")]
    #[schemars(schema_with = "bounds::pool_key")]
    pub key: String,
    /// Value of that label and taint. Default: the pool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::pool_value")]
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
    #[schemars(schema_with = "bounds::limits")]
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
    #[schemars(schema_with = "bounds::namespaces")]
    pub shared_with: Vec<String>,
}

/// Spare places of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Headroom {
    /// How many pods must find a place at any time.
    #[schemars(range(min = 1, max = 1_000))]
    pub pods: i32,
    /// What each of them asks for, by resource name.
    #[schemars(schema_with = "bounds::requests")]
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
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// Labels and annotations of the node.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// Requirements, taints and life time of the node.
    pub spec: NodeTemplateSpec,
}

/// Labels and annotations that every node of the pool gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Labels of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::template_labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::template_annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// Requirements, taints and life time of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplateSpec {
    /// Which machines the pool may launch, by label. Left out, they default to linux, the catalogue's
    /// architectures, and on-demand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::requirements")]
    pub requirements: Vec<Requirement>,
    /// Taints of the node, beside the pool's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::taints")]
    pub taints: Vec<Taint>,
    /// Taints that something on the node takes off before it counts as initialized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::startup_taints")]
    pub startup_taints: Vec<Taint>,
    /// The class that says how the cloud makes the machine.
    pub node_class_ref: NodeClassRef,
    /// How old a node gets before it is replaced, up to a tenth less so that nodes launched together don't go
    /// together: a duration of `5m` or more such as `720h`, or `Never`, which is also what leaving it
    /// out means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::expire_after")]
    pub expire_after: Option<String>,
    /// How long a node's pods have to leave once the node is given back; then they are deleted, whatever
    /// holds them: a disruption budget, a finalizer of their own, `do-not-disrupt`. A duration such as
    /// `1h`; without it, as long as it takes. A change reaches the nodes that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::termination_grace_period")]
    pub termination_grace_period: Option<String>,
}

/// One requirement on a node's label, in the words of a node selector.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)", "operators In and NotIn need values: write at least one"),
    validation = ("!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0", "operators Exists and DoesNotExist take no values: leave values out"),
    validation = ("!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(self.values) && size(self.values) == 1 && self.values[0].matches('^[0-9]{1,18}$'))", "operators Gt, Lt, Gte and Lte take exactly one value, a whole number that is not negative"),
    validation = ("!has(self.minValues) || self.operator in ['In', 'Exists']", "minValues counts values to choose from: it needs operator In or Exists"),
    validation = ("!has(self.minValues) || self.operator != 'In' || !has(self.values) || self.minValues <= size(self.values)", "there are fewer values than minValues: write more values, or a smaller minValues")
)]
pub struct Requirement {
    /// The label's key.
    #[schemars(schema_with = "bounds::key")]
    pub key: String,
    /// How the label's value relates to `values`.
    pub operator: Operator,
    /// Values for In and NotIn; exactly one integer for Gt, Lt, Gte and Lte; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::label_values")]
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
#[serde(rename_all = "camelCase")]
pub struct NodeClassRef {
    /// API group of the class.
    #[serde(default = "default_class_group")]
    #[schemars(schema_with = "bounds::class_group")]
    pub group: String,
    /// Kind of the class.
    #[serde(default = "default_class_kind")]
    #[schemars(schema_with = "bounds::class_kind")]
    pub kind: String,
    /// Name of the class.
    #[schemars(schema_with = "bounds::object_name")]
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
    /// a fixed size; `HeadroomReady` of one with headroom; `DisruptionStopped` while too many nodes are out at once;
    /// `NodeRegistrationHealthy`, False while launches are held back because nodes don't register; `PlanningFailed` while
    /// plans for its pods panic; `Unlimited`: no limit bounds what its nodes cost, which doesn't make it less ready.
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
    /// Launches whose node never registered, as long as they hold back others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_backoff: Option<LaunchBackoff>,
}

/// Launches of a pool whose node never registered. A node that registers ends it, and so does an edit of the pool or its
/// class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchBackoff {
    /// Rounds of launches in a row of which no node registered; launches that were under way together are one round.
    pub rounds: i32,
    /// When the rounds of the last hour ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Time>,
    /// The pool launches nothing before, if there were such rounds.
    pub until: Time,
    /// A node of a NodeClaim created since then ends the backoff when it registers.
    pub since: Time,
    /// The last instance without a node.
    pub instance: String,
    /// NodeClaims that are counted and still there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<String>,
    /// What was launched when no node registered, each left out for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offerings: Vec<OfferingBackoff>,
    /// Generation of the pool that was launched for.
    pub pool_generation: i64,
    /// Generation of its class.
    pub class_generation: i64,
}

impl Default for LaunchBackoff {
    fn default() -> Self {
        Self {
            rounds: 0,
            ended: Vec::new(),
            until: Time(Timestamp::UNIX_EPOCH),
            since: Time(Timestamp::UNIX_EPOCH),
            instance: String::new(),
            counted: Vec::new(),
            offerings: Vec::new(),
            pool_generation: 0,
            class_generation: 0,
        }
    }
}

/// An instance type in a zone whose nodes didn't register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferingBackoff {
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// How many times in a row.
    pub failures: i32,
    /// It is left out until then.
    pub until: Time,
    /// A node of it from a NodeClaim created since then ends the backoff when it registers.
    pub since: Time,
}
