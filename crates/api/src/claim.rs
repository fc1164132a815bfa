//! NodeClaim: one instance, from the request to its termination.

use std::collections::BTreeMap;

use croft_policy::definitions::TEMPLATE_LABEL;
use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    amount::Amount,
    bounds,
    pool::{DeclaredResources, NodeClassRef, Requirement},
};

/// A NodeClaim is one instance: requested, launched, registered, terminated. Croft creates and deletes it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "NodeClaim",
    doc = "A NodeClaim is one instance: requested, launched, registered, terminated. Croft creates and deletes it.",
    plural = "nodeclaims",
    shortname = "nc",
    category = "croft",
    status = "NodeClaimStatus",
    derive = "PartialEq",
    printcolumn(name = "Pool", json_path = ".spec.pool", type_ = "string"),
    printcolumn(name = "Type", json_path = ".status.instanceType", type_ = "string"),
    printcolumn(name = "Capacity", json_path = ".status.capacityType", type_ = "string"),
    printcolumn(name = "Zone", json_path = ".status.zone", type_ = "string"),
    printcolumn(name = "Node", json_path = ".status.nodeName", type_ = "string"),
    printcolumn(name = "$/h", json_path = ".status.pricePerHour", type_ = "string"),
    printcolumn(
        name = "Ready",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        type_ = "string"
    ),
    printcolumn(name = "Age", json_path = ".metadata.creationTimestamp", type_ = "date")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self == oldSelf", "a NodeClaim's spec is immutable: it records what was launched; delete the claim instead"))]
pub struct NodeClaimSpec {
    /// The TenantPool of the instance.
    #[schemars(schema_with = "bounds::object_name")]
    pub pool: String,
    /// The class by which the cloud launches the instance.
    pub node_class_ref: NodeClassRef,
    /// Instance types of which one is launched, cheapest first.
    #[schemars(length(min = 1, max = 2_000), inner(length(min = 1, max = 63)))]
    pub instance_types: Vec<String>,
    /// Zones to launch in, best first.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub zones: Vec<String>,
    /// `on-demand`, `spot` or `reserved`.
    #[schemars(schema_with = "bounds::capacity_type")]
    pub capacity_type: String,
    /// The pool's requirements on its nodes, and those of the planned pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub requirements: Vec<Requirement>,
    /// The sum of the planned pods' requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::recorded_amounts")]
    pub requests: BTreeMap<String, Amount>,
    /// Taints of the node, the pool's own first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::recorded_taints")]
    pub taints: Vec<Taint>,
    /// Taints that a process on the node removes before the node counts as initialized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::recorded_taints")]
    pub startup_taints: Vec<Taint>,
    /// Labels of the node, the pool's own included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::recorded_labels")]
    pub labels: BTreeMap<String, String>,
    /// Resources that the node has beside those of its instance type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub resources: Vec<DeclaredResources>,
    /// The time that the node's pods have to end once the claim is being deleted. Then they are deleted, whatever
    /// blocks them. A duration such as `1h`; without it there is no time limit. Recorded at launch: while the pool
    /// exists, its current `terminationGracePeriod` applies instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub termination_grace_period: Option<String>,
}

impl NodeClaim {
    /// The name of the template of the pool that the instance was launched by; `None` if the pool had only one kind of node.
    #[must_use]
    pub fn template(&self) -> Option<&str> {
        self.spec.labels.get(TEMPLATE_LABEL).map(String::as_str)
    }
}

/// The observed state of the instance.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// `Launched`, `Registered`, `Initialized`, and `Ready`, which summarizes them; `InstanceTagged` is False while the
    /// instance lacks the tag by which this cluster's instances are listed, and its message says how to write the tag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The current or last launch attempt, written before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<LaunchAttempt>,
    /// The instance, as in `spec.providerID` of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The name that the cloud gives the instance's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The instance type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The capacity type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Labels that follow from the instance: type, zone, architecture, family and so on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The image that it was launched from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// When it was launched, by the cloud's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_time: Option<Time>,
    /// Its price, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<String>,
    /// True if that price is unpublished: it was estimated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub price_estimated: bool,
    /// The time by which the instance must be drained, if the cloud has set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_by: Option<Time>,
    /// The resources of the instance.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Amount>,
    /// The resources that pods can use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Amount>,
}

/// One call to the cloud, recorded before it is made, so that a repeated call is the same request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchAttempt {
    /// The number of the attempt, from 1; a definite refusal starts the next one.
    pub number: i64,
    /// Hash of the whole request.
    pub request_hash: String,
    /// The request itself in the provider's form, kept until its outcome is known. A repeated call sends it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}
