//! Pods: demand, or running somewhere.

use std::{cmp::Reverse, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    ids::{NodeIx, PodIx},
    model::{error::InputError, plan::PodKey},
    state::{
        claim::Claim,
        cluster::Cluster,
        interner::{NamespacedName, Sym},
        pod_shape::{self, IdentId, Shape, ShapeId},
    },
};

/// A place in kube-scheduler's queue. The least is the first: fields are compared from first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueRank {
    pub(crate) priority: Reverse<i32>,
    /// In microseconds.
    pub(crate) created: i64,
    /// Makes the order of pods created at once the same in each run.
    pub(crate) arrival: u64,
}

/// A pod that is demand or that holds room on a node.
#[derive(Clone, Debug)]
pub(crate) struct PodRec {
    pub(crate) key: Arc<PodKey>,
    pub(crate) shape: ShapeId,
    pub(crate) ident: IdentId,
    pub(crate) priority: i32,
    /// In microseconds.
    pub(crate) created: i64,
    /// How many pods had come before it.
    pub(crate) arrival: u64,
    pub(crate) node: Option<NodeIx>,
    /// It isn't bound to `node`: a plan means it for that one.
    pub(crate) nominated: bool,
    /// The DaemonSet that owns it.
    pub(crate) daemon: Option<NamespacedName>,
    /// It mirrors a static pod of its kubelet.
    pub(crate) mirror: bool,
    /// It is being deleted, and another is in its place already, or none will be.
    pub(crate) leaving: bool,
    /// Its scheduler, if it isn't kube-scheduler's default profile.
    pub(crate) scheduler: Option<Box<str>>,
    /// While it is pending: the node that kube-scheduler has chosen for it, by `status.nominatedNodeName`.
    pub(crate) chosen: Option<Sym>,
}

impl PodRec {
    /// True for a pod that needs another place when its node is removed.
    pub(crate) fn is_movable(&self) -> bool {
        self.daemon.is_none() && !self.mirror && !self.leaving
    }

    pub(crate) fn rank(&self) -> QueueRank {
        let Self { priority, created, arrival, .. } = *self;
        QueueRank { priority: Reverse(priority), created, arrival }
    }
}

/// The annotation of a pod that mirrors a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Controllers that don't count a pod that is being deleted, and create another at once. That of a StatefulSet waits for its name.
const REPLACE_AT_ONCE: [&str; 3] = ["ReplicaSet", "ReplicationController", "Job"];
/// The scheduler of pods that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

impl Cluster {
    /// Takes in a pod, or its new state. Decides by itself whether it is demand (no node, not gated, not being
    /// deleted, not finished, not a DaemonSet's, of no ignored scheduler), holds room on a node, or doesn't count.
    ///
    /// # Errors
    /// A field that can't be read. The pod then doesn't count at all.
    pub fn upsert_pod(&mut self, pod: &Pod) -> Result<(), InputError> {
        self.tidy();
        let key = PodKey::new(
            pod.metadata.namespace.as_deref().unwrap_or("default"),
            pod.metadata.name.as_deref().unwrap_or_default(),
        );
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        let finished = matches!(phase, Some("Succeeded" | "Failed"));
        let node = spec.and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty());
        let controller = pod.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
        let owner = controller.filter(|o| o.kind == "DaemonSet");
        let deleted = pod.metadata.deletion_timestamp.is_some();
        let demand = node.is_none()
            && owner.is_none()
            && !deleted
            && spec.is_none_or(|s| s.scheduling_gates.as_ref().is_none_or(Vec::is_empty));
        let old = self.pod_numbers.get(&key).copied();
        let arrival = old.and_then(|ix| self.pods.find(ix)).and_then(Option::as_ref).map(|rec| rec.arrival);
        if let Some(ix) = old {
            self.drop_pod(ix);
        }
        if finished || (node.is_none() && !demand) {
            return Ok(());
        }
        let shape = pod_shape::compile(&mut self.tables, pod)?;
        let ident = pod_shape::ident(&mut self.tables, pod);
        let symbols = &mut self.tables.symbols;
        let daemon = owner
            .map(|o| NamespacedName { namespace: symbols.sym(&key.namespace), name: symbols.sym(&o.name) });
        let chosen = pod.status.as_ref().and_then(|s| s.nominated_node_name.as_deref());
        let chosen = chosen.filter(|name| node.is_none() && !name.is_empty()).map(|name| symbols.sym(name));
        let scheduler = spec.and_then(|s| s.scheduler_name.as_deref());
        let scheduler = scheduler.filter(|name| !name.is_empty() && *name != DEFAULT_SCHEDULER);
        let node = node.map(|name| symbols.sym(name)).map(|name| self.node_number(false, name));
        let created = pod.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_microsecond());
        let arrival = arrival.unwrap_or(self.arrivals);
        self.arrivals += 1;
        let rec = PodRec {
            key: Arc::new(key),
            shape,
            ident,
            priority: spec.and_then(|s| s.priority).unwrap_or(0),
            created,
            arrival,
            node,
            nominated: false,
            daemon,
            mirror: pod.metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR),
            leaving: deleted && controller.is_none_or(|o| REPLACE_AT_ONCE.contains(&o.kind.as_str())),
            scheduler: scheduler.map(Into::into),
            chosen,
        };
        self.add_pod(rec);
        Ok(())
    }

    /// Pending pods of these schedulers are no demand.
    pub fn ignore_schedulers<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.ignored_schedulers = names.into_iter().map(Into::into).collect();
        let waiting = self.pod_numbers.values().filter_map(|ix| {
            let rec = self.pods.find(*ix).and_then(Option::as_ref)?;
            (rec.node.is_none() && !self.is_ignored(rec)).then(|| (rec.rank(), *ix))
        });
        self.demand = waiting.collect();
    }

    fn is_ignored(&self, rec: &PodRec) -> bool {
        rec.scheduler.as_ref().is_some_and(|name| self.ignored_schedulers.contains(name))
    }

    /// Forgets a pod.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        if let Some(ix) = self.pod_numbers.get(&PodKey::new(namespace, name)).copied() {
            self.drop_pod(ix);
        }
    }

    /// Counts a waiting pod as running on `target`, a Node's name or, with `coming`, a NodeClaim's: an earlier
    /// plan means it for that one, so it is no demand any more. Holds until the pod is released, removed or taken
    /// in anew.
    pub fn nominate(&mut self, pod: &PodKey, target: &str, coming: bool) {
        self.renominate(pod, Some((target, coming)));
    }

    /// Makes a nominated pod demand again.
    pub fn release(&mut self, pod: &PodKey) {
        self.renominate(pod, None);
    }

    fn renominate(&mut self, pod: &PodKey, target: Option<(&str, bool)>) {
        let Some(ix) = self.pod_numbers.get(pod).copied() else { return };
        let held = |rec: &PodRec| rec.node.is_some() && !rec.nominated;
        if self.pods.find(ix).and_then(Option::as_ref).is_none_or(held) {
            return;
        }
        let Some(rec) = self.pods.find(ix).cloned().flatten() else { return };
        self.drop_pod(ix);
        let node = target.map(|(name, coming)| {
            let name = self.tables.symbols.sym(name);
            self.node_number(coming, name)
        });
        self.add_pod(PodRec { node, nominated: node.is_some(), ..rec });
    }

    /// Counts a pod, running or not, as planned for `target`: what a search for a cheaper cluster supposes.
    pub(crate) fn relocate(&mut self, pod: &PodKey, target: &str, coming: bool) {
        let Some(ix) = self.pod_numbers.get(pod).copied() else { return };
        let Some(rec) = self.pods.find(ix).cloned().flatten() else { return };
        self.drop_pod(ix);
        let name = self.tables.symbols.sym(target);
        let node = self.node_number(coming, name);
        self.add_pod(PodRec { node: Some(node), nominated: true, ..rec });
    }

    fn add_pod(&mut self, rec: PodRec) {
        let ix = self.free_pods.pop().unwrap_or_else(|| self.pods.push(None));
        self.pod_numbers.insert(Arc::clone(&rec.key), ix);
        let shape = self.tables.shapes.get(rec.shape);
        for (key, template) in templates(shape) {
            self.volumes.templates.insert(key, template.clone());
        }
        match rec.node {
            Some(node) => self.count_on_node(node, ix, &rec),
            None if self.is_ignored(&rec) => {}
            None => {
                self.demand.insert(rec.rank(), ix);
            }
        }
        if let Some(slot) = self.pods.find_mut(ix) {
            *slot = Some(rec);
        }
    }

    pub(super) fn drop_pod(&mut self, ix: PodIx) {
        let Some(rec) = self.pods.find_mut(ix).and_then(Option::take) else { return };
        self.pod_numbers.remove(&rec.key);
        self.free_pods.push(ix);
        for (key, _) in templates(self.tables.shapes.get(rec.shape)) {
            self.volumes.templates.remove(&key);
        }
        match rec.node {
            Some(node) => self.take_off_node(node, ix, &rec),
            None => {
                self.demand.remove(&rec.rank());
            }
        }
    }

    /// Counts a running pod on its node.
    fn count_on_node(&mut self, node: NodeIx, ix: PodIx, rec: &PodRec) {
        let shape = self.tables.shapes.get(rec.shape);
        for term in &shape.anti_affinity {
            *self.holders.entry(*term).or_default().entry(node).or_default() += 1;
        }
        *self.ident_nodes.entry(rec.ident).or_default().entry(node).or_default() += 1;
        let namespace = self.tables.idents.get(rec.ident).namespace;
        self.idents_of.entry(namespace).or_default().insert(rec.ident);
        if let Some(slot) = self.nodes.find_mut(node) {
            slot.add_pod(ix, shape, rec.daemon);
        }
    }

    fn take_off_node(&mut self, node: NodeIx, ix: PodIx, rec: &PodRec) {
        let shape = self.tables.shapes.get(rec.shape);
        for term in &shape.anti_affinity {
            if let Some(map) = self.holders.get_mut(term) {
                take_one(map, node);
                if map.is_empty() {
                    self.holders.remove(term);
                }
            }
        }
        if let Some(map) = self.ident_nodes.get_mut(&rec.ident) {
            take_one(map, node);
            if map.is_empty() {
                self.ident_nodes.remove(&rec.ident);
                let namespace = self.tables.idents.get(rec.ident).namespace;
                if let Some(set) = self.idents_of.get_mut(&namespace) {
                    set.remove(&rec.ident);
                    if set.is_empty() {
                        self.idents_of.remove(&namespace);
                    }
                }
            }
        }
        if let Some(slot) = self.nodes.find_mut(node) {
            slot.remove_pod(ix, shape, rec.daemon);
        }
        self.release_node(node);
    }
}

/// The templates of a pod's generic ephemeral volumes, by namespace and name of the claim.
fn templates(shape: &Shape) -> impl Iterator<Item = (NamespacedName, &Claim)> {
    shape.claims.iter().flat_map(|claims| {
        let namespace = claims.namespace;
        let key = move |name| NamespacedName { namespace, name };
        shape.ephemeral.iter().map(move |volume| (key(volume.name), &volume.template))
    })
}

fn take_one(map: &mut rustc_hash::FxHashMap<NodeIx, u32>, node: NodeIx) {
    if let Some(count) = map.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            map.remove(&node);
        }
    }
}
