//! The Pod Security labels of tenants' namespaces.

use std::collections::BTreeMap;

use croft_api::{Tenant, convert::given, given::PodSecurityLevel};
use croft_policy::policies::pod_security::{Changes, MODES, changes, record_key};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

/// The labels and annotations of a namespace that say something about it.
pub(super) fn facts(namespace: &Namespace) -> BTreeMap<String, String> {
    let keys = MODES.into_iter().flat_map(|(mode, label)| [label.to_owned(), record_key(mode)]);
    let value = |key: String| {
        let value = namespace.labels().get(&key).or_else(|| namespace.annotations().get(&key))?.clone();
        Some((key, value))
    };
    keys.filter_map(value).collect()
}

/// The labels and annotations of a namespace that are to be written.
pub(super) fn due(facts: &BTreeMap<String, String>, tenant: Option<&Tenant>) -> (Changes, Changes) {
    let declared = given::pod_security(tenant.and_then(|tenant| tenant.spec.pod_security.as_ref()));
    let held = |key: &str| facts.get(key).map(String::as_str);
    changes(declared.map(|(_, level)| level.map(PodSecurityLevel::as_str)), held, held)
}
