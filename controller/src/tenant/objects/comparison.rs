//! The findings of a comparison of the objects.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::convert::tenant_objects::tenant_label;
use croft_policy::definitions::TENANT_LABEL;
use serde_json::{Value, json};

use super::created::Created;
use crate::{
    action::{Action, UserEvent},
    definitions::events::OBJECT_RESTORED,
    json_pointer::escaped,
    kube_api::{ObjectKey, Target, Verb},
    reconcile::object_reference,
    tenant::{state::State, tenant_objects::ObjectFacts},
};

/// The objects of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tenant) struct Kept {
    /// The number of objects that its namespaces should have.
    pub(in crate::tenant) expected: usize,
    /// Objects that aren't as they should be yet.
    pub(in crate::tenant) behind: Vec<String>,
    /// Objects whose name another object has.
    pub(in crate::tenant) taken: Vec<String>,
    /// Objects that the API server refused, with its message.
    pub(in crate::tenant) refused: Vec<String>,
}

/// The outcome of a comparison.
#[derive(Debug, Default)]
pub(in crate::tenant) struct Comparison {
    /// The writes that are due.
    pub(in crate::tenant) writes: Vec<Action>,
    /// Namespaces without an object that they should have.
    pub(in crate::tenant) incomplete: BTreeSet<String>,
    /// Namespaces without the NetworkPolicy that their Tenant declares.
    pub(in crate::tenant) open: i64,
    /// Tenants that declare objects.
    pub(in crate::tenant) tenants: BTreeMap<String, Kept>,
    /// Namespaces that owners created, by tenant.
    pub(in crate::tenant) created: BTreeMap<String, Created>,
}

impl Comparison {
    /// True if a namespace of the tenant stays closed, since its owners have created too many.
    pub(in crate::tenant) fn is_surplus(&self, tenant: &str, namespace: &str) -> bool {
        self.created.get(tenant).is_some_and(|created| created.surplus.iter().any(|name| name == namespace))
    }
}

impl Kept {
    /// Notes that an object isn't as it should be.
    pub(super) fn note(&mut self, state: &State, key: &ObjectKey) {
        if state.objects.taken.contains(key) {
            self.taken.push(key.to_string());
        } else if let Some(why) = state.objects.refused.get(key) {
            self.refused.push(format!("{key}: {why}"));
        } else {
            self.behind.push(key.to_string());
        }
    }
}

/// The operation of a JSON Patch that labels an object as the tenant's.
pub(super) fn label_operation(tenant: &str) -> Value {
    let path = format!("/metadata/labels/{}", escaped(TENANT_LABEL));
    json!({"op": "add", "path": path, "value": tenant_label(tenant)})
}

/// The event about an object that was changed by hand.
pub(super) fn changed_by_hand(state: &State, key: &ObjectKey, tenant: &str, done: &str) -> Option<UserEvent> {
    let tenant = state.tenants.get(tenant)?;
    let note = format!("{key} was {done} by hand, and is restored: change the Tenant instead");
    Some(UserEvent::warning(object_reference(&**tenant), OBJECT_RESTORED, note))
}

/// Writes an object as its Tenant declares it. A later change, of another `version`, or by hand, is another write.
pub(super) fn rewrite_object(
    key: &ObjectKey,
    version: &str,
    patch: Value,
    by_hand: Option<UserEvent>,
) -> Action {
    let verb = Verb::JsonPatch(patch);
    let fingerprint = format!("{version} {verb:?} {}", by_hand.is_some());
    Action::write_once_as(Target::TenantObject(key.clone()), verb, fingerprint, by_hand.into_iter().collect())
}

/// The deletion of an object, which no Tenant declares as it is.
pub(super) fn delete_object(key: &ObjectKey, held: &ObjectFacts) -> Action {
    let verb = Verb::Delete { uid: held.uid.clone(), grace_seconds: None };
    Action::write_once(Target::TenantObject(key.clone()), verb)
}

/// The creation of an object with this content; one that was deleted `by_hand` gets an event.
pub(super) fn new_object(
    key: &ObjectKey,
    mut object: Value,
    tenant: &str,
    by_hand: Option<UserEvent>,
) -> Action {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), key.kind.api_version().into());
        fields.insert("kind".to_owned(), key.kind.name().into());
        let labels = json!({TENANT_LABEL: tenant_label(tenant)});
        let mut metadata = json!({"name": key.name, "labels": labels});
        if let (Some(metadata), false) = (metadata.as_object_mut(), key.namespace.is_empty()) {
            metadata.insert("namespace".to_owned(), key.namespace.clone().into());
        }
        fields.insert("metadata".to_owned(), metadata);
    }
    let verb = Verb::Create(object);
    let fingerprint = format!("{verb:?} {}", by_hand.is_some());
    Action::write_once_as(Target::TenantObject(key.clone()), verb, fingerprint, by_hand.into_iter().collect())
}
