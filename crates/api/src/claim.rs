//! NodeClaim: one machine wanted, launched, registered.

use std::collections::BTreeMap;

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
    pool::{NodeClassRef, Requirement},
};

/// The finalizer that keeps a claim until its machine is gone.
pub const FINALIZER: &str = "croft.dev/termination";
/// Annotation: a hash of each field that the claim was launched with.
pub const LAUNCHED_WITH: &str = "croft.dev/launched-with";
/// Annotation: the claims that this one replaces, separated by commas.
pub const REPLACES: &str = "croft.dev/replaces";

/// A NodeClaim is one machine: wanted, launched, registered, given back. Croft writes and removes it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "NodeClaim",
    doc = "A NodeClaim is one machine: wanted, launched, registered, given back. Croft writes and removes it.",
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
    /// The TenantPool that the machine belongs to.
    #[schemars(schema_with = "bounds::object_name")]
    pub pool: String,
    /// The class that says how the cloud makes the machine.
    pub node_class_ref: NodeClassRef,
    /// Types to launch one of, cheapest first.
    #[schemars(length(min = 1, max = 2_000), inner(length(min = 1, max = 63)))]
    pub instance_types: Vec<String>,
    /// Zones to launch in, best first.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub zones: Vec<String>,
    /// `on-demand`, `spot` or `reserved`.
    #[schemars(schema_with = "bounds::capacity_type")]
    pub capacity_type: String,
    /// What the pool asks of its nodes, with what the planned pods add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub requirements: Vec<Requirement>,
    /// Sum of what the planned pods ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::recorded_amounts")]
    pub requests: BTreeMap<String, Amount>,
    /// Taints of the node, the pool's own first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::recorded_taints")]
    pub taints: Vec<Taint>,
    /// Taints that something on the node takes off before it counts as initialized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::recorded_taints")]
    pub startup_taints: Vec<Taint>,
    /// Labels of the node, the pool's own included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::recorded_labels")]
    pub labels: BTreeMap<String, String>,
    /// How long the node's pods have to leave once the claim is being deleted; then they are deleted,
    /// whatever holds them. A duration such as `1h`; without it, as long as it takes. Recorded at launch: while the
    /// pool is there, its present `terminationGracePeriod` holds instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub termination_grace_period: Option<String>,
}

/// What happened to the machine.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// `Launched`, `Registered`, `Initialized`, and `Ready` over them; `InstanceTagged` is False while the instance lacks
    /// the tag by which this cluster's instances are listed, and says how to write it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The launch that is under way or done; written before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<LaunchAttempt>,
    /// The machine, as the node's `spec.providerID` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The name that the cloud gives the machine's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The machine's instance type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The machine's zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The machine's capacity type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Labels that follow from the machine: type, zone, architecture, family and so on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The image it booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// What it costs, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<String>,
    /// True if nobody publishes that price: it was estimated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub price_estimated: bool,
    /// By when everything has to be off the machine, where the cloud has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_by: Option<Time>,
    /// What the machine has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Amount>,
    /// What pods may use of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Amount>,
}

/// One call to the cloud, recorded before it is made, so that a repeat is the same request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchAttempt {
    /// Counts from 1; a definite refusal starts the next.
    pub number: i64,
    /// Hash of the whole request.
    pub request_hash: String,
    /// The request itself in the provider's form, kept until its outcome is known: a repeat sends this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}
