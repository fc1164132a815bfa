//! Tenant: who owns which namespaces and which pools.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{amount::Amount, bounds};

/// A Tenant owns namespaces, and its pods run on the nodes of its pools and nowhere else.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "Tenant",
    doc = "A Tenant owns namespaces: their pods run on the nodes of the tenant's pools, and nobody else's pods do.",
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
    /// Namespaces with these labels belong to this tenant too, in addition to `namespaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Names of the TenantPools that the tenant's pods may use. The first is the default.
    #[schemars(schema_with = "bounds::pools")]
    pub pools: Vec<String>,
    /// What happens to a pod that asks for a pool which this tenant may not use.
    #[serde(default)]
    pub on_conflict: OnConflict,
    /// What all nodes of the tenant's pools may have together: any resource name, `nodes`, and
    /// `costPerHour` in dollars.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::limits")]
    pub limits: BTreeMap<String, Amount>,
}

/// What happens to a pod that asks for a pool which its tenant may not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnConflict {
    /// The pod is refused, and the message says which pools are allowed.
    #[default]
    Reject,
    /// The pod is moved to an allowed pool, as Gatekeeper's Assign would.
    Override,
}

/// What Croft observed of a tenant.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// `Accepted`: the claims hold; `Ready`: every webhook replica enforces this generation; `Unlimited`: no limit bounds
    /// what the nodes of its pools cost, which doesn't make it less ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The namespaces that belong to the tenant, sorted; the first 100 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// How many namespaces belong to the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_count: Option<i64>,
    /// Pods of the tenant that are not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<i64>,
    /// Nodes of the tenant's pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// What those nodes cost, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<String>,
}
