//! TenantPool: a set of nodes with one label and taint, and how it is scaled.

use std::{borrow::Cow, collections::BTreeMap};

use croft_policy::definitions::TEMPLATE_LABEL;
use k8s_openapi::api::core::v1::Taint;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::pool_status::{
    ExtendedResource, InstanceLabel, LaunchBackoff, NodeStage, OfferingBackoff, TemplateBackoff,
    TenantPoolStatus,
};
use crate::{amount::Amount, bounds, definitions::GROUP, disruption::Disruption, schedule::Schedule};

/// Label and taint key of a pool that sets no `key`.
pub const DEFAULT_KEY: &str = "node-restriction.kubernetes.io/pool";

/// A TenantPool is a set of nodes with one label and one taint key, and the rules by which it is scaled.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "TenantPool",
    doc = "A TenantPool is a set of nodes with one label and one taint key, and the rules by which it is scaled.",
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
    validation = ("self.perTenant == oldSelf.perTenant", "perTenant is immutable: the nodes carry another value; make a new pool instead"),
    validation = ("has(self.forTenant) == has(oldSelf.forTenant) && (!has(self.forTenant) || self.forTenant == oldSelf.forTenant)", "forTenant is immutable: Croft writes it"),
    validation = ("!self.perTenant || !(has(self.value) || has(self.forTenant))", "with perTenant the value is the name of each Tenant: leave value and forTenant out"),
    validation = ("!has(self.replicas) || !has(self.headroom)", "a pool of a fixed size has no headroom: raise replicas, or leave replicas out"),
    validation = ("!has(self.headroom) || !has(self.templates) || self.templates.exists(t, !has(t.replicas))", "every template of the pool has a fixed size, so there is no headroom: leave replicas out of one of them, or leave headroom out"),
    validation = ("!has(self.replicas) || !has(self.templates) || self.templates.all(t, !has(t.replicas))", "replicas is either the number of the pool's nodes or that of a template: leave spec.replicas out, or the replicas of templates"),
    validation = ("self.provisioner == 'Croft' || (!has(self.replicas) && !has(self.headroom) && (!has(self.templates) || self.templates.all(t, !has(t.replicas))))", "replicas and headroom need nodes that Croft launches: set provisioner: Croft, or leave them out"),
    validation = ("self.provisioner == 'Croft' || !has(self.schedules)", "schedules need nodes that Croft launches: set provisioner: Croft, or leave them out"),
    validation = ("!has(self.schedules) || has(self.headroom) || self.schedules.all(s, !has(s.headroomPods))", "a schedule changes the number of headroom pods and headroom says their requests: write headroom, or leave headroomPods out"),
    validation = ("!has(self.template) || ((!has(self.template.spec.requirements) || !self.template.spec.requirements.exists(r, r.key == self.key)) && (!has(self.template.metadata) || !has(self.template.metadata.labels) || !(self.key in self.template.metadata.labels)))", "every node of the pool has the pool's key already: leave it out of template.metadata.labels and requirements"),
    validation = ("!has(self.template) || ((!has(self.template.spec.taints) || !self.template.spec.taints.exists(t, t.key == self.key)) && (!has(self.template.spec.startupTaints) || !self.template.spec.startupTaints.exists(t, t.key == self.key)))", "every node of the pool has the taint of the pool's key already: write spec.effects, and leave the key out of taints and startupTaints"),
    validation = ("!has(self.templates) || self.templates.all(t, (!has(t.spec.requirements) || !t.spec.requirements.exists(r, r.key == self.key)) && (!has(t.metadata) || !has(t.metadata.labels) || !(self.key in t.metadata.labels)))", "every node of the pool has the pool's key already: leave it out of metadata.labels and requirements of its templates"),
    validation = ("!has(self.templates) || self.templates.all(t, (!has(t.spec.taints) || !t.spec.taints.exists(x, x.key == self.key)) && (!has(t.spec.startupTaints) || !t.spec.startupTaints.exists(x, x.key == self.key)))", "every node of the pool has the taint of the pool's key already: write spec.effects, and leave the key out of taints and startupTaints of its templates"),
    validation = ("!has(self.template) || !has(self.templates)", "template is the short form of templates with one entry: write one of the two"),
    validation = ("self.provisioner != 'Croft' || has(self.template) || has(self.templates)", "a pool that Croft provisions needs spec.template or spec.templates; write one, or set provisioner: None"),
    validation = ("!has(self.shares) || (self.provisioner == 'Croft' && !has(self.replicas))", "shares say which nodes Croft launches by demand: set provisioner: Croft and leave replicas out, or leave shares out"),
    validation = ("!has(self.shares) || self.shares.all(s, !has(s.template) || (has(self.templates) && self.templates.exists(t, t.name == s.template)))", "a share names a template that the pool doesn't have: write the name of one of spec.templates, or a capacityType")
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
    /// One pool for many tenants: Croft makes a pool of each Tenant that names it, called as this one and the Tenant, with the Tenant's
    /// name as its value, nodes of its own, and these limits for itself. This pool itself has no nodes. Immutable.
    #[serde(default)]
    pub per_tenant: bool,
    /// The pool and the tenant that this pool was made for. Croft writes it, and keeps the rest of the spec as that pool has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_tenant: Option<ForTenant>,
    /// Effects of the pool's taint.
    #[serde(default = "default_effects")]
    #[schemars(length(min = 1, max = 2))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub effects: Vec<Effect>,
    /// The process that launches the pool's nodes.
    #[serde(default)]
    pub provisioner: Provisioner,
    /// Priority among the pools that a pod may use: pools with a higher weight are used first. 0 to 100.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// Limits of the pool's nodes together: any resource name, `nodes`, and `costPerHour` in dollars.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::limits")]
    pub limits: BTreeMap<String, Amount>,
    /// The template of the pool's new nodes, if they are all of one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<NodeTemplate>,
    /// The templates of the pool's new nodes, if they are of several kinds: of those that could hold a pod, one with the highest
    /// weight is used, and of equal ones the cheapest. Their nodes carry the label `croft.dev/template`. Admission is the same for
    /// all of them. Write either `template` or `templates`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub templates: Vec<PoolTemplate>,
    /// What becomes of nodes of a lighter template once a heavier one has room again.
    #[serde(default, rename = "return", skip_serializing_if = "Option::is_none")]
    pub template_return: Option<TemplateReturn>,
    /// Which part of the pool's nodes those of one template or capacity type may be, or must be: such as at most 70 % of the vCPU on
    /// spot, or the first two nodes on-demand. No plan launches a node by which a share would not hold once all that it launches is
    /// there, and no consolidation leaves the pool outside a share, or further outside than it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 5))]
    pub shares: Vec<PoolShare>,
    /// When nodes are removed, and how many at once.
    #[serde(default)]
    pub disruption: Disruption,
    /// Fixed number of nodes, whatever the demand. Nodes are replaced when they expire, drift or fail, and never
    /// removed for being empty. Without it, the pool is scaled by demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// Spare capacity that is kept ready, so that new pods need not wait for a launch. It counts against limits like
    /// pods do, and is preempted by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    /// Times in which the pool has another size or other limits, such as none at night. Of those that hold the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub schedules: Vec<Schedule>,
    /// Namespaces whose pods may run on the pool's nodes as well, such as those of node agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::namespaces")]
    pub shared_with: Vec<String>,
}

/// The pool that a pool was made from, and the tenant that it was made for.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForTenant {
    /// The TenantPool with `perTenant`.
    #[schemars(schema_with = "bounds::object_name")]
    pub pool: String,
    /// The Tenant.
    #[schemars(schema_with = "bounds::object_name")]
    pub tenant: String,
}

/// Spare capacity of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Headroom {
    /// The number of pods for which there is always capacity.
    #[schemars(range(min = 1, max = 1_000))]
    pub pods: i32,
    /// The requests of each of these pods, by resource name.
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

/// The process that launches a pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provisioner {
    /// Croft launches and removes the nodes.
    #[default]
    Croft,
    /// Karpenter launches the nodes; Croft does admission and audit only.
    Karpenter,
    /// Another process launches the nodes; Croft does admission and audit only.
    None,
}

/// The template of a pool's new nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// Labels and annotations of the node.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// Requirements, taints and lifetime of the node.
    pub spec: NodeTemplateSpec,
}

/// One of several templates of a pool's new nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolTemplate {
    /// Its name, which its nodes carry as the label `croft.dev/template`. Nodes of a template that is renamed or removed are replaced
    /// as drifted.
    #[schemars(schema_with = "bounds::template_name")]
    pub name: String,
    /// Priority among the pool's templates: while requirements, limits and capacity let a template with a higher weight hold a pod,
    /// the others aren't used for it. 0 to 100.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// Limits of the template's nodes together: any resource name, `nodes`, and `costPerHour` in dollars. The pool's own limits
    /// hold beside them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::template_limits")]
    pub limits: BTreeMap<String, Amount>,
    /// Fixed number of the template's nodes, whatever the demand, as `spec.replicas` is of a pool's. The pool's pods may use them, and
    /// further nodes are launched by the other templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// Labels and annotations of the node.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// Requirements, taints and lifetime of the node.
    pub spec: NodeTemplateSpec,
}

/// What becomes of nodes of a lighter template once a heavier one has room again.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.after) || self.policy == 'Eagerly'", "after is how long policy Eagerly waits: set policy: Eagerly, or leave after out"))]
pub struct TemplateReturn {
    /// Whether they give way to it.
    #[serde(default)]
    pub policy: ReturnPolicy,
    /// The time for which the heavier template must have launched without failure before nodes return to it: a Go duration of at least
    /// `1m`. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::return_after")]
    pub after: Option<String>,
}

/// Whether nodes of a lighter template give way to a heavier one that has room again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReturnPolicy {
    /// No voluntary disruption replaces a node by one of a heavier template.
    Never,
    /// Consolidation replaces them where that saves enough.
    #[default]
    WhenConsolidating,
    /// They are replaced whatever that costs, within the disruption budgets, and consolidation launches no lighter node in the place
    /// of a heavier one.
    Eagerly,
}

/// A bound on the pool's nodes of one template or capacity type.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.template) != has(self.capacityType)", "a share is of one kind of nodes: write either template or capacityType"),
    validation = ("has(self.max) || has(self.minNodes)", "a share bounds something: write max, such as 70%, or minNodes, such as 2")
)]
pub struct PoolShare {
    /// The share is of the nodes of this template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::template_name")]
    pub template: Option<String>,
    /// The share is of the nodes of this capacity type: `spot`, `on-demand` or `reserved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::capacity_type")]
    pub capacity_type: Option<String>,
    /// These nodes have at most this part of the vCPU of all the pool's nodes: `1%` to `99%`. The first node of a pool is another
    /// one, since a node alone is all of its pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::max_share")]
    pub max: Option<String>,
    /// So many of the pool's nodes are these; while the pool has fewer nodes, all of them. It asks for no node that no pod needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub min_nodes: Option<i32>,
}

impl TenantPoolSpec {
    /// The requirements, taints and lifetimes of its nodes, one for each template.
    pub fn node_specs(&self) -> impl Iterator<Item = &NodeTemplateSpec> {
        let one = self.template.iter().map(|template| &template.spec);
        one.chain(self.templates.iter().map(|template| &template.spec))
    }

    /// As [`TenantPoolSpec::node_specs`].
    pub fn node_specs_mut(&mut self) -> impl Iterator<Item = &mut NodeTemplateSpec> {
        let one = self.template.iter_mut().map(|template| &mut template.spec);
        one.chain(self.templates.iter_mut().map(|template| &mut template.spec))
    }
}

impl TenantPool {
    /// The pool as each of its templates describes its nodes, and the template; the pool itself if it has only one kind of node.
    pub fn by_template(&self) -> impl Iterator<Item = (Option<&PoolTemplate>, Cow<'_, Self>)> {
        let one = self.spec.templates.is_empty().then_some((None, Cow::Borrowed(self)));
        let each =
            self.spec.templates.iter().map(|template| (Some(template), Cow::Owned(self.narrowed(template))));
        one.into_iter().chain(each)
    }

    /// The pool as the template of this name describes its nodes; `None` asks for the only kind of node that it has.
    #[must_use]
    pub fn of_template(&self, name: Option<&str>) -> Option<Cow<'_, Self>> {
        match name {
            None => self.spec.templates.is_empty().then_some(Cow::Borrowed(self)),
            Some(name) => {
                let template = self.spec.templates.iter().find(|template| template.name == name);
                template.map(|template| Cow::Owned(self.narrowed(template)))
            }
        }
    }

    /// The name of the only template that the pool has here, as of [`TenantPool::of_template`].
    #[must_use]
    pub fn template_name(&self) -> Option<&str> {
        self.spec.template.as_ref()?.metadata.labels.get(TEMPLATE_LABEL).map(String::as_str)
    }

    /// The resources that the only template declares.
    #[must_use]
    pub fn declared_resources(&self) -> &[DeclaredResources] {
        self.spec.template.as_ref().map(|template| template.spec.resources.as_slice()).unwrap_or_default()
    }

    /// The pool with this template as its only one. The label of the template is among its labels.
    fn narrowed(&self, template: &PoolTemplate) -> Self {
        let mut metadata = template.metadata.clone();
        metadata.labels.insert(TEMPLATE_LABEL.to_owned(), template.name.clone());
        let mut narrowed = self.clone();
        narrowed.spec.template = Some(NodeTemplate { metadata, spec: template.spec.clone() });
        narrowed.spec.replicas = template.replicas.or(self.spec.replicas);
        narrowed.spec.templates.clear();
        narrowed
    }
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

/// Requirements, taints and lifetime of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplateSpec {
    /// The instances that the pool may launch, by label. By default linux, the catalogue's architectures, and
    /// on-demand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::requirements::<Requirement>")]
    pub requirements: Vec<Requirement>,
    /// Taints of the node, in addition to the pool's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::taints")]
    pub taints: Vec<Taint>,
    /// Taints that a process on the node removes before the node counts as initialized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::startup_taints")]
    pub startup_taints: Vec<Taint>,
    /// The class by which the cloud launches the instance.
    pub node_class_ref: NodeClassRef,
    /// Resources that nodes have beside those of their instance type: devices that a plugin shows, huge pages, shares of GPUs. Pods that
    /// request it are planned with it, and a node counts as initialized once it shows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub resources: Vec<DeclaredResources>,
    /// The age at which a node is replaced, up to a tenth earlier so that nodes launched together are not replaced
    /// together: a duration of `5m` or more such as `720h`, or `Never`, the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::expire_after")]
    pub expire_after: Option<String>,
    /// The time that the pods of a node have to end once the node is removed. Then they are deleted, whatever blocks
    /// them: a disruption budget, a finalizer of their own, `do-not-disrupt`. A duration such as `1h`; without it there
    /// is no time limit. A change applies to existing nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::termination_grace_period")]
    pub termination_grace_period: Option<String>,
}

/// Resources that nodes have beside those of their instance type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredResources {
    /// The instance types that have it; all of them if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 63)))]
    pub instance_types: Vec<String>,
    /// Amounts by resource name, such as `smarter-devices/fuse: 20` or `hugepages-2Mi: 2Gi`. They replace those of the instance type:
    /// write `nvidia.com/gpu: 0` where a node shows slices instead.
    #[schemars(schema_with = "bounds::declared_amounts")]
    pub amounts: BTreeMap<String, Amount>,
}

/// One requirement on a node's label, as in a node selector.
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
    /// The operator that compares the label's value with `values`.
    pub operator: Operator,
    /// Values for In and NotIn; exactly one integer for Gt, Lt, Gte and Lte; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::label_values")]
    pub values: Vec<String>,
    /// The least number of different values of the key among which the cloud can choose at a launch.
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
    /// The label is present.
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

/// Reference to the class of a pool's instances.
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
    GROUP.to_owned()
}

fn default_class_kind() -> String {
    "EC2NodeClass".to_owned()
}
