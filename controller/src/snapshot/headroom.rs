//! Spare places that pools keep ready: pods that nobody made, which give way to everybody.
//!
//! To the scheduler they are pods of the lowest priority. Before every plan they are demand again, so that real pods
//! take their places first; after it they hold what the plan gave them.

use std::collections::BTreeMap;

use croft_api::convert::static_capacity::{headroom_key, headroom_of, headroom_pods};
use croft_scheduler::{Plan, PodKey};

use super::Snapshot;

/// The spare places of all pools.
#[derive(Debug, Default)]
pub struct Headroom {
    pools: BTreeMap<String, Spare>,
    /// How many spare places each node, or claim without its node, holds.
    at: BTreeMap<String, usize>,
}

/// The spare places of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spare {
    /// How many there are to be.
    pub wanted: usize,
    /// How many of them some node has room for, or a claim that was asked for.
    pub placed: usize,
    /// Why not all of them.
    pub why: Option<String>,
}

impl Snapshot {
    /// True for a pod that stands for a spare place.
    #[must_use]
    pub fn is_headroom(pod: &PodKey) -> bool {
        headroom_of(pod).is_some()
    }

    /// True if some pool keeps spare places.
    #[must_use]
    pub fn has_headroom(&self) -> bool {
        !self.headroom.pools.is_empty()
    }

    /// The spare places of a pool.
    #[must_use]
    pub fn headroom_of(&self, pool: &str) -> Option<&Spare> {
        self.headroom.pools.get(pool)
    }

    /// True if spare places are kept on this node, or on this claim's.
    #[must_use]
    pub fn keeps_headroom(&self, node_or_claim: &str) -> bool {
        self.headroom.at.contains_key(node_or_claim)
    }

    pub(super) fn feed_headroom(&mut self, pool: &str) {
        let before = self.headroom.pools.remove(pool).map_or(0, |spare| spare.wanted);
        if before > 0 {
            // The next plan says anew who holds what.
            self.headroom.at.clear();
        }
        for number in 0..before {
            let key = headroom_key(pool, number);
            self.cluster.remove_pod(&key.namespace, &key.name);
        }
        let Some(object) = self.pools.get(pool).cloned() else { return };
        if object.metadata.deletion_timestamp.is_some() || !self.has_own_label(pool) {
            return;
        }
        let Some(wanted) = &object.spec.headroom else { return };
        let wanted = usize::try_from(wanted.pods).unwrap_or(0);
        for pod in headroom_pods(&object) {
            let read = self.cluster.upsert_pod(&pod);
            self.judge("TenantPool", &format!("{pool}: spec.headroom"), read);
        }
        self.headroom.pools.insert(pool.to_owned(), Spare { wanted, ..Spare::default() });
    }

    /// Makes every spare place demand again.
    pub fn release_headroom(&mut self) {
        for (pool, spare) in &self.headroom.pools {
            for number in 0..spare.wanted {
                self.cluster.release(&headroom_key(pool, number));
            }
        }
        self.headroom.at.clear();
    }

    /// Holds the places that `plan` gives; `claim_of` names the claim of each of its machines.
    pub fn settle_headroom(&mut self, plan: &Plan, claim_of: &BTreeMap<PodKey, String>) {
        if self.headroom.pools.is_empty() {
            return;
        }
        for spare in self.headroom.pools.values_mut() {
            spare.placed = spare.wanted;
            spare.why = None;
        }
        for left in &plan.unschedulable {
            let Some(pool) = headroom_of(&left.pod) else { continue };
            if let Some(spare) = self.headroom.pools.get_mut(pool) {
                spare.placed = spare.placed.saturating_sub(1);
                let own = left.reasons.iter().find(|reason| reason.pool == pool);
                spare.why = own.map(|reason| reason.detail.clone());
            }
        }
        for placement in &plan.existing {
            for pod in placement.pods.iter().filter(|pod| Self::is_headroom(pod)) {
                self.cluster.nominate(pod, &placement.node, placement.coming);
                *self.headroom.at.entry(placement.node.clone()).or_default() += 1;
            }
        }
        for (pod, claim) in claim_of.iter().filter(|(pod, _)| Self::is_headroom(pod)) {
            self.cluster.nominate(pod, claim, true);
            *self.headroom.at.entry(claim.clone()).or_default() += 1;
        }
    }
}
