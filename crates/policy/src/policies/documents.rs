//! Every policy and its binding, as they are installed.

use std::sync::LazyLock;

use serde_json::Value;

use crate::policies::{
    identities, in_force, mutation, namespaces, nodes, pods,
    policy::{Keys, Policy},
};

/// Every policy and its binding, for the API server's `admissionregistration.k8s.io/v1`. `namespace` is Croft's own.
///
/// ```
/// let documents = croft_policy::policies::documents("croft-system");
/// assert_eq!(documents.len(), 2 * croft_policy::policies::names().len());
/// ```
#[must_use]
pub fn documents(namespace: &str) -> Vec<Value> {
    POLICIES.iter().flat_map(|policy| [policy.document(), policy.binding(namespace)]).collect()
}

/// Rendered once: the controller compares them with the installed ones.
static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    let policies = [
        pods::placement(),
        pods::updates(Keys::BuiltIn),
        pods::updates(Keys::Declared),
        nodes::kubelets(Keys::BuiltIn),
        nodes::kubelets(Keys::Declared),
        nodes::taints(Keys::BuiltIn),
        nodes::taints(Keys::Declared),
        namespaces::reserved(),
        namespaces::moves(),
        namespaces::names(),
        namespaces::creation(),
        namespaces::own_namespace(),
        in_force::policy(),
    ];
    policies.into_iter().chain(mutation::validating()).chain(identities::all()).collect()
});

/// The names of the policies, each of which has a binding of the same name.
#[must_use]
pub fn names() -> Vec<String> {
    let kind = |document: &&Value| {
        document.pointer("/kind").and_then(Value::as_str) == Some("ValidatingAdmissionPolicy")
    };
    let documents = documents("");
    let names = documents.iter().filter(kind).filter_map(|d| d.pointer("/metadata/name")?.as_str());
    names.map(str::to_owned).collect()
}
