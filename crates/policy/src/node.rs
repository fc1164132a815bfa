//! What may be written on a Node, and what the controller writes on nodes that it doesn't make.

use std::collections::BTreeSet;

use crate::{
    denial::Denial,
    index::{PoolRule, Rules},
    model::{self, MARK_KEY, Provisioner},
    review::User,
    taint::Taint,
    view::{Node, NodeTaint},
};

/// What NodeRestriction keeps from kubelets: a pool with such a key is labelled by Croft or an operator only.
pub(crate) const RESTRICTED_PREFIX: &str = "node-restriction.kubernetes.io/";

/// True if `user` is a kubelet.
fn is_kubelet(user: &User<'_>) -> bool {
    user.username.starts_with("system:node:") || user.groups.iter().any(|g| g == "system:nodes")
}

/// Judges a write of a Node by `user`, from `old` if it exists. One that is being deleted is judged like any other:
/// kube-scheduler goes on binding pods to it.
///
/// # Errors
/// If a kubelet touches a pool's label or taint, or a pool's taint is removed while its label stays.
pub(crate) fn judge(
    rules: &Rules,
    user: &User<'_>,
    old: Option<&Node<'_>>,
    new: &Node<'_>,
) -> Result<(), Denial> {
    if is_kubelet(user) {
        return judge_kubelet(rules, old, new);
    }
    old.map_or(Ok(()), |old| judge_taints(rules, old, new))
}

/// A taint of a pool stays as long as the node has the label of the same key and value. That holds for Croft, too, which
/// never removes one.
fn judge_taints(rules: &Rules, old: &Node<'_>, new: &Node<'_>) -> Result<(), Denial> {
    let stays = |taint: &&NodeTaint<'_>| {
        rules.key(&taint.key).is_some() && new.metadata.labels.get(&taint.key) == Some(&taint.value)
    };
    let kept = |taint: &NodeTaint<'_>| {
        let same =
            |t: &NodeTaint<'_>| (&t.key, &t.value, &t.effect) == (&taint.key, &taint.value, &taint.effect);
        new.spec.taints.iter().any(same)
    };
    let removed = old.spec.taints.iter().filter(stays).find(|taint| !kept(taint));
    removed.map_or(Ok(()), |taint| {
        let label = format!("{}={}", taint.key, taint.value);
        Err(Denial::pool_taint(&new.metadata.name, &format!("{label}:{}", taint.effect), &label))
    })
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
fn judge_kubelet(rules: &Rules, old: Option<&Node<'_>>, new: &Node<'_>) -> Result<(), Denial> {
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

/// What Croft has to write on a node that it doesn't make, all of it in one patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// The value of [`MARK_KEY`]; `None` takes it off, since the node has left the pool.
    pub mark: Option<String>,
    /// Taints of the pool that the node lacks.
    pub taints: Vec<Taint>,
}

/// The pool with provisioner None or Karpenter that a node is in by the pool's own label.
#[must_use]
pub fn own_pool<'r>(rules: &'r Rules, node: &model::Node) -> Option<&'r PoolRule> {
    let labelled = node.labels.iter().filter_map(|(key, value)| rules.by_label(key, value));
    let mut pools = labelled.filter_map(|id| rules.pool(id));
    pools.find(|pool| {
        pool.provisioner != Provisioner::Croft
            && node.labels.get(&*pool.key).map(String::as_str) == Some(&*pool.value)
    })
}

/// What a node lacks of what its pool's nodes carry; `None` if it lacks nothing. Only of nodes of pools with provisioner
/// None or Karpenter, which the pool's own label puts into the pool.
#[must_use]
pub fn upkeep(rules: &Rules, node: &model::Node) -> Option<Upkeep> {
    let mark = node.labels.get(MARK_KEY);
    let marked = mark.and_then(|mark| rules.by_label(MARK_KEY, mark));
    let labelled: BTreeSet<_> = node.labels.iter().filter_map(|(k, v)| rules.by_label(k, v)).collect();
    let mut pools = labelled.iter().filter_map(|id| rules.pool(*id));
    let (Some(pool), None) = (pools.next(), pools.next()) else { return None };
    if pool.provisioner == Provisioner::Croft {
        return None;
    }
    if own_pool(rules, node).is_none() {
        // Only the mark, which Croft wrote, holds it in the pool.
        return Some(Upkeep { mark: None, taints: Vec::new() });
    }
    let taints = missing_taints(pool, node);
    (marked != Some(pool.id) || !taints.is_empty())
        .then(|| Upkeep { mark: Some(pool.mark().to_owned()), taints })
}

fn missing_taints(pool: &PoolRule, node: &model::Node) -> Vec<Taint> {
    let wanted = pool.effects.iter().map(|effect| Taint {
        key: pool.key.to_string(),
        value: pool.value.to_string(),
        effect,
    });
    wanted.filter(|taint| !node.taints.contains(taint)).collect()
}
