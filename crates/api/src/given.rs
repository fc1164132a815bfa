//! The fields of a Tenant that give something to its namespaces: quotas, defaults of containers, Pod Security levels, and roles for its owners.
//! Each field is off by default. The controller keeps the objects: `controller/src/tenant/objects/`.

use std::collections::BTreeMap;

use croft_policy::definitions::OWNERS_ROLE;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{amount::Amount, bounds};

/// Quotas of a tenant, by the names that a ResourceQuota has: `requests.cpu`, `limits.memory`, `pods`,
/// `requests.nvidia.com/gpu`, `count/deployments.apps`, ... A pod without a request for a resource of a quota is refused;
/// `defaults` has the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// The quota of each namespace. Croft keeps it as a ResourceQuota in each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::quota")]
    pub per_namespace: BTreeMap<String, Amount>,
    /// The quota of all the tenant's namespaces together. Croft divides it into a ResourceQuota in each, and moves what one
    /// namespace doesn't use to where it is needed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::quota")]
    pub total: BTreeMap<String, Amount>,
}

impl Quota {
    /// True if it limits nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.per_namespace.is_empty() && self.total.is_empty()
    }
}

/// Requests and limits of containers that name none. Croft keeps them as a LimitRange in each of the tenant's namespaces.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.requests) || has(self.limits)", "write requests or limits of a container, such as requests: {cpu: 100m}, or leave defaults out"),
    validation = ("!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || (type(self.requests[k]) == int ? quantity('0').add(self.requests[k]) : quantity(self.requests[k])).compareTo(type(self.limits[k]) == int ? quantity('0').add(self.limits[k]) : quantity(self.limits[k])) <= 0)", "a container's request isn't above its limit: write requests that are at most as large as limits")
)]
pub struct Defaults {
    /// Requests of a container that names none; where a limit has a default and the request has none, it is the limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::container_amounts")]
    pub requests: BTreeMap<String, Amount>,
    /// Limits of a container that names none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::container_amounts")]
    pub limits: BTreeMap<String, Amount>,
}

/// The least strict Pod Security levels of a tenant's namespaces, written as their labels `pod-security.kubernetes.io/*`.
/// A stricter level that people set on a namespace stays.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.enforce) || has(self.audit) || has(self.warn)", "write a level for enforce, audit or warn, such as enforce: baseline, or leave podSecurity out")
)]
pub struct PodSecurity {
    /// Pods that violate this level are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce: Option<PodSecurityLevel>,
    /// Pods that violate this level are recorded in the API server's audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<PodSecurityLevel>,
    /// Users who create pods that violate this level get a warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn: Option<PodSecurityLevel>,
}

/// A level of the Pod Security Standards, from the least strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurityLevel {
    /// Everything is allowed.
    Privileged,
    /// Known privilege escalations are refused.
    Baseline,
    /// Pods are hardened.
    Restricted,
}

impl PodSecurityLevel {
    /// The value of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// The level of a label's value. Kubernetes treats an unknown one as the strictest.
    #[must_use]
    pub fn read(value: &str) -> Self {
        match value {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            _ => Self::Restricted,
        }
    }
}

/// A user, a group or a ServiceAccount that has roles in each of the tenant's namespaces.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("(self.kind == 'ServiceAccount') == has(self.__namespace__)", "a ServiceAccount is in a namespace, and users and groups are in none: write namespace for kind ServiceAccount, and for no other kind"),
    validation = ("self.kind != 'ServiceAccount' || self.name.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')", "write the name of a ServiceAccount: lower-case letters, digits, '-' and '.'; its namespace has a field of its own"),
    validation = ("!self.name.startsWith('system:') || self.name.matches('^system:serviceaccounts?:.')", "this name is Kubernetes' own, and stands for everybody, the pods of other tenants among them, or for a component: write users, groups and ServiceAccounts of the tenant's own")
)]
pub struct Owner {
    /// User, Group or ServiceAccount.
    pub kind: OwnerKind,
    /// Its name, as the API server knows it: compared as it is, without patterns.
    #[schemars(schema_with = "bounds::subject")]
    pub name: String,
    /// The namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::namespace")]
    pub namespace: Option<String>,
    /// ClusterRoles that it has in each namespace. Croft's controller may bind those that its installation names.
    #[serde(default = "default_roles")]
    #[schemars(schema_with = "bounds::cluster_roles")]
    pub cluster_roles: Vec<String>,
}

fn default_roles() -> Vec<String> {
    vec![OWNERS_ROLE.to_owned()]
}

/// The namespaces that a tenant's owners may create. Every namespace whose name begins with the prefix belongs to the tenant,
/// as those of `namespaces` do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceCreation {
    /// The beginning of their names: lower-case letters, digits and `-`, and `-` at the end, such as `shop-`.
    #[schemars(schema_with = "bounds::namespace_prefix")]
    pub prefix: String,
    /// The number of namespaces with this prefix that get pools and roles, without those that `namespaces` lists. A namespace
    /// beyond it stays closed: its pods are refused, until another is deleted or the number is raised. Lowering the number
    /// closes no namespace.
    #[schemars(schema_with = "bounds::namespace_maximum")]
    pub maximum: u32,
}

/// The kind of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OwnerKind {
    /// A user's name.
    User,
    /// A group's name.
    Group,
    /// A ServiceAccount.
    ServiceAccount,
}

impl OwnerKind {
    /// The kind of an RBAC subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
            Self::ServiceAccount => "ServiceAccount",
        }
    }
}
