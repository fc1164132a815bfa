//! Free resources of existing and coming nodes, before and while pods are planned onto them.

use std::sync::Arc;

use crate::state::{
    cluster::{Cluster, NodeIx},
    interner::Sym,
    requests::{Port, RES_PODS},
    taint,
};

/// Free resources of a node before the plan.
#[derive(Debug)]
pub(crate) struct Room {
    /// By resource id.
    pub(super) free: Vec<i64>,
    ports: Vec<Port>,
    claims: Vec<(Sym, Sym)>,
}

/// Remainder of a node while pods are planned onto it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) node: NodeIx,
    /// By resource id.
    pub(super) free: Vec<i64>,
    pub(super) ports: Vec<Port>,
    pub(super) claims: Vec<(Sym, Sym)>,
    /// (class, count).
    pub(crate) content: Vec<(usize, u32)>,
}

/// Ids of requirements and of tolerations.
pub(crate) type Needs = (Arc<[u32]>, u32);

impl Room {
    #[expect(clippy::indexing_slicing, reason = "node numbers come from the cluster")]
    pub(crate) fn new(cluster: &Cluster, node: NodeIx) -> Self {
        let slot = &cluster.nodes[node as usize];
        let mut free = vec![0i64; cluster.tables.resources.len()];
        if let Some(info) = &slot.info {
            for (id, value) in &info.allocatable {
                if let Some(f) = free.get_mut(*id as usize) {
                    *f = *value;
                }
            }
        }
        for (id, f) in free.iter_mut().enumerate() {
            *f = f.saturating_sub(slot.used(u32::try_from(id).unwrap_or(u32::MAX)));
        }
        let mut ports = slot.ports.clone();
        for (key, daemon) in &cluster.daemons {
            if slot.daemons.contains(key) || !daemon_runs(cluster, daemon.shape, node) {
                continue;
            }
            let shape = cluster.tables.shapes.get(daemon.shape);
            for (id, size) in &shape.requests {
                if let Some(f) = free.get_mut(*id as usize) {
                    *f = f.saturating_sub(*size);
                }
            }
            ports.extend(&shape.ports);
        }
        if free.get(RES_PODS as usize).is_some_and(|f| *f < 0) {
            free[RES_PODS as usize] = 0;
        }
        Self { free, ports, claims: slot.claims.clone() }
    }

    pub(super) fn holds(&self, requests: &[(u32, i64)]) -> bool {
        requests.iter().all(|(id, size)| self.free.get(*id as usize).copied().unwrap_or(0) >= *size)
    }
}

impl Place {
    pub(super) fn new(node: NodeIx, room: &Room) -> Self {
        let Room { free, ports, claims } = room;
        Self { node, free: free.clone(), ports: ports.clone(), claims: claims.clone(), content: Vec::new() }
    }
}

/// True if a DaemonSet's pod runs on `node`.
fn daemon_runs(cluster: &Cluster, shape: u32, node: NodeIx) -> bool {
    let Some(slot) = cluster.nodes.get(node as usize) else { return false };
    let Some(info) = &slot.info else { return false };
    let tables = &cluster.tables;
    let shape = tables.shapes.get(shape);
    shape.reqs.iter().all(|r| tables.reqs.get(*r).matches(&tables.symbols, &info.labels, Some(slot.name)))
        && taint::untolerated(tables.tolerations.get(shape.tolerations), &info.taints).is_none()
}
