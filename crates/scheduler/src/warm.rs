//! What several solves of one cluster share: what depends neither on the pods to place nor on the nodes left out.
//!
//! The search for a cheaper cluster solves the same one thousands of times. Whatever is here is made when it is first
//! asked for, so that a single solve pays for nothing that it doesn't use.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::{
    block::{Parts, PartsKey, TableKey},
    cluster::{Cluster, NodeIx},
    existing::{Needs, Room},
    pack::Table,
};

/// Shared by solves of one state of a cluster, whose options differ in effort and nodes left out alone.
#[derive(Debug, Default)]
pub(crate) struct Warm {
    /// Rooms and prices of catalogues.
    pub(crate) tables: Mutex<FxHashMap<TableKey, Arc<Table>>>,
    /// Catalogues by the domains of their offerings.
    pub(crate) parts: Mutex<FxHashMap<PartsKey, Arc<Parts>>>,
    suitable: Mutex<FxHashMap<Needs, Arc<[NodeIx]>>>,
    rooms: Vec<OnceLock<Room>>,
}

impl Warm {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { rooms: rooms(cluster), ..Self::default() }
    }

    /// Forgets what a change of nodes or pods makes wrong, and keeps what depends on catalogues alone.
    pub(crate) fn changed(&mut self, cluster: &Cluster) {
        self.suitable = Mutex::default();
        self.rooms = rooms(cluster);
    }

    /// What is free on a node before anything is planned.
    pub(crate) fn room(&self, cluster: &Cluster, node: NodeIx) -> Option<&Room> {
        self.rooms.get(node as usize).map(|room| room.get_or_init(|| Room::new(cluster, node)))
    }

    /// The nodes that suit `needs`, as `find` says if nobody has asked before.
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

fn rooms(cluster: &Cluster) -> Vec<OnceLock<Room>> {
    cluster.nodes.iter().map(|_| OnceLock::new()).collect()
}
