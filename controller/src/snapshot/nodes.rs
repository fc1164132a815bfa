//! Nodes and the claims that they belong to.

use std::sync::Arc;

use croft_api::NodeClaim;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::{Change, Milestones, NodeView, Snapshot, price, touched::change_set, views::version};
use crate::{names, time::Now};

impl Snapshot {
    pub(super) fn node(&mut self, node: Box<Node>, now: Now) {
        let name = node.name_any();
        let mut view = NodeView::of(&node);
        if self.knows_better(
            &view.uid,
            self.nodes.get(&name).map(|old| (&*old.uid, old.version)),
            view.version,
        ) {
            return;
        }
        let known = self.nodes.get(&name).filter(|old| old.uid == view.uid);
        view.seen_at = known.map_or(now.mono, |old| old.seen_at);
        let planned_on = |v: &NodeView| {
            (v.labels.clone(), v.taints.clone(), v.unschedulable, v.allocatable.clone(), v.capacity.clone())
        };
        if self.nodes.get(&name).map(planned_on) != Some(planned_on(&view)) {
            self.plan_version += 1;
        }
        let pool = view.labels.get(names::POOL_LABEL).cloned();
        let old = self.nodes.insert(name.clone(), view);
        let before = old.as_ref().and_then(|old| old.labels.get(names::POOL_LABEL));
        change_set(&mut self.nodes_of_pool, &name, before, pool.as_ref());
        self.raw_nodes.insert(name.clone(), node);
        self.touch_node(&name);
        self.feed_node(&name);
    }

    pub(super) fn node_gone(&mut self, name: &str, now: Now) {
        self.touch_node(name);
        if let Some(view) = self.nodes.remove(name) {
            change_set(&mut self.nodes_of_pool, name, view.labels.get(names::POOL_LABEL), None);
            self.graves.bury(view.uid, now);
        }
        self.raw_nodes.remove(name);
        self.cluster.remove_node(name);
        self.problems.remove(&format!("Node {name}"));
        self.plan_version += 1;
        for claim in self.claims_of_node.get(name).cloned().unwrap_or_default() {
            self.feed_claim(&claim);
        }
    }

    pub(super) fn claim(&mut self, claim: NodeClaim, now: Now) {
        let name = claim.name_any();
        let new = version(claim.metadata.resource_version.as_deref());
        let old = self.claims.get(&name);
        let held = old.map(|old| {
            let uid = old.metadata.uid.as_deref().unwrap_or_default();
            (uid, version(old.metadata.resource_version.as_deref()))
        });
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let released = claim.metadata.deletion_timestamp.is_some()
            && claim.metadata.finalizers.iter().flatten().next().is_none();
        // The answer to taking the last finalizer off shows what is no more, also where a watch was faster.
        let stale = self.knows_better(&uid, held, new);
        if released {
            if !stale {
                self.gone(uid.clone().into(), Change::ClaimGone(name), now);
            }
            self.unclaimed.forget(&uid);
            return;
        }
        if stale {
            return;
        }
        self.unclaimed.forget(&uid);
        let node_name = |c: &NodeClaim| c.status.as_ref().and_then(|s| s.node_name.clone());
        let before = old.and_then(|c| node_name(c));
        change_set(&mut self.claims_of_node, &name, before.as_ref(), node_name(&claim).as_ref());
        let machine = |c: &NodeClaim| c.status.as_ref().and_then(|s| s.provider_id.clone());
        if old.is_none_or(|old| machine(old) != machine(&claim)) {
            self.claim_changes += 1;
        }
        let paid = old.and_then(|c| price(c)).unwrap_or_default();
        self.cost = self.cost.saturating_sub(paid).saturating_add(price(&claim).unwrap_or_default());
        let pool = old.map(|old| &old.spec.pool);
        change_set(&mut self.claims_of_pool, &name, pool, Some(&claim.spec.pool));
        if claim.metadata.annotations.iter().flatten().any(|(key, _)| key == names::REPLACES) {
            self.replacements.insert(name.clone());
        } else {
            self.replacements.remove(&name);
        }
        let known = old.map(|old| (&**old, self.milestones.get(&name).copied().unwrap_or_default()));
        let milestones = Milestones::of(&claim, known, now);
        self.milestones.insert(name.clone(), milestones);
        self.claims.insert(name.clone(), Arc::new(claim));
        self.plan_version += 1;
        self.touch_claim(&name);
        self.feed_claim(&name);
    }

    pub(super) fn claim_gone(&mut self, name: &str, now: Now) {
        self.touch_claim(name);
        let Some(claim) = self.claims.remove(name) else { return };
        self.restless.remove(name);
        self.replacements.remove(name);
        self.milestones.remove(name);
        self.claim_changes += 1;
        self.cost = self.cost.saturating_sub(price(&claim).unwrap_or_default());
        change_set(&mut self.claims_of_pool, name, Some(&claim.spec.pool), None);
        self.unclaimed.lose(Arc::clone(&claim), now);
        self.graves.bury(claim.metadata.uid.as_deref().unwrap_or_default().into(), now);
        self.cluster.remove_coming(name);
        self.release_nominations(name);
        self.nominated_to.remove(name);
        self.plan_version += 1;
        if let Some(node) = claim.status.as_ref().and_then(|s| s.node_name.as_ref()) {
            change_set(&mut self.claims_of_node, name, Some(node), None);
            self.feed_node(node);
        }
    }
}
