//! State that several solves of one cluster share: everything that depends neither on the pods to place nor on the nodes
//! left out.
//!
//! The consolidation search solves the same cluster thousands of times. Each entry is computed on first use, so that
//! a single solve pays for nothing that it doesn't use.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::{
    demand::NodeNeeds,
    existing::room::Room,
    ids::NodeIx,
    index_vec::IndexVec,
    packing::offering_table::Table,
    state::{attachments::Dimension, catalog_index::OfferSet, cluster::Cluster, interner::Sym},
};

/// The properties that tell tables of room and price apart.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableKey {
    /// Address of the catalogue.
    pub(crate) catalog: usize,
    pub(crate) dims: Vec<Dimension>,
    /// Requests of DaemonSets, by dimension.
    pub(crate) daemons: Vec<i64>,
}

/// The properties that tell partitions of catalogues by domain apart.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct DomainOffersKey {
    /// Address of the catalogue.
    pub(crate) catalog: usize,
    pub(crate) keys: Vec<Sym>,
    /// The variant's own values of `keys`.
    pub(crate) own: Vec<Option<Sym>>,
}

/// The offerings that have the same values of some keys.
#[derive(Debug)]
pub(crate) struct DomainOffers {
    /// One per key.
    pub(crate) values: Vec<Option<Sym>>,
    pub(crate) offers: OfferSet,
}

/// Shared by solves of one cluster state whose options differ only in effort and nodes left out.
#[derive(Debug, Default)]
pub(crate) struct SolveCache {
    /// Room and price tables of catalogues.
    pub(crate) tables: Mutex<FxHashMap<TableKey, Arc<Table>>>,
    /// Catalogues by the domains of their offerings.
    pub(crate) domain_offers: Mutex<FxHashMap<DomainOffersKey, Arc<[DomainOffers]>>>,
    suitable: Mutex<FxHashMap<NodeNeeds, Arc<[NodeIx]>>>,
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
    pub(crate) fn suitable(&self, needs: NodeNeeds, find: impl FnOnce() -> Arc<[NodeIx]>) -> Arc<[NodeIx]> {
        let known = self.suitable.lock().unwrap_or_else(PoisonError::into_inner).get(&needs).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            let mut known = self.suitable.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(needs, Arc::clone(&found));
            found
        })
    }
}

fn rooms(cluster: &Cluster) -> IndexVec<NodeIx, OnceLock<Room>> {
    cluster.nodes.iter().map(|_| OnceLock::new()).collect()
}
