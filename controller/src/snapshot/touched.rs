//! What has changed since it was last looked at: a round of decisions costs that, and not what there is.
//!
//! A claim is restless from whatever touches it (itself, its node, the pods there or meant for it) until a round has
//! found that nothing is left to do about it. A pool has a number that grows with whatever touches one of its claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{NodeClaim, TenantPool, convert::scheduler::pool_name_label};
use croft_scheduler::Price;

use super::{NodeView, Snapshot};
use crate::names;

/// How often things were touched.
#[derive(Debug, Default)]
pub(super) struct Touched {
    count: u64,
    /// The count when what all pools depend on was touched last.
    all: u64,
    pools: BTreeMap<String, u64>,
}

impl Snapshot {
    /// Claims that a round has to look at, in order of their names.
    pub fn restless(&self) -> impl Iterator<Item = (&String, &Arc<NodeClaim>)> {
        self.restless.iter().filter_map(|name| self.claims.get_key_value(name))
    }

    /// Lets those claims rest that `is_quiet` says nothing is left to do about until something touches them.
    pub fn settle(&mut self, is_quiet: impl Fn(&Self, &str, &Arc<NodeClaim>) -> bool) {
        let mut restless = std::mem::take(&mut self.restless);
        restless.retain(|name| self.claims.get(name).is_some_and(|claim| !is_quiet(self, name, claim)));
        self.restless = restless;
    }

    /// Claims of a pool, in order of their names.
    pub fn claims_of_pool(&self, pool: &str) -> impl Iterator<Item = (&String, &Arc<NodeClaim>)> {
        self.claims_of_pool.get(pool).into_iter().flatten().filter_map(|name| self.claims.get_key_value(name))
    }

    /// Nodes that say that they are of a pool, in order of their names.
    pub fn nodes_of_pool(&self, pool: &str) -> impl Iterator<Item = (&String, &NodeView)> {
        let label = self.pools.get(pool).map(|pool| pool_name_label(pool));
        let nodes = self.nodes_of_pool.get(label.as_deref().unwrap_or(pool));
        nodes.into_iter().flatten().filter_map(|name| self.nodes.get_key_value(name))
    }

    /// Grows with whatever touches the pool, its claims, their nodes, or the pods there.
    #[must_use]
    pub fn touched(&self, pool: &str) -> u64 {
        self.touched.all.max(self.touched.pools.get(pool).copied().unwrap_or(0))
    }

    pub(super) fn touch_all(&mut self) {
        self.touched.count += 1;
        self.touched.all = self.touched.count;
    }

    pub(super) fn touch_pool(&mut self, pool: &str) {
        self.touched.count += 1;
        match self.touched.pools.get_mut(pool) {
            Some(count) => *count = self.touched.count,
            None => {
                self.touched.pools.insert(pool.to_owned(), self.touched.count);
            }
        }
    }

    pub(super) fn forget_touched(&mut self, pool: &str) {
        self.touched.pools.remove(pool);
    }

    pub(super) fn touch_claim(&mut self, name: &str) {
        let Some(pool) = self.claims.get(name).map(|claim| claim.spec.pool.clone()) else { return };
        self.touch_pool(&pool);
        if !self.restless.contains(name) {
            self.restless.insert(name.to_owned());
        }
    }

    pub(super) fn touch_node(&mut self, node: &str) {
        match self.claims_of_node.get(node) {
            Some(claims) => {
                for claim in claims.clone() {
                    self.touch_claim(&claim);
                }
            }
            // One that no claim has counts for the pool that it names.
            None => {
                let label = self.nodes.get(node).and_then(|node| node.labels.get(names::POOL_LABEL));
                let pool = label.and_then(|label| self.pool_labelled(label)).cloned();
                if let Some(pool) = pool {
                    self.touch_pool(&pool);
                }
            }
        }
    }

    /// The pool whose nodes carry this pool-name label: nearly always the one of that name.
    fn pool_labelled(&self, label: &str) -> Option<&String> {
        let is_its = |(_, pool): &(&String, &Arc<TenantPool>)| pool_name_label(pool) == label;
        let named = self.pools.get_key_value(label).filter(is_its);
        named.or_else(|| self.pools.iter().find(is_its)).map(|(name, _)| name)
    }

    /// Whatever is known of any claim may be otherwise.
    pub fn touch_claims(&mut self) {
        self.restless = self.claims.keys().cloned().collect();
    }
}

/// Puts `member` from one set to another.
pub(super) fn change_set(
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

/// What a claim's machine costs, if somebody knows.
#[must_use]
pub fn price(claim: &NodeClaim) -> Option<Price> {
    claim.status.as_ref()?.price_per_hour.as_deref()?.parse().ok()
}
