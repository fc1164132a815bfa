//! One simulated cluster: store, cloud, everybody else, and the controllers, on tokio's paused clock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use croft_api::NodeClaim;
use croft_controller::{
    config::settings::Settings,
    drive::Driver,
    executor::Executor,
    kube_api::{ApiError, Call, KubeApi, Response, Target},
    metrics::Metrics,
    state::Change,
};
use croft_ec2_sim::world::World;
use croft_runtime::clock::Clock;
use croft_scheduler::{InstanceType, PodKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};

use crate::{
    chance::Chance,
    cloud::SimCloud,
    store::{Id, Store, answer, read},
};

const BASE_SECOND: i64 = 1_780_000_000;
/// The kinds that nothing here has any of: their lists are empty and in at once.
const EMPTY_KINDS: [&str; 7] = [
    "Namespace",
    "DaemonSet",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "VolumeAttachment",
];
const WATCHED: [&str; 8] = [
    "Pod",
    "Node",
    "NodeClaim",
    "TenantPool",
    "EC2NodeClass",
    "Tenant",
    "CroftConfig",
    "PodDisruptionBudget",
];

/// tokio's virtual clock, and a wall clock that may be off.
#[derive(Clone)]
pub struct SimClock {
    pub start: tokio::time::Instant,
    pub skew_ms: i64,
}

impl SimClock {
    pub fn true_wall(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.start.elapsed()).unwrap();
        Timestamp::from_second(BASE_SECOND).unwrap().checked_add(passed).unwrap()
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> Timestamp {
        self.true_wall().checked_add(SignedDuration::from_millis(self.skew_ms)).unwrap()
    }
}

/// Of a thousand: what goes wrong while faults are on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub api_lost: u64,
    pub api_cut: u64,
    pub api_conflict: u64,
    pub api_throttled: u64,
    pub cloud_lost: u64,
    pub cloud_cut: u64,
    pub cloud_throttled: u64,
    /// Calls, answers and watch events that take seconds, so that later ones overtake them.
    pub slow: u64,
}

/// What connects one process to the world.
#[derive(Debug, Default)]
pub struct Links {
    /// A stopped process does nothing, and goes on where it was.
    pub paused: AtomicBool,
    pub api_cut: AtomicBool,
    pub cloud_cut: AtomicBool,
    /// The process calls another account, which has no instance.
    pub elsewhere: AtomicBool,
    /// The watch of pods shows nothing new.
    pub pods_stalled: AtomicBool,
    /// The process is dead: nothing of it goes on.
    dead: AtomicBool,
}

impl Links {
    /// Waits while the process is stopped.
    pub async fn go_on(&self) {
        while self.paused.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

pub struct Shared {
    pub store: Mutex<Store>,
    pub world: Arc<Mutex<World>>,
    pub clock: SimClock,
    pub chance: Mutex<Chance>,
    pub faults: Mutex<Faults>,
    /// How many moments there were at which a process could have died, and at which of them it does.
    pub points: AtomicU64,
    pub dies_at: AtomicU64,
    pub died: tokio::sync::Notify,
    /// Look-ups of what a class names find nothing.
    pub finds_nothing: AtomicBool,
    pub types: Arc<[InstanceType]>,
    lease: Mutex<Option<(usize, Duration)>>,
    pub changed: tokio::sync::Notify,
    pub calls: Mutex<BTreeMap<String, u64>>,
}

/// One controller's connection to the API server.
struct SimApi {
    shared: Arc<Shared>,
    leads: Arc<Mutex<Option<Duration>>>,
    links: Arc<Links>,
}

impl SimApi {
    async fn wait(&self, low: u64, high: u64) {
        self.shared.point(&self.links).await;
        let ms = self.shared.delay(low, high);
        sleep(Duration::from_millis(ms)).await;
        self.links.go_on().await;
    }
}

#[async_trait]
impl KubeApi for SimApi {
    async fn call(&self, call: Call) -> Result<Response, ApiError> {
        self.wait(0, 2).await;
        let (verb, target) = (call.verb.name(), call.target.clone());
        let mono = self.shared.clock.start.elapsed();
        if self.leads.lock().unwrap().is_none_or(|deadline| mono >= deadline) {
            return Err(ApiError::Refused { verb, target, code: 0, message: "not leading".to_owned() });
        }
        let era = self.shared.store.lock().unwrap().era;
        let (lost, cut, conflict, throttled) = {
            let mut chance = self.shared.chance.lock().unwrap();
            let faults = *self.shared.faults.lock().unwrap();
            (
                chance.permille(faults.api_lost),
                chance.permille(faults.api_cut),
                chance.permille(faults.api_conflict),
                chance.permille(faults.api_throttled),
            )
        };
        let unknown =
            |target: Target| ApiError::Unknown { verb, target, message: "the answer was lost".to_owned() };
        if cut || self.links.api_cut.load(Ordering::Relaxed) {
            sleep(Duration::from_secs(3)).await;
            return Err(unknown(target));
        }
        // On its way: this process may be stopped here, and the call still arrives.
        self.wait(0, 5).await;
        if throttled {
            return Err(ApiError::TooMany { verb, target, message: "try again later".to_owned() });
        }
        if conflict {
            return Err(ApiError::Conflict { verb, target, message: "simulated".to_owned() });
        }
        let kind = target.kind();
        *self.shared.calls.lock().unwrap().entry(format!("{verb} {kind}")).or_default() += 1;
        let answer = self.shared.store.lock().unwrap().call(call, self.shared.clock.true_wall());
        self.shared.changed.notify_waiters();
        self.wait(0, 5).await;
        // A restore ends the API servers and their connections.
        let restored = self.shared.store.lock().unwrap().era != era;
        if lost || restored || self.links.api_cut.load(Ordering::Relaxed) {
            return Err(unknown(target));
        }
        answer
    }

    async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        self.wait(1, 10).await;
        if self.links.api_cut.load(Ordering::Relaxed) {
            let (verb, target) = ("list", Target::Claim("*".to_owned()));
            return Err(ApiError::Unknown { verb, target, message: "the answer was lost".to_owned() });
        }
        let store = self.shared.store.lock().unwrap();
        Ok(store.of_kind("NodeClaim").map(|(_, o)| *read(o)).collect())
    }

    async fn list_pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        self.wait(1, 10).await;
        let lost = self.shared.faults.lock().unwrap().api_lost;
        if self.links.api_cut.load(Ordering::Relaxed) || self.shared.chance.lock().unwrap().permille(lost) {
            let (verb, target) = ("list", Target::Pod("*".to_owned(), node.to_owned()));
            return Err(ApiError::Unknown { verb, target, message: "the answer was lost".to_owned() });
        }
        let pods: Vec<Pod> = {
            let store = self.shared.store.lock().unwrap();
            let bound =
                store.of_kind("Pod").filter(|(_, pod)| pod["spec"]["nodeName"].as_str() == Some(node));
            bound.map(|(_, o)| *read(o)).collect()
        };
        self.wait(0, 5).await;
        Ok(pods)
    }
}

/// A running controller process.
pub struct Process {
    pub links: Arc<Links>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.links.dead.store(true, Ordering::Relaxed);
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    pub fn new(
        store: Store,
        world: World,
        types: Arc<[InstanceType]>,
        clock: SimClock,
        chance: Chance,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: Mutex::new(store),
            world: Arc::new(Mutex::new(world)),
            clock,
            chance: Mutex::new(chance),
            faults: Mutex::default(),
            points: AtomicU64::new(0),
            dies_at: AtomicU64::new(u64::MAX),
            died: tokio::sync::Notify::new(),
            finds_nothing: AtomicBool::new(false),
            types,
            lease: Mutex::new(None),
            changed: tokio::sync::Notify::new(),
            calls: Mutex::default(),
        })
    }

    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.true_wall().as_millisecond()).unwrap()
    }

    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    fn delay(&self, low: u64, high: u64) -> u64 {
        let slow = self.faults.lock().unwrap().slow;
        let mut chance = self.chance.lock().unwrap();
        let ms = chance.between(low, high);
        if slow > 0 && chance.permille(slow) { ms + chance.between(100, 2_500) } else { ms }
    }

    /// A moment at which a process can die: before and after everything that it does to the world.
    pub async fn point(&self, links: &Links) {
        if links.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.points.fetch_add(1, Ordering::Relaxed) == self.dies_at.load(Ordering::Relaxed) {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }

    pub fn start(self: &Arc<Self>, number: usize, settings: Settings, skew_ms: i64) -> Process {
        let links: Arc<Links> = Arc::default();
        let leads: Arc<Mutex<Option<Duration>>> = Arc::default();
        let clock: Arc<dyn Clock> = Arc::new(SimClock { skew_ms, ..self.clock.clone() });
        let mut chance = self.chance.lock().unwrap().fork();
        let shared = Arc::clone(self);
        let cloud = SimCloud {
            world: Arc::clone(&self.world),
            types: Arc::clone(&self.types),
            now_ms: Arc::new(move || shared.now_ms()),
            chance: Mutex::new(chance.fork()),
            latency_ms: (5, 400),
            shared: Arc::clone(self),
            links: Arc::clone(&links),
            aside: Mutex::default(),
        };
        let api = SimApi { shared: Arc::clone(self), leads: Arc::clone(&leads), links: Arc::clone(&links) };
        let executor = Executor::new(
            Arc::new(api),
            Arc::new(cloud),
            Arc::clone(&clock),
            self.clock.start.into_std(),
            "sim",
        );
        let (sender, changes) = mpsc::channel(4_096);
        let mut tasks = Vec::new();
        for kind in WATCHED {
            let watch = watch(Arc::clone(self), Arc::clone(&links), kind, sender.clone(), chance.fork());
            tasks.push(tokio::spawn(watch));
        }
        for kind in EMPTY_KINDS {
            sender.try_send(Change::Synced(kind)).unwrap();
        }
        tasks.push(tokio::spawn(elect(Arc::clone(self), number, Arc::clone(&leads), Arc::clone(&links))));
        let start = self.clock.start;
        let is_leader = move || leads.lock().unwrap().is_some_and(|deadline| start.elapsed() < deadline);
        let mut driver = Driver::new(settings, executor, Metrics::new(&mut Registry::default()), is_leader);
        tasks.push(tokio::spawn(async move {
            driver.drive(changes, std::future::pending(), |_| ()).await;
        }));
        Process { links, tasks }
    }
}

async fn elect(shared: Arc<Shared>, number: usize, leads: Arc<Mutex<Option<Duration>>>, links: Arc<Links>) {
    loop {
        if !links.paused.load(Ordering::Relaxed) && !links.api_cut.load(Ordering::Relaxed) {
            let now = shared.clock.start.elapsed();
            let mut lease = shared.lease.lock().unwrap();
            let free =
                lease.is_none_or(|(holder, at)| holder == number || now >= at + Duration::from_secs(10));
            if free {
                *lease = Some((number, now));
                *leads.lock().unwrap() = Some(now + Duration::from_secs(7));
            } else {
                *leads.lock().unwrap() = None;
            }
        }
        sleep(Duration::from_millis(1_500)).await;
    }
}

/// One kind's watch: a list, then the log with delays; after a cut of the log, or when it breaks, anew.
async fn watch(
    shared: Arc<Shared>,
    links: Arc<Links>,
    kind: &'static str,
    sender: mpsc::Sender<Change>,
    mut chance: Chance,
) {
    let mut held: BTreeMap<Id, Box<str>> = BTreeMap::new();
    loop {
        while links.api_cut.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(200)).await;
        }
        let (listed, mut position, era) = {
            let store = shared.store.lock().unwrap();
            let listed: Vec<(Id, Arc<Value>)> =
                store.of_kind(kind).map(|(id, o)| (id.clone(), o.clone())).collect();
            (listed, store.end(), store.era)
        };
        sleep(Duration::from_millis(chance.between(1, 50))).await;
        let now: BTreeMap<Id, Box<str>> = listed.iter().map(|(id, o)| (id.clone(), uid(o))).collect();
        let mut changes: Vec<Change> =
            listed.iter().map(|(id, object)| Change::Listed(Box::new(applied(id, object)))).collect();
        changes.extend(held.iter().filter(|(id, _)| !now.contains_key(*id)).map(|(id, uid)| gone(id, uid)));
        changes.push(Change::Synced(kind));
        held = now;
        for change in changes {
            if sender.send(change).await.is_err() {
                return;
            }
        }
        loop {
            let fresh = {
                let store = shared.store.lock().unwrap();
                if store.era != era || links.api_cut.load(Ordering::Relaxed) {
                    break;
                }
                let fresh: Vec<_> = store.since(position).filter(|l| l.id.0 == kind).cloned().collect();
                position = store.end();
                fresh
            };
            if fresh.is_empty() {
                shared.changed.notified().await;
                continue;
            }
            sleep(Duration::from_millis(shared.delay(0, 60))).await;
            while kind == "Pod" && links.pods_stalled.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(200)).await;
            }
            for logged in fresh {
                let change = if logged.deleted {
                    held.remove(&logged.id);
                    gone(&logged.id, &uid(&logged.object))
                } else {
                    held.insert(logged.id.clone(), uid(&logged.object));
                    applied(&logged.id, &logged.object)
                };
                if sender.send(change).await.is_err() {
                    return;
                }
            }
            if chance.permille(2) {
                break;
            }
        }
        // The connection is broken, and a while passes unwatched.
        sleep(Duration::from_millis(chance.between(500, 3_000))).await;
    }
}

fn applied(id: &Id, object: &Value) -> Change {
    match answer(id, object) {
        Response::Claim(o) => Change::Claim(o),
        Response::Pool(o) => Change::Pool(o),
        Response::Class(o) => Change::Class(o),
        Response::Node(o) => Change::Node(o),
        Response::Pod(o) => Change::Pod(o),
        Response::Config(o) => Change::Config(o),
        Response::Done if id.0 == "PodDisruptionBudget" => Change::Budget(read(object)),
        Response::Done => Change::Tenant(read(object)),
    }
}

fn uid(object: &Value) -> Box<str> {
    object["metadata"]["uid"].as_str().unwrap_or_default().into()
}

fn gone(id: &Id, uid: &str) -> Change {
    let name = id.2.clone();
    let change = match id.0 {
        "Pod" => Change::PodGone(PodKey::new(&id.1, &name)),
        "Node" => Change::NodeGone(name),
        "NodeClaim" => Change::ClaimGone(name),
        "TenantPool" => Change::PoolGone(name),
        "EC2NodeClass" => Change::ClassGone(name),
        "CroftConfig" => Change::ConfigGone(name),
        "PodDisruptionBudget" => Change::BudgetGone(id.1.clone(), name),
        _ => Change::TenantGone(name),
    };
    Change::Gone(uid.into(), Box::new(change))
}
