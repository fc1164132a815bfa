//! Where the pods of an input run, and what its nodes cost.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
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
pub(super) struct State {
    pub(super) nodes: BTreeMap<String, NodeInfo>,
    pods: BTreeMap<PodKey, Place>,
}

/// Where a pod runs, or is to run.
#[derive(Clone, Debug, Default)]
struct Place {
    node: Option<String>,
    pool: Option<String>,
}

impl State {
    /// The state of `input`, whose nodes without a recorded price cost what `types` say.
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

    /// Returns how `end` differs from `self`, for the nodes and pods that `scope` keeps.
    pub(super) fn compare(&self, end: &Self, pending: &BTreeSet<PodKey>, scope: &Scope<'_>) -> Figures {
        let is_in = |node: &&NodeInfo| (scope.has_node)(node);
        let new = end.nodes.values().filter(|node| !self.nodes.contains_key(&node.name));
        let gone = self.nodes.values().filter(|node| !end.nodes.contains_key(&node.name));
        let moved = |(pod, place): &(&PodKey, &Place)| {
            place.node.is_some() && end.pods.get(*pod).is_none_or(|now| now.node != place.node)
        };
        let has_pod = |pod: &PodKey, place: Option<&Place>| {
            (scope.has_pod)(pod, place.and_then(|place| place.pool.as_deref()))
        };
        Figures {
            cost: total_cost(end.nodes.values().filter(is_in)),
            nodes: end.nodes.values().filter(is_in).count(),
            launched: new.filter(is_in).count(),
            removed: gone.filter(|node| (scope.had_node)(node)).count(),
            moved: self.pods.iter().filter(moved).filter(|(pod, place)| has_pod(pod, Some(*place))).count(),
            pending: pending.iter().filter(|pod| has_pod(pod, end.pods.get(*pod))).count(),
        }
    }
}

/// A part of the cluster.
pub(super) struct Scope<'a> {
    /// True for its recorded nodes.
    pub(super) had_node: &'a dyn Fn(&NodeInfo) -> bool,
    /// True for its nodes at the end.
    pub(super) has_node: &'a dyn Fn(&NodeInfo) -> bool,
    /// True for its pods, each with its pool.
    pub(super) has_pod: &'a dyn Fn(&PodKey, Option<&str>) -> bool,
}
