//! State that several solves of one cluster share: everything that depends neither on the pods to place nor on the nodes
//! left out.
//!
//! The consolidation search solves the same cluster thousands of times. Each entry is computed on first use, so that
//! a single solve pays for nothing that it doesn't use.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::{
    existing::room::{Needs, Room},
    ids::NodeIx,
    index_vec::IndexVec,
    model::bit_set::BitSet,
    packing::offering_table::Table,
    state::{attachments::Dimension, cluster::Cluster, interner::Sym},
};

/// Catalogue, dimensions, and requests of DaemonSets.
pub(crate) type TableKey = (usize, Vec<Dimension>, Vec<i64>);
/// Catalogue, keys, and the variant's own values of them.
pub(crate) type PartsKey = (usize, Vec<Sym>, Vec<Option<Sym>>);
/// Offerings by the values of some keys.
pub(crate) type Parts = Vec<(Vec<Option<Sym>>, BitSet)>;

/// Shared by solves of one cluster state whose options differ only in effort and nodes left out.
#[derive(Debug, Default)]
pub(crate) struct SolveCache {
    /// Room and price tables of catalogues.
    pub(crate) tables: Mutex<FxHashMap<TableKey, Arc<Table>>>,
    /// Catalogues by the domains of their offerings.
    pub(crate) parts: Mutex<FxHashMap<PartsKey, Arc<Parts>>>,
    suitable: Mutex<FxHashMap<Needs, Arc<[NodeIx]>>>,
    rooms: IndexVec<NodeIx, OnceLock<Room>>,
}

impl SolveCache {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { rooms: rooms(cluster), ..Self::default() }
    }

    /// Drops what a change of nodes or pods invalidates, and keeps what depends on catalogues alone.
    pub(crate) fn changed(&mut self, cluster: &Cluster) {
        self.suitable = Mutex::default();
        self.rooms = rooms(cluster);
    }

    /// Free resources of a node before the plan.
    pub(crate) fn room(&self, cluster: &Cluster, node: NodeIx) -> Option<&Room> {
        self.rooms.find(node).map(|room| room.get_or_init(|| Room::new(cluster, node)))
    }

    /// The nodes that suit `needs`, computed by `find` on first use.
    pub(crate) fn suitable(&self, needs: &Needs, find: impl FnOnce() -> Arc<[NodeIx]>) -> Arc<[NodeIx]> {
        let known = self.suitable.lock().unwrap_or_else(PoisonError::into_inner).get(needs).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            let mut known = self.suitable.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(needs.clone(), Arc::clone(&found));
            found
        })
    }
}

fn rooms(cluster: &Cluster) -> IndexVec<NodeIx, OnceLock<Room>> {
    cluster.nodes.iter().map(|_| OnceLock::new()).collect()
}
