//! The writes that bring the objects in line with their Tenants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::convert::tenant_objects::tenant_label;
use croft_policy::{NamespaceTenancy, Tenants, definitions::TENANT_LABEL};
use serde_json::{Value, json};

use super::{
    expected::{Expectations, Expected, expectations, name_of},
    facts::ObjectFacts,
};
use crate::{
    kube_api::ObjectKey,
    tenant::{state::State, write::Write},
};

/// Writes of one pass. One namespace more or less changes the objects of all of a tenant's namespaces, and other actions
/// wait for the same slots.
const MAX_WRITES: usize = 50;

/// The objects of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tenant) struct Kept {
    /// The number of objects that its namespaces should have.
    pub(in crate::tenant) expected: usize,
    /// Objects that aren't as they should be yet.
    pub(in crate::tenant) behind: Vec<String>,
    /// Objects whose name another object has.
    pub(in crate::tenant) taken: Vec<String>,
}

/// The outcome of a comparison.
#[derive(Debug, Default)]
pub(in crate::tenant) struct Comparison {
    /// The writes that are due.
    pub(in crate::tenant) writes: Vec<Write>,
    /// Namespaces without an object that they should have.
    pub(in crate::tenant) incomplete: BTreeSet<String>,
    /// Tenants that declare objects.
    pub(in crate::tenant) tenants: BTreeMap<String, Kept>,
}

/// Compares the objects with what Tenants declare.
pub(in crate::tenant) fn compare(state: &mut State, view: &Tenants, mono: Duration) -> Comparison {
    let Expectations { objects, unknown } = expectations(state, view);
    // No pod is let into a new namespace while it is unknown what its tenant declares.
    let mut found = Comparison { incomplete: unknown.clone(), ..Comparison::default() };
    let mut restored = Vec::new();
    for (key, expected) in &objects {
        let kept = found.tenants.entry(expected.tenant.to_string()).or_default();
        kept.expected += 1;
        let held = state.objects.held.get(key);
        if held.is_some_and(|held| is_in_place(held, expected)) {
            continue;
        }
        found.incomplete.insert(key.namespace.clone());
        if state.objects.taken.contains(key) {
            kept.taken.push(key.to_string());
        } else {
            kept.behind.push(key.to_string());
        }
        let by_hand = state.objects.settled.get(key) == Some(&expected.content);
        match held {
            None => found.writes.push(creation(key, expected, by_hand)),
            // It is created again once it is gone.
            Some(held) if held.deleting => {}
            Some(held) => restored.push(restoration(key, held, expected, by_hand)),
        }
    }
    // A namespace without an object comes before those where one is out of date: its pods wait.
    found.writes.extend(restored);
    found.writes.extend(removals(state, view, &objects, &unknown, mono));
    found.writes.truncate(MAX_WRITES);
    settle(state, &objects);
    found
}

fn is_in_place(held: &ObjectFacts, expected: &Expected) -> bool {
    !held.deleting && held.content == *expected.content && held.tenant == tenant_label(&expected.tenant)
}

fn creation(key: &ObjectKey, expected: &Expected, by_hand: bool) -> Write {
    let mut object = Value::clone(&expected.content);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), key.kind.api_version().into());
        fields.insert("kind".to_owned(), key.kind.name().into());
        let labels = json!({TENANT_LABEL: tenant_label(&expected.tenant)});
        fields.insert(
            "metadata".to_owned(),
            json!({"name": key.name, "namespace": key.namespace, "labels": labels}),
        );
    }
    let changed_for = by_hand.then(|| expected.tenant.to_string());
    Write::CreateObject { key: key.clone(), object, changed_for }
}

/// Fields that it shouldn't have go, too. Labels of others stay.
fn restoration(key: &ObjectKey, held: &ObjectFacts, expected: &Expected, by_hand: bool) -> Write {
    let label = TENANT_LABEL.replace('/', "~1");
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": held.uid}),
        json!({"op": "add", "path": format!("/metadata/labels/{label}"), "value": tenant_label(&expected.tenant)}),
    ];
    let (is, should) = (fields(&held.content), fields(&expected.content));
    let extra = is.keys().filter(|name| !should.contains_key(*name));
    patch.extend(extra.map(|name| json!({"op": "remove", "path": format!("/{name}")})));
    let differ = should.iter().filter(|(name, value)| is.get(*name) != Some(value));
    patch
        .extend(differ.map(|(name, value)| json!({"op": "add", "path": format!("/{name}"), "value": value})));
    Write::RestoreObject {
        key: key.clone(),
        version: held.version.clone(),
        patch: Value::Array(patch),
        changed_for: by_hand.then(|| expected.tenant.to_string()),
    }
}

fn fields(content: &Value) -> BTreeMap<&String, &Value> {
    content.as_object().into_iter().flatten().collect()
}

/// Objects that no Tenant declares any more. Those of an absent Tenant stay until its absence is confirmed. Another object
/// with Croft's label, such as a copy under another name, is left alone.
fn removals(
    state: &State,
    view: &Tenants,
    objects: &BTreeMap<ObjectKey, Expected>,
    unknown: &BTreeSet<String>,
    mono: Duration,
) -> Vec<Write> {
    let is_over = |key: &ObjectKey, held: &ObjectFacts| {
        let namespace = &key.namespace;
        let there = state.namespaces.get(namespace).is_some_and(|facts| !facts.deleting);
        let is_tenant = matches!(view.tenancy(namespace), NamespaceTenancy::Tenant { .. });
        let may_return = !is_tenant && state.absences.may_affect(view, namespace, mono);
        there
            && !held.deleting
            && key.name == name_of(key.kind)
            && !unknown.contains(namespace)
            && !may_return
    };
    let held =
        state.objects.held.iter().filter(|(key, held)| !objects.contains_key(*key) && is_over(key, held));
    held.map(|(key, held)| Write::RemoveObject { key: key.clone(), uid: held.uid.clone() }).collect()
}

/// Records which objects are as they should be.
fn settle(state: &mut State, objects: &BTreeMap<ObjectKey, Expected>) {
    let facts = &mut state.objects;
    facts.taken.retain(|key| objects.contains_key(key));
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
