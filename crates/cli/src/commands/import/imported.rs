//! The result of an import, and helpers for untyped objects.

use std::collections::BTreeMap;

use croft_manifest::prune;
use serde_json::{Value, json};

use crate::croft_object::croft_object;

/// Croft's objects by name, and notes on what was left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Imported {
    pub(super) tenants: BTreeMap<String, ImportedObject>,
    pub(super) pools: BTreeMap<String, ImportedObject>,
    pub(super) classes: BTreeMap<String, ImportedObject>,
    /// Notes on objects that nothing was made of.
    pub(super) notes: Vec<String>,
}

/// An object of Croft's, and notes on what was left out.
#[derive(Clone, Debug)]
pub(super) struct ImportedObject {
    pub(super) value: Value,
    pub(super) notes: Vec<String>,
}

impl ImportedObject {
    /// An object without notes.
    pub(super) fn new(kind: &str, name: &str, spec: Value) -> Self {
        Self { value: croft_object(kind, name, spec), notes: Vec::new() }
    }

    /// Removes fields that the CRD doesn't have, with a note for each that names `source`, and notes invalid ones.
    pub(super) fn prune(&mut self, kind: &str, source: &str) {
        let pruned = prune(kind, &mut self.value);
        for (path, value) in pruned.dropped {
            self.notes.push(format!("{source}: {path} isn't carried over, Croft has no such field: {value}"));
        }
        for (path, message) in pruned.errors {
            self.notes.push(format!("correct by hand: {path}: {message}"));
        }
    }
}

/// `text` as a valid name of a TenantPool: lower case letters, digits and `-`, at most 40.
pub(super) fn pool_name(text: &str) -> String {
    let lower = text.to_lowercase();
    let mapped: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let short: String = mapped.trim_matches('-').chars().take(40).collect();
    short.trim_end_matches('-').to_owned()
}

/// Sets a field. A value that isn't an object, which no API server would accept, is replaced by one.
pub(super) fn set(value: &mut Value, field: &str, to: Value) {
    if !value.is_object() {
        *value = json!({});
    }
    if let Some(fields) = value.as_object_mut() {
        fields.insert(field.to_owned(), to);
    }
}

/// Removes and returns a field, unless it is absent or null.
pub(super) fn take(value: &mut Value, field: &str) -> Option<Value> {
    value.as_object_mut().and_then(|fields| fields.remove(field)).filter(|v| !v.is_null())
}
