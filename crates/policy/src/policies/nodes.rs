//! Nodes: labels and taints that kubelets may not write, and taints that stay.
//!
//! These rules are never a webhook: a kubelet must be able to register while Croft is down. A node that is being
//! deleted is no exception, since kube-scheduler goes on binding pods to it.

use crate::policies::{
    cel::{Cel, SHARED},
    policy::{Keys, Policy, constraints},
};

const CEL: Cel = Cel("nodes");

/// Kubelets neither add, change nor remove a pool's label or taint. They may register with the taint, and with the
/// label of a pool whose nodes Croft doesn't launch.
pub(super) fn kubelets(keys: Keys) -> Policy {
    let mut variables = vec![SHARED.variable(keys.name()), CEL.variable("labels"), CEL.variable("before")];
    if keys == Keys::Declared {
        variables.push(CEL.variable("open"));
    }
    let registers = keys.of("registers/built-in", "registers/declared");
    Policy {
        name: keys.of("croft-kubelet-writes", "croft-kubelet-writes-keys"),
        constraints: constraints("", &["nodes", "nodes/status"], &["CREATE", "UPDATE"], false),
        conditions: CEL.variables(&["by-a-kubelet"]),
        variables,
        validations: [registers, "keeps_labels", "keeps_taints"].map(|name| CEL.rule(name)).to_vec(),
        parameters: keys == Keys::Declared,
    }
}

/// The taint of a pool stays on its node as long as the label of the same key and value does. Croft itself never
/// removes such a taint.
pub(super) fn taints(keys: Keys) -> Policy {
    let own = CEL.variables(&["labels", "taints", "removed"]);
    Policy {
        name: keys.of("croft-pool-taints", "croft-pool-taints-keys"),
        constraints: constraints("", &["nodes"], &["UPDATE"], false),
        conditions: CEL.variables(&["taints-change"]),
        variables: [SHARED.variables(&[keys.name()]), own].concat(),
        validations: vec![CEL.rule("removes_none")],
        parameters: keys == Keys::Declared,
    }
}
