//! Tenant: the namespaces that it claims and the pools that its pods may use.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    amount::Amount,
    bounds,
    given::{Defaults, NamespaceCreation, Owner, PodSecurity, Quota},
};

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
    printcolumn(name = "Pools", json_path = ".status.poolNames", type_ = "string"),
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
    validation = ("(has(self.namespaces) && size(self.namespaces) > 0) || has(self.namespaceSelector) || has(self.namespaceCreation)", "a Tenant needs namespaces: write spec.namespaces (exact names), spec.namespaceSelector or spec.namespaceCreation"),
    validation = ("!has(self.namespaceCreation) || (has(self.owners) && size(self.owners) > 0)", "the tenant's owners create its namespaces: write spec.owners beside spec.namespaceCreation")
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
    /// Names of the TenantPools that the tenant's pods may use. A pod goes to the first whose nodes could hold it, or else to the
    /// first of all, the default.
    #[schemars(schema_with = "bounds::pools")]
    pub pools: Vec<String>,
    /// Action on a pod that asks for a pool which this tenant may not use.
    #[serde(default)]
    pub on_conflict: OnConflict,
    /// Limits of all nodes of the tenant's pools together: any resource name, `nodes`, and `costPerHour` in dollars.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::limits")]
    pub limits: BTreeMap<String, Amount>,
    /// Which traffic reaches and leaves the tenant's pods. Croft keeps a NetworkPolicy in each of its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_isolation: Option<NetworkIsolation>,
    /// Quotas of each of its namespaces, and of all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// Requests and limits of containers that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,
    /// The least strict Pod Security levels of its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,
    /// Users, groups and ServiceAccounts that have roles in each of its namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::owners::<Owner>")]
    pub owners: Vec<Owner>,
    /// Namespaces that its owners may create: under a prefix, up to a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_creation: Option<NamespaceCreation>,
}

/// The traffic of a tenant's pods. The tenant's own namespaces reach each other, and no other namespace or address reaches
/// them but those in `allowFrom`. NetworkPolicies that people write in its namespaces add to what is allowed.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!has(self.allowTo) || size(self.allowTo) == 0 || (has(self.egress) && self.egress == 'Restricted')", "allowTo adds to what egress: Restricted leaves open, and without that everything is open: write egress: Restricted beside it, or leave allowTo out")
)]
pub struct NetworkIsolation {
    /// Keeps the NetworkPolicies. Without it the other fields have no effect.
    #[serde(default)]
    pub enabled: bool,
    /// Namespaces and addresses that may reach the tenant's pods, besides its own namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::peers::<NetworkPeer>")]
    pub allow_from: Vec<NetworkPeer>,
    /// Traffic that leaves the tenant's pods.
    #[serde(default)]
    pub egress: Egress,
    /// With `egress: Restricted`: namespaces and addresses that the tenant's pods may reach, besides its own namespaces and
    /// the cluster's DNS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::peers::<NetworkPeer>")]
    pub allow_to: Vec<NetworkPeer>,
}

/// Traffic that leaves the pods of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Egress {
    /// Croft's NetworkPolicies say nothing about it.
    #[default]
    Open,
    /// Pods reach the tenant's own namespaces, DNS (UDP and TCP port 53, in the namespace `kube-system` and at link-local
    /// addresses) and `allowTo`, and nothing else.
    Restricted,
}

/// A namespace, or a block of addresses.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.__namespace__) != has(self.cidr)", "an entry is a namespace or a block of addresses: write either namespace or cidr, and an entry for each"),
    validation = ("!has(self.except) || has(self.cidr)", "except takes addresses out of a block: write it beside cidr"),
    validation = ("!has(self.except) || !has(self.cidr) || !isCIDR(self.cidr) || self.except.all(e, !isCIDR(e) || (cidr(self.cidr).containsCIDR(e) && cidr(e).prefixLength() > cidr(self.cidr).prefixLength()))", "except takes addresses out of cidr: write smaller blocks inside of it, such as 10.0.3.0/24 inside of 10.0.0.0/16")
)]
pub struct NetworkPeer {
    /// The exact name of a namespace; it need not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::namespace")]
    pub namespace: Option<String>,
    /// A block of IPv4 or IPv6 addresses, such as `10.0.0.0/16` or `fd00:10::/64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::cidr")]
    pub cidr: Option<String>,
    /// Blocks inside of `cidr` that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::except")]
    pub except: Vec<String>,
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
    /// The names of `spec.pools` with commas between them, for the column of `kubectl get`, which shows a list as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_names: Option<String>,
    /// The number of the tenant's pods that are not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<i64>,
    /// The number of nodes of the tenant's pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// The price of those nodes, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<String>,
    /// The quota of all its namespaces together, `spec.quota.total`, and what they use of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["resource".into()]))]
    pub quota: Vec<QuotaUse>,
}

/// The use of one resource of a tenant's quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaUse {
    /// The resource's name in `spec.quota.total`.
    pub resource: String,
    /// The quota.
    pub total: String,
    /// The amount that all its namespaces use, as their ResourceQuotas say.
    pub used: String,
}
