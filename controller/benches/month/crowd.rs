//! Everybody else in the cluster: kubelets, kube-scheduler, the controllers of Deployments and of PodDisruptionBudgets.
//! Each acts on what has changed, so that a quiet hour costs nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use croft_ec2_sim::{
    resources::{Instance, State},
    world::{Happening, World},
};
use croft_scheduler::{InstanceType, Quantity};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    cluster::Shared,
    load::{Deployment, Load},
    store::{Id, Store, cluster},
    watchdog::Watchdog,
};

/// From running to the Node, and from the Node to Ready.
const BOOT_MS: u64 = 30_000;
const READY_MS: u64 = 5_000;
/// A pod pulls its image and starts; it ends when told to.
const START_MS: u64 = 5_000;
const END_MS: u64 = 2_000;
const HOUR_MS: f64 = 3_600_000.0;

#[derive(Clone, Debug)]
pub struct PodState {
    pub app: usize,
    pub node: Option<String>,
    pub running: bool,
    pub deleting: bool,
    nominated: Option<String>,
    made: u64,
}

#[derive(Clone, Debug, Default)]
pub struct NodeState {
    pub pool: String,
    open: bool,
    has: [i64; 3],
    used: [i64; 3],
    pub pods: BTreeSet<Id>,
}

enum Event {
    Register(String),
    Ready(Id),
    Start(Id),
    End(Id),
}

pub struct Crowd {
    deployments: Vec<Deployment>,
    apps: BTreeMap<String, usize>,
    wanted: Vec<u64>,
    types: BTreeMap<String, InstanceType>,
    pods: BTreeMap<Id, PodState>,
    of_app: Vec<BTreeSet<Id>>,
    nodes: BTreeMap<String, NodeState>,
    waiting: BTreeSet<Id>,
    due: BTreeMap<(u64, u64), Event>,
    /// Up to where the log is read.
    position: usize,
    stale: BTreeSet<usize>,
    /// Pods that this crowd itself told to go.
    told: BTreeSet<Id>,
    numbers: u64,
    pub evictions: u64,
    pub watchdog: Watchdog,
    /// Price per hour of running instances, by id.
    meters: BTreeMap<String, f64>,
    dollars: f64,
    pod_ms: f64,
    waits: (u64, u64),
    read_until: u64,
}

impl Crowd {
    pub fn new(load: &Load, types: Arc<[InstanceType]>) -> Self {
        let deployments = load.deployments.clone();
        Self {
            apps: deployments.iter().enumerate().map(|(n, d)| (d.app.clone(), n)).collect(),
            wanted: vec![0; deployments.len()],
            types: types.iter().map(|t| (t.name.clone(), t.clone())).collect(),
            pods: BTreeMap::new(),
            of_app: vec![BTreeSet::new(); deployments.len()],
            deployments,
            nodes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            due: BTreeMap::new(),
            position: 0,
            stale: BTreeSet::new(),
            told: BTreeSet::new(),
            numbers: 0,
            evictions: 0,
            watchdog: Watchdog::default(),
            meters: BTreeMap::new(),
            dollars: 0.0,
            pod_ms: 0.0,
            waits: (0, 0),
            read_until: 0,
        }
    }

    pub fn want(&mut self, wanted: Vec<u64>) {
        self.wanted = wanted;
        self.stale.extend(0..self.deployments.len());
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    pub fn pod_days(&self) -> f64 {
        self.pod_ms / HOUR_MS / 24.0
    }

    /// Seconds from a pod's beginning to its place, on average.
    pub fn waited(&self) -> f64 {
        self.waits.1 as f64 / self.waits.0.max(1) as f64 / 1000.0
    }

    /// What was spent since this was last asked.
    pub fn close(&mut self, ms: u64) -> f64 {
        self.read(ms);
        std::mem::take(&mut self.dollars)
    }

    /// Reads the meters.
    fn read(&mut self, ms: u64) {
        let passed = ms.saturating_sub(self.read_until) as f64;
        if self.read_until > 0 {
            self.dollars += self.meters.values().sum::<f64>() * passed / HOUR_MS;
            self.pod_ms += self.pods.len() as f64 * passed;
        }
        self.read_until = ms;
    }

    fn at(&mut self, ms: u64, event: Event) {
        self.numbers += 1;
        self.due.insert((ms, self.numbers), event);
    }

    /// Lets everybody do what there is to do now; answers when there is more.
    fn tick(&mut self, store: &mut Store, world: &mut World, now: Timestamp) -> Option<u64> {
        let ms = u64::try_from(now.as_millisecond()).unwrap();
        self.read(ms);
        world.advance(ms);
        for happening in world.take_happenings() {
            self.happened(store, world, happening, ms);
        }
        while self.due.first_key_value().is_some_and(|((at, _), _)| *at <= ms) {
            let Some((_, event)) = self.due.pop_first() else { break };
            self.act(store, world, event, now, ms);
        }
        loop {
            self.take_in(store, ms);
            let before = store.end();
            for app in std::mem::take(&mut self.stale) {
                self.keep_replicas(store, app, now);
                self.take_in(store, ms);
                self.write_budget(store, app, now);
            }
            self.schedule(store, ms);
            if store.end() == before {
                break;
            }
        }
        let next = self.due.first_key_value().map(|((at, _), _)| *at);
        next.into_iter().chain(world.next_change()).min()
    }

    fn price(&self, instance: &Instance) -> f64 {
        let kind = &self.types[&instance.instance_type];
        let mut offers = kind.offerings.iter();
        offers.find(|o| o.zone == instance.zone).unwrap().price.unwrap().dollars()
    }

    fn happened(&mut self, store: &mut Store, world: &World, happening: Happening, ms: u64) {
        match happening {
            Happening::Running(id) => {
                let Some(instance) = world.instance(&id) else { return };
                let price = self.price(instance);
                // An instance is billed from its launch on.
                self.dollars += price * ms.saturating_sub(instance.launched) as f64 / HOUR_MS;
                self.meters.insert(id.clone(), price);
                self.at(ms + BOOT_MS, Event::Register(id));
            }
            Happening::Gone(id) => {
                let Some(instance) = world.instance(&id) else { return };
                if self.meters.remove(&id).is_none() {
                    self.dollars +=
                        self.price(instance) * ms.saturating_sub(instance.launched) as f64 / HOUR_MS;
                }
                let name = instance.dns_name("us-east-1");
                let left = self.nodes.get(&name).map_or(0, |node| node.pods.len());
                if left > 0 {
                    self.watchdog.broken.push(format!("machine {id} was ended with {left} pods on it"));
                }
                store.change(&cluster("Node", &name), |node| {
                    node["status"]["conditions"][0]["status"] = json!("False");
                });
            }
        }
    }

    fn act(&mut self, store: &mut Store, world: &World, event: Event, now: Timestamp, ms: u64) {
        match event {
            Event::Register(id) => {
                let Some(instance) = world.instance(&id).filter(|i| i.state == State::Running) else {
                    return;
                };
                let node = cluster("Node", &instance.dns_name("us-east-1"));
                store.create(node.clone(), self.node(&id, instance, now), now);
                self.at(ms + READY_MS, Event::Ready(node));
            }
            Event::Ready(node) => store.change(&node, |node| {
                node["status"]["conditions"][0]["status"] = json!("True");
                node["status"]["conditions"][0]["lastTransitionTime"] = json!(Time(now));
                if let Some(taints) = node["spec"]["taints"].as_array_mut() {
                    taints.retain(|t| t["key"] != json!("node.kubernetes.io/not-ready"));
                }
            }),
            Event::Start(pod) => store.change(&pod, |pod| {
                pod["status"]["phase"] = json!("Running");
                pod["status"]["startTime"] = json!(Time(now));
            }),
            Event::End(pod) => store.remove(&pod),
        }
    }

    fn node(&self, id: &str, instance: &Instance, now: Timestamp) -> Value {
        let told: Value = serde_json::from_slice(&instance.data.user_data).unwrap();
        let kind = &self.types[&instance.instance_type];
        let mut taints = told["taints"].as_array().cloned().unwrap_or_default();
        taints.push(json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
        let mut labels = told["labels"].clone();
        labels["kubernetes.io/hostname"] = json!(instance.dns_name("us-east-1"));
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels},
            "spec": {"providerID": format!("aws:///{}/{id}", instance.zone), "taints": taints},
            "status": {
                "capacity": kind.capacity.to_quantities(), "allocatable": kind.allocatable().to_quantities(),
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": Time(now)}],
            },
        })
    }

    /// Reads what the log has of news.
    fn take_in(&mut self, store: &Store, ms: u64) {
        let from = self.position;
        self.position = store.end();
        for logged in store.since(from) {
            match logged.id.0 {
                "Pod" => self.take_pod(&logged.id, &logged.object, logged.deleted, ms),
                "Node" => self.take_node(&logged.id.2, &logged.object, logged.deleted),
                "NodeClaim" => {
                    self.watchdog.claim(&logged.id.2, &logged.object, logged.deleted, &self.nodes);
                }
                _ => {}
            }
        }
    }

    fn size(&self, app: usize) -> [i64; 3] {
        let it = &self.deployments[app];
        [it.cpu_millis, it.memory_mi << 20, 1]
    }

    fn take_pod(&mut self, id: &Id, object: &Value, deleted: bool, ms: u64) {
        let app = self.apps[object["metadata"]["labels"]["app"].as_str().unwrap()];
        self.stale.insert(app);
        let size = self.size(app);
        let old = self.pods.remove(id);
        if let Some(node) = old.as_ref().and_then(|p| p.node.as_ref())
            && let Some(node) = self.nodes.get_mut(node)
        {
            node.pods.remove(id);
            node.used = [0, 1, 2].map(|n| node.used[n] - size[n]);
        }
        self.waiting.remove(id);
        if deleted {
            self.of_app[app].remove(id);
            self.told.remove(id);
            return;
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let new = PodState {
            app,
            node: text(&object["spec"]["nodeName"]),
            running: object["status"]["phase"] == json!("Running"),
            deleting: !object["metadata"]["deletionTimestamp"].is_null(),
            nominated: text(&object["status"]["nominatedNodeName"]),
            made: old.as_ref().map_or(ms, |p| p.made),
        };
        if new.deleting && old.as_ref().is_none_or(|p| !p.deleting) {
            self.at(ms + END_MS, Event::End(id.clone()));
            if !self.told.contains(id) {
                self.evictions += 1;
                let up = self.of_app[app].iter().filter(|other| *other != id);
                let up = up.filter(|p| self.pods.get(*p).is_some_and(|p| p.running && !p.deleting)).count();
                // One that doesn't work isn't missed.
                if old.as_ref().is_some_and(|p| p.running) {
                    self.watchdog.evicted(&id.2, app, up as u64);
                }
            }
        }
        if let Some(name) = &new.node {
            if old.as_ref().is_none_or(|p| p.node.is_none()) {
                self.waits = (self.waits.0 + 1, self.waits.1 + ms.saturating_sub(new.made));
                self.at(ms + START_MS, Event::Start(id.clone()));
            }
            if let Some(node) = self.nodes.get_mut(name) {
                node.pods.insert(id.clone());
                node.used = [0, 1, 2].map(|n| node.used[n] + size[n]);
            }
        } else if !new.deleting {
            self.waiting.insert(id.clone());
        }
        self.of_app[app].insert(id.clone());
        self.pods.insert(id.clone(), new);
    }

    fn take_node(&mut self, name: &str, object: &Value, deleted: bool) {
        if deleted {
            self.nodes.remove(name);
            return;
        }
        let node = self.nodes.entry(name.to_owned()).or_default();
        let pool = object["metadata"]["labels"]["node-pool"].as_str().unwrap_or_default();
        let taints = object["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Pods here tolerate the taint of their pool and nothing else.
        let own = |t: &Value| t["key"] == json!("node-pool") && t["value"] == json!(pool);
        node.open = object["spec"]["unschedulable"] != json!(true)
            && object["metadata"]["deletionTimestamp"].is_null()
            && taints.iter().all(own);
        pool.clone_into(&mut node.pool);
        let has =
            |key: &str| object["status"]["allocatable"][key].as_str().unwrap_or("0").parse::<Quantity>();
        node.has =
            [has("cpu").unwrap().millis(), has("memory").unwrap().units(), has("pods").unwrap().units()];
    }

    /// What the ReplicaSet's controller does, in its order of who goes first: pods without a place, pods that don't
    /// run yet, those with most neighbours of their kind, the youngest.
    fn keep_replicas(&mut self, store: &mut Store, app: usize, now: Timestamp) {
        let wanted = self.wanted[app];
        let there: Vec<&Id> = self.of_app[app].iter().filter(|id| !self.pods[*id].deleting).collect();
        let count = there.len() as u64;
        if count > wanted {
            let mut neighbours: BTreeMap<&str, usize> = BTreeMap::new();
            for id in &there {
                *neighbours.entry(self.pods[*id].node.as_deref().unwrap_or_default()).or_default() += 1;
            }
            let mut ranked: Vec<_> = there
                .iter()
                .map(|id| {
                    let pod = &self.pods[*id];
                    let near = neighbours[pod.node.as_deref().unwrap_or_default()];
                    (pod.node.is_some(), pod.running, std::cmp::Reverse((near, pod.made)), (*id).clone())
                })
                .collect();
            ranked.sort();
            for (_, _, _, id) in ranked.into_iter().take(usize::try_from(count - wanted).unwrap()) {
                self.told.insert(id.clone());
                store.delete(&id, None, now);
            }
        }
        for _ in count..wanted {
            self.numbers += 1;
            let it = &self.deployments[app];
            let id = ("Pod", it.pool.clone(), format!("{}-{:08}", it.app, self.numbers));
            store.create(id, pod(it), now);
        }
    }

    /// One pod of each Deployment may be away.
    fn write_budget(&mut self, store: &mut Store, app: usize, now: Timestamp) {
        let it = &self.deployments[app];
        let id = ("PodDisruptionBudget", it.pool.clone(), it.app.clone());
        let wanted = self.wanted[app];
        let up = self.of_app[app].iter().filter(|id| self.pods[*id].running && !self.pods[*id].deleting);
        let up = up.count() as u64;
        let least = wanted.saturating_sub(1);
        self.watchdog.least.insert(app, least);
        let status = json!({"disruptionsAllowed": up.saturating_sub(least), "currentHealthy": up,
            "desiredHealthy": least, "expectedPods": wanted});
        if store.get(&id).is_none() {
            let object = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": it.app}}}, "status": status,
            });
            store.create(id, object, now);
        } else {
            store.change(&id, |budget| budget["status"] = status);
        }
    }

    /// kube-scheduler: the nominated node first, else where most is left.
    fn schedule(&mut self, store: &mut Store, ms: u64) {
        for id in self.waiting.clone() {
            let pod = &self.pods[&id];
            let size = self.size(pod.app);
            let pool = &self.deployments[pod.app].pool;
            let fits = |node: &NodeState| {
                node.open && node.pool == *pool && (0..3).all(|n| node.used[n] + size[n] <= node.has[n])
            };
            let left = |node: &NodeState| {
                let share = |n: usize| (node.has[n] - node.used[n] - size[n]) as f64 / node.has[n] as f64;
                share(0) + share(1)
            };
            let nominated = pod.nominated.as_ref().filter(|name| self.nodes.get(*name).is_some_and(fits));
            let chosen = nominated.or_else(|| {
                let open = self.nodes.iter().filter(|(_, node)| fits(node));
                open.max_by(|a, b| left(a.1).total_cmp(&left(b.1))).map(|(name, _)| name)
            });
            let Some(name) = chosen.cloned() else { continue };
            store.change(&id, |pod| {
                pod["spec"]["nodeName"] = json!(name);
                pod["status"].as_object_mut().unwrap().remove("nominatedNodeName");
            });
            self.take_in(store, ms);
        }
    }
}

fn pod(it: &Deployment) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": {"app": it.app}, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": it.app, "uid": it.app, "controller": true}]},
        "spec": {
            "nodeSelector": {"node-pool": it.pool},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": it.pool, "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {
                "cpu": format!("{}m", it.cpu_millis), "memory": format!("{}Mi", it.memory_mi),
            }}}],
        },
        "status": {"phase": "Pending"},
    })
}

/// Lets everybody act whenever something has changed, until dropped.
pub fn surround(shared: &Arc<Shared>, crowd: &Arc<Mutex<Crowd>>) -> JoinHandle<()> {
    /// What comes within this is taken in together.
    const TOGETHER: Duration = Duration::from_millis(50);
    /// Entries of the log that watches may still have to read: none is more than a few seconds late.
    const LOG_KEPT: usize = 5_000;
    let (shared, crowd) = (Arc::clone(shared), Arc::clone(crowd));
    tokio::spawn(async move {
        loop {
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (next, did) = {
                let mut store = shared.store.lock().unwrap();
                let mut world = shared.world.lock().unwrap();
                let before = store.end();
                let next = crowd.lock().unwrap().tick(&mut store, &mut world, shared.clock.true_wall());
                if store.log.len() > 2 * LOG_KEPT {
                    store.forget_but(LOG_KEPT);
                }
                (next, store.end() != before)
            };
            if did {
                shared.changed.notify_waiters();
            }
            let wait = next.map_or(3_600_000, |at| at.saturating_sub(shared.now_ms()).max(1));
            tokio::select! {
                () = changed => sleep(TOGETHER).await,
                () = sleep(Duration::from_millis(wait)) => {}
            }
        }
    })
}
