//! Everybody else in the cluster: kubelets, kube-scheduler, the workloads' controller, the pod collector.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use croft_controller::definitions::keys::DISRUPTED_TAINT;
use croft_ec2_sim::{
    resources::State,
    world::{Happening, World},
};
use croft_scheduler::{InstanceType, Quantity};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    chance::Chance,
    cluster::Shared,
    store::{Id, Store, cluster},
};

/// How late kube-scheduler sees a cordon, in milliseconds: half of what the controller waits for it.
const SCHEDULER_LAG_MS: u64 = 500;
/// How long the pod collector waits before it removes the pods of a Node that isn't there: `quarantineTime` in
/// k8s.io/kubernetes/pkg/controller/podgc.
const COLLECTED_AFTER_MS: u64 = 40_000;

/// The taint of a node whose kubelet says nothing.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A Deployment, as far as anybody here cares.
#[derive(Clone, Debug)]
pub struct Workload {
    pub namespace: String,
    pub app: String,
    pub pool: String,
    pub replicas: u64,
    pub cpu_millis: i64,
    pub memory_mi: i64,
    /// How many of its pods may be away at once.
    pub away: Option<u64>,
}

pub struct Actors {
    pub workloads: Vec<Workload>,
    pub types: std::sync::Arc<[InstanceType]>,
    pub chance: Chance,
    pub boot_ms: (u64, u64),
    /// Machines that boot, and when they are up.
    booting: BTreeMap<String, u64>,
    /// Machines whose kubelet is there.
    up: BTreeSet<String>,
    /// Kubelets that say nothing from one moment to another, by instance.
    silent: BTreeMap<String, (u64, u64)>,
    pods_made: u64,
    /// Names of Nodes that pods are bound to and that aren't there, and since when.
    missing: BTreeMap<String, u64>,
    /// Closed nodes, by uid, and when kube-scheduler sees that: it reads a cache, and the API server binds to any node.
    closed: BTreeMap<String, u64>,
    /// What the last look has seen: nothing new, nothing to do.
    seen: Option<(u64, u64, Vec<u64>)>,
}

impl Actors {
    pub fn new(workloads: Vec<Workload>, types: std::sync::Arc<[InstanceType]>, chance: Chance) -> Self {
        Self {
            workloads,
            types,
            chance,
            boot_ms: (500, 3_000),
            booting: BTreeMap::new(),
            up: BTreeSet::new(),
            silent: BTreeMap::new(),
            pods_made: 0,
            missing: BTreeMap::new(),
            closed: BTreeMap::new(),
            seen: None,
        }
    }

    /// Lets everybody do what there is to do now.
    pub fn tick(&mut self, store: &mut Store, world: &mut World, now: Timestamp) {
        let ms = u64::try_from(now.as_millisecond()).unwrap();
        world.advance(ms);
        let wanted = self.workloads.iter().map(|w| w.replicas).collect();
        let seen = Some((store.era, store.version, wanted));
        let waits = !self.silent.is_empty() || !self.missing.is_empty();
        if !waits && seen == self.seen && self.booting.values().all(|at| *at > ms) && !world.has_happenings()
        {
            return;
        }
        self.kubelets(store, world, now, ms);
        self.workloads(store, now);
        self.collect_pods(store, ms);
        self.schedule(store, ms);
        self.seen = seen.filter(|(era, version, _)| (*era, *version) == (store.era, store.version));
    }

    /// A kubelet says nothing from one moment to another; its instance and its pods work on.
    pub fn silence(&mut self, instance: &str, from: u64, until: u64) {
        self.silent.insert(instance.to_owned(), (from, until));
    }

    fn is_silent(&self, instance: &str, ms: u64) -> bool {
        self.silent.get(instance).is_some_and(|(from, until)| (*from..*until).contains(&ms))
    }

    /// Pods of Nodes that have been gone for a while are removed.
    fn collect_pods(&mut self, store: &mut Store, ms: u64) {
        let lost: Vec<(Id, String)> = store
            .of_kind("Pod")
            .filter_map(|(id, pod)| Some((id.clone(), pod["spec"]["nodeName"].as_str()?.to_owned())))
            .filter(|(_, node)| store.get(&cluster("Node", node)).is_none())
            .collect();
        self.missing.retain(|node, _| lost.iter().any(|(_, missing)| missing == node));
        for (id, node) in lost {
            if ms >= *self.missing.entry(node).or_insert(ms) + COLLECTED_AFTER_MS {
                store.remove(&id);
            }
        }
    }

    fn kubelets(&mut self, store: &mut Store, world: &mut World, now: Timestamp, ms: u64) {
        for happening in world.take_happenings() {
            match happening {
                // Its image isn't one that boots: no kubelet ever says anything.
                Happening::Running(_) if !world.settings.boots => {}
                Happening::Running(id) => {
                    let (low, high) = self.boot_ms;
                    self.booting.insert(id, ms + self.chance.between(low, high));
                }
                Happening::Gone(id) => {
                    self.booting.remove(&id);
                    self.up.remove(&id);
                    gone(store, world, &id, now);
                }
            }
        }
        let up: Vec<String> =
            self.booting.iter().filter(|(_, at)| **at <= ms).map(|(id, _)| id.clone()).collect();
        for id in up {
            let Some(instance) = world.instance(&id).filter(|i| i.state == State::Running).cloned() else {
                self.booting.remove(&id);
                continue;
            };
            let name = instance.dns_name("us-east-1");
            let node = cluster("Node", &name);
            if store.get(&node).is_none() {
                let told: Value = serde_json::from_slice(&instance.data.user_data).unwrap();
                let kind = self.types.iter().find(|t| t.name == instance.instance_type).unwrap();
                let mut taints = told["taints"].as_array().cloned().unwrap_or_default();
                taints.push(json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
                let mut labels = told["labels"].clone();
                labels["kubernetes.io/hostname"] = json!(name);
                let object = json!({
                    "apiVersion": "v1", "kind": "Node",
                    // The controller manager's, as on every node.
                    "metadata": {"labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
                    "spec": {"providerID": format!("aws:///{}/{id}", instance.zone), "taints": taints},
                    "status": {
                        "capacity": kind.capacity.to_quantities(),
                        "allocatable": kind.allocatable().to_quantities(),
                        "conditions": [{"type": "Ready", "status": "False"}],
                    },
                });
                store.create(node, object, now);
                // The next look makes it ready.
                self.booting.insert(id, ms + self.chance.between(100, 1_500));
            } else {
                self.up.insert(id.clone());
                self.booting.remove(&id);
            }
        }
        // A kubelet reports its node as Ready, and the node controller reports when it no longer does.
        put_out(store, world);
        for (node, machine) in machines(store) {
            if !is_alive(world, &machine) || !self.up.contains(&machine) {
                continue;
            }
            if self.is_silent(&machine, ms) {
                unreachable(store, &node, now);
                continue;
            }
            store.change(&node, |node| {
                node["status"]["conditions"][0]["status"] = json!("True");
                if let Some(taints) = node["spec"]["taints"].as_array_mut() {
                    taints.retain(|t| {
                        t["key"] != json!("node.kubernetes.io/not-ready") && t["key"] != json!(UNREACHABLE)
                    });
                }
            });
        }
        self.silent.retain(|_, (_, until)| *until > ms);
        // A kubelet whose Node was taken away goes on with its pods.
        let speaks = |id: &String| is_alive(world, id) && !self.is_silent(id, ms);
        let without_node: BTreeSet<String> = self
            .up
            .iter()
            .filter(|id| speaks(id))
            .filter_map(|id| Some(world.instance(id)?.dns_name("us-east-1")))
            .filter(|name| store.get(&cluster("Node", name)).is_none())
            .collect();
        // Pods start at once, and end half a second after they were told to.
        let pods: Vec<(Id, Arc<Value>)> =
            store.of_kind("Pod").map(|(id, o)| (id.clone(), o.clone())).collect();
        for (id, pod) in pods {
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            let alive = store
                .get(&cluster("Node", node))
                .is_some_and(|n| n["status"]["conditions"][0]["status"] == json!("True"));
            if !alive && !without_node.contains(node) {
                continue;
            }
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                store.remove(&id);
            } else if pod["status"]["phase"] != json!("Running") {
                store.change(&id, |pod| pod["status"]["phase"] = json!("Running"));
            }
        }
    }

    fn workloads(&mut self, store: &mut Store, now: Timestamp) {
        for workload in self.workloads.clone() {
            let label = json!(workload.app);
            let pods: Vec<(Id, Arc<Value>)> = store
                .of_kind("Pod")
                .filter(|(id, pod)| id.1 == workload.namespace && pod["metadata"]["labels"]["app"] == label)
                .map(|(id, pod)| (id.clone(), pod.clone()))
                .collect();
            let there: Vec<_> =
                pods.iter().filter(|(_, p)| p["metadata"]["deletionTimestamp"].is_null()).collect();
            let count = there.len() as u64;
            for _ in count..workload.replicas {
                self.pods_made += 1;
                let id = ("Pod", workload.namespace.clone(), format!("{}-{}", workload.app, self.pods_made));
                store.create(id, pod(&workload), now);
            }
            for (id, _) in
                there.iter().rev().take(usize::try_from(count.saturating_sub(workload.replicas)).unwrap())
            {
                store.delete(id, None, now);
            }
            if let Some(most) = workload.away {
                let id = ("PodDisruptionBudget", workload.namespace.clone(), workload.app.clone());
                let spec =
                    json!({"selector": {"matchLabels": {"app": workload.app}}, "maxUnavailable": most});
                store.create(
                    id.clone(),
                    json!({"spec": spec, "metadata": {}, "status": {"expectedPods": 0}}),
                    now,
                );
                let least = workload.replicas.saturating_sub(most);
                let allowed = store.working(&workload.namespace, &label).saturating_sub(least);
                store.change(&id, |budget| {
                    budget["status"]["expectedPods"] = json!(workload.replicas);
                    budget["status"]["disruptionsAllowed"] = json!(allowed);
                });
            }
        }
    }

    /// True if kube-scheduler has seen that a node takes no more pods.
    fn is_seen_closed(&mut self, node: &Value, ms: u64) -> bool {
        let uid = node["metadata"]["uid"].as_str().unwrap();
        if node["spec"]["unschedulable"] != json!(true) && node["metadata"]["deletionTimestamp"].is_null() {
            self.closed.remove(uid);
            return false;
        }
        let chance = &mut self.chance;
        *self.closed.entry(uid.to_owned()).or_insert_with(|| ms + chance.between(0, SCHEDULER_LAG_MS)) <= ms
    }

    fn schedule(&mut self, store: &mut Store, ms: u64) {
        let nodes: Vec<(String, Arc<Value>)> = store
            .of_kind("Node")
            .filter(|(_, node)| !self.is_seen_closed(node, ms))
            .map(|(id, node)| (id.2.clone(), node.clone()))
            .collect();
        let mut used: BTreeMap<String, (i64, i64, i64)> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (id, pod) in store.of_kind("Pod") {
            let (cpu, memory) = requests(pod);
            match pod["spec"]["nodeName"].as_str() {
                Some(node) => {
                    let entry = used.entry(node.to_owned()).or_default();
                    *entry = (entry.0 + cpu, entry.1 + memory, entry.2 + 1);
                }
                None if pod["metadata"]["deletionTimestamp"].is_null() => {
                    waiting.push((id.clone(), pod.clone()))
                }
                None => {}
            }
        }
        for (id, pod) in waiting {
            let (cpu, memory) = requests(&pod);
            let fits = |name: &String, node: &Value| {
                let entry = used.get(name).copied().unwrap_or_default();
                let free = |resource: &str| {
                    let text = node["status"]["allocatable"][resource].as_str().unwrap_or("0");
                    text.parse::<Quantity>().unwrap()
                };
                // The taint comes and is seen with the cordon.
                let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
                let open = taints.all(|t| t["key"] == json!(DISRUPTED_TAINT) || tolerated(&pod, t));
                let selected = pod["spec"]["nodeSelector"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .all(|(key, value)| node["metadata"]["labels"][key] == *value);
                open && selected
                    && entry.0 + cpu <= free("cpu").millis()
                    && entry.1 + memory <= free("memory").units()
                    && entry.2 < free("pods").units()
            };
            let candidates: Vec<&String> = nodes.iter().filter(|(n, o)| fits(n, o)).map(|(n, _)| n).collect();
            let nominated = pod["status"]["nominatedNodeName"].as_str();
            let chosen = candidates.iter().find(|n| Some(n.as_str()) == nominated).copied().or_else(|| {
                let n = self.chance.below(candidates.len() as u64);
                candidates.get(usize::try_from(n).unwrap()).copied()
            });
            let Some(node) = chosen.cloned() else { continue };
            let entry = used.entry(node.clone()).or_default();
            *entry = (entry.0 + cpu, entry.1 + memory, entry.2 + 1);
            store.change(&id, |pod| {
                pod["spec"]["nodeName"] = json!(node);
                pod["status"].as_object_mut().unwrap().remove("nominatedNodeName");
            });
        }
    }
}

/// What the node controller writes when a kubelet says nothing.
fn unreachable(store: &mut Store, node: &Id, now: Timestamp) {
    store.change(node, |node| {
        let ready = &mut node["status"]["conditions"][0];
        if ready["status"] != json!("Unknown") {
            ready["status"] = json!("Unknown");
            ready["lastTransitionTime"] = json!(now.to_string());
        }
        let taint = json!({"key": UNREACHABLE, "effect": "NoSchedule"});
        let taints = node["spec"].as_object_mut().unwrap().entry("taints").or_insert_with(|| json!([]));
        let taints = taints.as_array_mut().unwrap();
        if !taints.iter().any(|t| t["key"] == json!(UNREACHABLE)) {
            taints.push(taint);
        }
    });
}

/// An instance goes: its remaining pods end with it.
fn gone(store: &mut Store, world: &World, id: &str, now: Timestamp) {
    let Some(instance) = world.instance(id) else { return };
    let name = instance.dns_name("us-east-1");
    let own = |node: &Value| node["spec"]["providerID"].as_str().is_some_and(|p| p.ends_with(id));
    let node = cluster("Node", &name);
    if store.get(&node).is_some_and(|node| !own(node)) {
        return;
    }
    store.change(&node, |node| node["status"]["conditions"][0]["status"] = json!("False"));
    let stuck = |pod: &Value| {
        let due = pod["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse::<Timestamp>().ok());
        due.is_some_and(|due| now.duration_since(due).as_secs() >= 60)
    };
    let killed: Vec<String> = store
        .of_kind("Pod")
        .filter(|(_, pod)| pod["spec"]["nodeName"] == json!(name) && !stuck(pod))
        .map(|(id, _)| id.2.clone())
        .collect();
    // No controller is at fault for the cloud's own act.
    store.taken += killed.len() as u64;
    if !killed.is_empty() && instance.reason.starts_with("Client.") {
        store.broken.push(format!("machine {id} was ended with pods on it: {}", killed.join(", ")));
    }
}

/// Lets everybody act, until dropped.
pub fn surround(shared: &Arc<Shared>, actors: &Arc<Mutex<Actors>>) -> JoinHandle<()> {
    let (shared, actors) = (Arc::clone(shared), Arc::clone(actors));
    tokio::spawn(async move {
        loop {
            {
                let mut store = shared.store.lock().unwrap();
                let mut world = shared.world.lock().unwrap();
                actors.lock().unwrap().tick(&mut store, &mut world, shared.clock.true_wall());
            }
            shared.changed.notify_waiters();
            sleep(Duration::from_millis(250)).await;
        }
    })
}

fn pod(workload: &Workload) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": {"app": workload.app}, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload.app, "uid": format!("uid-{}", workload.app),
            "controller": true,
        }]},
        "spec": {
            "nodeSelector": {"node-pool": workload.pool},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": workload.pool, "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {
                "cpu": format!("{}m", workload.cpu_millis), "memory": format!("{}Mi", workload.memory_mi),
            }}}],
        },
        "status": {"phase": "Pending"},
    })
}

fn requests(pod: &Value) -> (i64, i64) {
    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
    let read = |key: &str| requests[key].as_str().unwrap_or("0").parse::<Quantity>().unwrap();
    (read("cpu").millis(), read("memory").units())
}

fn tolerated(pod: &Value, taint: &Value) -> bool {
    pod["spec"]["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|t| t["key"] == taint["key"] && t["value"] == taint["value"] && t["effect"] == taint["effect"])
}

/// Every Node, and the id of its instance.
fn machines(store: &Store) -> Vec<(Id, String)> {
    let machine = |node: &Value| Some(node["spec"]["providerID"].as_str()?.rsplit('/').next()?.to_owned());
    store.of_kind("Node").filter_map(|(id, node)| Some((id.clone(), machine(node)?))).collect()
}

fn is_alive(world: &World, machine: &str) -> bool {
    world.instance(machine).is_some_and(|instance| instance.state.is_alive())
}

/// Nodes whose instance is gone aren't Ready.
pub fn put_out(store: &mut Store, world: &World) {
    for (node, machine) in machines(store) {
        if !is_alive(world, &machine) {
            store.change(&node, |node| node["status"]["conditions"][0]["status"] = json!("False"));
        }
    }
}
