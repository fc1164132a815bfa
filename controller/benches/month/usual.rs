//! Today's usual policy in the same month: as Karpenter 1.x documents provisioning and consolidation with its defaults, and
//! `consolidateAfter: 15s`.
//!
//! ```text
//!   pods without a node ──1 s idle, 10 s at most──▶ first-fit-decreasing ──▶ an instance of the cheapest type for each new node
//!   every 10 s, the first that finds something:   empty nodes
//!                                                 the first N of the nodes by disruption cost, N by bisection
//!                                                 one node, in the order of disruption cost
//!                                        └─15 s later, if it still holds─▶ taint, replacement, drain, termination
//! ```
//!
//! A command removes nodes whose pods fit onto the others that are Ready, or with one new node that is cheaper. At most a
//! tenth of a pool, rounded up, is out at once. Pods are bound by the model of kube-scheduler, and evicted within their
//! PodDisruptionBudgets. Left out is what the month has none of: spot instances, drift, expiry, DaemonSets, affinity,
//! spread. A node's pods fit nodes of its own pool only, so a simulated removal looks at the pools that it concerns.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use croft_api::EC2NodeClass;
use croft_cloud::{CloudProvider, LaunchRequest};
use croft_controller::kube_api::{Call, Target, Verb};
use croft_ec2_sim::resources::State as InstanceState;
use croft_scheduler::{CapacityType, InstanceType, Resources};
use croft_simkit::{Amounts, ClusterModel, Environment, Id, cluster_id, objects};
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    ZONES,
    demand::Demand,
    first_fit::{Bin, Item, Kind, NewNode, minus, place},
    meter::Meter,
};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BATCH_IDLE_MS: u64 = 1_000;
const BATCH_MAX_MS: u64 = 10_000;
/// Between two searches for nodes to remove.
const SEARCH_EVERY_MS: u64 = 10_000;
/// A node's pods must have been the same for this long: `consolidateAfter`.
const CONSOLIDATE_AFTER_MS: u64 = 15_000;
/// From a command's search to its validation.
const VALIDATE_AFTER_MS: u64 = 15_000;
/// A node that pending pods are expected on is no candidate for this long.
const NOMINATED_MS: u64 = 20_000;
/// The default budget of a pool, rounded up.
const BUDGET_PERCENT: usize = 10;
/// The default `expireAfter`: the disruption cost of a node falls with its remaining life.
const EXPIRE_AFTER_MS: f64 = 720.0 * 3_600_000.0;
/// Instance types in one launch at most.
const TYPES_OF_A_LAUNCH: usize = 60;
/// Nodes in one command at most.
const NODES_OF_A_COMMAND: usize = 100;

/// Starts the policy; it ends with the task.
pub fn start(
    environment: &Arc<Environment>,
    model: &Arc<Mutex<ClusterModel<Meter>>>,
    demand: &Demand,
) -> JoinHandle<()> {
    let mut usual = Usual::new(Arc::clone(environment), Arc::clone(model), demand);
    tokio::spawn(async move {
        loop {
            usual.pass().await;
            sleep(LOOK_EVERY).await;
        }
    })
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Booting,
    Ready,
    /// Tainted, until this node is Ready.
    AwaitsReplacement(String),
    Draining,
    Terminating,
}

impl State {
    fn is_open(&self) -> bool {
        matches!(self, Self::Booting | Self::Ready)
    }

    fn is_draining(&self) -> bool {
        matches!(self, Self::AwaitsReplacement(_) | Self::Draining)
    }
}

#[derive(Clone, Debug)]
struct Node {
    pool: usize,
    kind: usize,
    instance: String,
    launched_ms: u64,
    /// A hash of its pods, and since when they are these.
    pods: u64,
    steady_since: u64,
    nominated_until: u64,
    state: State,
}

/// A pod that is bound, or waits.
#[derive(Clone, Debug)]
struct Pod {
    id: Id,
    pool: usize,
    workload: usize,
    requests: Amounts,
    is_deleting: bool,
}

/// The cluster at one moment.
#[derive(Debug, Default)]
struct View {
    waiting: Vec<Pod>,
    bound: BTreeMap<String, Vec<Pod>>,
    ready: BTreeSet<String>,
    /// By workload: its PodDisruptionBudget allows an eviction.
    allows_eviction: Vec<bool>,
}

impl View {
    fn pods_on(&self, node: &str) -> &[Pod] {
        self.bound.get(node).map_or(&[], Vec::as_slice)
    }
}

/// Nodes to remove, and the node to launch for their pods, with its pool.
#[derive(Clone, Debug)]
struct Command {
    nodes: Vec<String>,
    replacement: Option<(usize, NewNode)>,
}

/// Pods that wait, until they are planned together.
#[derive(Debug, Default)]
struct Batch {
    pods: BTreeSet<Id>,
    first_ms: u64,
    due_ms: u64,
}

struct Usual {
    environment: Arc<Environment>,
    model: Arc<Mutex<ClusterModel<Meter>>>,
    cloud: Arc<dyn CloudProvider>,
    class: Arc<EC2NodeClass>,
    pools: Vec<String>,
    kinds: Vec<Kind>,
    nodes: BTreeMap<String, Node>,
    launches: u64,
    batch: Batch,
    planned: Option<(u64, Command)>,
    search_ms: u64,
    /// The question of the last search that found nothing.
    answered: Option<u64>,
    /// The store's version after a look that left nothing to do.
    seen: Option<u64>,
}

impl Usual {
    fn new(environment: Arc<Environment>, model: Arc<Mutex<ClusterModel<Meter>>>, demand: &Demand) -> Self {
        let mut class = objects::node_class();
        class["metadata"]["name"] = json!("class");
        let mut kinds: Vec<Kind> = demand.types.iter().map(kind).collect();
        kinds.sort_by(|a, b| (a.price, &a.name).cmp(&(b.price, &b.name)));
        Self {
            cloud: croft_simkit::cloud(&environment),
            environment,
            model,
            class: Arc::new(serde_json::from_value(class).unwrap()),
            pools: demand.pools.clone(),
            kinds,
            nodes: BTreeMap::new(),
            launches: 0,
            batch: Batch::default(),
            planned: None,
            search_ms: 0,
            answered: None,
            seen: None,
        }
    }

    async fn pass(&mut self) {
        let (now, version) = (self.environment.now_ms(), self.environment.store.lock().unwrap().version);
        if self.seen == Some(version) && now < self.search_ms {
            return;
        }
        let view = self.look();
        self.follow(&view, now);
        self.drain(&view).await;
        self.provision(&view, now).await;
        if now >= self.search_ms {
            self.disrupt().await;
        }
        let is_quiet = view.waiting.is_empty() && self.nodes.values().all(|node| node.state == State::Ready);
        self.seen = is_quiet.then_some(version);
    }

    fn look(&self) -> View {
        let model = self.model.lock().unwrap();
        let index = model.index();
        let mut view = View::default();
        for (number, workload) in model.workloads.iter().enumerate() {
            let most = workload.max_unavailable.unwrap_or(u64::MAX);
            view.allows_eviction.push(index.healthy(number) + most > workload.replicas);
            let pool = self.pools.iter().position(|pool| *pool == workload.pool).unwrap();
            let requests = [workload.cpu_millis, workload.memory_mi << 20, 1];
            for (id, pod) in index.pods_of(number) {
                let is_deleting = pod.deleting;
                let known = Pod { id: id.clone(), pool, workload: number, requests, is_deleting };
                match &pod.node {
                    Some(node) => view.bound.entry(node.clone()).or_default().push(known),
                    None if !is_deleting => view.waiting.push(known),
                    None => {}
                }
            }
        }
        let ready = index.nodes().iter().filter(|(_, node)| node.ready == "True");
        view.ready = ready.map(|(name, _)| name.clone()).collect();
        view
    }

    /// Follows what has become of pods, nodes and instances.
    fn follow(&mut self, view: &View, now: u64) {
        let is_ready = |name: &String| view.ready.contains(name);
        for (name, node) in &mut self.nodes {
            let pods = hash(view.pods_on(name).iter().map(|pod| (&pod.id, pod.is_deleting)));
            if pods != node.pods || node.state == State::Booting {
                (node.pods, node.steady_since) = (pods, now);
            }
            match &node.state {
                State::Booting if is_ready(name) => node.state = State::Ready,
                State::AwaitsReplacement(other) if is_ready(other) => node.state = State::Draining,
                _ => {}
            }
        }
        let world = self.environment.world.lock().unwrap();
        let is_gone = |node: &Node| {
            let instance = world.instance(&node.instance);
            instance.is_none_or(|instance| instance.state == InstanceState::Terminated)
        };
        let gone: Vec<String> =
            self.nodes.iter().filter(|(_, n)| is_gone(n)).map(|(n, _)| n.clone()).collect();
        drop(world);
        for name in gone {
            self.nodes.remove(&name);
            self.environment.store.lock().unwrap().remove(&cluster_id("Node", &name));
            self.environment.changed.notify_waiters();
        }
    }

    /// Evicts the pods of draining nodes; terminates the instances of those without pods.
    async fn drain(&mut self, view: &View) {
        let draining = self.nodes.iter().filter(|(_, node)| node.state == State::Draining);
        let (empty, full): (Vec<_>, Vec<_>) = draining.partition(|(name, _)| view.pods_on(name).is_empty());
        for pod in full.iter().flat_map(|(name, _)| view.pods_on(name)).filter(|pod| !pod.is_deleting) {
            self.evict(&pod.id);
        }
        let empty: Vec<(String, String)> =
            empty.into_iter().map(|(name, node)| (name.clone(), node.instance.clone())).collect();
        let instances: Vec<String> = empty.iter().map(|(_, instance)| instance.clone()).collect();
        if !instances.is_empty() && self.cloud.terminate(&instances).await.is_ok() {
            for (name, _) in empty {
                self.nodes.get_mut(&name).unwrap().state = State::Terminating;
            }
        }
    }

    /// Asks for an eviction, which a PodDisruptionBudget may refuse.
    fn evict(&self, id: &Id) {
        let mut store = self.environment.store.lock().unwrap();
        let Some(pod) = store.get(id) else { return };
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        let target = Target::Pod(id.1.clone(), id.2.clone());
        let _ = store.call(Call { target, verb: Verb::Evict { uid } }, self.environment.clock.true_wall());
        *self.environment.calls.lock().unwrap().entry("evict Pod".to_owned()).or_default() += 1;
        self.environment.changed.notify_waiters();
    }

    /// Launches nodes for a batch of pending pods.
    async fn provision(&mut self, view: &View, now: u64) {
        let pods: BTreeSet<Id> = view.waiting.iter().map(|pod| pod.id.clone()).collect();
        if !pods.is_subset(&self.batch.pods) {
            if self.batch.pods.is_empty() || self.batch.first_ms + BATCH_MAX_MS <= now {
                self.batch.first_ms = now;
            }
            self.batch.due_ms = (now + BATCH_IDLE_MS).min(self.batch.first_ms + BATCH_MAX_MS);
        }
        self.batch.pods = pods;
        if self.batch.pods.is_empty() || now < self.batch.due_ms {
            return;
        }
        // Pods that still wait then are planned again.
        (self.batch.first_ms, self.batch.due_ms) = (now, now + BATCH_MAX_MS);
        let mut launches = Vec::new();
        for pool in view.waiting.iter().map(|pod| pod.pool).collect::<BTreeSet<usize>>() {
            let placed = place(self.pending(view, pool), self.bins(view, pool, &[]), &self.kinds);
            for name in placed.nominated {
                self.nodes.get_mut(&name).unwrap().nominated_until = now + NOMINATED_MS;
            }
            launches.extend(placed.new.into_iter().map(|node| (pool, node)));
        }
        let first = self.launches;
        self.launches += launches.len() as u64;
        let usual = &*self;
        let launching = launches.iter().zip(first..).map(|((pool, node), n)| usual.launch(*pool, node, n));
        let launched = futures::future::join_all(launching).await;
        self.nodes.extend(launched.into_iter().flatten());
    }

    /// The pods of a pool that need a place: those that wait, and those of nodes on their way out.
    fn pending(&self, view: &View, pool: usize) -> Vec<Item> {
        let leaving = self.nodes.iter().filter(|(_, node)| node.pool == pool && node.state.is_draining());
        let leaving = leaving.flat_map(|(name, _)| view.pods_on(name)).filter(|pod| !pod.is_deleting);
        let waiting = view.waiting.iter().filter(|pod| pod.pool == pool);
        waiting.chain(leaving).map(|pod| Item { requests: pod.requests, is_pending: true }).collect()
    }

    /// The nodes of a pool that take pods, but for `without`.
    fn bins(&self, view: &View, pool: usize, without: &[String]) -> Vec<Bin> {
        let open = self
            .nodes
            .iter()
            .filter(|(name, node)| node.pool == pool && node.state.is_open() && !without.contains(name));
        let bin = |(name, node): (&String, &Node)| {
            let allocatable = self.kinds[node.kind].allocatable;
            let free = view.pods_on(name).iter().fold(allocatable, |free, pod| minus(free, pod.requests));
            Bin { name: name.clone(), free, is_ready: node.state == State::Ready }
        };
        open.map(bin).collect()
    }

    async fn launch(&self, pool: usize, node: &NewNode, number: u64) -> Option<(String, Node)> {
        let claim = format!("usual-{number}");
        let taint = Taint {
            key: "node-pool".to_owned(),
            value: Some(self.pools[pool].clone()),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let kinds = node.kinds.iter().take(TYPES_OF_A_LAUNCH);
        let request = LaunchRequest {
            claim_name: claim.clone(),
            claim_uid: claim,
            pool: self.pools[pool].clone(),
            tenant: None,
            attempt: 1,
            class: Arc::clone(&self.class),
            instance_types: kinds.map(|kind| self.kinds[*kind].name.clone()).collect(),
            zones: ZONES.map(str::to_owned).to_vec(),
            capacity_type: CapacityType::OnDemand,
            requests: Resources::default(),
            labels: [("node-pool".to_owned(), self.pools[pool].clone())].into(),
            taints: vec![taint],
            tags: BTreeMap::new(),
        };
        let prepared = self.cloud.prepare(&request).await.ok()?;
        let instance = self.cloud.launch(&prepared).await.ok()?.instance;
        let kind = self.kinds.iter().position(|kind| kind.name == instance.instance_type).unwrap();
        let now = self.environment.now_ms();
        let node = Node {
            pool,
            kind,
            instance: instance.id,
            launched_ms: now,
            pods: 0,
            steady_since: now,
            nominated_until: now + NOMINATED_MS,
            state: State::Booting,
        };
        Some((instance.node_name, node))
    }

    /// Validates the planned command and starts it, or searches for one.
    async fn disrupt(&mut self) {
        // Launches have taken a while.
        let (now, view) = (self.environment.now_ms(), self.look());
        self.search_ms = now + SEARCH_EVERY_MS;
        let candidates = self.candidates(&view, now);
        if let Some((due, command)) = self.planned.take() {
            if now < due {
                self.search_ms = due;
                self.planned = Some((due, command));
            } else if let Some(command) = self.validate(&view, &candidates, &command) {
                self.execute(command).await;
            }
            return;
        }
        let waiting = view.waiting.iter().map(|pod| &pod.id);
        let states = self.nodes.iter().map(|(name, node)| (name, node.pods, &node.state));
        let question = hash([hash(waiting), hash(states), hash(candidates.iter())].iter());
        if self.answered == Some(question) {
            return;
        }
        match self.choose(&view, &candidates) {
            Some(command) => {
                self.search_ms = now + VALIDATE_AFTER_MS;
                self.planned = Some((self.search_ms, command));
            }
            None => self.answered = Some(question),
        }
    }

    /// Nodes that may be removed, by disruption cost.
    fn candidates(&self, view: &View, now: u64) -> Vec<String> {
        let may_go = |(name, node): &(&String, &Node)| {
            node.state == State::Ready
                && now >= node.steady_since + CONSOLIDATE_AFTER_MS
                && now >= node.nominated_until
                && view.pods_on(name).iter().all(|pod| pod.is_deleting || view.allows_eviction[pod.workload])
        };
        let cost = |(name, node): (&String, &Node)| {
            let pods = view.pods_on(name).iter().filter(|pod| !pod.is_deleting).count();
            let left = 1.0 - (now - node.launched_ms) as f64 / EXPIRE_AFTER_MS;
            (pods as f64 * left.max(0.0), name.clone())
        };
        let mut candidates: Vec<(f64, String)> = self.nodes.iter().filter(may_go).map(cost).collect();
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        candidates.into_iter().map(|(_, name)| name).collect()
    }

    /// The candidates that the pools' budgets let go at once, in their order.
    fn within_budgets(&self, candidates: impl Iterator<Item = String>) -> Vec<String> {
        let mut left: BTreeMap<usize, usize> = BTreeMap::new();
        let allowed = |pool: usize| {
            let own = || self.nodes.values().filter(|node| node.pool == pool && node.state != State::Booting);
            let out = own().filter(|node| !node.state.is_open()).count();
            (own().count() * BUDGET_PERCENT).div_ceil(100).saturating_sub(out)
        };
        let mut take = |name: &String| {
            let pool = self.nodes[name].pool;
            let left = left.entry(pool).or_insert_with(|| allowed(pool));
            let takes = *left > 0;
            *left = left.saturating_sub(1);
            takes
        };
        candidates.filter(|name| take(name)).collect()
    }

    fn choose(&self, view: &View, candidates: &[String]) -> Option<Command> {
        let is_empty = |name: &&String| view.pods_on(name).iter().all(|pod| pod.is_deleting);
        let empty = self.within_budgets(candidates.iter().filter(is_empty).cloned());
        if !empty.is_empty() {
            return Some(Command { nodes: empty, replacement: None });
        }
        let many = self.within_budgets(candidates.iter().cloned());
        let first = &many[..many.len().min(NODES_OF_A_COMMAND)];
        self.first_of(view, first)
            .or_else(|| many.iter().find_map(|name| self.consolidate(view, std::slice::from_ref(name))))
    }

    /// The most of the first candidates that can be removed at once, two at least, by bisection.
    fn first_of(&self, view: &View, candidates: &[String]) -> Option<Command> {
        let (mut low, mut high, mut found) = (2, candidates.len(), None);
        while low <= high {
            let middle = usize::midpoint(low, high);
            match self.consolidate(view, &candidates[..middle]) {
                Some(command) => (low, found) = (middle + 1, Some(command)),
                None => high = middle - 1,
            }
        }
        found
    }

    /// A command that removes these nodes, if their pods fit onto the others or onto one cheaper node besides.
    fn consolidate(&self, view: &View, nodes: &[String]) -> Option<Command> {
        let pools: BTreeSet<usize> = nodes.iter().map(|name| self.nodes[name].pool).collect();
        let mut new = Vec::new();
        for pool in pools {
            let moved = nodes.iter().filter(|name| self.nodes[*name].pool == pool);
            let moved = moved.flat_map(|name| view.pods_on(name)).filter(|pod| !pod.is_deleting);
            let moved = moved.map(|pod| Item { requests: pod.requests, is_pending: false });
            let items = moved.chain(self.pending(view, pool)).collect();
            let placed = place(items, self.bins(view, pool, nodes), &self.kinds);
            if placed.strands {
                return None;
            }
            new.extend(placed.new.into_iter().map(|node| (pool, node)));
        }
        let replacement = match new.pop() {
            None => None,
            Some((pool, node)) if new.is_empty() => Some((pool, self.cheaper(node, nodes)?)),
            Some(_) => return None,
        };
        Some(Command { nodes: nodes.to_vec(), replacement })
    }

    /// The new node with those of its types that cost less than all `nodes` together. If one of its types is that of a
    /// removed node, keeping that node is as good, so only cheaper types count.
    fn cheaper(&self, mut new: NewNode, nodes: &[String]) -> Option<NewNode> {
        let removed = || nodes.iter().map(|name| self.nodes[name].kind);
        let mut below: i64 = removed().map(|kind| self.kinds[kind].price).sum();
        if nodes.len() > 1 {
            let same = removed().filter(|kind| new.kinds.contains(kind) && self.kinds[*kind].price < below);
            below = same.map(|kind| self.kinds[kind].price).min().unwrap_or(below);
        }
        new.kinds.retain(|kind| self.kinds[*kind].price < below);
        (!new.kinds.is_empty()).then_some(new)
    }

    /// The command as it would be decided now, if it removes the same nodes in the same way.
    fn validate(&self, view: &View, candidates: &[String], command: &Command) -> Option<Command> {
        let is_candidate = command.nodes.iter().all(|name| candidates.contains(name));
        if !is_candidate || self.within_budgets(command.nodes.iter().cloned()) != command.nodes {
            return None;
        }
        let again = self.consolidate(view, &command.nodes)?;
        (again.replacement.is_some() == command.replacement.is_some()).then_some(again)
    }

    /// Taints the nodes, launches their replacement, and lets them drain when it is Ready.
    async fn execute(&mut self, command: Command) {
        self.taint(&command.nodes, true);
        let mut state = State::Draining;
        if let Some((pool, node)) = &command.replacement {
            self.launches += 1;
            let Some((name, node)) = self.launch(*pool, node, self.launches - 1).await else {
                self.taint(&command.nodes, false);
                return;
            };
            self.nodes.insert(name.clone(), node);
            state = State::AwaitsReplacement(name);
        }
        for name in &command.nodes {
            self.nodes.get_mut(name).unwrap().state = state.clone();
        }
    }

    fn taint(&self, nodes: &[String], on: bool) {
        let mut store = self.environment.store.lock().unwrap();
        for name in nodes {
            store.change(&cluster_id("Node", name), |node| node["spec"]["unschedulable"] = json!(on));
        }
        self.environment.changed.notify_waiters();
    }
}

fn kind(kind: &InstanceType) -> Kind {
    let allocatable = kind.allocatable();
    let price = kind.offerings.iter().filter_map(|offering| offering.price).min().unwrap();
    Kind {
        name: kind.name.clone(),
        price: price.micros(),
        allocatable: ["cpu", "memory", "pods"].map(|resource| allocatable.get(resource)),
    }
}

fn hash<T: std::hash::Hash>(items: impl Iterator<Item = T>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for item in items {
        item.hash(&mut hasher);
    }
    hasher.finish()
}
