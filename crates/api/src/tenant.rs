//! Tenant: the namespaces that it claims and the pools that its pods may use.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{amount::Amount, bounds};

/// A Tenant owns namespaces. Their pods run on the nodes of the tenant's pools and nowhere else.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "Tenant",
    doc = "A Tenant owns namespaces: their pods run on the nodes of the tenant's pools, and no other pods do.",
    plural = "tenants",
    shortname = "tnt",
    category = "croft",
    status = "TenantStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Pools", json_path = ".spec.pools", type_ = "string"),
    printcolumn(name = "Namespaces", json_path = ".status.namespaceCount", type_ = "integer"),
    printcolumn(name = "Pods", json_path = ".status.pods", type_ = "integer"),
    printcolumn(name = "Nodes", json_path = ".status.nodes", type_ = "integer"),
    printcolumn(name = "$/h", json_path = ".status.costPerHour", type_ = "string"),
    printcolumn(
        name = "Ready",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        type_ = "string"
    ),
    printcolumn(name = "Age", json_path = ".metadata.creationTimestamp", type_ = "date")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("(has(self.namespaces) && size(self.namespaces) > 0) || has(self.namespaceSelector)", "a Tenant needs namespaces: write spec.namespaces (exact names) or spec.namespaceSelector")
)]
pub struct TenantSpec {
    /// Names of the namespaces that belong to this tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::namespaces")]
    pub namespaces: Vec<String>,
    /// Labels of further namespaces that belong to this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Names of the TenantPools that the tenant's pods may use. The first is the default.
    #[schemars(schema_with = "bounds::pools")]
    pub pools: Vec<String>,
    /// Action on a pod that asks for a pool which this tenant may not use.
    #[serde(default)]
    pub on_conflict: OnConflict,
    /// Limits of all nodes of the tenant's pools together: any resource name, `nodes`, and `costPerHour` in dollars.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::limits")]
    pub limits: BTreeMap<String, Amount>,
}

/// Action on a pod that asks for a pool which its tenant may not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnConflict {
    /// The pod is refused, and the message says which pools are allowed.
    #[default]
    Reject,
    /// The pod is moved to an allowed pool, as Gatekeeper's Assign would.
    Override,
}

/// The observed state of a tenant.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// `Accepted`: the claims are in force; `Ready`: every webhook replica enforces this generation; `Unlimited`: no
    /// limit bounds the cost of its nodes, which doesn't affect `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The namespaces that belong to the tenant, sorted; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// The number of namespaces that belong to the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_count: Option<i64>,
    /// The number of the tenant's pods that are not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<i64>,
    /// The number of nodes of the tenant's pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// The price of those nodes, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<String>,
}
