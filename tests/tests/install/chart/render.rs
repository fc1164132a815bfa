//! Rendering the charts.

use std::path::PathBuf;

use croft_testkit::{CroftOptions, Helm};
use serde_json::Value;

/// A chart of the checkout.
pub(crate) fn chart(name: &str) -> PathBuf {
    CroftOptions::find().unwrap().manifests.join("chart").join(name)
}

/// Runs Helm. Returns its output, or its error.
pub(crate) fn helm(arguments: &[&str]) -> Result<String, String> {
    let scratch = tempfile::tempdir().unwrap();
    let output = Helm::find().unwrap().command(scratch.path()).args(arguments).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The objects that the chart renders in `namespace` with these further arguments.
pub(crate) fn rendered(namespace: &str, arguments: &[&str]) -> Result<String, String> {
    let (chart, namespace) = (chart("croft").display().to_string(), format!("--namespace={namespace}"));
    helm(&[&["template", "some-release", &chart, &namespace], arguments].concat())
}

/// The objects of manifests.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n").map(|document| document.trim_start_matches("---\n"));
    let values = documents.map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    values.filter(|value| !value.is_null()).collect()
}

/// The text at a JSON pointer.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Kind and name.
pub(crate) fn name(object: &Value) -> String {
    format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"))
}

/// The Deployment of a process.
pub(crate) fn deployment(objects: &[Value], process: &str) -> Value {
    let wanted = format!("Deployment croft-{process}");
    objects.iter().find(|object| name(object) == wanted).cloned().unwrap()
}
