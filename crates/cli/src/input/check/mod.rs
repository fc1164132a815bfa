//! What the API server would refuse, as far as it decides placement: names, labels, selectors, tolerations,
//! spreads, quantities. Each finding is a field's path and a sentence.

mod names;
mod pod;
mod workload;

use k8s_openapi::{
    api::core::v1::{Namespace, Node, Taint},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{Input, Problem};
pub(super) use names::object_name;
pub(super) use pod::pod;
pub(super) use workload::{
    cron_job, daemon_set, deployment, job, replica_set, replication_controller, stateful_set,
};

/// Findings: the path of a field, and what is wrong with it.
pub(super) type Wrong = Vec<(String, String)>;

/// Labels and annotations of any object.
pub(super) fn metadata(meta: &ObjectMeta, wrong: &mut Wrong) {
    labels("metadata.labels", meta.labels.as_ref(), wrong);
    for key in meta.annotations.iter().flat_map(|a| a.keys()) {
        if let Err(message) = names::qualified(&key.to_lowercase()) {
            wrong.push((format!("metadata.annotations.{key}"), message));
        }
    }
}

pub(super) fn labels(
    path: &str,
    labels: Option<&std::collections::BTreeMap<String, String>>,
    wrong: &mut Wrong,
) {
    for (key, value) in labels.into_iter().flatten() {
        if let Err(message) = names::qualified(key).and_then(|()| names::label_value(value)) {
            wrong.push((format!("{path}.{key}"), message));
        }
    }
}

/// The API server writes a namespace's name into its labels, so that selectors can use it.
pub(super) fn name_label(namespace: &mut Namespace) {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    namespace.metadata.labels.get_or_insert_default().insert("kubernetes.io/metadata.name".to_owned(), name);
}

/// Taints and amounts of a node.
pub(super) fn node(node: &Node, wrong: &mut Wrong) {
    taints("spec.taints", node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default(), wrong);
    let Some(status) = &node.status else { return };
    for (field, amounts) in [("capacity", &status.capacity), ("allocatable", &status.allocatable)] {
        pod::amounts(&format!("status.{field}"), amounts.as_ref(), wrong);
    }
}

/// Keys and effects of taints.
pub(super) fn taints(path: &str, taints: &[Taint], wrong: &mut Wrong) {
    for (i, taint) in taints.iter().enumerate() {
        let path = format!("{path}[{i}]");
        if let Err(message) = names::qualified(&taint.key) {
            wrong.push((format!("{path}.key"), message));
        }
        if !matches!(taint.effect.as_str(), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let message =
                format!("{:?} is no effect; write NoSchedule, PreferNoSchedule or NoExecute", taint.effect);
            wrong.push((format!("{path}.effect"), message));
        }
    }
}

/// What only shows when all files have been read.
pub(super) fn across(input: &Input, problems: &mut Vec<Problem>) {
    for claim in &input.claims {
        if input.pools.get("", &claim.spec.pool).is_none() && !input.pools.is_empty() {
            problems.push(Problem {
                origin: claim.origin.clone(),
                object: format!("NodeClaim {}", claim.metadata.name.as_deref().unwrap_or_default()),
                field: "spec.pool".to_owned(),
                message: format!("there is no TenantPool {}", claim.spec.pool),
            });
        }
    }
}
