//! Labels and annotations, and the errors that checks report.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names;

/// Path of an invalid field, and what is wrong with it.
pub type FieldErrors = Vec<(String, String)>;

/// Labels and annotations of any object.
pub(crate) fn metadata(meta: &ObjectMeta, errors: &mut FieldErrors) {
    labels("metadata.labels", meta.labels.as_ref(), errors);
    for key in meta.annotations.iter().flat_map(|a| a.keys()) {
        if let Err(message) = names::qualified(&key.to_lowercase()) {
            errors.push((format!("metadata.annotations.{key}"), message));
        }
    }
}

/// Label keys and values at `path`.
pub(super) fn labels(path: &str, labels: Option<&BTreeMap<String, String>>, errors: &mut FieldErrors) {
    for (key, value) in labels.into_iter().flatten() {
        if let Err(message) = names::qualified(key).and_then(|()| names::label_value(value)) {
            errors.push((format!("{path}.{key}"), message));
        }
    }
}
