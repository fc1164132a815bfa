//! Defaults of namespaces.

use k8s_openapi::api::core::v1::Namespace;

/// Adds the label with the namespace's name, which selectors use.
pub(crate) fn name_label(namespace: &mut Namespace) {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    namespace.metadata.labels.get_or_insert_default().insert("kubernetes.io/metadata.name".to_owned(), name);
}
