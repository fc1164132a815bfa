//! Kubelets, and what the node controller says of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_ec2_sim::{
    resources::{Instance, State},
    userdata,
    world::{Happening, World},
};
use croft_scheduler::InstanceType;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    daemonset::is_of_daemonset,
    index::{ClusterIndex, NodeView, ZONE},
    model::Tick,
    store::{Id, Store, cluster_id},
    workload::Workload,
};

pub(crate) const REGION: &str = "us-east-1";
/// The taint of a node that isn't Ready yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The taint of a node whose kubelet is silent.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// From a deletion timestamp on, after which a pod is no longer lost with its instance, in seconds.
const STUCK_AFTER_SECONDS: i64 = 60;

#[derive(Debug)]
pub(crate) struct Kubelets {
    types: Arc<[InstanceType]>,
    /// Instances that boot, and when their kubelet does its next step.
    booting: BTreeMap<String, u64>,
    /// Instances whose kubelet runs.
    up: BTreeSet<String>,
    /// Kubelets that are silent from one moment to another, by instance.
    silent: BTreeMap<String, (u64, u64)>,
    /// When a pod starts, or ends if the second is true.
    due: BTreeMap<(Id, bool), u64>,
}

impl Kubelets {
    pub(crate) fn new(types: Arc<[InstanceType]>) -> Self {
        Self {
            types,
            booting: BTreeMap::new(),
            up: BTreeSet::new(),
            silent: BTreeMap::new(),
            due: BTreeMap::new(),
        }
    }

    pub(crate) fn silence(&mut self, instance: &str, from: u64, until: u64) {
        self.silent.insert(instance.to_owned(), (from, until));
    }

    pub(crate) fn has_silent(&self) -> bool {
        !self.silent.is_empty()
    }

    fn is_silent(&self, instance: &str, ms: u64) -> bool {
        self.silent.get(instance).is_some_and(|(from, until)| (*from..*until).contains(&ms))
    }

    /// True if a boot, or the start or end of a pod, is due.
    pub(crate) fn is_due(&self, ms: u64) -> bool {
        self.booting.values().chain(self.due.values()).any(|at| *at <= ms)
    }

    /// When a kubelet has something to do next, if nothing else happens.
    pub(crate) fn next_due(&self, ms: u64) -> Option<u64> {
        let silent = self.silent.values().flat_map(|(from, until)| [*from, *until]);
        let later = self.due.values().copied().chain(silent).filter(|at| *at > ms);
        self.booting.values().copied().chain(later).min()
    }

    /// Follows what has happened to instances.
    pub(crate) fn follow(&mut self, happenings: &[Happening], tick: &mut Tick<'_>) {
        for happening in happenings {
            match happening {
                Happening::Running(id) => self.boot(id, tick),
                Happening::Gone(id) => self.lose(id, tick),
            }
        }
    }

    /// An instance runs: its kubelet boots, if its image works.
    fn boot(&mut self, id: &str, tick: &mut Tick<'_>) {
        if tick.world.settings.boots {
            let (low, high) = tick.timing.boot_ms;
            self.booting.insert(id.to_owned(), tick.ms + tick.random.between(low, high));
        }
    }

    /// An instance is gone: its pods end with it.
    fn lose(&mut self, id: &str, tick: &mut Tick<'_>) {
        self.booting.remove(id);
        self.up.remove(id);
        let (store, now) = (&mut *tick.store, tick.now);
        let Some(instance) = tick.world.instance(id) else { return };
        let name = instance.dns_name(REGION);
        let node = cluster_id("Node", &name);
        let is_own = |node: &Value| node["spec"]["providerID"].as_str().is_some_and(|p| p.ends_with(id));
        if store.get(&node).is_some_and(|node| !is_own(node)) {
            return;
        }
        store.change(&node, |node| set_ready(node, "False", now));
        let is_stuck = |pod: &Value| {
            let due = pod["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse::<Timestamp>().ok());
            due.is_some_and(|due| now.duration_since(due).as_secs() >= STUCK_AFTER_SECONDS)
        };
        let killed: Vec<String> = store
            .of_kind("Pod")
            .filter(|(_, pod)| {
                pod["spec"]["nodeName"] == json!(name) && !is_stuck(pod) && !is_of_daemonset(pod)
            })
            .map(|(id, _)| id.2.clone())
            .collect();
        // A termination by the cloud itself is no controller's fault. Nor are pods that a restoration brought back onto an
        // instance whose termination had been sent before: nothing could call it back.
        store.taken += killed.len() as u64;
        let is_older = store.terminations.get(id).is_some_and(|era| *era < store.era);
        if killed.is_empty() || !instance.reason.starts_with("Client.") {
            return;
        }
        if is_older {
            tracing::debug!(
                id,
                pods = killed.join(", "),
                "excused: the pods came back with a restored backup"
            );
            store.excused += 1;
        } else {
            store.broken.push(format!("instance {id} was terminated with pods on it: {}", killed.join(", ")));
        }
    }

    /// Instances whose boot is over register their node, and start to report it after that.
    pub(crate) fn register(&mut self, tick: &mut Tick<'_>) {
        let due = self.booting.iter().filter(|(_, due)| **due <= tick.ms).map(|(id, _)| id.clone());
        for id in due.collect::<Vec<_>>() {
            let Some(instance) = tick.world.instance(&id).filter(|i| i.state == State::Running) else {
                self.booting.remove(&id);
                continue;
            };
            let node = cluster_id("Node", &instance.dns_name(REGION));
            if tick.store.get(&node).is_none() {
                tick.store.create(node, self.node(&id, instance, tick.now), tick.now);
                let (low, high) = tick.timing.ready_ms;
                self.booting.insert(id, tick.ms + tick.random.between(low, high));
            } else {
                self.booting.remove(&id);
                self.up.insert(id);
            }
        }
    }

    fn node(&self, id: &str, instance: &Instance, now: Timestamp) -> Value {
        let told = told(&instance.data.user_data);
        let kind = self.types.iter().find(|t| t.name == instance.instance_type).unwrap();
        let mut taints = told["taints"].as_array().cloned().unwrap_or_default();
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        let mut labels = told["labels"].clone();
        labels["kubernetes.io/hostname"] = json!(instance.dns_name(REGION));
        // The cloud controller manager's.
        labels[ZONE] = json!(instance.zone);
        labels["node.kubernetes.io/instance-type"] = json!(instance.instance_type);
        json!({
            "apiVersion": "v1", "kind": "Node",
            // The controller manager's, as on every node.
            "metadata": {"labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
            "spec": {"providerID": format!("aws:///{}/{id}", instance.zone), "taints": taints},
            "status": {
                "capacity": kind.capacity.to_quantities(),
                "allocatable": kind.allocatable().to_quantities(),
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now.to_string()}],
            },
        })
    }

    /// A kubelet reports its node as Ready; the node controller reports when it no longer does.
    pub(crate) fn report(&mut self, index: &ClusterIndex, tick: &mut Tick<'_>) {
        let (world, now, ms) = (tick.world, tick.now, tick.ms);
        mark_lost(index, tick.store, world, now);
        for (name, node) in index.nodes() {
            let Some(instance) = node.instance.as_ref() else { continue };
            if !is_alive(world, instance) || !self.up.contains(instance) {
                continue;
            }
            if self.is_silent(instance, ms) {
                report_unreachable(tick.store, name, node, now);
            } else if node.ready != "True" || node.has_taint(NOT_READY) || node.has_taint(UNREACHABLE) {
                tick.store.change(&cluster_id("Node", name), |node| {
                    set_ready(node, "True", now);
                    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
                        taints.retain(|t| t["key"] != json!(NOT_READY) && t["key"] != json!(UNREACHABLE));
                    }
                });
            }
        }
        self.silent.retain(|_, (_, until)| *until > ms);
    }

    /// Pods of nodes whose kubelet works start, and end once they are told to.
    pub(crate) fn run_pods(&mut self, workloads: &[Workload], index: &ClusterIndex, tick: &mut Tick<'_>) {
        let (world, now, ms) = (tick.world, tick.now, tick.ms);
        // A kubelet whose Node was deleted goes on with its pods.
        let without_node: BTreeSet<String> = self
            .up
            .iter()
            .filter(|id| is_alive(world, id) && !self.is_silent(id, ms))
            .filter_map(|id| Some(world.instance(id)?.dns_name(REGION)))
            .filter(|name| !index.nodes().contains_key(name))
            .collect();
        let mut due = BTreeMap::new();
        for id in &index.unsettled {
            let pod = &index.pods()[id];
            let Some(node) = &pod.node else { continue };
            let works = index.nodes().get(node).is_some_and(|node| node.ready == "True");
            if !works && !without_node.contains(node) {
                continue;
            }
            let end_ms = pod.workload.and_then(|n| workloads[n].end_ms).unwrap_or(tick.timing.end_ms);
            let takes = if pod.deleting { end_ms } else { tick.timing.start_ms };
            let key = (id.clone(), pod.deleting);
            let at = self.due.get(&key).copied().unwrap_or(ms + takes);
            if at > ms {
                due.insert(key, at);
                continue;
            }
            if pod.deleting {
                tick.store.remove(id);
            } else {
                tick.store.change(id, |pod| {
                    pod["status"]["phase"] = json!("Running");
                    pod["status"]["startTime"] = json!(now.to_string());
                });
            }
        }
        self.due = due;
    }
}

/// The labels and taints in user data: that of a supported image, or the model's JSON.
fn told(user_data: &[u8]) -> Value {
    if let Ok(json) = serde_json::from_slice(user_data) {
        return json;
    }
    let settings = userdata::read(user_data).unwrap();
    let taint = |t: &userdata::Taint| json!({"key": t.key, "value": t.value, "effect": t.effect});
    json!({"labels": settings.labels, "taints": settings.taints.iter().map(taint).collect::<Vec<_>>()})
}

/// Nodes whose instance is gone aren't Ready.
pub(crate) fn mark_lost(index: &ClusterIndex, store: &mut Store, world: &World, now: Timestamp) {
    for (name, node) in index.nodes() {
        let lost = node.instance.as_ref().is_some_and(|instance| !is_alive(world, instance));
        if lost && node.ready != "False" {
            store.change(&cluster_id("Node", name), |node| set_ready(node, "False", now));
        }
    }
}

fn report_unreachable(store: &mut Store, name: &str, node: &NodeView, now: Timestamp) {
    if node.ready == "Unknown" && node.has_taint(UNREACHABLE) {
        return;
    }
    store.change(&cluster_id("Node", name), |node| {
        set_ready(node, "Unknown", now);
        let taints = node["spec"].as_object_mut().unwrap().entry("taints").or_insert_with(|| json!([]));
        let taints = taints.as_array_mut().unwrap();
        if !taints.iter().any(|t| t["key"] == json!(UNREACHABLE)) {
            taints.push(json!({"key": UNREACHABLE, "effect": "NoSchedule"}));
        }
    });
}

fn set_ready(node: &mut Value, status: &str, now: Timestamp) {
    let ready = &mut node["status"]["conditions"][0];
    if ready["status"] != json!(status) {
        ready["status"] = json!(status);
        ready["lastTransitionTime"] = json!(now.to_string());
    }
}

fn is_alive(world: &World, instance: &str) -> bool {
    world.instance(instance).is_some_and(|instance| instance.state.is_alive())
}
