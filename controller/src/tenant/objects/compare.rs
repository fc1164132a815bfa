//! The writes that bring the objects in line with their Tenants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::convert::{given::creators_name, tenant_objects::tenant_label};
use croft_policy::Tenants;
use serde_json::{Value, json};

use super::{
    comparison::{Comparison, changed_by_hand, delete_object, label_operation, new_object, rewrite_object},
    created::Created,
    expected::{Expectations, Expected, expectations, is_own_name},
    share_writes::{share_keys, share_writes},
};
use crate::{
    action::{Action, UserEvent},
    kube_api::{Kind, ObjectKey, ObjectKind},
    state::InvalidObjects,
    tenant::{state::State, tenant_objects::ObjectFacts},
};

/// Writes of one pass. One namespace more or less changes the objects of all of a tenant's namespaces, and other actions
/// wait for the same slots.
const MAX_WRITES: usize = 50;

/// Compares the objects with what Tenants declare.
pub(in crate::tenant) fn compare(
    state: &mut State,
    invalid: &InvalidObjects,
    view: &Tenants,
    created: BTreeMap<String, Created>,
    mono: Duration,
) -> Comparison {
    let Expectations { objects, shared, unknown } = expectations(state, invalid, view, &created);
    // No pod is let into a new namespace while it is unknown what its tenant declares.
    let mut found = Comparison { incomplete: unknown.clone(), created, ..Comparison::default() };
    let mut restored = Vec::new();
    for (key, expected) in &objects {
        let kept = found.tenants.entry(expected.tenant.to_string()).or_default();
        kept.expected += 1;
        let held = state.objects.held.get(key);
        if let Some(held) = held.filter(|held| is_in_place(held, expected)) {
            if held.quota.as_ref().is_some_and(|quota| !quota.is_enforced()) {
                found.incomplete.insert(key.namespace.clone());
                kept.note(state, key);
            }
            continue;
        }
        found.incomplete.insert(key.namespace.clone());
        found.open += i64::from(key.kind == ObjectKind::NetworkPolicy);
        kept.note(state, key);
        let is_settled = state.objects.settled.get(key) == Some(&expected.content);
        let by_hand =
            |done| is_settled.then(|| changed_by_hand(state, key, &expected.tenant, done)).flatten();
        match held {
            None => {
                let content = Value::clone(&expected.content);
                found.writes.push(new_object(key, content, &expected.tenant, by_hand("deleted")));
            }
            // It is created again once it is gone.
            Some(held) if held.deleting => {}
            Some(held) if must_be_replaced(key, held, expected) => restored.push(delete_object(key, held)),
            Some(held) => restored.push(restoration(key, held, expected, by_hand("changed"))),
        }
    }
    let shares = share_keys(&shared);
    share_writes(state, &shared, mono, &mut found);
    // A namespace without an object comes before those where one is out of date: its pods wait.
    found.writes.extend(restored);
    let is_declared = |key: &ObjectKey| objects.contains_key(key) || shares.contains(key);
    found.writes.extend(removals(state, invalid, view, is_declared, &unknown, mono));
    found.writes.truncate(MAX_WRITES);
    state.objects.taken.retain(is_declared);
    state.objects.refused.retain(|key, _| is_declared(key));
    settle(state, &objects);
    found
}

/// Fields that the API server doesn't let anyone change: the role of a binding, and the scopes of a quota.
fn must_be_replaced(key: &ObjectKey, held: &ObjectFacts, expected: &Expected) -> bool {
    let differs = |pointer: &str| held.content.pointer(pointer) != expected.content.pointer(pointer);
    match key.kind {
        ObjectKind::RoleBinding | ObjectKind::ClusterRoleBinding => differs("/roleRef"),
        ObjectKind::ResourceQuota => differs("/spec/scopes") || differs("/spec/scopeSelector"),
        ObjectKind::NetworkPolicy | ObjectKind::LimitRange => false,
    }
}

fn is_in_place(held: &ObjectFacts, expected: &Expected) -> bool {
    !held.deleting && held.content == *expected.normalized && held.tenant == tenant_label(&expected.tenant)
}

/// Fields that it shouldn't have go, too. Labels of others stay.
fn restoration(
    key: &ObjectKey,
    held: &ObjectFacts,
    expected: &Expected,
    by_hand: Option<UserEvent>,
) -> Action {
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": held.uid}),
        label_operation(&expected.tenant),
    ];
    let (is, should) = (fields(&held.content), fields(&expected.normalized));
    let extra = is.keys().filter(|name| !should.contains_key(*name));
    patch.extend(extra.map(|name| json!({"op": "remove", "path": format!("/{name}")})));
    let differ = should.iter().filter(|(name, value)| is.get(*name) != Some(value));
    let written = differ.filter_map(|(name, _)| Some((name, expected.content.get(name.as_str())?)));
    patch.extend(
        written.map(|(name, value)| json!({"op": "add", "path": format!("/{name}"), "value": value})),
    );
    rewrite_object(key, &held.version, Value::Array(patch), by_hand)
}

fn fields(content: &Value) -> BTreeMap<&String, &Value> {
    content.as_object().into_iter().flatten().collect()
}

/// Objects that no Tenant declares any more. Those of an absent Tenant stay until its absence is confirmed. Another object
/// with Croft's label, such as a copy under another name, is left alone.
fn removals(
    state: &State,
    invalid: &InvalidObjects,
    view: &Tenants,
    is_declared: impl Fn(&ObjectKey) -> bool,
    unknown: &BTreeSet<String>,
    mono: Duration,
) -> Vec<Action> {
    let is_over = |key: &ObjectKey, held: &ObjectFacts| {
        let namespace = &key.namespace;
        if key.kind.is_cluster_scoped() {
            let is_unreadable = |tenant: &&String| invalid.has_no_valid_version(Kind::Tenant, tenant);
            let mut unreadable = state.tenants.keys().filter(is_unreadable);
            return !held.deleting
                && is_own_name(key.kind, &key.name)
                && unreadable.all(|tenant| creators_name(tenant) != key.name);
        }
        let there = state.namespaces.get(namespace).is_some_and(|facts| !facts.deleting);
        let is_tenant = view.tenancy(namespace).tenant().is_some();
        let may_return = !is_tenant && state.absences.may_affect(view, namespace, mono);
        there
            && !held.deleting
            && is_own_name(key.kind, &key.name)
            && !unknown.contains(namespace)
            && !may_return
    };
    let held = state.objects.held.iter().filter(|(key, held)| !is_declared(key) && is_over(key, held));
    held.map(|(key, held)| delete_object(key, held)).collect()
}

/// Records which objects are as they should be.
fn settle(state: &mut State, objects: &BTreeMap<ObjectKey, Expected>) {
    let facts = &mut state.objects;
    facts.settled.retain(|key, _| objects.contains_key(key));
    for (key, expected) in objects {
        let held = facts.held.get(key);
        if held.is_some_and(|held| is_in_place(held, expected))
            && facts.settled.get(key) != Some(&expected.content)
        {
            facts.settled.insert(key.clone(), Arc::clone(&expected.content));
        }
    }
}
