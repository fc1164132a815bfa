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
use serde_json::{Value, json};

use crate::{
    action::Action,
    kube_api::{Kind, Target, Verb},
    state::InvalidObjects,
    tenant::{
        pod_security,
        state::{NamespaceFacts, State},
    },
};

/// The writes of namespaces that are due. A namespace stays its tenant's until the absence of the Tenant is confirmed: until then it
/// keeps the pools that no other Tenant names. Without any Tenant and pool, what Croft wrote is removed. An `incomplete` namespace
/// lacks an object that its Tenant declares: it keeps those of its tenant's pools that it has, and gets no more; without any,
/// admission refuses its pods.
pub(super) fn namespace_writes(
    state: &State,
    invalid: &InvalidObjects,
    view: &Tenants,
    incomplete: &BTreeSet<String>,
    mono: Duration,
) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, facts) in state.namespaces.iter().filter(|(_, facts)| !facts.deleting) {
        if has_unreadable_tenant(view, name) {
            continue;
        }
        let is_tenant = view.tenancy(name).tenant().is_some();
        let leaves = facts.pools.is_some() && !is_tenant;
        if leaves && state.absences.may_affect(view, name, mono) {
            actions.extend(without_lost_pools(view, name, facts));
            continue;
        }
        let (labels, mut annotations) = expected_metadata(view, name);
        if incomplete.contains(name)
            && let Some(pools) = annotations.get_mut(POOLS_ANNOTATION)
        {
            *pools = pools.as_deref().and_then(|pools| held(facts, pools));
        }
        let outdated =
            |kept: &BTreeMap<&'static str, Option<String>>| -> BTreeMap<&'static str, Option<String>> {
                let differs = |key: &str, value: &Option<String>| written(facts, key) != value.as_ref();
                kept.iter().filter(|(key, value)| differs(key, value)).map(|(k, v)| (*k, v.clone())).collect()
            };
        let (labels, annotations) = (outdated(&labels), outdated(&annotations));
        let mut labels: Changes = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut annotations: Changes =
            annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        // Levels of an absent Tenant stay until its absence is confirmed, and so do those of one that can't be read.
        let may_return = !is_tenant && state.absences.may_affect(view, name, mono);
        let owner = owner_of(view, name);
        if !may_return && !owner.is_some_and(|owner| invalid.has_no_valid_version(Kind::Tenant, owner)) {
            let tenant = owner.and_then(|owner| state.tenants.get(owner)).map(|tenant| &**tenant);
            let (more, records) = pod_security::due(&facts.pod_security, tenant);
            labels.extend(more);
            annotations.extend(records);
        }
        if !labels.is_empty() || !annotations.is_empty() {
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
            actions.push(write(name, patch));
        }
    }
    actions
}

/// The part of `pools`, the annotation with a tenant's pools, that the namespace has already.
fn held(facts: &NamespaceFacts, pools: &str) -> Option<String> {
    let held = facts.pools.as_deref()?;
    let is_held = |entry: &&str| {
        held.split(';').any(|other| policies::pool_label(other) == policies::pool_label(entry))
    };
    let kept: Vec<&str> = pools.split(';').filter(is_held).collect();
    (!kept.is_empty()).then(|| kept.join(";"))
}

/// Takes from a namespace whose Tenant is absent the pools that another Tenant names: pods that would go there are refused.
fn without_lost_pools(view: &Tenants, name: &str, facts: &NamespaceFacts) -> Option<Action> {
    let held = facts.pools.as_deref()?;
    let declarations = view.declarations();
    let left = |entry: &str| {
        let (key, value) = policies::pool_label(entry).split_once('=')?;
        let pool = declarations.pool(declarations.pool_by_label(key, value)?)?;
        let is_anothers = declarations.tenants().iter().any(|tenant| tenant.may_use(pool.id));
        is_anothers.then(|| policies::missing_pool(&pool.name))
    };
    let kept: Vec<_> = held.split(';').map(|entry| left(entry).unwrap_or_else(|| entry.to_owned())).collect();
    let pools = kept.join(";");
    let patch = json!({"metadata": {"annotations": {POOLS_ANNOTATION: pools}}});
    (pools != held).then(|| write(name, patch))
}

fn write(namespace: &str, patch: Value) -> Action {
    Action::write_once(Target::Namespace(namespace.to_owned()), Verb::Patch(patch))
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
