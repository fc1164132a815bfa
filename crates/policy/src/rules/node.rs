//! Writes of Nodes by kubelets and users, and what the controller writes on nodes that Croft doesn't launch.
//!
//! The webhook evaluates them offline only (`croft admit`); in a cluster the policies of `policies/nodes.rs` do.

use std::collections::BTreeSet;

use crate::{
    definitions::{POOL_NAME_LABEL, UNREGISTERED_LABEL, UNREGISTERED_TAINT},
    denial::Denial,
    request::{
        review::User,
        view::{Node, NodeTaint},
    },
    tenancy::{
        declarations::{Declarations, DeclaredPool},
        model::{self, Provisioner},
        taint::Taint,
    },
};

/// Prefix of the labels that NodeRestriction keeps from kubelets: only Croft or an operator labels nodes with such a
/// key.
pub(crate) const RESTRICTED_PREFIX: &str = "node-restriction.kubernetes.io/";

/// True if `user` is a kubelet.
fn is_kubelet(user: &User<'_>) -> bool {
    user.username.starts_with("system:node:") || user.groups.iter().any(|g| g == "system:nodes")
}

/// Checks a write of a Node by `user`, from `old` if it exists. A node that is being deleted is no exception, since
/// kube-scheduler goes on binding pods to it.
///
/// # Errors
/// If a kubelet changes the label or taint of a pool, or those of a node that has just registered, or the taint of a pool is removed
/// while its label stays.
pub(crate) fn check(
    declarations: &Declarations,
    user: &User<'_>,
    old: Option<&Node<'_>>,
    new: &Node<'_>,
) -> Result<(), Denial> {
    if is_kubelet(user) {
        return check_kubelet(declarations, old, new);
    }
    old.map_or(Ok(()), |old| check_taints(declarations, old, new))
}

/// Checks that the taint of a pool stays while the node has the label of the same key and value. Croft itself never
/// removes such a taint.
fn check_taints(declarations: &Declarations, old: &Node<'_>, new: &Node<'_>) -> Result<(), Denial> {
    let stays = |taint: &&NodeTaint<'_>| {
        declarations.key(&taint.key).is_some() && new.metadata.labels.get(&taint.key) == Some(&taint.value)
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

/// True if a kubelet may register its node with the label `key`=`value`, where `key` is the key of a pool.
#[must_use]
pub fn may_register(declarations: &Declarations, key: &str, value: &str) -> bool {
    let Some(of_key) = declarations.key(key) else { return true };
    if key.starts_with(RESTRICTED_PREFIX) {
        return false;
    }
    let launched_elsewhere = |id| declarations.pool(id).is_some_and(|p| p.provisioner != Provisioner::Croft);
    match of_key.pool(value) {
        Some(pool) => launched_elsewhere(pool),
        // No pool has this value yet. A kubelet may write it if Croft labels the nodes of no pool of this key.
        None => !of_key.awaits_croft() && of_key.pools().iter().all(|id| launched_elsewhere(*id)),
    }
}

/// Checks a kubelet's write of its Node, from `old` if it exists.
fn check_kubelet(declarations: &Declarations, old: Option<&Node<'_>>, new: &Node<'_>) -> Result<(), Denial> {
    let name = &new.metadata.name;
    let Some(old) = old else {
        let refused = new.metadata.labels.iter().find(|(key, value)| !may_register(declarations, key, value));
        return refused.map_or(Ok(()), |(key, value)| Err(Denial::kubelet_label(name, key, value, true)));
    };
    let (before, after) = (&old.metadata.labels, &new.metadata.labels);
    let written = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    let removed = before.iter().filter(|(key, _)| after.get(key).is_none());
    // Until the controller has labelled the node, the starting label stands in for the pool's: pods that tolerate everything
    // stay off the node by either.
    let closes = |key: &str| declarations.key(key).is_some() || key == UNREGISTERED_LABEL;
    if let Some((key, value)) = written.chain(removed).find(|(key, _)| closes(key)) {
        return Err(Denial::kubelet_label(name, key, value, false));
    }
    let (before, after) = (pool_taints(declarations, old), pool_taints(declarations, new));
    let changed =
        after.iter().find(|t| !before.contains(t)).or_else(|| before.iter().find(|t| !after.contains(t)));
    changed.map_or(Ok(()), |taint| Err(Denial::kubelet_taint(name, &taint.key)))
}

fn pool_taints<'n, 'a>(declarations: &Declarations, node: &'n Node<'a>) -> Vec<&'n NodeTaint<'a>> {
    let closes = |key: &str| declarations.key(key).is_some() || key == UNREGISTERED_TAINT;
    node.spec.taints.iter().filter(|t| closes(&t.key)).collect()
}

/// The metadata that Croft writes, in one patch, on a node that it didn't launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRepair {
    /// The value of [`POOL_NAME_LABEL`]; `None` removes the label, since the node has left the pool.
    pub pool_name: Option<String>,
    /// Taints of the pool that the node lacks.
    pub taints: Vec<Taint>,
    /// The node carries [`UNREGISTERED_LABEL`], by which pods stay off it until its pool-name label is there.
    pub is_starting: bool,
}

/// The pool with provisioner None or Karpenter that a node is in by the pool's own label.
#[must_use]
pub fn own_pool<'r>(declarations: &'r Declarations, node: &model::Node) -> Option<&'r DeclaredPool> {
    let labelled = node.labels.iter().filter_map(|(key, value)| declarations.pool_by_label(key, value));
    let mut pools = labelled.filter_map(|id| declarations.pool(id));
    pools.find(|pool| {
        pool.provisioner != Provisioner::Croft
            && node.labels.get(&*pool.key).map(String::as_str) == Some(&*pool.value)
    })
}

/// The labels and taints of its pool that a node lacks; `None` if it lacks none.
///
/// Only for nodes of pools with provisioner None or Karpenter, which are in the pool by the pool's own label.
#[must_use]
pub fn repair(declarations: &Declarations, node: &model::Node) -> Option<NodeRepair> {
    let pool_name = node.labels.get(POOL_NAME_LABEL);
    let named = pool_name.and_then(|name| declarations.pool_by_label(POOL_NAME_LABEL, name));
    let labelled: BTreeSet<_> =
        node.labels.iter().filter_map(|(k, v)| declarations.pool_by_label(k, v)).collect();
    let mut pools = labelled.iter().filter_map(|id| declarations.pool(*id));
    let (Some(pool), None) = (pools.next(), pools.next()) else { return None };
    if pool.provisioner == Provisioner::Croft {
        return None;
    }
    let is_starting = node.labels.contains_key(UNREGISTERED_LABEL);
    if own_pool(declarations, node).is_none() {
        // Only the pool-name label, which Croft wrote, holds the node in the pool.
        return Some(NodeRepair { pool_name: None, taints: Vec::new(), is_starting });
    }
    let taints = missing_taints(pool, node);
    (named != Some(pool.id) || !taints.is_empty() || is_starting).then(|| NodeRepair {
        pool_name: Some(pool.pool_name_label().to_owned()),
        taints,
        is_starting,
    })
}

fn missing_taints(pool: &DeclaredPool, node: &model::Node) -> Vec<Taint> {
    let wanted = pool.effects.iter().map(|effect| Taint {
        key: pool.key.to_string(),
        value: pool.value.to_string(),
        effect,
    });
    wanted.filter(|taint| !node.taints.contains(taint)).collect()
}
