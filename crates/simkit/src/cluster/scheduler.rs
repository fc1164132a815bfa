//! kube-scheduler: filters by resources, taints and nodeSelector, and binds to the nominated node first. A pod that fits
//! no node gets the condition PodScheduled, and loses its nomination.

use std::collections::{BTreeMap, BTreeSet};

use croft_controller::definitions::keys::DISRUPTED_TAINT;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    index::{ClusterIndex, NodeView, PodView},
    model::Tick,
    store::Id,
    volumes,
};

/// The weight of the plugin TaintToleration beside that of NodeResourcesFit, which is 1.
/// Source: kubernetes, pkg/scheduler/apis/config/v1/default_plugins.go.
const TAINT_WEIGHT: f64 = 3.0;

/// Which node a pod is bound to, of those that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Any: whatever the weights of kube-scheduler's plugins are, a node that it could choose is chosen at times.
    Random,
    /// The node with the highest score of the plugins NodeResourcesFit, by the share of CPU and memory that is left, and
    /// TaintToleration.
    LeastAllocated,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    placement: Placement,
    /// Cordoned nodes by uid, and when kube-scheduler sees that: it reads a cache, and the API server binds to any node.
    closed: BTreeMap<String, u64>,
    /// Until when other pods keep it busy.
    busy_until: Option<u64>,
}

impl Scheduler {
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, closed: BTreeMap::new(), busy_until: None }
    }

    pub(crate) const fn keep_busy(&mut self, until: u64) {
        self.busy_until = Some(until);
    }

    /// True while other pods keep it busy. Ends that time if it is over.
    pub(crate) fn is_busy(&mut self, ms: u64) -> bool {
        self.busy_until = self.busy_until.filter(|until| *until > ms);
        self.busy_until.is_some()
    }

    /// When it comes to the waiting pods.
    pub(crate) const fn next_due(&self) -> Option<u64> {
        self.busy_until
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
        let zones = pod.spec.spreads_over_zones.then(|| ZoneCounts::of(index, pod));
        let shared =
            if pod.spec.is_together_in_zone { zones_of_workload(index, pod) } else { BTreeSet::new() };
        let claim = pod.spec.claim.as_ref();
        let zone = claim.map(|claim| volumes::zone_of(tick.store, &id.1, claim));
        let fits = |name: &&String| {
            // The taint comes and is seen with the cordon.
            index.nodes().get(*name).is_some_and(|node| {
                node.admits(&pod.spec, DISRUPTED_TAINT)
                    && zones.as_ref().is_none_or(|zones| zones.allows(node))
                    && zone.is_none_or(|zone| zone.is_some() && zone == node.zone().map(String::as_str))
                    && (shared.is_empty() || node.zone().is_some_and(|zone| shared.contains(zone)))
                    && !(pod.spec.is_alone_on_host && has_other_of_workload(index, name, pod))
                    && left(index, name, node, pod).iter().all(|left| *left >= 0)
            })
        };
        let candidates: Vec<&String> = open.iter().filter(fits).collect();
        let nominated = candidates.iter().find(|name| pod.nominated.as_ref() == Some(**name));
        let chosen = nominated.copied().or_else(|| match self.placement {
            Placement::Random => tick.random.pick(&candidates).copied(),
            Placement::LeastAllocated => {
                let most = candidates.iter().map(|name| index.nodes()[*name].intolerable(&pod.spec)).max();
                let score = |name: &String| {
                    let node = &index.nodes()[name];
                    let left = left(index, name, node, pod);
                    let share = |n: usize| left[n] as f64 / node.allocatable[n] as f64;
                    // Of 2 at most, where the plugin has 100.
                    let fit = share(0) + share(1);
                    fit + 2.0 * TAINT_WEIGHT * without_taints(node.intolerable(&pod.spec), most.unwrap_or(0))
                };
                candidates.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))
            }
        });
        let now = tick.now;
        let Some(node) = chosen else {
            report_failure(id, index.nodes().len(), tick);
            return;
        };
        tracing::debug!(?id, node, at = %now, "bound");
        tick.store.change(id, |pod| {
            pod["spec"]["nodeName"] = json!(node);
            pod["status"].as_object_mut().unwrap().remove("nominatedNodeName");
            set_scheduled(pod, "True", "", "", now);
        });
    }
}

/// The score of the plugin TaintToleration, 1 at most: the count of taints that a pod doesn't tolerate, as a share of the
/// largest count of all nodes that it fits, reversed. Where no node has such a taint, it is the same for all.
/// Source: kubernetes, pkg/scheduler/framework/plugins/tainttoleration and helper/normalize_score.go.
fn without_taints(intolerable: usize, most: usize) -> f64 {
    // The plugin's scores are whole numbers up to 100.
    (intolerable * 100).checked_div(most).map_or(0.0, |score| (100 - score) as f64 / 100.0)
}

fn has_other_of_workload(index: &ClusterIndex, node: &str, pod: &PodView) -> bool {
    index.pods_on(node).any(|id| index.pods()[id].workload == pod.workload)
}

/// Zones with a pod of the same workload, those that end included, as the plugin InterPodAffinity counts. A pod that has
/// affinity to its own workload may be anywhere while there is none.
fn zones_of_workload<'i>(index: &'i ClusterIndex, pod: &PodView) -> BTreeSet<&'i String> {
    let of_workload = pod.workload.into_iter().flat_map(|number| index.pods_of(number));
    let nodes = of_workload.filter_map(|(_, other)| index.nodes().get(other.node.as_ref()?));
    nodes.filter_map(NodeView::zone).collect()
}

/// Pods of one workload by zone, as the plugin PodTopologySpread counts them: in zones with a node that the pods select,
/// closed nodes and nodes with taints included, pods that end left out.
struct ZoneCounts<'i>(BTreeMap<&'i String, i64>);

impl<'i> ZoneCounts<'i> {
    fn of(index: &'i ClusterIndex, pod: &PodView) -> Self {
        let mut counts: BTreeMap<&String, i64> = BTreeMap::new();
        for (name, node) in index.nodes().iter().filter(|(_, node)| node.is_selected_by(&pod.spec)) {
            let Some(zone) = node.zone() else { continue };
            let of_workload = |id: &&Id| {
                let other = &index.pods()[*id];
                other.workload == pod.workload && !other.deleting
            };
            *counts.entry(zone).or_default() +=
                i64::try_from(index.pods_on(name).filter(of_workload).count()).unwrap();
        }
        Self(counts)
    }

    /// `maxSkew` 1 after one more pod on the node.
    fn allows(&self, node: &NodeView) -> bool {
        let least = self.0.values().min().copied().unwrap_or(0);
        node.zone().and_then(|zone| self.0.get(zone)).is_some_and(|count| count + 1 - least <= 1)
    }
}

/// A failed attempt: the pod says so, and is no longer nominated.
fn report_failure(id: &Id, nodes: usize, tick: &mut Tick<'_>) {
    let message = format!("0/{nodes} nodes are available");
    let Some(pod) = tick.store.get(id) else { return };
    let said = &pod["status"]["conditions"][0]["message"];
    if *said == json!(message) && pod["status"]["nominatedNodeName"].is_null() {
        return;
    }
    let now = tick.now;
    tick.store.change(id, |pod| {
        pod["status"].as_object_mut().unwrap().remove("nominatedNodeName");
        set_scheduled(pod, "False", "Unschedulable", &message, now);
    });
}

fn set_scheduled(pod: &mut Value, status: &str, reason: &str, message: &str, now: Timestamp) {
    let before = &pod["status"]["conditions"][0];
    let since = if before["status"] == json!(status) {
        before["lastTransitionTime"].clone()
    } else {
        json!(now.to_string())
    };
    pod["status"]["conditions"] = json!([{
        "type": "PodScheduled", "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    }]);
}

/// The free amounts of a node with one more pod; below zero where the pod doesn't fit.
fn left(index: &ClusterIndex, name: &str, node: &NodeView, pod: &PodView) -> [i64; 3] {
    let used = index.used(name);
    std::array::from_fn(|n| node.allocatable[n] - used[n] - pod.requests[n])
}
