//! Tracks changes since the last pass: a pass costs as much as has changed, not as much as exists.
//!
//! A claim is dirty from any change of itself, its node, or the pods bound or nominated to the node, until a pass finds
//! it settled. A pool has a version that grows with any change of one of its claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{NodeClaim, TenantPool, convert::scheduler::pool_name_label};

use super::{snapshot::Snapshot, views::NodeView};
use crate::definitions::keys;

impl Snapshot {
    /// Claims that a pass must look at, in order of their names.
    pub fn dirty_claims(&self) -> impl Iterator<Item = (&String, &Arc<NodeClaim>)> {
        self.dirty_claims.iter().filter_map(|name| self.claims.get_key_value(name))
    }

    /// Removes the claims that `is_settled` from the dirty set.
    pub fn mark_clean(&mut self, is_settled: impl Fn(&Self, &str, &Arc<NodeClaim>) -> bool) {
        let mut dirty = std::mem::take(&mut self.dirty_claims);
        dirty.retain(|name| self.claims.get(name).is_some_and(|claim| !is_settled(self, name, claim)));
        self.dirty_claims = dirty;
    }

    /// Claims of a pool, in order of their names.
    pub fn claims_of_pool(&self, pool: &str) -> impl Iterator<Item = (&String, &Arc<NodeClaim>)> {
        self.claims_of_pool.get(pool).into_iter().flatten().filter_map(|name| self.claims.get_key_value(name))
    }

    /// Nodes with the pool-name label of a pool, in order of their names.
    pub fn nodes_of_pool(&self, pool: &str) -> impl Iterator<Item = (&String, &NodeView)> {
        let label = self.pools.get(pool).map(|pool| pool_name_label(pool));
        let nodes = self.nodes_of_pool.get(label.as_deref().unwrap_or(pool));
        nodes.into_iter().flatten().filter_map(|name| self.nodes.get_key_value(name))
    }

    /// Grows with any change of the pool, its claims, their nodes, or the pods there.
    #[must_use]
    pub fn pool_version(&self, pool: &str) -> u64 {
        self.pool_versions.get(pool)
    }

    /// Marks every claim dirty.
    pub fn mark_all_claims_dirty(&mut self) {
        self.dirty_claims = self.claims.keys().cloned().collect();
    }

    pub(super) fn mark_claim_dirty(&mut self, name: &str) {
        let Some(pool) = self.claims.get(name).map(|claim| claim.spec.pool.clone()) else { return };
        self.pool_versions.bump(&pool);
        if !self.dirty_claims.contains(name) {
            self.dirty_claims.insert(name.to_owned());
        }
    }

    pub(super) fn mark_node_dirty(&mut self, node: &str) {
        match self.claims_of_node.get(node) {
            Some(claims) => {
                for claim in claims.clone() {
                    self.mark_claim_dirty(&claim);
                }
            }
            // A node without a claim counts for the pool of its pool-name label.
            None => {
                if let Some(pool) = self.pool_of_node(node).map(str::to_owned) {
                    self.pool_versions.bump(&pool);
                }
            }
        }
    }

    /// The pool of a node: its claim's, else the one that its pool-name label names.
    #[must_use]
    pub fn pool_of_node(&self, node: &str) -> Option<&str> {
        if let Some(claim) = self.claim_of_node(node) {
            return Some(&claim.spec.pool);
        }
        let label = self.nodes.get(node)?.labels.get(keys::POOL_NAME_LABEL)?;
        self.pool_labelled(label).map(String::as_str)
    }

    /// The pool whose nodes carry this pool-name label: nearly always the pool of that name.
    fn pool_labelled(&self, label: &str) -> Option<&String> {
        let is_its = |(_, pool): &(&String, &Arc<TenantPool>)| pool_name_label(pool) == label;
        let named = self.pools.get_key_value(label).filter(is_its);
        named.or_else(|| self.pools.iter().find(is_its)).map(|(name, _)| name)
    }
}

/// Moves `member` from one set to another.
pub(super) fn move_between_sets(
    sets: &mut BTreeMap<String, BTreeSet<String>>,
    member: &str,
    from: Option<&String>,
    to: Option<&String>,
) {
    if from == to {
        return;
    }
    if let Some((from, set)) = from.and_then(|from| Some((from, sets.get_mut(from)?))) {
        set.remove(member);
        if set.is_empty() {
            sets.remove(from);
        }
    }
    if let Some(to) = to {
        sets.entry(to.clone()).or_default().insert(member.to_owned());
    }
}
