//! What a kubelet may write on its Node.

use crate::{
    denial::Denial,
    index::Rules,
    model::Provisioner,
    view::{Node, NodeTaint},
};

/// What NodeRestriction keeps from kubelets: a pool with such a key is labelled by Croft or an operator only.
pub(crate) const RESTRICTED_PREFIX: &str = "node-restriction.kubernetes.io/";

/// True if `user` is a kubelet.
pub(crate) fn is_kubelet(user: &str, groups: &[crate::text::Text<'_>]) -> bool {
    user.starts_with("system:node:") || groups.iter().any(|g| g == "system:nodes")
}

/// True if a kubelet may register its node with the label `key`=`value`, `key` being a pool's.
#[must_use]
pub fn may_register(rules: &Rules, key: &str, value: &str) -> bool {
    let Some(of_key) = rules.key(key) else { return true };
    if key.starts_with(RESTRICTED_PREFIX) {
        return false;
    }
    let elsewhere = |id| rules.pool(id).is_some_and(|p| p.provisioner != Provisioner::Croft);
    match of_key.pool(value) {
        Some(pool) => elsewhere(pool),
        // A value of no pool yet: only where no pool of the key is labelled by Croft.
        None => of_key.pools().iter().all(|id| elsewhere(*id)),
    }
}

/// Judges a kubelet's write of its Node, from `old` if it exists.
///
/// # Errors
/// If it touches a pool's label or taint.
pub(crate) fn judge(rules: &Rules, old: Option<&Node<'_>>, new: &Node<'_>) -> Result<(), Denial> {
    let name = &new.metadata.name;
    let Some(old) = old else {
        let refused = new.metadata.labels.iter().find(|(key, value)| !may_register(rules, key, value));
        return refused.map_or(Ok(()), |(key, value)| Err(Denial::kubelet_label(name, key, value, true)));
    };
    let (before, after) = (&old.metadata.labels, &new.metadata.labels);
    let written = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    let removed = before.iter().filter(|(key, _)| after.get(key).is_none());
    if let Some((key, value)) = written.chain(removed).find(|(key, _)| rules.key(key).is_some()) {
        return Err(Denial::kubelet_label(name, key, value, false));
    }
    let (before, after) = (pool_taints(rules, old), pool_taints(rules, new));
    let changed =
        after.iter().find(|t| !before.contains(t)).or_else(|| before.iter().find(|t| !after.contains(t)));
    changed.map_or(Ok(()), |taint| Err(Denial::kubelet_taint(name, &taint.key)))
}

fn pool_taints<'n, 'a>(rules: &Rules, node: &'n Node<'a>) -> Vec<&'n NodeTaint<'a>> {
    node.spec.taints.iter().filter(|t| rules.key(&t.key).is_some()).collect()
}
