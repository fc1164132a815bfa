//! Which pods of a plan must be nominated to their node, and which may be together.

use rustc_hash::FxHashMap;

use super::{Cluster, NodeIx, PodRec};
use crate::{plan::PodKey, shape::Shape, taint};

impl Cluster {
    /// Of the pods planned for one node, those that may carry its name in `status.nominatedNodeName` at the same time.
    ///
    /// kube-scheduler tries a pod's nominated node with all other pods nominated to it counted as if they ran there, but
    /// counts no pod that is nominated elsewhere (RunFilterPluginsWithNominatedPods). Two pods that must spread over
    /// zones, both meant for a node of one zone, would keep each other out for ever. The pods left out find their place
    /// by their own constraints: the others' nominations keep the room of the others.
    #[must_use]
    pub fn nominable<'p>(&self, pods: &'p [PodKey]) -> Vec<&'p PodKey> {
        let mut chosen: Vec<(&PodRec, &'p PodKey)> = Vec::new();
        for key in pods {
            let rec = self.pod_numbers.get(key).and_then(|ix| self.pods.get(*ix as usize));
            let Some(Some(rec)) = rec else { continue };
            chosen.push((rec, key));
            if !self.evenly(&chosen) {
                chosen.pop();
            }
        }
        chosen.into_iter().map(|(_, key)| key).collect()
    }

    /// True if the plan for one node needs no nominations: its pods are all alike, nothing but room and the node's labels
    /// and taints decides where they go, and no other pod that waits may go there. Then whichever of them the scheduler
    /// binds there, there is room for the rest elsewhere, as planned. That spares two writes per pod.
    #[must_use]
    pub fn interchangeable(&self, pods: &[PodKey]) -> bool {
        let found =
            |key: &PodKey| self.pod_numbers.get(key).and_then(|ix| self.pods.get(*ix as usize)?.as_ref());
        let Some((shape, node)) = pods.first().and_then(found).and_then(|rec| Some((rec.shape, rec.node?)))
        else {
            return false;
        };
        if !self.tables.shapes.get(shape).only_room()
            || !pods.iter().all(|key| found(key).is_some_and(|r| r.shape == shape))
        {
            return false;
        }
        let mut enters: FxHashMap<u32, bool> = FxHashMap::default();
        let waiting = self.pods.iter().flatten().filter(|rec| rec.node.is_none() || rec.nominated);
        waiting
            .filter(|rec| rec.daemon.is_none() && rec.shape != shape)
            .all(|rec| !*enters.entry(rec.shape).or_insert_with(|| self.admits(node, rec.shape)))
    }

    /// True if the node's labels and taints let such pods in.
    fn admits(&self, node: NodeIx, shape: u32) -> bool {
        let Some(slot) = self.nodes.get(node as usize) else { return true };
        let Some(info) = &slot.info else { return true };
        let (tables, shape) = (&self.tables, self.tables.shapes.get(shape));
        shape.reqs.iter().all(|r| tables.reqs.get(*r).matches(&tables.symbols, &info.labels, Some(slot.name)))
            && taint::untolerated(tables.tolerations.get(shape.tolerations), &info.taints).is_none()
    }

    /// True if no constraint over domains is broken by these pods alone, in one domain with all others empty.
    fn evenly(&self, pods: &[(&PodRec, &PodKey)]) -> bool {
        let tables = &self.tables;
        pods.iter().all(|(rec, _)| {
            let spreads = tables.shapes.get(rec.shape).spreads.iter();
            spreads.filter(|s| s.hard && s.key != self.keys.hostname).all(|spread| {
                let selector = tables.selectors.get(spread.selector);
                let meant =
                    |ident| selector.matches(&tables.symbols, &self.namespaces, tables.idents.get(ident));
                let count = pods.iter().filter(|(other, _)| meant(other.ident)).count();
                i64::try_from(count).unwrap_or(i64::MAX) <= i64::from(spread.max_skew)
            })
        })
    }
}

impl Shape {
    /// True if no other pod, no volume, port or device, and no preference has a say in where such a pod goes.
    fn only_room(&self) -> bool {
        let Self {
            requests: _,
            reqs: _,
            tolerations: _,
            ports,
            spreads,
            affinity,
            anti,
            preferred_nodes,
            preferred_pods,
            claims,
            devices,
        } = self;
        ports.is_empty()
            && spreads.is_empty()
            && affinity.is_none()
            && anti.is_empty()
            && preferred_nodes.is_empty()
            && preferred_pods.is_empty()
            && claims.is_none()
            && !devices
    }
}
