//! Nodes: what kubelets may not write. Never a webhook: one that is down must not keep a kubelet from registering.

use super::{Policy, constraints, list};
use crate::{index::Rules, model::Provisioner, node::RESTRICTED_PREFIX};

/// Kubelets neither add, change nor remove a pool's label or taint; they may register with the taint, and with the
/// label of a pool whose nodes somebody else makes.
pub(super) fn kubelets(rules: &Rules, keys: &str) -> Policy {
    // What may be registered: every value of a key without a pool of Croft's, else the values of the others.
    let pools_of = |key: &str| -> Vec<_> {
        rules.key(key).into_iter().flat_map(|k| k.pools().iter().filter_map(|id| rules.pool(*id))).collect()
    };
    let open = |key: &&str| {
        !key.starts_with(RESTRICTED_PREFIX)
            && pools_of(key).iter().all(|p| p.provisioner != Provisioner::Croft)
    };
    let open_keys: Vec<&str> = rules.keys().into_iter().filter(open).collect();
    let others = rules.pools().iter().filter(|p| {
        p.provisioner != Provisioner::Croft
            && !p.key.starts_with(RESTRICTED_PREFIX)
            && !open_keys.contains(&&*p.key)
    });
    let labels: Vec<String> = others.map(|p| format!("{}={}", p.key, p.value)).collect();
    let labels = list(labels.iter().map(String::as_str).collect());
    let open_keys = list(open_keys);
    let of = |object: &str, field: &str| format!("{object}.{field}");
    let taints =
        |object: &str| format!("{}.orValue([]).filter(t, t.key in {keys})", of(object, "spec.?taints"));
    Policy {
        name: "croft-kubelets",
        constraints: constraints("", &["nodes", "nodes/status"], &["CREATE", "UPDATE"], &[]),
        conditions: vec![
            (
                "by-a-kubelet",
                "request.userInfo.username.startsWith('system:node:') || \
                 'system:nodes' in request.userInfo.?groups.orValue([])"
                    .to_owned(),
            ),
            ("not-being-deleted", "!has(object.metadata.deletionTimestamp)".to_owned()),
        ],
        variables: vec![
            ("labels", "object.metadata.?labels.orValue({})".to_owned()),
            ("before", "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})".to_owned()),
        ],
        validations: vec![
            (
                format!(
                    "request.operation != 'CREATE' || variables.labels.all(k, !(k in {keys}) || k in {open_keys} || \
                     (k + '=' + variables.labels[k]) in {labels})"
                ),
                "'a kubelet may not register its node with the label of a pool; take it out of --node-labels: Croft labels \
                 the node itself'"
                    .to_owned(),
            ),
            (
                format!(
                    "request.operation == 'CREATE' || variables.labels == variables.before || \
                     ({keys}.all(k, variables.labels[?k] == variables.before[?k]))"
                ),
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
        per_tenant: false,
    }
}
