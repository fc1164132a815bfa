//! kube-scheduler: filters by resources, taints and nodeSelector, and binds to the nominated node first.

use std::collections::BTreeMap;

use croft_controller::definitions::keys::DISRUPTED_TAINT;
use serde_json::json;

use super::{
    index::{ClusterIndex, NodeView, PodView},
    model::Tick,
    store::Id,
};

/// Which node a pod is bound to, of those that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Any: whatever the weights of kube-scheduler's plugins are, a node that it could choose is chosen at times.
    Random,
    /// The node with the largest share of CPU and memory left, as the plugin NodeResourcesFit scores by default.
    LeastAllocated,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    placement: Placement,
    /// Cordoned nodes by uid, and when kube-scheduler sees that: it reads a cache, and the API server binds to any node.
    closed: BTreeMap<String, u64>,
}

impl Scheduler {
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, closed: BTreeMap::new() }
    }

    fn is_seen_closed(&mut self, node: &NodeView, tick: &mut Tick<'_>) -> bool {
        if !node.closed {
            self.closed.remove(&node.uid);
            return false;
        }
        let random = &mut *tick.random;
        let seen = self
            .closed
            .entry(node.uid.clone())
            .or_insert_with(|| tick.ms + random.between(0, tick.timing.scheduler_lag_ms));
        *seen <= tick.ms
    }

    /// Names of the nodes that kube-scheduler takes for open.
    pub(crate) fn open_nodes(&mut self, index: &ClusterIndex, tick: &mut Tick<'_>) -> Vec<String> {
        let nodes = index.nodes().iter();
        nodes.filter(|(_, node)| !self.is_seen_closed(node, tick)).map(|(name, _)| name.clone()).collect()
    }

    /// Binds a pod, if it fits a node.
    pub(crate) fn bind(&self, id: &Id, open: &[String], index: &ClusterIndex, tick: &mut Tick<'_>) {
        let pod = &index.pods()[id];
        let fits = |name: &&String| {
            // The taint comes and is seen with the cordon.
            index.nodes().get(*name).is_some_and(|node| {
                node.admits(&pod.spec, DISRUPTED_TAINT)
                    && left(index, name, node, pod).iter().all(|left| *left >= 0)
            })
        };
        let candidates: Vec<&String> = open.iter().filter(fits).collect();
        let nominated = candidates.iter().find(|name| pod.nominated.as_ref() == Some(**name));
        let chosen = nominated.copied().or_else(|| match self.placement {
            Placement::Random => tick.random.pick(&candidates).copied(),
            Placement::LeastAllocated => {
                let score = |name: &String| {
                    let node = &index.nodes()[name];
                    let left = left(index, name, node, pod);
                    let share = |n: usize| left[n] as f64 / node.allocatable[n] as f64;
                    share(0) + share(1)
                };
                candidates.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))
            }
        });
        let Some(node) = chosen else { return };
        tick.store.change(id, |pod| {
            pod["spec"]["nodeName"] = json!(node);
            pod["status"].as_object_mut().unwrap().remove("nominatedNodeName");
        });
    }
}

/// The free amounts of a node with one more pod; below zero where the pod doesn't fit.
fn left(index: &ClusterIndex, name: &str, node: &NodeView, pod: &PodView) -> [i64; 3] {
    let used = index.used(name);
    std::array::from_fn(|n| node.allocatable[n] - used[n] - pod.requests[n])
}
