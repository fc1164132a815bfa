//! Nodes.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::{dirty_set::move_between_sets, snapshot::Snapshot, views::NodeView};
use crate::{definitions::keys, time::Now};

impl Snapshot {
    pub(super) fn observe_node(&mut self, node: Box<Node>, now: Now) {
        let name = node.name_any();
        let mut view = NodeView::read(&node);
        if self.is_superseded(
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
        let pool = view.labels.get(keys::POOL_NAME_LABEL).cloned();
        let old = self.nodes.insert(name.clone(), view);
        let before = old.as_ref().and_then(|old| old.labels.get(keys::POOL_NAME_LABEL));
        if before != pool.as_ref() {
            self.unclaimed.count_again();
        }
        move_between_sets(&mut self.nodes_of_pool, &name, before, pool.as_ref());
        self.raw_nodes.insert(name.clone(), node);
        self.mark_node_dirty(&name);
        self.update_cluster_node(&name);
    }

    pub(super) fn remove_node(&mut self, name: &str, now: Now) {
        self.mark_node_dirty(name);
        if let Some(view) = self.nodes.remove(name) {
            move_between_sets(&mut self.nodes_of_pool, name, view.labels.get(keys::POOL_NAME_LABEL), None);
            self.tombstones.insert(view.uid, now);
            self.unclaimed.count_again();
        }
        self.raw_nodes.remove(name);
        self.cluster.remove_node(name);
        self.problems.remove(&format!("Node {name}"));
        self.plan_version += 1;
        for claim in self.claims_of_node.get(name).cloned().unwrap_or_default() {
            self.update_cluster_claim(&claim);
        }
    }
}
