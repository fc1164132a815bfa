//! Nodes that join a pool and that Croft didn't launch.
//!
//! Such a node registers with its pool's own label and taint. The pool-name label, by which most pods are kept off, is the
//! controller's to write, a moment later or, while no controller leads, much later. Until then the node carries the label and
//! taint of a node that has just registered, as nodes of Croft's do: a pod that was created before its key was a pool's
//! stays off.

use crate::{
    definitions::{POOL_NAME_LABEL, UNREGISTERED_LABEL, UNREGISTERED_TAINT, parameter},
    policies::{
        cel,
        parameters::MORE,
        policy::{Keys, Mutating, break_glass, constraints},
    },
};

/// CEL: the entry `p` of the parameter is a pool whose nodes Croft doesn't launch.
const LAUNCHED_ELSEWHERE: &str = "!p.endsWith(':Croft')";

/// CEL: one of `pairs`, each a key and a value, is the label of a pool `p` that meets `condition`. If there are more pools than the
/// parameter holds, the key of any counts. The pools are read for keys of pools alone: nodes have many other labels.
fn of_a_pool(pairs: &str, condition: &str) -> String {
    let pools = cel::text(parameter::ALL_POOLS);
    let (_, keys) = Keys::Declared.variable();
    format!(
        "[{keys}].all(keys, {pairs}.exists(l, l[0] != '' && l[0] in keys && ({pools}.contains('{MORE};') || \
         {pools}.split(';').exists(p, p.startsWith(l[0] + '=' + l[1] + ':') && {condition}))))"
    )
}

fn taint_pairs(node: &str) -> String {
    format!("{node}.?spec.?taints.orValue([]).map(t, [t.key, t.?value.orValue('')])")
}

/// CEL: `node` has the label or the taint of such a pool.
fn is_in_pool(node: &str) -> String {
    let labels = format!("{node}.metadata.?labels.orValue({{}}).map(k, [k, {node}.metadata.labels[k]])");
    of_a_pool(&format!("({labels} + {})", taint_pairs(node)), LAUNCHED_ELSEWHERE)
}

/// Marks a node that joins a pool, in both modes. A node that is in the pool already keeps what it has: its pods run. One that brings
/// the pool-name label as its pool's own, without the taint, is open to every pod until the controller has added the taint.
pub(super) fn starting() -> Mutating {
    let taints = "object.?spec.?taints.orValue([])";
    let taint = format!("{{'key': '{UNREGISTERED_TAINT}', 'effect': 'NoSchedule'}}");
    Mutating {
        name: "croft-nodes",
        failure: "Fail",
        constraints: constraints("", &["nodes"], &["CREATE", "UPDATE"], false),
        conditions: vec![(
            "joins-a-pool",
            format!(
                "!('{POOL_NAME_LABEL}' in object.metadata.?labels.orValue({{}}) && {}) && {} && \
                 (oldObject == null || !{}) && !({}) && !{}",
                of_a_pool(&taint_pairs("object"), "true"),
                is_in_pool("object"),
                is_in_pool("oldObject"),
                cel::non_tenant_pods_allowed(),
                break_glass()
            ),
        )],
        variables: Vec::new(),
        patches: format!(
            "(!has(object.metadata.labels) ? [JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'{UNREGISTERED_LABEL}': 'true'}}}}] : \
             [JSONPatch{{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('{UNREGISTERED_LABEL}'), value: 'true'}}]) + \
             ({taints}.exists(t, t.key == '{UNREGISTERED_TAINT}') ? [] : \
             size({taints}) == 0 ? [JSONPatch{{op: 'add', path: '/spec/taints', value: [{taint}]}}] : \
             [JSONPatch{{op: 'add', path: '/spec/taints/-', value: {taint}}}])"
        ),
    }
}
