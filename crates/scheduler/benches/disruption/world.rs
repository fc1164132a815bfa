//! Clusters that age: nodes, pods, and what becomes of both.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_disruption::cost::{self, MovedPod};
use croft_scheduler::{
    CapacityType, Cluster, InstanceType, Options, Plan, PlannedInstance, PodKey, Pool, Price, Requirement,
    consolidation::{Ask, Candidate, Consolidation, PoolConstraints, consolidate},
    solve,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

pub const CPUS: [u32; 6] = [250, 500, 900, 1000, 1500, 2000];
pub const MEMORIES: [u32; 6] = [512, 1024, 2048, 3100, 4096, 8192];

#[derive(Clone)]
struct Held {
    pool: String,
    price: Price,
    capacity_type: CapacityType,
    /// CPU in thousandths, memory in bytes, pods.
    allocatable: [i64; 3],
}

/// Where evicted pods are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// By kube-scheduler: no node is nominated for them.
    Scheduler,
    /// As the search planned.
    Planned,
}

#[derive(Clone)]
struct Running {
    deployment: usize,
    node: Option<String>,
    /// When it began to run, in minutes.
    since: u64,
}

/// A Deployment.
#[derive(Clone)]
pub struct Deployment {
    pub pool: String,
    pub cpu: u32,
    pub memory: u32,
}

/// The limits of a round of disruption.
#[derive(Clone, Copy)]
pub struct Rules {
    pub min_savings: Price,
    pub budget_percent: usize,
    /// As `evictionCost` of a pool.
    pub eviction_cost: Price,
}

pub const FREE: Rules = Rules { min_savings: Price::ZERO, budget_percent: 100, eviction_cost: Price::ZERO };
/// `preference: Cheapest` of a pool, which was the default when the figures in docs/scaling.md were measured.
pub const DEFAULTS: Rules = Rules {
    min_savings: Price::from_micros(10_000),
    budget_percent: 10,
    eviction_cost: Price::from_micros(8_000),
};

pub struct World {
    pub cluster: Cluster,
    types: Arc<[InstanceType]>,
    requirements: Vec<Requirement>,
    pub deployments: Vec<Deployment>,
    nodes: BTreeMap<String, Held>,
    pods: BTreeMap<String, Running>,
    made: u64,
    /// In minutes.
    pub now: u64,
    pub binding: Binding,
    pub evictions: u64,
    pub violations: u64,
}

impl World {
    pub fn new(types: &Arc<[InstanceType]>, pools: &[&str], requirements: &[Requirement]) -> Self {
        let mut cluster = Cluster::new();
        for name in pools {
            let pool = Pool {
                name: (*name).to_owned(),
                key: "node-pool".to_owned(),
                value: (*name).to_owned(),
                instance_types: Arc::clone(types),
                requirements: requirements.to_vec(),
                launches: true,
                ..Pool::default()
            };
            cluster.upsert_pool(pool).unwrap();
        }
        Self {
            cluster,
            types: Arc::clone(types),
            requirements: requirements.to_vec(),
            deployments: Vec::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            made: 0,
            now: 0,
            binding: Binding::Scheduler,
            evictions: 0,
            violations: 0,
        }
    }

    pub fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.pods.len())
    }

    pub fn cost(&self) -> Price {
        self.nodes.values().map(|n| n.price).sum()
    }

    pub fn names(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }

    fn pod(&self, name: &str) -> Pod {
        let running = &self.pods[name];
        let it = &self.deployments[running.deployment];
        serde_json::from_value(json!({
            "metadata": {"namespace": "d", "name": name, "labels": {"app": running.deployment.to_string()}},
            "spec": {"nodeName": running.node, "nodeSelector": {"node-pool": it.pool},
                "containers": [{"name": "c", "resources": {"requests": {
                    "cpu": format!("{}m", it.cpu), "memory": format!("{}Mi", it.memory)}}}]},
        }))
        .unwrap()
    }

    pub fn add_pod(&mut self, deployment: usize) {
        self.made += 1;
        let name = format!("p{:07}", self.made);
        self.pods.insert(name.clone(), Running { deployment, node: None, since: self.now });
        let pod = self.pod(&name);
        self.cluster.upsert_pod(&pod).unwrap();
    }

    pub fn remove_pod(&mut self, name: &str) {
        self.pods.remove(name);
        self.cluster.remove_pod("d", name);
    }

    fn bind(&mut self, pod: &PodKey, node: &str) {
        let name = pod.name.to_string();
        let running = self.pods.get_mut(&name).unwrap();
        running.node = Some(node.to_owned());
        running.since = self.now;
        let pod = self.pod(&name);
        self.cluster.upsert_pod(&pod).unwrap();
    }

    fn launch(&mut self, instance: &PlannedInstance) -> String {
        self.made += 1;
        let name = format!("n{:07}", self.made);
        let mut labels = instance.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
        let amounts: BTreeMap<String, String> =
            instance.allocatable.to_quantities().into_iter().map(|(k, q)| (k, q.to_string())).collect();
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": amounts, "capacity": amounts},
        }))
        .unwrap();
        self.cluster.upsert_node(&node).unwrap();
        let held = Held {
            pool: instance.pool.clone(),
            price: instance.price.unwrap_or_default(),
            capacity_type: instance.capacity_type,
            allocatable: ["cpu", "memory", "pods"].map(|name| instance.allocatable.get(name)),
        };
        self.nodes.insert(name.clone(), held);
        name
    }

    /// Places what waits, as a plan says.
    pub fn provision(&mut self) -> Plan {
        let plan = solve(&self.cluster, &Options::default(), &|| false);
        for instance in &plan.instances {
            let node = self.launch(instance);
            instance.pods.iter().for_each(|pod| self.bind(pod, &node));
        }
        for place in &plan.existing {
            place.pods.iter().for_each(|pod| self.bind(pod, &place.node));
        }
        self.violations += plan.unschedulable.len() as u64;
        plan
    }

    fn pods_by_node(&self) -> BTreeMap<&str, Vec<&Running>> {
        let mut by_node: BTreeMap<&str, Vec<&Running>> = BTreeMap::new();
        for running in self.pods.values() {
            by_node.entry(running.node.as_deref().unwrap_or_default()).or_default().push(running);
        }
        by_node
    }

    pub fn drop_empty(&mut self) {
        let used = self.pods_by_node();
        let empty: Vec<String> =
            self.nodes.keys().filter(|n| !used.contains_key(n.as_str())).cloned().collect();
        for node in empty {
            self.nodes.remove(&node);
            self.cluster.remove_node(&node);
        }
    }

    pub fn ask(&self, rules: Rules) -> Ask {
        let by_node = self.pods_by_node();
        let mut replicas: BTreeMap<usize, usize> = BTreeMap::new();
        self.pods.values().for_each(|p| *replicas.entry(p.deployment).or_default() += 1);
        let mut per_pool: BTreeMap<String, usize> = BTreeMap::new();
        let mut ask = Ask::default();
        for (name, node) in &self.nodes {
            *per_pool.entry(node.pool.clone()).or_default() += 1;
            let running = by_node.get(name.as_str()).into_iter().flatten();
            let owners: Vec<String> = running.clone().map(|pod| pod.deployment.to_string()).collect();
            let moved = running.zip(&owners).map(|(pod, owner)| MovedPod {
                owner,
                age_seconds: (self.now - pod.since) * 60,
                rests: false,
                ends: false,
                replicas: replicas[&pod.deployment],
                deletion_cost: 0,
            });
            let disruption_cost = cost::of_node(rules.eviction_cost, moved);
            ask.candidates.push(Candidate {
                node: name.clone(),
                pool: node.pool.clone(),
                price: node.price,
                capacity_type: node.capacity_type,
                disruption_cost,
                templates: None,
            });
        }
        for (pool, total) in per_pool {
            let nodes = (total * rules.budget_percent).div_ceil(100);
            let steps = PoolConstraints::STEPS;
            ask.constraints.insert(pool, PoolConstraints { min_savings: rules.min_savings, nodes, steps });
        }
        ask
    }

    /// Evicts pods that are planned onto `node`. Answers those that are still to be bound.
    fn evict(&mut self, pods: &[PodKey], node: &str) -> Vec<PodKey> {
        self.evictions += pods.len() as u64;
        if self.binding == Binding::Scheduler {
            return pods.to_vec();
        }
        pods.iter().for_each(|pod| self.bind(pod, node));
        Vec::new()
    }

    /// Binds pods one after the other to the node of their pool with the largest share of CPU and memory left, as
    /// kube-scheduler's plugin NodeResourcesFit scores by default; instances are launched for those that fit nowhere.
    fn schedule(&mut self, pods: Vec<PodKey>) {
        if pods.is_empty() {
            return;
        }
        let waiting: BTreeSet<String> = pods.iter().map(|pod| pod.name.to_string()).collect();
        let requests = |world: &Self, running: &Running| {
            let it = &world.deployments[running.deployment];
            [i64::from(it.cpu), i64::from(it.memory) << 20, 1]
        };
        let mut left: BTreeMap<String, [i64; 3]> =
            self.nodes.iter().map(|(name, node)| (name.clone(), node.allocatable)).collect();
        for running in
            self.pods.iter().filter(|(name, _)| !waiting.contains(*name)).map(|(_, running)| running)
        {
            if let Some(left) = running.node.as_ref().and_then(|node| left.get_mut(node)) {
                let taken = requests(self, running);
                *left = std::array::from_fn(|n| left[n] - taken[n]);
            }
        }
        for pod in pods {
            let running = &self.pods[&*pod.name];
            let (pool, wanted) = (self.deployments[running.deployment].pool.clone(), requests(self, running));
            let after = |left: &[i64; 3]| std::array::from_fn::<i64, 3, _>(|n| left[n] - wanted[n]);
            let score = |name: &String, left: &[i64; 3]| {
                let (rest, all) = (after(left), self.nodes[name].allocatable);
                rest[0] as f64 / all[0] as f64 + rest[1] as f64 / all[1] as f64
            };
            let fits = left.iter().filter(|(name, left)| {
                self.nodes[*name].pool == pool && after(left).iter().all(|amount| *amount >= 0)
            });
            let best = fits.max_by(|a, b| score(a.0, a.1).total_cmp(&score(b.0, b.1)));
            if let Some(name) = best.map(|(name, _)| name.clone()) {
                left.insert(name.clone(), after(&left[&name]));
                self.bind(&pod, &name);
            } else {
                self.pods.get_mut(&*pod.name).unwrap().node = None;
                let pending = self.pod(&pod.name);
                self.cluster.upsert_pod(&pending).unwrap();
            }
        }
        self.provision();
    }

    /// One search, and its moves made. Answers what it found.
    pub fn consolidate(&mut self, rules: Rules) -> Consolidation {
        let ask = self.ask(rules);
        let found = consolidate(&self.cluster, &ask, &|| false);
        // Nodes of each pool that are removed at once, and all, in steps.
        let mut removed: BTreeMap<String, [usize; 2]> = BTreeMap::new();
        let mut evicted: Vec<PodKey> = Vec::new();
        for one in &found.commands {
            for instance in &one.instances {
                let node = self.launch(instance);
                evicted.extend(self.evict(&instance.pods, &node));
            }
            for place in &one.onto {
                evicted.extend(self.evict(&place.pods, &place.node));
            }
            for node in &one.nodes {
                let held = self.nodes.remove(node).unwrap();
                let [at_once, all] = removed.entry(held.pool).or_default();
                *at_once += usize::from(one.instances.is_empty());
                *all += 1;
                self.cluster.remove_node(node);
            }
        }
        self.schedule(evicted);
        let is_over = |(pool, [at_once, all]): &(&String, &[usize; 2])| {
            let allowed = &ask.constraints[*pool];
            *at_once > allowed.nodes || *all > allowed.nodes * allowed.steps
        };
        self.violations += removed.iter().filter(is_over).count() as u64;
        let nodes = &self.nodes;
        let lost = self.pods.values().filter(|p| p.node.as_ref().is_some_and(|n| !nodes.contains_key(n)));
        self.violations += lost.count() as u64;
        found
    }

    /// The plan of a new cluster for the same pods.
    pub fn fresh(&self, effort: u32) -> Plan {
        let pools: Vec<String> = {
            let mut names: Vec<String> = self.deployments.iter().map(|d| d.pool.clone()).collect();
            names.sort();
            names.dedup();
            names
        };
        let names: Vec<&str> = pools.iter().map(String::as_str).collect();
        let mut fresh = World::new(&self.types, &names, &self.requirements);
        fresh.deployments.clone_from(&self.deployments);
        for running in self.pods.values() {
            fresh.add_pod(running.deployment);
        }
        solve(&fresh.cluster, &Options { effort, ..Options::default() }, &|| false)
    }
}
