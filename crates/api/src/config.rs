//! CroftConfig: the cluster-wide settings.

use std::collections::BTreeMap;

use croft_policy::model::OWNER_METADATA;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{amount::Amount, bounds, pause::Pause, zone::ClosedZone};

/// The name of the only CroftConfig that counts.
pub const SINGLETON: &str = "default";

/// Cluster-wide settings of Croft. The only one is named `default`; absent means its defaults.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "CroftConfig",
    doc = "Cluster-wide settings of Croft. The only one is named `default`; absent means its defaults.",
    plural = "croftconfigs",
    category = "croft",
    status = "CroftConfigStatus",
    derive = "PartialEq",
    validation = ("self.metadata.name == 'default'", "there is one CroftConfig, and its name is default"),
    printcolumn(name = "Non-tenant pods", json_path = ".spec.nonTenantPods", type_ = "string"),
    printcolumn(name = "Ready", json_path = ".status.conditions[?(@.type=='Ready')].status", type_ = "string"),
    printcolumn(
        name = "Limits reached",
        json_path = ".status.conditions[?(@.type=='LimitsReached')].status",
        type_ = "string"
    ),
    printcolumn(name = "Age", json_path = ".metadata.creationTimestamp", type_ = "date")
)]
#[serde(rename_all = "camelCase")]
pub struct CroftConfigSpec {
    /// Action on a pod outside any tenant whose tolerations let it onto the nodes of a pool.
    #[serde(default)]
    pub non_tenant_pods: NonTenantPods,
    /// How pods and DaemonSets are admitted.
    #[serde(default, skip_serializing_if = "Admission::is_default")]
    pub admission: Admission,
    /// Namespaces that Croft leaves unchanged, in addition to kube-system, kube-public, kube-node-lease and its own,
    /// which are always exempt. An exempt namespace belongs to no Tenant, even if one claims it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::namespaces")]
    pub exempt_namespaces: Vec<String>,
    /// Exact user names of schedulers, whose bindings are always allowed.
    #[serde(default = "default_schedulers")]
    #[schemars(schema_with = "bounds::users")]
    pub schedulers: Vec<String>,
    /// Schedulers whose pending pods get no nodes, by the pods' `schedulerName`: those that launch nodes themselves, or that let pods
    /// wait on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::scheduler_names")]
    pub ignored_schedulers: Vec<String>,
    /// How much a pod without requests counts for when an instance is launched for it, as kube-scheduler counts such pods when it
    /// compares nodes. Existing nodes take them whatever is left there.
    #[serde(default, skip_serializing_if = "PodsWithoutRequests::is_default")]
    pub pods_without_requests: PodsWithoutRequests,
    /// Namespaces whose pods may run on the nodes of every pool: those of cluster-wide node agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::namespaces")]
    pub shared_with: Vec<String>,
    /// Beginnings of labels and annotations that owners of a Tenant may give to the namespaces that they create, such as
    /// `example.com/`. The default is what Flux, Argo CD and Helm write on them. Labels are also what NetworkPolicies and
    /// webhooks select namespaces by: list none of those.
    #[serde(default = "default_owner_metadata")]
    #[schemars(schema_with = "bounds::owner_metadata")]
    pub owner_metadata: Vec<String>,
    /// Action on running pods outside their tenant's pools. `Recreate` evicts pods of ReplicaSets, StatefulSets
    /// and ReplicationControllers, a tenth of a namespace's pods at once.
    #[serde(default)]
    pub misplaced: Misplaced,
    /// Limits of the nodes of all pools together: any resource name, `nodes`, and `costPerHour` in dollars. Limits of
    /// pools and Tenants apply as well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::limits")]
    pub limits: BTreeMap<String, Amount>,
    /// Voluntary disruption of nodes, in all pools.
    #[serde(default, skip_serializing_if = "ClusterDisruption::is_default")]
    pub disruption: ClusterDisruption,
    /// Zones that are declared bad: nothing is launched there, no pod is moved there, and, with `Evacuate`, nodes there are replaced
    /// elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub zones: Vec<ClosedZone>,
}

/// Voluntary disruption of nodes, in all pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDisruption {
    /// A time in which no voluntary disruption starts in any pool. `croft pause --all` writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
}

impl ClusterDisruption {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The observed state of the whole cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CroftConfigStatus {
    /// `Ready`: the settings are in force; `LimitsReached`: `spec.limits` prevent launches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl Default for CroftConfigSpec {
    fn default() -> Self {
        Self {
            non_tenant_pods: NonTenantPods::default(),
            admission: Admission::default(),
            exempt_namespaces: Vec::new(),
            schedulers: default_schedulers(),
            ignored_schedulers: Vec::new(),
            pods_without_requests: PodsWithoutRequests::default(),
            shared_with: Vec::new(),
            owner_metadata: default_owner_metadata(),
            misplaced: Misplaced::default(),
            limits: BTreeMap::new(),
            disruption: ClusterDisruption::default(),
            zones: Vec::new(),
        }
    }
}

fn default_schedulers() -> Vec<String> {
    vec!["system:kube-scheduler".to_owned()]
}

fn default_owner_metadata() -> Vec<String> {
    OWNER_METADATA.map(str::to_owned).to_vec()
}

/// How much a pod without requests counts for when an instance is launched for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodsWithoutRequests {
    /// CPU of a pod that requests none; 0 for nothing.
    #[serde(default = "default_pod_cpu")]
    #[schemars(schema_with = "bounds::quantity")]
    pub cpu: Amount,
    /// Memory of a pod that requests none; 0 for nothing.
    #[serde(default = "default_pod_memory")]
    #[schemars(schema_with = "bounds::quantity")]
    pub memory: Amount,
}

impl Default for PodsWithoutRequests {
    fn default() -> Self {
        Self { cpu: default_pod_cpu(), memory: default_pod_memory() }
    }
}

impl PodsWithoutRequests {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

// Source: kubernetes, pkg/scheduler/util/pod_resources.go (DefaultMilliCPURequest, DefaultMemoryRequest).
fn default_pod_cpu() -> Amount {
    Amount("100m".to_owned())
}

fn default_pod_memory() -> Amount {
    Amount("200Mi".to_owned())
}

/// How pods and DaemonSets are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The part of Croft that changes pods and DaemonSets. `Webhook`: the webhook, without which pods of tenants are
    /// refused. `Policy`: policies inside the API server, which need Kubernetes 1.36 and no process of Croft.
    #[serde(default)]
    pub mutation: Mutation,
}

impl Admission {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The part of Croft that changes pods and DaemonSets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mutation {
    /// The webhook.
    #[default]
    Webhook,
    /// MutatingAdmissionPolicies, inside the API server.
    Policy,
}

/// Action on a pod outside any tenant whose tolerations let it onto the nodes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NonTenantPods {
    /// A required node affinity keeps the pod off those nodes.
    #[default]
    KeepOut,
    /// The pod is refused.
    Reject,
    /// The pod is allowed, unchanged.
    Allow,
}

/// Action on running pods outside their tenant's pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Misplaced {
    /// The pods are reported.
    #[default]
    Report,
    /// The pods are evicted, so that their controllers recreate them.
    Recreate,
}
