//! Nodes: labels and taints that kubelets may not write, and taints that stay.
//!
//! These rules are never a webhook: a kubelet must be able to register while Croft is down. A node that is being
//! deleted is no exception, since kube-scheduler goes on binding pods to it.

use crate::{
    definitions::parameter,
    policies::{
        cel,
        policy::{Keys, Policy, break_glass, constraints},
    },
};

/// Kubelets neither add, change nor remove a pool's label or taint. They may register with the taint, and with the
/// label of a pool whose nodes Croft doesn't launch.
pub(super) fn kubelets(keys: Keys) -> Policy {
    let taints =
        |object: &str| format!("{object}.spec.?taints.orValue([]).filter(t, t.key in variables.keys)");
    let mut variables = vec![
        keys.variable(),
        ("labels", "object.metadata.?labels.orValue({})".to_owned()),
        ("before", "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})".to_owned()),
    ];
    let open = match keys {
        Keys::BuiltIn => "",
        Keys::Declared => {
            variables.push(("open", cel::words(parameter::KUBELET_LABELS)));
            " || k in variables.open || (k + '=' + variables.labels[k]) in variables.open"
        }
    };
    Policy {
        name: match keys {
            Keys::BuiltIn => "croft-kubelet-writes",
            Keys::Declared => "croft-kubelet-writes-keys",
        },
        constraints: constraints("", &["nodes", "nodes/status"], &["CREATE", "UPDATE"], false),
        conditions: vec![
            (
                "by-a-kubelet",
                "request.userInfo.username.startsWith('system:node:') || \
                 'system:nodes' in request.userInfo.?groups.orValue([])"
                    .to_owned(),
            ),
        ],
        variables,
        validations: vec![
            (
                format!(
                    "request.operation != 'CREATE' || variables.labels.all(k, !(k in variables.keys){open})"
                ),
                "'a kubelet may not register its node with the label of a pool; take it out of --node-labels: Croft labels \
                 the node itself'"
                    .to_owned(),
            ),
            (
                "request.operation == 'CREATE' || variables.labels == variables.before || \
                 variables.keys.all(k, variables.labels[?k] == variables.before[?k])"
                    .to_owned(),
                "'a kubelet may not add, change or remove the label of a pool on its node'".to_owned(),
            ),
            (
                format!(
                    "request.operation == 'CREATE' || object.spec.?taints == oldObject.spec.?taints || \
                     ({new}.all(t, t in {old}) && {old}.all(t, t in {new}))",
                    new = taints("object"),
                    old = taints("oldObject")
                ),
                "'a kubelet may not add, change or remove the taint of a pool on its node'".to_owned(),
            ),
        ],
        parameters: keys == Keys::Declared,
    }
}

/// The taint of a pool stays on its node as long as the label of the same key and value does. Croft itself never
/// removes such a taint.
pub(super) fn taints(keys: Keys) -> Policy {
    let value = |taint: &str| format!("{taint}.?value.orValue('')");
    Policy {
        name: match keys {
            Keys::BuiltIn => "croft-pool-taints",
            Keys::Declared => "croft-pool-taints-keys",
        },
        constraints: constraints("", &["nodes"], &["UPDATE"], false),
        conditions: vec![("taints-change", "object.spec.?taints != oldObject.spec.?taints".to_owned())],
        variables: vec![
            keys.variable(),
            ("labels", "object.metadata.?labels.orValue({})".to_owned()),
            ("taints", "object.spec.?taints.orValue([])".to_owned()),
            (
                "removed",
                format!(
                    "oldObject.spec.?taints.orValue([]).filter(t, t.key in variables.keys && t.key in variables.labels && \
                     variables.labels[t.key] == {} && !variables.taints.exists(n, n.key == t.key && n.effect == t.effect && \
                     {} == {}))",
                    value("t"),
                    value("n"),
                    value("t")
                ),
            ),
        ],
        validations: vec![(
            format!("size(variables.removed) == 0 || {}", break_glass()),
            "'the node is in the pool with the label ' + variables.removed[0].key + '=' + \
             variables.labels[variables.removed[0].key] + ', so its taint stays: without it other pods run there. To take \
             the node out of the pool, remove the label first'"
                .to_owned(),
        )],
        parameters: keys == Keys::Declared,
    }
}
