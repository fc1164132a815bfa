//! NodeClaims and the indexes over them.

use std::sync::Arc;

use croft_api::NodeClaim;
use kube::ResourceExt;

use super::{
    dirty_set::move_between_sets,
    milestones::Milestones,
    snapshot::Snapshot,
    views::{price, resource_version},
};
use crate::{
    definitions::keys,
    kube_api::{Kind, ObjectId},
    time::Now,
};

impl Snapshot {
    pub(super) fn observe_claim(&mut self, claim: NodeClaim, now: Now) {
        let name = claim.name_any();
        let new = resource_version(claim.metadata.resource_version.as_deref());
        let old = self.claims.get(&name);
        let held = old.map(|old| {
            let uid = old.metadata.uid.as_deref().unwrap_or_default();
            (uid, resource_version(old.metadata.resource_version.as_deref()))
        });
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let released = claim.metadata.deletion_timestamp.is_some()
            && claim.metadata.finalizers.iter().flatten().next().is_none();
        // The response to the removal of the last finalizer shows a deleted claim, even if a watch was faster.
        let stale = self.is_superseded(&uid, held, new);
        if released {
            if !stale {
                self.observe_deletion(&ObjectId::new(Kind::NodeClaim, "", &name).with_uid(&uid), now);
            }
            self.unclaimed.release(&uid);
            return;
        }
        if stale {
            return;
        }
        self.unclaimed.remove(&uid);
        let node_name = |c: &NodeClaim| c.status.as_ref().and_then(|s| s.node_name.clone());
        let before = old.and_then(|c| node_name(c));
        move_between_sets(&mut self.claims_of_node, &name, before.as_ref(), node_name(&claim).as_ref());
        let instance = |c: &NodeClaim| c.status.as_ref().and_then(|s| s.provider_id.clone());
        if old.is_none_or(|old| instance(old) != instance(&claim)) {
            self.claim_changes += 1;
        }
        let paid = old.and_then(|c| price(c)).unwrap_or_default();
        self.cost = self.cost.saturating_sub(paid).saturating_add(price(&claim).unwrap_or_default());
        let pool = old.map(|old| &old.spec.pool);
        move_between_sets(&mut self.claims_of_pool, &name, pool, Some(&claim.spec.pool));
        if claim.metadata.annotations.iter().flatten().any(|(key, _)| key == keys::REPLACES) {
            self.replacements.insert(name.clone());
        } else {
            self.replacements.remove(&name);
        }
        let is_deleting = claim.metadata.deletion_timestamp.is_some();
        let known = old.map(|old| (&**old, self.milestones.get(&name).copied().unwrap_or_default()));
        let milestones = Milestones::observed(&claim, known, now);
        let is_new = known.is_none();
        self.milestones.insert(name.clone(), milestones);
        self.claims.insert(name.clone(), Arc::new(claim));
        self.plan_version += 1;
        self.mark_claim_dirty(&name);
        if is_deleting {
            // Its node takes no pods, and if it isn't initialized yet it never will be.
            self.release_nominations(&name);
        }
        self.update_cluster_claim(&name);
        self.update_reserved(&name, is_new);
    }

    pub(super) fn remove_claim(&mut self, name: &str, now: Now) {
        self.mark_claim_dirty(name);
        let Some(claim) = self.claims.remove(name) else { return };
        self.dirty_claims.remove(name);
        self.replacements.remove(name);
        self.milestones.remove(name);
        self.claim_changes += 1;
        self.cost = self.cost.saturating_sub(price(&claim).unwrap_or_default());
        move_between_sets(&mut self.claims_of_pool, name, Some(&claim.spec.pool), None);
        self.unclaimed.insert_deleted(Arc::clone(&claim), now);
        self.tombstones.insert(claim.metadata.uid.as_deref().unwrap_or_default().into(), now);
        self.cluster.remove_coming(name);
        self.release_nominations(name);
        self.nominated_to.remove(name);
        self.plan_version += 1;
        if let Some(node) = claim.status.as_ref().and_then(|s| s.node_name.as_ref()) {
            move_between_sets(&mut self.claims_of_node, name, Some(node), None);
            self.update_cluster_node(node);
        }
        self.update_reserved(name, false);
    }
}
