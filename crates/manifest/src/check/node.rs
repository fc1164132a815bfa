//! Nodes.

use k8s_openapi::api::core::v1::{Node, Taint};

use super::{metadata::FieldErrors, names, pod};

/// Taints and amounts of a node.
pub(crate) fn node(node: &Node, errors: &mut FieldErrors) {
    taints("spec.taints", node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default(), errors);
    let Some(status) = &node.status else { return };
    for (field, amounts) in [("capacity", &status.capacity), ("allocatable", &status.allocatable)] {
        pod::amounts(&format!("status.{field}"), amounts.as_ref(), errors);
    }
}

/// Keys and effects of taints.
fn taints(path: &str, taints: &[Taint], errors: &mut FieldErrors) {
    for (i, taint) in taints.iter().enumerate() {
        let path = format!("{path}[{i}]");
        if let Err(message) = names::qualified(&taint.key) {
            errors.push((format!("{path}.key"), message));
        }
        if !matches!(taint.effect.as_str(), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let message =
                format!("{:?} is no effect; write NoSchedule, PreferNoSchedule or NoExecute", taint.effect);
            errors.push((format!("{path}.effect"), message));
        }
    }
}
