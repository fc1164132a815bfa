//! An index of pods and nodes for the models, read from the store's log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_cloud::instance_id;
use croft_scheduler::Quantity;
use serde_json::{Value, json};

use super::{
    store::{Id, Logged, Store},
    workload::Workload,
};

/// The label of a node's zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// CPU in thousandths, memory in bytes, and pods.
pub type Amounts = [i64; 3];

const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// A taint, or what a toleration is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taint {
    pub(crate) key: String,
    value: String,
    effect: String,
}

/// The parts of a pod's spec that kube-scheduler reads. They don't change.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodSpec {
    selector: Vec<(String, String)>,
    tolerations: Vec<Toleration>,
    /// No other pod of its workload may be on its node.
    pub(crate) is_alone_on_host: bool,
    /// It counts the pods of its workload by zone.
    pub(crate) spreads_over_zones: bool,
    /// It is in the zone of the pods of its workload.
    pub(crate) is_together_in_zone: bool,
    /// The name of its PersistentVolumeClaim.
    pub(crate) claim: Option<String>,
}

#[derive(Clone, Debug)]
struct Toleration {
    key: Option<String>,
    value: String,
    effect: Option<String>,
    any_value: bool,
}

/// A pod, as the models see it.
#[derive(Clone, Debug)]
pub struct PodView {
    /// Its workload, as an index of [`super::model::ClusterModel::workloads`]; `None` for a pod of none of them.
    pub workload: Option<usize>,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// Its phase is Running.
    pub running: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// When it was first seen, in milliseconds since 1970.
    pub seen_ms: u64,
    pub(crate) nominated: Option<String>,
    pub(crate) requests: Amounts,
    pub(crate) spec: Arc<PodSpec>,
}

/// A Node, as the models see it.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The value of the label `node-pool`; empty without one.
    pub pool: String,
    /// The status of its condition Ready.
    pub ready: String,
    pub(crate) uid: String,
    /// The id of its instance.
    pub(crate) instance: Option<String>,
    /// It is cordoned or being deleted.
    pub(crate) closed: bool,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: Amounts,
    labels: BTreeMap<String, String>,
}

impl NodeView {
    /// True if a taint has this key.
    pub(crate) fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint.key == key)
    }

    /// True if the node has what the pod's nodeSelector asks for, and no taint but `ignored` that the pod doesn't tolerate.
    /// PreferNoSchedule keeps no pod off.
    pub(crate) fn admits(&self, pod: &PodSpec, ignored: &str) -> bool {
        self.is_selected_by(pod)
            && self.taints.iter().all(|taint| {
                taint.key == ignored || taint.effect == PREFER_NO_SCHEDULE || pod.tolerates(taint)
            })
    }

    /// How many taints with PreferNoSchedule the pod doesn't tolerate.
    pub(crate) fn intolerable(&self, pod: &PodSpec) -> usize {
        let soft = self.taints.iter().filter(|taint| taint.effect == PREFER_NO_SCHEDULE);
        soft.filter(|taint| !pod.tolerates(taint)).count()
    }
}

impl NodeView {
    /// True if the node has what the pod's nodeSelector asks for.
    pub(crate) fn is_selected_by(&self, pod: &PodSpec) -> bool {
        pod.selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// Its zone.
    pub(crate) fn zone(&self) -> Option<&String> {
        self.labels.get(ZONE)
    }
}

impl PodSpec {
    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

impl Toleration {
    fn covers(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && (self.any_value || self.value == taint.value)
            && self.effect.as_ref().is_none_or(|effect| *effect == taint.effect)
    }
}

/// Pods and nodes by what the models look up.
#[derive(Debug, Default)]
pub struct ClusterIndex {
    pods: BTreeMap<Id, PodView>,
    nodes: BTreeMap<String, NodeView>,
    /// Pods by the name of the Node that they are bound to, whether it is there or not.
    bound: BTreeMap<String, BTreeSet<Id>>,
    used: BTreeMap<String, Amounts>,
    of_workload: Vec<BTreeSet<Id>>,
    numbers: BTreeMap<(String, String), usize>,
    pub(crate) waiting: BTreeSet<Id>,
    /// Bound pods that a kubelet has yet to start, or to end.
    pub(crate) unsettled: BTreeSet<Id>,
    /// Workloads whose pods have changed since their controller has looked.
    pub(crate) stale: BTreeSet<usize>,
    /// Up to where the log is read, and of which era.
    position: usize,
    era: u64,
}

impl ClusterIndex {
    pub(crate) fn new(workloads: &[Workload]) -> Self {
        let number = |(n, w): (usize, &Workload)| ((w.namespace.clone(), w.app.clone()), n);
        Self {
            numbers: workloads.iter().enumerate().map(number).collect(),
            of_workload: vec![BTreeSet::new(); workloads.len()],
            stale: (0..workloads.len()).collect(),
            ..Self::default()
        }
    }

    /// Every pod.
    #[must_use]
    pub const fn pods(&self) -> &BTreeMap<Id, PodView> {
        &self.pods
    }

    /// Every Node, by name.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<String, NodeView> {
        &self.nodes
    }

    /// Pods that are bound to a Node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Id> {
        self.bound.get(node).into_iter().flatten()
    }

    /// Names that pods are bound to.
    pub(crate) fn bound_nodes(&self) -> impl Iterator<Item = &String> {
        self.bound.keys()
    }

    /// Pods of a workload.
    pub fn pods_of(&self, workload: usize) -> impl Iterator<Item = (&Id, &PodView)> {
        self.of_workload[workload].iter().map(|id| (id, &self.pods[id]))
    }

    /// Pods of a workload that run on a node that is Ready.
    #[must_use]
    pub fn healthy(&self, workload: usize) -> u64 {
        let ready = |node: &Option<String>| {
            node.as_ref().and_then(|n| self.nodes.get(n)).is_some_and(|n| n.ready == "True")
        };
        self.pods_of(workload).filter(|(_, p)| p.running && !p.deleting && ready(&p.node)).count() as u64
    }

    /// The requests of the pods bound to a node.
    pub(crate) fn used(&self, node: &str) -> Amounts {
        self.used.get(node).copied().unwrap_or_default()
    }

    /// Reads what the log has since the last time; all objects anew if the log was cut. `seen` is told of each entry, with
    /// the pod as it was before.
    pub(crate) fn read(
        &mut self,
        store: &Store,
        ms: u64,
        mut seen: impl FnMut(&Self, &Logged, Option<PodView>),
    ) {
        if store.era != self.era {
            self.relist(store, ms);
            return;
        }
        let from = std::mem::replace(&mut self.position, store.end());
        for logged in store.since(from) {
            let old = self.apply(&logged.id, &logged.object, logged.deleted, ms);
            seen(self, logged, old);
        }
    }

    fn relist(&mut self, store: &Store, ms: u64) {
        let (numbers, workloads) = (std::mem::take(&mut self.numbers), self.of_workload.len());
        *self = Self {
            numbers,
            of_workload: vec![BTreeSet::new(); workloads],
            stale: (0..workloads).collect(),
            position: store.end(),
            era: store.era,
            ..Self::default()
        };
        for kind in ["Node", "Pod"] {
            for (id, object) in store.of_kind(kind) {
                self.apply(id, object, false, ms);
            }
        }
    }

    fn apply(&mut self, id: &Id, object: &Value, deleted: bool, ms: u64) -> Option<PodView> {
        match id.0 {
            "Pod" => self.apply_pod(id, object, deleted, ms),
            "Node" => {
                self.apply_node(&id.2, object, deleted);
                None
            }
            _ => None,
        }
    }

    fn apply_pod(&mut self, id: &Id, object: &Value, deleted: bool, ms: u64) -> Option<PodView> {
        let old = self.pods.remove(id);
        if let Some((node, pod)) = old.as_ref().and_then(|pod| Some((pod.node.as_ref()?, pod))) {
            self.add_used(node, pod.requests, -1);
            if let Some(pods) = self.bound.get_mut(node) {
                pods.remove(id);
                if pods.is_empty() {
                    self.bound.remove(node);
                    self.used.remove(node);
                }
            }
        }
        self.waiting.remove(id);
        self.unsettled.remove(id);
        let new = (!deleted).then(|| self.pod(id, object, old.as_ref(), ms));
        if let Some(number) = new.as_ref().or(old.as_ref()).and_then(|pod| pod.workload) {
            self.stale.insert(number);
            if new.is_some() {
                self.of_workload[number].insert(id.clone());
            } else {
                self.of_workload[number].remove(id);
            }
        }
        let Some(new) = new else { return old };
        match &new.node {
            Some(node) => {
                self.add_used(node, new.requests, 1);
                self.bound.entry(node.clone()).or_default().insert(id.clone());
                if new.deleting || !new.running {
                    self.unsettled.insert(id.clone());
                }
            }
            None if !new.deleting => {
                self.waiting.insert(id.clone());
            }
            None => {}
        }
        self.pods.insert(id.clone(), new);
        old
    }

    fn add_used(&mut self, node: &str, requests: Amounts, sign: i64) {
        let used = self.used.entry(node.to_owned()).or_default();
        for (used, requested) in used.iter_mut().zip(requests) {
            *used += sign * requested;
        }
    }

    fn pod(&self, id: &Id, object: &Value, old: Option<&PodView>, ms: u64) -> PodView {
        let app = text(&object["metadata"]["labels"]["app"]).unwrap_or_default();
        let (requests, spec) = match old {
            Some(old) => (old.requests, Arc::clone(&old.spec)),
            None => (requests(object), Arc::new(pod_spec(object))),
        };
        PodView {
            workload: self.numbers.get(&(id.1.clone(), app)).copied(),
            node: text(&object["spec"]["nodeName"]),
            running: object["status"]["phase"] == json!("Running"),
            deleting: !object["metadata"]["deletionTimestamp"].is_null(),
            seen_ms: old.map_or(ms, |old| old.seen_ms),
            nominated: text(&object["status"]["nominatedNodeName"]),
            requests,
            spec,
        }
    }

    fn apply_node(&mut self, name: &str, object: &Value, deleted: bool) {
        let new = (!deleted).then(|| node_view(object));
        let before = self.nodes.get(name).map(|node| &node.ready);
        if before != new.as_ref().map(|node| &node.ready) {
            let pods = self.bound.get(name).into_iter().flatten();
            self.stale.extend(pods.filter_map(|id| self.pods[id].workload));
        }
        match new {
            Some(new) => self.nodes.insert(name.to_owned(), new),
            None => self.nodes.remove(name),
        };
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn amounts(of: &Value, pods: i64) -> Amounts {
    let read = |key: &str| of[key].as_str().unwrap_or("0").parse::<Quantity>().unwrap();
    [read("cpu").millis(), read("memory").units(), pods]
}

fn requests(pod: &Value) -> Amounts {
    amounts(&pod["spec"]["containers"][0]["resources"]["requests"], 1)
}

fn pod_spec(pod: &Value) -> PodSpec {
    let selector = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    let tolerations = pod["spec"]["tolerations"].as_array().into_iter().flatten();
    PodSpec {
        selector: selector
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        tolerations: tolerations
            .map(|t| Toleration {
                key: text(&t["key"]),
                value: text(&t["value"]).unwrap_or_default(),
                effect: text(&t["effect"]).filter(|effect| !effect.is_empty()),
                any_value: t["operator"] == json!("Exists"),
            })
            .collect(),
        is_alone_on_host: pod["spec"]["affinity"]["podAntiAffinity"].is_object(),
        spreads_over_zones: pod["spec"]["topologySpreadConstraints"].is_array(),
        is_together_in_zone: pod["spec"]["affinity"]["podAffinity"].is_object(),
        claim: text(&pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]),
    }
}

fn node_view(node: &Value) -> NodeView {
    let metadata = &node["metadata"];
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let allocatable = &node["status"]["allocatable"];
    let pods = allocatable["pods"].as_str().unwrap_or("0").parse::<Quantity>().unwrap();
    NodeView {
        pool: text(&metadata["labels"]["node-pool"]).unwrap_or_default(),
        ready: text(&node["status"]["conditions"][0]["status"]).unwrap_or_default(),
        uid: text(&metadata["uid"]).unwrap_or_default(),
        instance: node["spec"]["providerID"].as_str().map(|id| instance_id(id).to_owned()),
        closed: node["spec"]["unschedulable"] == json!(true) || !metadata["deletionTimestamp"].is_null(),
        taints: taints
            .map(|t| Taint {
                key: text(&t["key"]).unwrap_or_default(),
                value: text(&t["value"]).unwrap_or_default(),
                effect: text(&t["effect"]).unwrap_or_default(),
            })
            .collect(),
        allocatable: amounts(allocatable, pods.units()),
        labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
    }
}
