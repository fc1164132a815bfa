//! The objects that Croft keeps in each of a tenant's namespaces for what the tenant is given: ResourceQuotas, a LimitRange
//! and RoleBindings, as the API server stores them, without metadata.

use std::collections::BTreeMap;

use croft_policy::definitions::{NAMESPACE_CREATOR_ROLE, TENANT_OBJECT_PREFIX};
use serde_json::{Value, json};

use crate::{
    amount::Amount,
    convert::tenant_objects::tenant_label,
    given::{Defaults, Owner, OwnerKind, PodSecurity, PodSecurityLevel},
};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The prefix of the labels by which namespaces say their Pod Security levels.
pub const POD_SECURITY_PREFIX: &str = "pod-security.kubernetes.io/";

/// The name of the ResourceQuota of each namespace.
#[must_use]
pub fn quota_name() -> String {
    format!("{TENANT_OBJECT_PREFIX}quota")
}

/// The name of the ResourceQuota with a namespace's share of the quota of the whole tenant.
#[must_use]
pub fn share_name() -> String {
    format!("{TENANT_OBJECT_PREFIX}share")
}

/// The name of the LimitRange.
#[must_use]
pub fn defaults_name() -> String {
    format!("{TENANT_OBJECT_PREFIX}defaults")
}

/// The beginning of the names of RoleBindings, which end with their role's name.
#[must_use]
pub fn owners_prefix() -> String {
    format!("{TENANT_OBJECT_PREFIX}owners-")
}

/// The beginning of the names of ClusterRoleBindings, which end with their tenant's name.
#[must_use]
pub fn creators_prefix() -> String {
    format!("{TENANT_OBJECT_PREFIX}namespaces-")
}

/// The name of the ClusterRoleBinding of a tenant whose owners may create namespaces.
#[must_use]
pub fn creators_name(tenant: &str) -> String {
    format!("{}{}", creators_prefix(), tenant_label(tenant))
}

/// The ClusterRoleBinding of a tenant whose owners may create namespaces.
#[must_use]
pub fn creators_binding(owners: &[Owner]) -> Value {
    let mut subjects: Vec<Value> = Vec::new();
    for subject in owners.iter().map(subject) {
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    let reference = json!({"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": NAMESPACE_CREATOR_ROLE});
    json!({"roleRef": reference, "subjects": subjects})
}

/// An owner as the subject of a binding.
fn subject(owner: &Owner) -> Value {
    match owner.kind {
        OwnerKind::ServiceAccount => {
            json!({"kind": "ServiceAccount", "name": owner.name, "namespace": owner.namespace})
        }
        kind => json!({"apiGroup": RBAC_GROUP, "kind": kind.as_str(), "name": owner.name}),
    }
}

/// A ResourceQuota; `None` if it would limit nothing.
#[must_use]
pub fn resource_quota(hard: &BTreeMap<String, Amount>) -> Option<Value> {
    (!hard.is_empty()).then(|| json!({"spec": {"hard": hard}}))
}

/// The LimitRange of containers. The API server adds a request for each limit without one; so does this.
#[must_use]
pub fn limit_range(defaults: &Defaults) -> Option<Value> {
    let mut requests = defaults.limits.clone();
    requests.extend(defaults.requests.clone());
    if requests.is_empty() {
        return None;
    }
    let mut item = json!({"type": "Container", "defaultRequest": requests});
    if let (Some(fields), false) = (item.as_object_mut(), defaults.limits.is_empty()) {
        fields.insert("default".to_owned(), json!(defaults.limits));
    }
    Some(json!({"spec": {"limits": [item]}}))
}

/// The RoleBindings of owners by name: one for each role.
#[must_use]
pub fn role_bindings(owners: &[Owner]) -> BTreeMap<String, Value> {
    let mut subjects: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for owner in owners {
        let subject = subject(owner);
        for role in &owner.cluster_roles {
            let list = subjects.entry(role).or_default();
            if !list.contains(&subject) {
                list.push(subject.clone());
            }
        }
    }
    let binding = |(role, subjects): (&str, Vec<Value>)| {
        let reference = json!({"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role});
        (format!("{}{role}", owners_prefix()), json!({"roleRef": reference, "subjects": subjects}))
    };
    subjects.into_iter().map(binding).collect()
}

/// The levels that a tenant declares, by mode: `enforce`, `audit`, `warn`.
#[must_use]
pub fn pod_security(declared: Option<&PodSecurity>) -> [(&'static str, Option<PodSecurityLevel>); 3] {
    let of = |level: fn(&PodSecurity) -> Option<PodSecurityLevel>| declared.and_then(level);
    [("enforce", of(|d| d.enforce)), ("audit", of(|d| d.audit)), ("warn", of(|d| d.warn))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_without_a_request_is_the_request() {
        let defaults: Defaults = serde_json::from_value(
            json!({"requests": {"cpu": "100m"}, "limits": {"cpu": 1, "memory": "1Gi"}}),
        )
        .unwrap();
        let expected = json!({"spec": {"limits": [{"type": "Container",
            "defaultRequest": {"cpu": "100m", "memory": "1Gi"}, "default": {"cpu": "1", "memory": "1Gi"}}]}});
        assert_eq!(limit_range(&defaults), Some(expected));
        assert_eq!(limit_range(&Defaults::default()), None);
    }

    #[test]
    fn owners_of_one_role_share_a_binding() {
        let owners: Vec<Owner> = serde_json::from_value(json!([
            {"kind": "User", "name": "jane"},
            {"kind": "Group", "name": "shop", "clusterRoles": ["admin", "view"]},
            {"kind": "ServiceAccount", "name": "ci", "namespace": "build", "clusterRoles": ["view"]},
            {"kind": "User", "name": "jane"},
        ]))
        .unwrap();
        let found = role_bindings(&owners);
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            ["croft-tenant-owners-admin", "croft-tenant-owners-view"]
        );
        assert_eq!(
            found["croft-tenant-owners-admin"]["subjects"],
            json!([{"apiGroup": RBAC_GROUP, "kind": "User", "name": "jane"},
                {"apiGroup": RBAC_GROUP, "kind": "Group", "name": "shop"}])
        );
        assert_eq!(
            found["croft-tenant-owners-view"]["subjects"][1],
            json!({"kind": "ServiceAccount", "name": "ci", "namespace": "build"})
        );
    }
}
