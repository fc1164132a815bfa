//! Free resources of existing and coming nodes, before and while pods are planned onto them.

use crate::{
    demand::{Class, ClassPods},
    ids::{ClassIx, NodeIx},
    index_vec::IndexVec,
    state::{
        cluster::Cluster,
        interner::NamespacedName,
        pod_shape::{Shape, ShapeId},
        requests::{Port, ResourceId, amount},
        taint,
    },
};

/// Free resources of a node before the plan.
#[derive(Debug)]
pub(crate) struct Room {
    pub(super) free: IndexVec<ResourceId, i64>,
    ports: Vec<Port>,
    claims: Vec<NamespacedName>,
}

/// Remainder of a node while pods are planned onto it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) node: NodeIx,
    pub(super) free: IndexVec<ResourceId, i64>,
    pub(super) ports: Vec<Port>,
    pub(super) claims: Vec<NamespacedName>,
    pub(crate) content: Vec<ClassPods>,
}

impl Room {
    pub(crate) fn new(cluster: &Cluster, node: NodeIx) -> Self {
        let slot = &cluster.nodes[node];
        let mut free = IndexVec::filled(0i64, cluster.tables.resources.len());
        if let Some(info) = &slot.info {
            for (id, value) in &info.allocatable {
                if let Some(f) = free.find_mut(*id) {
                    *f = *value;
                }
            }
        }
        for (id, f) in free.enumerate_mut() {
            *f = f.saturating_sub(slot.used(id));
        }
        let mut ports = slot.ports.clone();
        for (key, daemon) in &cluster.daemons {
            if slot.daemons.contains(key) || !may_run_daemon(cluster, daemon.shape, node) {
                continue;
            }
            let shape = cluster.tables.shapes.get(daemon.shape);
            for (id, size) in &shape.requests {
                if let Some(f) = free.find_mut(*id) {
                    *f = f.saturating_sub(*size);
                }
            }
            ports.extend(&shape.ports);
        }
        if let Some(pods) = free.find_mut(ResourceId::PODS) {
            *pods = (*pods).max(0);
        }
        Self { free, ports, claims: slot.claims.clone() }
    }
}

impl Place {
    /// A node onto which nothing is planned.
    pub(crate) const fn bare(node: NodeIx) -> Self {
        Self { node, free: IndexVec::new(), ports: Vec::new(), claims: Vec::new(), content: Vec::new() }
    }

    pub(super) fn new(node: NodeIx, room: &Room) -> Self {
        let Room { free, ports, claims } = room;
        Self { node, free: free.clone(), ports: ports.clone(), claims: claims.clone(), content: Vec::new() }
    }

    /// Plans `count` pods of a class onto the node.
    pub(super) fn take(&mut self, number: ClassIx, class: &Class, shape: &Shape, count: u32) {
        for (id, size) in &shape.requests {
            if let Some(free) = self.free.find_mut(*id) {
                *free -= size.saturating_mul(i64::from(count));
            }
        }
        self.ports.extend(&shape.ports);
        self.claims.extend(&class.claims);
        match self.content.iter_mut().find(|pods| pods.class == number) {
            Some(pods) => pods.count += count,
            None => self.content.push(ClassPods { class: number, count }),
        }
    }
}

/// True if a DaemonSet's pod runs on `node`, now or once there is room. One that asks for more than the node has never does.
fn may_run_daemon(cluster: &Cluster, shape: ShapeId, node: NodeIx) -> bool {
    let Some(slot) = cluster.nodes.find(node) else { return false };
    let Some(info) = &slot.info else { return false };
    let tables = &cluster.tables;
    let shape = tables.shapes.get(shape);
    shape.reqs.iter().all(|r| tables.reqs.get(*r).matches(&tables.symbols, &info.labels, Some(slot.name)))
        && taint::untolerated(tables.tolerations.get(shape.tolerations), &info.taints).is_none()
        && shape.requests.iter().all(|(id, size)| *size <= amount(&info.allocatable, *id))
}
