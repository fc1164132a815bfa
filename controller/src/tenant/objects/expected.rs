//! The objects that each namespace of a tenant should have.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{
    Tenant,
    convert::{given, tenant_objects as convert},
};
use croft_policy::{NamespaceTenancy, Tenants, policies::NAMESPACE_CREATION_POLICY};
use serde_json::{Value, json};

use super::created::Created;
use crate::{
    kube_api::{Kind, ObjectKey, ObjectKind},
    state::InvalidObjects,
    tenant::{
        quota::{amounts::normalized, shares::SharedQuota},
        state::State,
    },
};

/// An object as it should be.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The tenant's name.
    pub(super) tenant: Arc<str>,
    /// The fields, without metadata. The namespaces of a tenant share them.
    pub(super) content: Arc<Value>,
    /// The same with quantities in one form, as [`crate::tenant::tenant_objects::ObjectFacts`] have it.
    pub(super) normalized: Arc<Value>,
}

impl Expected {
    fn new(tenant: &Arc<str>, kind: ObjectKind, content: &Arc<Value>) -> Self {
        let normal = normalized(kind, Value::clone(content));
        let normalized = if normal == **content { Arc::clone(content) } else { Arc::new(normal) };
        Self { tenant: Arc::clone(tenant), content: Arc::clone(content), normalized }
    }
}

/// The objects that should be, and the namespaces of which that is unknown.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub(super) objects: BTreeMap<ObjectKey, Expected>,
    /// Quotas that a tenant's namespaces share.
    pub(super) shared: BTreeMap<Arc<str>, SharedQuota>,
    /// Namespaces whose Tenant can't be read, or that stay closed: their objects stay as they are.
    pub(super) unknown: BTreeSet<String>,
}

/// True if Croft writes objects of this kind and name.
pub(super) fn is_own_name(kind: ObjectKind, name: &str) -> bool {
    match kind {
        ObjectKind::NetworkPolicy => name == convert::network_policy_name(),
        ObjectKind::ResourceQuota => name == given::quota_name() || name == given::share_name(),
        ObjectKind::LimitRange => name == given::defaults_name(),
        ObjectKind::RoleBinding => name.starts_with(&given::owners_prefix()),
        ObjectKind::ClusterRoleBinding => name.starts_with(&given::creators_prefix()),
    }
}

/// Derives the expected objects from Tenants and namespaces.
pub(super) fn expectations(
    state: &State,
    invalid: &InvalidObjects,
    view: &Tenants,
    created: &BTreeMap<String, Created>,
) -> Expectations {
    let closed: BTreeSet<&String> = created.values().flat_map(Created::closed).collect();
    let mut found = Expectations { objects: creators(state, invalid), ..Expectations::default() };
    let mut namespaces: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in state.namespaces.keys() {
        match view.tenancy(name) {
            _ if closed.contains(name) => drop(found.unknown.insert(name.clone())),
            // Its claims on namespaces can be read, and its other fields can't.
            NamespaceTenancy::Tenant { tenant, .. }
                if invalid.has_no_valid_version(Kind::Tenant, &tenant.name) =>
            {
                found.unknown.insert(name.clone());
            }
            NamespaceTenancy::Tenant { tenant, .. } => {
                namespaces.entry(tenant.name.to_string()).or_default().push(name);
            }
            NamespaceTenancy::TenantUnreadable => drop(found.unknown.insert(name.clone())),
            _ => {}
        }
    }
    for (tenant, own) in namespaces {
        let Some(declared) = state.tenants.get(&tenant) else { continue };
        let contents = contents(declared, &own);
        let tenant: Arc<str> = tenant.into();
        // A namespace that is being deleted accepts no new object.
        let accepts = |name: &&str| state.namespaces.get(*name).is_some_and(|facts| !facts.deleting);
        let (own, leaving): (Vec<&str>, Vec<&str>) = own.into_iter().partition(accepts);
        for namespace in &own {
            for (kind, name, content) in &contents {
                let key = ObjectKey { kind: *kind, namespace: (*namespace).to_owned(), name: name.clone() };
                found.objects.insert(key, Expected::new(&tenant, *kind, content));
            }
        }
        let total = declared.spec.quota.as_ref().map(|quota| &quota.total);
        if let Some(total) = total.filter(|total| !total.is_empty()) {
            let pods = own.iter().map(|namespace| pods_in(state, namespace)).sum();
            found.shared.insert(tenant, SharedQuota::new(total, &own, &leaving, pods));
        }
    }
    found
}

/// The bindings of owners who may create namespaces. While the policy is missing that keeps owners to their prefix, there are
/// none.
fn creators(state: &State, invalid: &InvalidObjects) -> BTreeMap<ObjectKey, Expected> {
    let kind = ObjectKind::ClusterRoleBinding;
    if state.parameters.policies_missing.iter().any(|policy| policy == NAMESPACE_CREATION_POLICY) {
        return BTreeMap::new();
    }
    let may_create = state.tenants.iter().filter(|(name, tenant)| {
        tenant.spec.namespace_creation.is_some()
            && !tenant.spec.owners.is_empty()
            && !invalid.has_no_valid_version(Kind::Tenant, name)
    });
    let binding = |(name, tenant): (&String, &Arc<Tenant>)| {
        let key = ObjectKey { kind, namespace: String::new(), name: given::creators_name(name) };
        let content = Arc::new(given::creators_binding(&tenant.spec.owners));
        (key, Expected::new(&name.as_str().into(), kind, &content))
    };
    may_create.map(binding).collect()
}

fn pods_in(state: &State, namespace: &str) -> usize {
    let first = (namespace.to_owned(), String::new());
    state.pods.range(first..).take_while(|((of, _), _)| of == namespace).count()
}

/// The objects that every namespace of a tenant gets: kind, name and content.
fn contents(tenant: &Tenant, own: &[&str]) -> Vec<(ObjectKind, String, Arc<Value>)> {
    let spec = &tenant.spec;
    let policy = convert::network_policy(spec.network_isolation.as_ref(), own)
        .map(|spec| (ObjectKind::NetworkPolicy, convert::network_policy_name(), json!({"spec": spec})));
    let quota = spec.quota.as_ref().and_then(|quota| given::resource_quota(&quota.per_namespace));
    let quota = quota.map(|content| (ObjectKind::ResourceQuota, given::quota_name(), content));
    let defaults = spec.defaults.as_ref().and_then(given::limit_range);
    let defaults = defaults.map(|content| (ObjectKind::LimitRange, given::defaults_name(), content));
    let bindings = given::role_bindings(&spec.owners).into_iter();
    let bindings = bindings.map(|(name, content)| (ObjectKind::RoleBinding, name, content));
    let all = policy.into_iter().chain(quota).chain(defaults).chain(bindings);
    all.map(|(kind, name, content)| (kind, name, Arc::new(content))).collect()
}
