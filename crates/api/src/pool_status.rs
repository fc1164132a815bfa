//! The observed state of a TenantPool, and the launches that delay others.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::amount::Amount;

/// The observed state of a pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantPoolStatus {
    /// `ClassReady`, `RequirementsValid`, and `Ready`, which summarizes them; `CapacityAvailable`; `ReplicasReady` of a
    /// pool with `replicas`, or with templates that have; `HeadroomReady` of a pool with `headroom`; `DisruptionStopped` while too many nodes are
    /// unavailable at once; `NodeRegistrationHealthy`, False while launches are delayed because nodes don't register;
    /// `PlanningFailed` while scheduling runs for its pods panic; `Unlimited`: no limit bounds the cost of its nodes,
    /// which doesn't affect `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The number of nodes of the pool, including those that are being launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// The capacity of those nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Amount>,
    /// The price of those nodes, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<String>,
    /// The extended resources and huge pages, such as `nvidia.com/gpu`, that instances of the pool can have. A tenant's pod that needs
    /// another one goes to another of the tenant's pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub extended_resources: Option<Vec<ExtendedResource>>,
    /// Labels by which pods choose instances, such as `kubernetes.io/arch`, of which instances of the pool have few values. A tenant's pod
    /// that needs another value goes to another of the tenant's pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into()]))]
    pub instance_labels: Option<Vec<InstanceLabel>>,
    /// The number of NodeClaims that the pool has ever named. The name of the next one is a hash of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_counter: Option<i64>,
    /// Launches whose node never registered, or wasn't initialized in time, while they delay further launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_backoff: Option<LaunchBackoff>,
}

/// An extended resource that instances of a pool can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtendedResource {
    /// Its name.
    #[schemars(length(min = 1, max = 317))]
    pub name: String,
    /// True if each instance type of the pool has it. Pods that need it go to such a pool of their tenant, if one could hold them.
    pub dedicated: bool,
}

/// A label that follows from the instance, with the values that instances of a pool have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceLabel {
    /// Its key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Its values, sorted.
    #[schemars(length(max = 16), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// Launches of a pool whose node never registered, or wasn't initialized in time, by template. A node that comes ends the
/// backoff of its template; an edit of the pool, other than a pause, or of its class ends all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchBackoff {
    /// NodeClaims that are counted and still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<String>,
    /// The offerings whose nodes didn't register, each excluded for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offerings: Vec<OfferingBackoff>,
    /// The templates whose nodes didn't register, or weren't initialized in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<TemplateBackoff>,
    /// A hash of the pool's spec without its pause at the launches: with another spec the backoff is over.
    pub pool_generation: i64,
    /// The generation of its class at the launches.
    pub class_generation: i64,
}

/// A template whose nodes didn't come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateBackoff {
    /// The name of the template; empty if the pool has only one kind of node.
    pub template: String,
    /// What its nodes didn't reach.
    #[serde(default)]
    pub stage: NodeStage,
    /// The id of the image of nodes that weren't initialized; empty if it isn't known, or if they didn't even register.
    pub image: String,
    /// Consecutive rounds of launches that ended so. Launches that were in flight together are one round.
    pub rounds: i32,
    /// The times at which the rounds of the last hour ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Time>,
    /// The end of the backoff: nothing is launched by the template before.
    pub until: Time,
    /// The creation time from which on a NodeClaim's node ends the backoff when it reaches the stage.
    pub since: Time,
    /// The last instance that didn't register, or what the last node that wasn't initialized lacked.
    #[serde(default)]
    pub last: String,
}

/// What a node reaches on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeStage {
    /// Its kubelet has joined the cluster.
    Registration,
    /// It takes pods: it is Ready, shows its resources, and its startup taints are gone.
    #[default]
    Initialization,
}

/// An instance type in a zone whose nodes didn't register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferingBackoff {
    /// The name of the template; empty if the pool has only one kind of node.
    #[serde(default)]
    pub template: String,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// Consecutive failures.
    pub failures: i32,
    /// The end of the exclusion.
    pub until: Time,
    /// The creation time from which on a NodeClaim's node of this offering ends the exclusion when it registers.
    pub since: Time,
}
