//! The pod collector of the controller manager: pods of Nodes that aren't there are removed.

use std::collections::BTreeMap;

use super::{index::ClusterIndex, model::Tick, store::Id};

/// `quarantineTime` in k8s.io/kubernetes/pkg/controller/podgc.
const QUARANTINE_MS: u64 = 40_000;

#[derive(Debug, Default)]
pub(crate) struct PodCollector {
    /// Names of Nodes that pods are bound to and that aren't there, and since when.
    missing: BTreeMap<String, u64>,
}

impl PodCollector {
    pub(crate) fn is_waiting(&self) -> bool {
        !self.missing.is_empty()
    }

    pub(crate) fn next_due(&self, ms: u64) -> Option<u64> {
        self.missing.values().map(|since| since + QUARANTINE_MS).filter(|at| *at > ms).min()
    }

    pub(crate) fn collect(&mut self, index: &ClusterIndex, tick: &mut Tick<'_>) {
        let lost = |node: &&String| !index.nodes().contains_key(*node);
        self.missing = index
            .bound_nodes()
            .filter(lost)
            .map(|node| (node.clone(), self.missing.get(node).copied().unwrap_or(tick.ms)))
            .collect();
        let due = self.missing.iter().filter(|(_, since)| tick.ms >= **since + QUARANTINE_MS);
        let mut pods: Vec<&Id> = due.flat_map(|(node, _)| index.pods_on(node)).collect();
        pods.sort_unstable();
        for id in pods {
            tick.store.remove(id);
        }
    }
}
