//! Whom the pods that wait may concern.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::Cluster;
use crate::taint;

/// The pods that wait for a place, by what decides where they may go.
#[derive(Clone, Debug, Default)]
pub struct Waiting(FxHashMap<u32, u64>);

impl Cluster {
    /// The pods that wait for a place now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        let mut shapes: FxHashMap<u32, FxHasher> = FxHashMap::default();
        for (rank, ix) in &self.demand {
            let Some(Some(rec)) = self.pods.get(*ix as usize) else { continue };
            (rank.1, &rec.key).hash(shapes.entry(rec.shape).or_default());
        }
        Waiting(shapes.into_iter().map(|(shape, hasher)| (shape, hasher.finish())).collect())
    }
}

impl Waiting {
    /// A number that says which of them the labels and the taints of a pool let in; none if there is no such pod.
    #[must_use]
    pub fn for_pool(&self, cluster: &Cluster, pool: &str) -> Option<u64> {
        let rec = cluster.pools.get(pool)?;
        let tables = &cluster.tables;
        let enters = |shape: u32| {
            let shape = tables.shapes.get(shape);
            let req = |r: &u32| tables.reqs.get(*r);
            taint::untolerated(tables.tolerations.get(shape.tolerations), &rec.taints).is_none()
                && rec.variants.iter().any(|variant| {
                    !shape.reqs.iter().any(|r| variant.rejects(&tables.symbols, &cluster.keys, req(r)))
                })
        };
        let own = self.0.iter().filter(|(shape, _)| enters(**shape));
        // In whatever order the map has them.
        own.map(|(shape, hash)| hash ^ u64::from(*shape)).reduce(u64::wrapping_add)
    }
}
