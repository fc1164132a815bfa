//! Existing and coming nodes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use smallvec::SmallVec;

use crate::{
    ids::{NodeIx, PodIx},
    model::{error::InputError, pool::ComingNode, resources::Resources, well_known::UNSCHEDULABLE},
    state::{
        cluster::Cluster,
        interner::{self, Labels, NamespacedName, Sym},
        pod_shape::{ClaimNames, Shape},
        requests::{self, Port, ResourceId},
        taint::Taint,
    },
};

/// A node without its pods.
#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    pub(crate) labels: Labels,
    pub(crate) taints: Box<[Taint]>,
    /// Sorted.
    pub(crate) allocatable: Box<[(ResourceId, i64)]>,
    pub(crate) capacity: Box<[(ResourceId, i64)]>,
    /// A coming node: the NodeClaim has no Node yet.
    pub(crate) coming: bool,
    pub(crate) deleting: bool,
}

/// A node's name, what is known of it, and its pods.
#[derive(Clone, Debug)]
pub(crate) struct NodeSlot {
    /// The name of the Node or of the NodeClaim.
    pub(crate) name: Sym,
    /// `name` is a NodeClaim's.
    pub(crate) claim: bool,
    pub(crate) info: Option<Arc<NodeInfo>>,
    /// By resource id.
    pub(crate) used: SmallVec<[i64; 4]>,
    pub(crate) pods: Vec<PodIx>,
    pub(crate) ports: Vec<Port>,
    /// DaemonSets that have a pod there.
    pub(crate) daemons: Vec<NamespacedName>,
    /// PersistentVolumeClaims that pods there use, with repetitions.
    pub(crate) claims: Vec<NamespacedName>,
}

fn forget<T: PartialEq>(list: &mut Vec<T>, value: &T) {
    if let Some(index) = list.iter().position(|v| v == value) {
        list.swap_remove(index);
    }
}

impl NodeSlot {
    pub(super) fn add_pod(&mut self, ix: PodIx, shape: &Shape, daemon: Option<NamespacedName>) {
        self.pods.push(ix);
        for (id, value) in &shape.requests {
            let index = usize::from(*id);
            if self.used.len() <= index {
                self.used.resize(index + 1, 0);
            }
            if let Some(used) = self.used.get_mut(index) {
                *used = used.saturating_add(*value);
            }
        }
        self.ports.extend(&shape.ports);
        self.daemons.extend(daemon);
        self.claims.extend(shape.claims.iter().flat_map(ClaimNames::iter));
    }

    pub(super) fn remove_pod(&mut self, ix: PodIx, shape: &Shape, daemon: Option<NamespacedName>) {
        forget(&mut self.pods, &ix);
        for (id, value) in &shape.requests {
            if let Some(used) = self.used.get_mut(usize::from(*id)) {
                *used = used.saturating_sub(*value);
            }
        }
        shape.ports.iter().for_each(|port| forget(&mut self.ports, port));
        daemon.iter().for_each(|d| forget(&mut self.daemons, d));
        shape.claims.iter().flat_map(ClaimNames::iter).for_each(|claim| forget(&mut self.claims, &claim));
    }

    pub(crate) fn used(&self, resource: ResourceId) -> i64 {
        self.used.get(usize::from(resource)).copied().unwrap_or(0)
    }
}

impl Cluster {
    /// Adds or replaces a node.
    ///
    /// # Errors A field that can't be parsed. The node's last good state stays.
    pub fn upsert_node(&mut self, node: &Node) -> Result<(), InputError> {
        self.tidy();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let error = |field: &str, problem: String| InputError {
            kind: "Node",
            name: name.to_owned(),
            field: field.to_owned(),
            problem,
        };
        let symbols = &mut self.tables.symbols;
        let labels = interner::labels(symbols, node.metadata.labels.iter().flatten());
        let spec = node.spec.as_ref();
        let mut taints = Vec::new();
        for taint in spec.and_then(|s| s.taints.as_ref()).into_iter().flatten() {
            taints.push(Taint::from_api(symbols, taint).map_err(|p| error("spec.taints", p))?);
        }
        if spec.is_some_and(|s| s.unschedulable == Some(true)) {
            let cordon = k8s_openapi::api::core::v1::Taint {
                key: UNSCHEDULABLE.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Default::default()
            };
            taints.extend(Taint::from_api(symbols, &cordon));
        }
        taints.sort_unstable();
        taints.dedup();
        let status = node.status.as_ref();
        let mut amounts = |map: Option<&std::collections::BTreeMap<_, _>>, field: &str| {
            let resources = match map {
                Some(map) => Resources::from_api(map)
                    .map_err(|(resource, e)| error(&format!("{field}.{resource}"), e.to_string()))?,
                None => Resources::new(),
            };
            Ok::<_, InputError>(requests::from_resources(&mut self.tables.resources, &resources))
        };
        let allocatable = amounts(status.and_then(|s| s.allocatable.as_ref()), "status.allocatable")?;
        let capacity = amounts(status.and_then(|s| s.capacity.as_ref()), "status.capacity")?;
        let info = NodeInfo {
            labels,
            taints: taints.into(),
            allocatable,
            capacity,
            coming: false,
            deleting: node.metadata.deletion_timestamp.is_some(),
        };
        let name = self.tables.symbols.sym(name);
        let ix = self.node_number(false, name);
        self.set_info(ix, Some(Arc::new(info)));
        Ok(())
    }

    /// Removes a node. Pods bound to it still count for its name until they are removed.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(ix) =
            self.tables.symbols.find(name).and_then(|n| self.node_numbers.get(&(false, n))).copied()
        {
            self.set_info(ix, None);
        }
    }

    /// Adds or replaces a coming node. Ephemeral startup taints don't count, nor do taints of an unknown
    /// effect, which the API server refuses.
    pub fn upsert_coming(&mut self, coming: ComingNode) {
        self.tidy();
        let symbols = &mut self.tables.symbols;
        let claim = symbols.sym(&coming.claim);
        let mut taints: Vec<_> =
            coming.taints.iter().filter_map(|t| Taint::from_api(symbols, t).ok()).collect();
        taints.retain(|taint| !taint.is_ephemeral(symbols));
        taints.sort_unstable();
        let mut map = coming.labels.clone();
        for (key, value) in [
            (crate::model::well_known::INSTANCE_TYPE, coming.instance_type.as_str()),
            (crate::model::well_known::ZONE, coming.zone.as_str()),
            (crate::model::well_known::CAPACITY_TYPE, coming.capacity_type.as_str()),
            (crate::model::well_known::CROFT_CAPACITY_TYPE, coming.capacity_type.as_str()),
            (crate::model::well_known::POOL, coming.pool.as_str()),
        ] {
            if !value.is_empty() {
                map.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        // A kubelet writes the older names, too.
        for (old, new) in crate::model::well_known::ALIASES {
            if let Some(value) = map.get(new).cloned() {
                map.entry(old.to_owned()).or_insert(value);
            }
        }
        let info = NodeInfo {
            labels: interner::labels(symbols, &map),
            taints: taints.into(),
            allocatable: requests::from_resources(&mut self.tables.resources, &coming.allocatable),
            capacity: requests::from_resources(&mut self.tables.resources, &coming.capacity),
            coming: true,
            deleting: false,
        };
        let ix = self.node_number(true, claim);
        self.set_info(ix, Some(Arc::new(info)));
    }

    /// Removes a coming node: its Node exists, or it won't register.
    pub fn remove_coming(&mut self, claim: &str) {
        let Some(claim) = self.tables.symbols.find(claim) else { return };
        if let Some(ix) = self.node_numbers.get(&(true, claim)).copied() {
            self.set_info(ix, None);
        }
    }

    /// The index of an existing node.
    pub(crate) fn find_node(&self, name: &str) -> Option<NodeIx> {
        let ix = *self.node_numbers.get(&(false, self.tables.symbols.find(name)?))?;
        self.nodes.find(ix)?.info.is_some().then_some(ix)
    }

    /// The indices of a name, as an existing and as a coming node.
    pub(crate) fn numbers_of(&self, name: &str) -> impl Iterator<Item = NodeIx> + '_ {
        let name = self.tables.symbols.find(name);
        [false, true].into_iter().filter_map(move |coming| self.node_numbers.get(&(coming, name?)).copied())
    }

    /// Pods of a node that would need another place: all but those of DaemonSets, the mirrors of static pods, and those that are being
    /// deleted and have been replaced.
    pub(crate) fn movable_pods(&self, name: &str) -> impl Iterator<Item = crate::PodKey> + '_ {
        let slot = self.find_node(name).and_then(|ix| self.nodes.find(ix));
        let pods = slot.map(|slot| slot.pods.as_slice()).unwrap_or_default();
        let recs = pods.iter().filter_map(|ix| self.pods.find(*ix)?.as_ref());
        recs.filter(|rec| rec.is_movable()).map(|rec| crate::PodKey::clone(&rec.key))
    }

    /// The index of a node or claim, existing or new.
    pub(super) fn node_number(&mut self, coming: bool, name: Sym) -> NodeIx {
        if let Some(ix) = self.node_numbers.get(&(coming, name)) {
            return *ix;
        }
        let slot = NodeSlot {
            name,
            claim: coming,
            info: None,
            used: SmallVec::new(),
            pods: Vec::new(),
            ports: Vec::new(),
            daemons: Vec::new(),
            claims: Vec::new(),
        };
        let reused = self.free_nodes.pop().and_then(|ix| Some((ix, self.nodes.find_mut(ix)?)));
        let ix = match reused {
            Some((ix, free)) => {
                *free = slot;
                ix
            }
            None => self.nodes.push(slot),
        };
        self.node_numbers.insert((coming, name), ix);
        ix
    }

    /// Frees the index of an unknown node that no pod names.
    pub(super) fn release_node(&mut self, ix: NodeIx) {
        let Some(slot) = self.nodes.find(ix) else { return };
        if slot.info.is_none()
            && slot.pods.is_empty()
            && self.node_numbers.get(&(slot.claim, slot.name)) == Some(&ix)
        {
            self.node_numbers.remove(&(slot.claim, slot.name));
            self.free_nodes.push(ix);
        }
    }

    fn set_info(&mut self, ix: NodeIx, info: Option<Arc<NodeInfo>>) {
        let Some(slot) = self.nodes.find_mut(ix) else { return };
        let old = std::mem::replace(&mut slot.info, info.clone());
        let unchanged = match (&old, &info) {
            (Some(a), Some(b)) => a.labels == b.labels,
            (None, None) => true,
            _ => false,
        };
        if unchanged {
            self.release_node(ix);
            return;
        }
        let hostname = self.keys.hostname;
        for pair in old.iter().flat_map(|i| i.labels.iter()).filter(|(k, _)| *k != hostname) {
            if let Some(set) = self.by_label.get_mut(pair) {
                set.remove(&ix);
                if set.is_empty() {
                    self.by_label.remove(pair);
                }
            }
        }
        for pair in info.iter().flat_map(|i| i.labels.iter()).filter(|(k, _)| *k != hostname) {
            self.by_label.entry(*pair).or_default().insert(ix);
        }
        self.release_node(ix);
    }
}
