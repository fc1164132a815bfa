//! Where the pods of an input run, and what its nodes cost.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use croft_api::convert::scheduler::value;
use croft_inspect::{
    inventory::{NodeInfo, active_pods, node_infos, node_of, total_cost},
    workload::controller,
};
use croft_manifest::Input;
use croft_scheduler::{InstanceType, PodKey};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::model::Figures;

/// The nodes in pools, and the pods that aren't a DaemonSet's.
#[derive(Clone, Debug, Default)]
pub(super) struct Placements {
    pub(super) nodes: BTreeMap<String, NodeInfo>,
    pods: BTreeMap<PodKey, Place>,
}

/// Where a pod runs, or is to run.
#[derive(Clone, Debug, Default)]
struct Place {
    node: Option<String>,
    pool: Option<String>,
}

impl Placements {
    /// Those of `input`, whose nodes without a recorded price cost what `types` say.
    pub(super) fn new(input: &Input, types: &Arc<[InstanceType]>) -> Self {
        let infos = node_infos(input, types).into_iter().filter(|node| node.pool.is_some());
        let nodes: BTreeMap<String, NodeInfo> = infos.map(|node| (node.name.clone(), node)).collect();
        let pools: HashMap<(String, String), String> =
            input.pools.iter().map(|pool| ((pool.spec.key.clone(), value(pool)), pool.name_any())).collect();
        let place = |pod: &Pod| {
            let node = node_of(pod).map(str::to_owned);
            let of_node = node.as_ref().and_then(|node| nodes.get(node)?.pool.clone());
            let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
            let of_selector = || {
                let mut wanted = selector?.iter();
                wanted.find_map(|(key, value)| pools.get(&(key.clone(), value.clone())).cloned())
            };
            Place { pool: of_node.or_else(of_selector), node }
        };
        let pods = active_pods(input)
            .filter(|pod| controller(&pod.metadata).is_none_or(|owner| owner.kind != "DaemonSet"))
            .map(|pod| (PodKey::new(&pod.namespace().unwrap_or_default(), &pod.name_any()), place(pod)))
            .collect();
        Self { nodes, pods }
    }

    /// The pool that a pod runs in or is to run in.
    pub(super) fn pool_of(&self, pod: &PodKey) -> Option<&str> {
        self.pods.get(pod)?.pool.as_deref()
    }

    /// Returns how `end` differs from `self`, for each part of the cluster that has nodes or pods. Every node and pod is looked at
    /// once, however many parts there are.
    pub(super) fn compare<'a>(
        &'a self,
        end: &'a Self,
        pending: impl Iterator<Item = &'a PodKey>,
        parts: &Parts<'_, 'a>,
    ) -> BTreeMap<&'a str, Figures> {
        let mut figures: BTreeMap<&str, Figures> = BTreeMap::new();
        let mut nodes: BTreeMap<&str, Vec<&NodeInfo>> = BTreeMap::new();
        for node in end.nodes.values() {
            let is_new = !self.nodes.contains_key(&node.name);
            for part in (parts.of_node)(node) {
                nodes.entry(part).or_default().push(node);
                let of_part = figures.entry(part).or_default();
                of_part.nodes += 1;
                of_part.launched += usize::from(is_new);
            }
        }
        for (part, nodes) in nodes {
            figures.entry(part).or_default().cost = total_cost(nodes.into_iter());
        }
        for node in self.nodes.values().filter(|node| !end.nodes.contains_key(&node.name)) {
            for part in (parts.of_recorded_node)(node) {
                figures.entry(part).or_default().removed += 1;
            }
        }
        for (pod, place) in &self.pods {
            let moved = place.node.is_some() && end.pods.get(pod).is_none_or(|now| now.node != place.node);
            if moved && let Some(part) = (parts.of_pod)(pod, place.pool.as_deref()) {
                figures.entry(part).or_default().moved += 1;
            }
        }
        for pod in pending {
            if let Some(part) = (parts.of_pod)(pod, end.pool_of(pod)) {
                figures.entry(part).or_default().pending += 1;
            }
        }
        figures
    }
}

/// The parts of a cluster, such as its pools, by name.
pub(super) struct Parts<'f, 'a> {
    /// The parts that a recorded node belongs to, each once.
    pub(super) of_recorded_node: &'f dyn Fn(&'a NodeInfo) -> Vec<&'a str>,
    /// The parts that a node at the end belongs to, each once.
    pub(super) of_node: &'f dyn Fn(&'a NodeInfo) -> Vec<&'a str>,
    /// The part of a pod, which runs or is to run in a pool.
    pub(super) of_pod: &'f dyn Fn(&'a PodKey, Option<&'a str>) -> Option<&'a str>,
}
