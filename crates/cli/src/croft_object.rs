//! Croft's objects as JSON values, which `import` and `tenant add` write.

use serde_json::{Value, json};

/// A cluster-scoped object of one of Croft's kinds.
pub(crate) fn croft_object(kind: &str, name: &str, spec: Value) -> Value {
    let api_version = format!("{}/{}", croft_api::GROUP, croft_api::VERSION);
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The string in a field; empty if there is none.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
