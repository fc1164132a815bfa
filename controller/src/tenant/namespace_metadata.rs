//! The label and annotations of namespaces that the admission policies read.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_policy::{
    NamespaceTenancy, Tenants,
    definitions::{POOLS_ANNOTATION, SHARED_ANNOTATION, SURPLUS_ANNOTATION, TENANCY_LABEL},
    policies::{self, MetadataEntries, pod_security::Changes},
};
use serde_json::json;

use crate::tenant::{
    pod_security,
    state::{NamespaceFacts, State},
    write::Write,
};

/// The writes of namespaces that are due. A namespace stays its tenant's until the absence of the Tenant is confirmed:
/// until then, pods that the webhook no longer pins are refused. Without any Tenant, what Croft wrote is removed. An
/// `incomplete` namespace lacks an object that its Tenant declares: it doesn't get the annotation with its tenant's pools,
/// without which admission refuses its pods, or no other pools than it has.
pub(super) fn namespace_writes(
    state: &State,
    view: &Tenants,
    incomplete: &BTreeSet<String>,
    mono: Duration,
) -> Vec<Write> {
    let mut actions = Vec::new();
    for (name, facts) in state.namespaces.iter().filter(|(_, facts)| !facts.deleting) {
        if has_unreadable_tenant(view, name) {
            continue;
        }
        let is_tenant = view.tenancy(name).tenant().is_some();
        let leaves = facts.pools.is_some() && !is_tenant;
        if leaves && state.absences.may_affect(view, name, mono) {
            continue;
        }
        let (labels, annotations) = expected_metadata(view, name);
        let outdated =
            |kept: &BTreeMap<&'static str, Option<String>>| -> BTreeMap<&'static str, Option<String>> {
                let differs = |key: &str, value: &Option<String>| written(facts, key) != value.as_ref();
                kept.iter().filter(|(key, value)| differs(key, value)).map(|(k, v)| (*k, v.clone())).collect()
            };
        let (labels, mut annotations) = (outdated(&labels), outdated(&annotations));
        if incomplete.contains(name) {
            annotations
                .retain(|key, pools| *key != POOLS_ANNOTATION || only_takes_away(facts, pools.as_deref()));
        }
        let mut labels: Changes = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut annotations: Changes =
            annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        // Levels of an absent Tenant stay until its absence is confirmed, and so do those of one that can't be read.
        let may_return = !is_tenant && state.absences.may_affect(view, name, mono);
        let owner = owner_of(view, name);
        if !may_return && !owner.is_some_and(|owner| state.has_no_valid_version("Tenant", owner)) {
            let tenant = owner.and_then(|owner| state.tenants.get(owner)).map(|tenant| &**tenant);
            let (more, records) = pod_security::due(&facts.pod_security, tenant);
            labels.extend(more);
            annotations.extend(records);
        }
        if !labels.is_empty() || !annotations.is_empty() {
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
            actions.push(Write::NamespaceMetadata { namespace: name.clone(), patch });
        }
    }
    actions
}

/// True if the namespace has the annotation with its tenant's pools, and `pools` are some of them.
fn only_takes_away(facts: &NamespaceFacts, pools: Option<&str>) -> bool {
    let Some((held, pools)) = facts.pools.as_deref().zip(pools) else { return false };
    pools.split(';').all(|pool| held.split(';').any(|other| other == pool))
}

fn owner_of<'v>(view: &'v Tenants, namespace: &str) -> Option<&'v str> {
    view.tenancy(namespace).tenant().map(|tenant| &*tenant.name)
}

fn expected_metadata(view: &Tenants, namespace: &str) -> (MetadataEntries, MetadataEntries) {
    let owner = view.tenancy(namespace).tenant();
    let (labels, mut annotations) = policies::namespace_metadata(view.declarations(), namespace, owner);
    annotations.insert(SURPLUS_ANNOTATION, view.surplus(namespace).map(|surplus| surplus.annotation()));
    (labels, annotations)
}

/// Returns true if the namespace has the label and annotations that the admission policies read.
pub(super) fn has_current_metadata(view: &Tenants, namespace: &str, facts: &NamespaceFacts) -> bool {
    let (labels, annotations) = expected_metadata(view, namespace);
    labels.iter().chain(&annotations).all(|(key, value)| written(facts, key) == value.as_ref())
}

/// Returns true if the namespace is one of `closed`, and has all of this but its tenant's pools. The reason why it gets none only
/// words a refusal, so it may be missing.
pub(super) fn is_closed(
    view: &Tenants,
    closed: &BTreeSet<String>,
    namespace: &str,
    facts: &NamespaceFacts,
) -> bool {
    let (labels, annotations) = expected_metadata(view, namespace);
    let of_closed = [POOLS_ANNOTATION, SURPLUS_ANNOTATION];
    let mut others = labels.iter().chain(&annotations).filter(|(key, _)| !of_closed.contains(key));
    closed.contains(namespace)
        && facts.pools.is_none()
        && others.all(|(key, value)| written(facts, key) == value.as_ref())
}

fn written<'f>(facts: &'f NamespaceFacts, key: &str) -> Option<&'f String> {
    match key {
        TENANCY_LABEL => facts.tenancy.as_ref(),
        POOLS_ANNOTATION => facts.pools.as_ref(),
        SHARED_ANNOTATION => facts.shared.as_ref(),
        SURPLUS_ANNOTATION => facts.surplus.as_ref(),
        _ => None,
    }
}

/// Returns true if the tenant of a namespace is unknown, so that its metadata stays as it is.
fn has_unreadable_tenant(view: &Tenants, namespace: &str) -> bool {
    matches!(view.tenancy(namespace), NamespaceTenancy::TenantUnreadable)
}
