//! Where kube-scheduler binds a pod without a nomination.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    existing::placement::Existing,
    ids::{ClassIx, NodeIx},
    state::{
        requests::{ResourceId, amount},
        taint,
    },
    topology::groups::Groups,
};

impl Existing<'_> {
    /// Places each pod on the node where it leaves the largest share free, as kube-scheduler's LeastAllocated
    /// does. Nodes with a PreferNoSchedule taint that it doesn't tolerate come last: TaintToleration weighs three times
    /// as much.
    pub(super) fn place_on_emptiest(
        &mut self,
        groups: &mut Groups,
        number: ClassIx,
        nodes: &[NodeIx],
        most: u32,
    ) {
        let least = self.left[number].saturating_sub(most);
        let shape = self.demand.classes[number].shape(self.cluster);
        let requests = &shape.requests;
        let tolerations = self.cluster.tables.tolerations.get(shape.tolerations);
        let is_welcome = |node: NodeIx| {
            let info = self.cluster.nodes[node].info.as_ref();
            !info.is_some_and(|info| taint::is_discouraged(tolerations, &info.taints))
        };
        // Among equals, the first of `nodes`.
        let mut heap: BinaryHeap<(bool, i64, Reverse<usize>, NodeIx)> = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| self.is_open(number, **node, true) && self.has_room(**node, requests, &[]))
            .map(|(rank, node)| (is_welcome(*node), self.share_left(*node, requests), Reverse(rank), *node))
            .collect();
        while self.left[number] > least
            && let Some((welcome, _, rank, node)) = heap.pop()
        {
            self.steps += 1;
            let placed = self.put(groups, number, node, 1);
            if placed > 0 {
                self.record(number, node, placed);
                heap.push((welcome, self.share_left(node, requests), rank, node));
            }
        }
    }

    /// Free share of a node's cpu and memory with one more pod on it, in thousandths of each.
    fn share_left(&self, node: NodeIx, requests: &[(ResourceId, i64)]) -> i64 {
        let free = self.free(node);
        let has = self.cluster.nodes[node].info.as_ref().map_or(&[][..], |i| &i.allocatable);
        let share = |id: ResourceId| {
            let free = free.and_then(|free| free.find(id)).copied().unwrap_or(0);
            let left = free.saturating_sub(amount(requests, id));
            left.saturating_mul(1000) / amount(has, id).max(1)
        };
        share(ResourceId::CPU).saturating_add(share(ResourceId::MEMORY))
    }
}
