//! Headroom: virtual pods of the lowest priority that keep status capacity on a pool's nodes.
//!
//! They are released before each scheduling run, so that real pods take their places first, and assigned again
//! after it.

use std::collections::BTreeMap;

use croft_api::convert::static_capacity::{headroom_key, headroom_of, headroom_pods};
use croft_scheduler::{Plan, PodKey};
use k8s_openapi::api::core::v1::Pod;

use super::{records::HeadroomStatus, snapshot::Snapshot};

impl Snapshot {
    /// True for a headroom pod.
    #[must_use]
    pub fn is_headroom(pod: &PodKey) -> bool {
        headroom_of(pod).is_some()
    }

    /// True if some pool has headroom.
    #[must_use]
    pub fn has_headroom(&self) -> bool {
        !self.headroom.pools.is_empty()
    }

    /// The headroom of a pool.
    #[must_use]
    pub fn headroom_of(&self, pool: &str) -> Option<&HeadroomStatus> {
        self.headroom.pools.get(pool)
    }

    /// True if this node, or this claim's node, holds headroom pods.
    #[must_use]
    pub fn has_headroom_on(&self, node_or_claim: &str) -> bool {
        self.headroom.at.contains_key(node_or_claim)
    }

    /// The headroom pods that this node, or this claim's node, holds.
    pub fn headroom_on(&self, node_or_claim: &str) -> impl Iterator<Item = &PodKey> {
        self.headroom.at.get(node_or_claim).into_iter().flatten()
    }

    pub(super) fn update_headroom_pods(&mut self, pool: &str) {
        let before = self.headroom.pools.remove(pool).map_or(0, |status| status.wanted);
        if before > 0 {
            // The next scheduling run assigns the places again.
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
        if object.spec.headroom.is_none() || object.spec.per_tenant {
            return;
        }
        let pods: Vec<Pod> = headroom_pods(&object).collect();
        let wanted = pods.len();
        for pod in pods {
            let read = self.cluster.upsert_pod(&pod);
            self.record_problem("TenantPool", &format!("{pool}: spec.headroom"), read);
        }
        self.headroom.pools.insert(pool.to_owned(), HeadroomStatus { wanted, ..HeadroomStatus::default() });
    }

    /// Makes every headroom pod demand again.
    pub fn release_headroom(&mut self) {
        for (pool, status) in &self.headroom.pools {
            for number in 0..status.wanted {
                self.cluster.release(&headroom_key(pool, number));
            }
        }
        self.headroom.at.clear();
    }

    /// Assigns the places that `plan` gives; `claim_of` has the claim of each headroom pod on a new instance.
    pub fn assign_headroom(&mut self, plan: &Plan, claim_of: &BTreeMap<PodKey, String>) {
        if self.headroom.pools.is_empty() {
            return;
        }
        for status in self.headroom.pools.values_mut() {
            status.placed = status.wanted;
            status.why = None;
        }
        for left in &plan.unschedulable {
            let Some(pool) = headroom_of(&left.pod) else { continue };
            if let Some(status) = self.headroom.pools.get_mut(pool) {
                status.placed = status.placed.saturating_sub(1);
                let own = left.reasons.iter().find(|reason| reason.pool == pool);
                status.why = own.map(|reason| reason.detail.clone());
            }
        }
        for placement in &plan.existing {
            for pod in placement.pods.iter().filter(|pod| Self::is_headroom(pod)) {
                self.cluster.nominate(pod, &placement.node, placement.coming);
                self.headroom.at.entry(placement.node.clone()).or_default().push(pod.clone());
            }
        }
        for (pod, claim) in claim_of.iter().filter(|(pod, _)| Self::is_headroom(pod)) {
            self.cluster.nominate(pod, claim, true);
            self.headroom.at.entry(claim.clone()).or_default().push(pod.clone());
        }
    }
}
