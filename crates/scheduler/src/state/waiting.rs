//! The pods that wait, by the pools that they may go to.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use rustc_hash::{FxHashMap, FxHasher};

use crate::state::{
    cluster::Cluster,
    pod_shape::{NodeReqId, ShapeId},
    pool::PoolRec,
    taint,
};

/// The pods that wait for a place, by what decides where they may go.
#[derive(Clone, Debug, Default)]
pub struct Waiting(FxHashMap<ShapeId, u64>);

impl Cluster {
    /// The pods that wait for a place now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        let mut shapes: FxHashMap<ShapeId, FxHasher> = FxHashMap::default();
        for (rank, ix) in &self.demand {
            let Some(Some(rec)) = self.pods.find(*ix) else { continue };
            (rank.created, &rec.key).hash(shapes.entry(rec.shape).or_default());
        }
        Waiting(shapes.into_iter().map(|(shape, hasher)| (shape, hasher.finish())).collect())
    }
}

impl Cluster {
    /// The pods that wait for a place now, by the pools whose labels and taints let them in: the names of the pools, and a
    /// number that says which pods these are.
    #[must_use]
    pub fn waiting_by_pools(&self) -> BTreeMap<Vec<String>, u64> {
        let mut groups: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (shape, hash) in self.waiting().0 {
            let sum = groups.entry(self.pools_of(shape)).or_default();
            // In whatever order the map has them.
            *sum = sum.wrapping_add(hash ^ u64::from(shape));
        }
        groups
    }

    /// A copy in which only those pods wait whose pools, as [`Cluster::waiting_by_pools`] names them, `keep` approves.
    #[must_use]
    pub fn with_waiting(&self, keep: impl Fn(&[String]) -> bool) -> Self {
        let mut known: FxHashMap<ShapeId, bool> = FxHashMap::default();
        let mut copy = self.clone();
        for ix in self.demand.values() {
            let Some(Some(rec)) = self.pods.find(*ix) else { continue };
            if !*known.entry(rec.shape).or_insert_with(|| keep(&self.pools_of(rec.shape))) {
                copy.drop_pod(*ix);
            }
        }
        copy
    }

    fn pools_of(&self, shape: ShapeId) -> Vec<String> {
        let pools = self.pools.iter().filter(|(_, templates)| self.may_enter_pool(shape, templates));
        pools.map(|(name, _)| name.clone()).collect()
    }

    /// True if the labels and the taints of one of a pool's templates let pods of this shape in.
    fn may_enter_pool(&self, shape: ShapeId, templates: &[PoolRec]) -> bool {
        let tables = &self.tables;
        let shape = tables.shapes.get(shape);
        let req = |r: &NodeReqId| tables.reqs.get(*r);
        templates.iter().any(|rec| {
            taint::untolerated(tables.tolerations.get(shape.tolerations), &rec.taints).is_none()
                && rec.variants.iter().any(|variant| {
                    !shape.reqs.iter().any(|r| variant.rejects(&tables.symbols, &self.keys, req(r)))
                })
        })
    }
}

impl Waiting {
    /// A number that says which of them the labels and the taints of a pool let in; none if there is no such pod.
    #[must_use]
    pub fn for_pool(&self, cluster: &Cluster, pool: &str) -> Option<u64> {
        let templates = cluster.pools.get(pool)?;
        let own = self.0.iter().filter(|(shape, _)| cluster.may_enter_pool(**shape, templates));
        // In whatever order the map has them.
        own.map(|(shape, hash)| hash ^ u64::from(*shape)).reduce(u64::wrapping_add)
    }
}
