//! What a pool's nodes are for its shares, and which of them may be removed without breaking one.

use std::collections::BTreeMap;

use crate::{
    ids::NodeIx,
    model::{
        catalog::CapacityType,
        plan::PlannedInstance,
        resources,
        share::{Balance, Share},
    },
    state::{
        cluster::Cluster,
        interner::label,
        node::NodeInfo,
        pool::PoolRec,
        requests::{ResourceId, amount},
    },
};

impl Cluster {
    /// The nodes of a pool without those that are gone or being deleted, divided by a share of it. `rec` is any of its templates.
    pub(crate) fn balance(&self, rec: &PoolRec, share: &Share, is_gone: &dyn Fn(NodeIx) -> bool) -> Balance {
        let mut balance = Balance::default();
        for node in self.by_label.get(&rec.label).into_iter().flatten() {
            let info = self.nodes.find(*node).and_then(|slot| slot.info.as_ref());
            if let Some(info) = info.filter(|info| !info.deleting && !is_gone(*node)) {
                balance.count(self.is_own(share, info), amount(&info.capacity, ResourceId::CPU), 1);
            }
        }
        balance
    }

    /// True for a node that counts as one of the share.
    fn is_own(&self, share: &Share, info: &NodeInfo) -> bool {
        let value = |key| label(&info.labels, key).map(|value| self.tables.symbols.text(value));
        let capacity_type = value(self.keys.capacity_type).and_then(CapacityType::parse);
        share.is_about(value(self.keys.template), capacity_type)
    }
}

/// Keeps removals of nodes within the shares of their pools. Each removal that it takes holds by itself, whichever of the others come
/// about: what one does for a share is not counted on by another.
#[derive(Clone, Debug, Default)]
pub struct ShareLedger {
    pools: BTreeMap<String, Vec<TrackedShare>>,
}

/// A share of a pool, and the nodes that the pool has for it after the removals so far.
#[derive(Clone, Debug)]
struct TrackedShare {
    share: Share,
    /// How far outside the share the pool was at first; zero for within.
    outside: i128,
    /// The pool's nodes after what is bad for the share of all removals that were taken.
    worst: Balance,
}

impl ShareLedger {
    /// Knows the shares of a pool from now on, as its nodes are without those for whose names `is_leaving` holds.
    pub fn observe(&mut self, cluster: &Cluster, pool: &str, is_leaving: &dyn Fn(&str) -> bool) {
        let Some(first) = cluster.pools.get(pool).and_then(|templates| templates.first()) else { return };
        if self.pools.contains_key(pool) || first.pool.shares.is_empty() {
            return;
        }
        let is_gone = |node: NodeIx| {
            cluster.nodes.find(node).is_some_and(|slot| is_leaving(cluster.tables.symbols.text(slot.name)))
        };
        let track = |share: &Share| {
            let balance = cluster.balance(first, share, &is_gone);
            TrackedShare { share: share.clone(), outside: share.bound.excess(balance).max(0), worst: balance }
        };
        self.pools.insert(pool.to_owned(), first.pool.shares.iter().map(track).collect());
    }

    /// Checks that removing `nodes` once `instances` are there leaves every known pool within its shares, or not further outside than
    /// it was at first.
    ///
    /// # Errors
    /// The share that it would break, in words.
    pub fn check(
        &self,
        cluster: &Cluster,
        nodes: &[&str],
        instances: &[PlannedInstance],
    ) -> Result<(), String> {
        for (pool, shares) in &self.pools {
            for TrackedShare { share, outside, worst } in shares {
                let change = change(cluster, pool, share, nodes, instances);
                if change != Balance::default() && share.bound.excess(worst.plus(change)) > *outside {
                    return Err(share.of_pool(pool));
                }
            }
        }
        Ok(())
    }

    /// Counts a removal that is going to be made.
    pub fn take(&mut self, cluster: &Cluster, nodes: &[&str], instances: &[PlannedInstance]) {
        for (pool, shares) in &mut self.pools {
            for TrackedShare { share, worst, .. } in shares {
                let change = change(cluster, pool, share, nodes, instances);
                *worst = worst.plus(share.bound.worse_part(change));
            }
        }
    }
}

/// How a pool's nodes change for a share of it.
fn change(
    cluster: &Cluster,
    pool: &str,
    share: &Share,
    nodes: &[&str],
    instances: &[PlannedInstance],
) -> Balance {
    let mut change = Balance::default();
    let Some(rec) = cluster.pools.get(pool).and_then(|templates| templates.first()) else { return change };
    for node in nodes.iter().filter_map(|node| cluster.find_node(node)) {
        let info = cluster.nodes.find(node).and_then(|slot| slot.info.as_ref());
        if let Some(info) = info.filter(|info| label(&info.labels, rec.label.0) == Some(rec.label.1)) {
            change.count(cluster.is_own(share, info), amount(&info.capacity, ResourceId::CPU), -1);
        }
    }
    for instance in instances.iter().filter(|instance| instance.pool == pool) {
        let is_own = share.is_about(Some(&instance.template), Some(instance.capacity_type));
        change.count(is_own, instance.capacity.get(resources::CPU), 1);
    }
    change
}
