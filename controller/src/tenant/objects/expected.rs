//! The objects that each namespace of a tenant should have.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{Tenant, convert::tenant_objects as convert};
use croft_policy::{NamespaceTenancy, Tenants};
use serde_json::{Value, json};

use crate::{
    kube_api::{ObjectKey, ObjectKind},
    tenant::state::State,
};

/// An object as it should be.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The tenant's name.
    pub(super) tenant: Arc<str>,
    /// The fields, without metadata. The namespaces of a tenant share them.
    pub(super) content: Arc<Value>,
}

/// The objects that should be, and the namespaces of which that is unknown.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub(super) objects: BTreeMap<ObjectKey, Expected>,
    /// Namespaces whose Tenant can't be read: their objects stay as they are.
    pub(super) unknown: BTreeSet<String>,
}

/// The names by which Croft knows its objects of a kind.
pub(super) fn name_of(kind: ObjectKind) -> String {
    match kind {
        ObjectKind::NetworkPolicy => convert::network_policy_name(),
    }
}

/// Derives the expected objects from Tenants and namespaces.
pub(super) fn expectations(state: &State, view: &Tenants) -> Expectations {
    let mut found = Expectations::default();
    let mut namespaces: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in state.namespaces.keys() {
        match view.tenancy(name) {
            // Its claims on namespaces can be read, and its other fields can't.
            NamespaceTenancy::Tenant { tenant, .. } if state.has_no_valid_version("Tenant", &tenant.name) => {
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
        for namespace in own {
            // A namespace that is being deleted accepts no new object.
            if state.namespaces.get(namespace).is_none_or(|facts| facts.deleting) {
                continue;
            }
            for (kind, content) in &contents {
                let key = ObjectKey { kind: *kind, namespace: namespace.to_owned(), name: name_of(*kind) };
                let expected = Expected { tenant: Arc::clone(&tenant), content: Arc::clone(content) };
                found.objects.insert(key, expected);
            }
        }
    }
    found
}

/// The objects that every namespace of a tenant gets.
fn contents(tenant: &Tenant, own: &[&str]) -> Vec<(ObjectKind, Arc<Value>)> {
    let policy = convert::network_policy(tenant.spec.network_isolation.as_ref(), own);
    policy.map(|spec| (ObjectKind::NetworkPolicy, Arc::new(json!({"spec": spec})))).into_iter().collect()
}
