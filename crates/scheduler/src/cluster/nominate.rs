//! Which pods of a plan may be nominated to their node together.

use super::{Cluster, PodRec};
use crate::plan::PodKey;

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
