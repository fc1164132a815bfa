//! Instances without a NodeClaim: the claim was deleted by force, or is missing after a restore. They count towards
//! limits until they are certainly terminated, since they are billed until then: a list that lacks one shows no more than
//! that its tag is lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::{NodeClaim, convert::nodes::in_flight_node};
use croft_cloud::{CloudInstance, instance_id};
use croft_scheduler::{ComingNode, Resources};

use super::{
    evidence::{Evidence, SHOWN_FOR},
    records::LostClaim,
    snapshot::Snapshot,
    views::instance_of,
};
use crate::{definitions::keys, time::Now};

impl Snapshot {
    /// Counts the instances without a claim, unless they are gone. A launch that was in flight when its claim was deleted
    /// shows in the list within `grace`.
    pub fn count_unclaimed(&mut self, grace: Duration, evidence: &Evidence) {
        let asked = self.instances.as_ref().map(|list| list.asked);
        let none = self.unclaimed.lost.is_empty() && self.unclaimed.counted.is_empty();
        if none && asked == self.unclaimed.evaluated {
            return;
        }
        self.unclaimed.evaluated = asked;
        let list = self.instances.take();
        let is_gone = |id: &str| evidence.is_terminated(id) || evidence.is_unknown_for(id, grace);
        let mut lost = std::mem::take(&mut self.unclaimed.lost);
        lost.retain(|uid, LostClaim { claim, since, .. }| match instance_of(claim) {
            Some(id) => {
                let listed = list.as_ref().and_then(|list| list.instances.get(id));
                !evidence.is_terminated(id)
                    && !evidence.is_unknown_for(id, SHOWN_FOR)
                    && listed.is_none_or(|instance| instance.state.is_alive())
            }
            None => list.as_ref().is_none_or(|list| {
                let tagged = |m: &CloudInstance| m.state.is_alive() && m.claim_uid.as_deref() == Some(uid);
                list.asked.mono < since.mono.saturating_add(grace) || list.instances.values().any(tagged)
            }),
        });
        let mut found: BTreeMap<String, ComingNode> = BTreeMap::new();
        for (uid, LostClaim { claim, released, .. }) in &lost {
            let node = claim.status.as_ref().and_then(|s| s.node_name.as_deref());
            if *released
                || instance_of(claim).is_some_and(is_gone)
                || self.counts_as_node(node, instance_of(claim), &claim.spec.pool)
            {
                continue;
            }
            let name = format!("claim/{uid}");
            found.insert(
                name.clone(),
                ComingNode {
                    claim: name,
                    ..full(in_flight_node(claim, |kind| self.instance_type(claim, kind)))
                },
            );
        }
        let claimed = self.claimed();
        for instance in list.iter().flat_map(|list| list.instances.values()) {
            let is_lost = instance.claim_uid.as_ref().is_some_and(|uid| lost.contains_key(uid));
            if instance.state.is_alive()
                && !is_lost
                && !is_claimed(&claimed, instance)
                && !is_gone(&instance.id)
                && let Some(node) = self.unclaimed_instance(instance)
            {
                found.insert(node.claim.clone(), node);
            }
        }
        self.instances = list;
        self.unclaimed.lost = lost;
        let before = std::mem::replace(&mut self.unclaimed.counted, found.keys().cloned().collect());
        if before != self.unclaimed.counted {
            self.plan_version += 1;
        }
        for name in before.iter().filter(|name| !found.contains_key(*name)) {
            self.cluster.remove_coming(name);
        }
        for node in found.into_values() {
            self.cluster.upsert_coming(node);
        }
    }

    /// Deleted claims whose instance isn't certainly terminated, and when they were deleted.
    pub fn lost_claims(&self) -> impl Iterator<Item = (&NodeClaim, Now)> {
        self.unclaimed.lost.values().map(|lost| (&*lost.claim, lost.since))
    }

    /// True if instances of a pool may exist without a claim; `None` before the cloud has listed its instances.
    #[must_use]
    pub fn has_unclaimed(&self, pool: &str) -> Option<bool> {
        let list = self.instances.as_ref()?;
        let claimed = self.claimed();
        let mut lost = self.unclaimed.lost.values().filter(|lost| !lost.released);
        let is_unclaimed = |instance: &CloudInstance| {
            instance.state.is_alive()
                && instance.pool.as_deref() == Some(pool)
                && !is_claimed(&claimed, instance)
        };
        Some(lost.any(|lost| lost.claim.spec.pool == pool) || list.instances.values().any(is_unclaimed))
    }

    /// Instances that claims have, and claims that are still to get theirs.
    fn claimed(&self) -> BTreeSet<&str> {
        let claimed = self.claims.values().filter_map(|claim| {
            let adopts = claim.metadata.annotations.as_ref().and_then(|a| a.get(keys::ADOPTS));
            instance_of(claim).or(adopts.map(String::as_str)).or(claim.metadata.uid.as_deref())
        });
        claimed.collect()
    }

    fn unclaimed_instance(&self, instance: &CloudInstance) -> Option<ComingNode> {
        let pool_name = instance.pool.as_deref()?;
        if self.counts_as_node(Some(&instance.node_name), Some(&instance.id), pool_name) {
            return None;
        }
        let pool = self.pools.get(pool_name)?;
        let mut types = self.classes_of(pool_name).filter_map(|class| class.types.as_ref());
        let planned = types.find_map(|types| types.iter().find(|t| t.name == instance.instance_type));
        let mut labels = planned.map(|planned| planned.labels.clone()).unwrap_or_default();
        labels.insert(pool.spec.key.clone(), croft_api::convert::scheduler::value(pool));
        Some(full(ComingNode {
            claim: format!("instance/{}", instance.id),
            pool: pool_name.to_owned(),
            instance_type: instance.instance_type.clone(),
            zone: instance.zone.clone(),
            capacity_type: instance.capacity_type,
            labels,
            taints: Vec::new(),
            allocatable: Resources::new(),
            capacity: planned.map(|planned| planned.capacity.clone()).unwrap_or_default(),
        }))
    }

    fn pool_name_label(&self, pool: &str) -> String {
        let found = self.pools.get(pool).map(|pool| croft_api::convert::scheduler::pool_name_label(pool));
        found.unwrap_or_else(|| pool.to_owned())
    }

    /// True if the instance's Node exists with the pool's label, by which it counts already.
    fn counts_as_node(&self, node: Option<&str>, instance: Option<&str>, pool: &str) -> bool {
        let node = node.and_then(|name| self.nodes.get(name));
        node.is_some_and(|node| {
            node.provider_id.as_deref().map(instance_id) == instance
                && node.labels.get(keys::POOL_NAME_LABEL) == Some(&self.pool_name_label(pool))
        })
    }
}

/// True if `claimed` has the instance, or the uid of the claim that it was launched for.
fn is_claimed(claimed: &BTreeSet<&str>, instance: &CloudInstance) -> bool {
    claimed.contains(instance.id.as_str())
        || instance.claim_uid.as_deref().is_some_and(|uid| claimed.contains(uid))
}

/// No pod is planned onto it.
fn full(node: ComingNode) -> ComingNode {
    ComingNode { allocatable: Resources::new(), ..node }
}
