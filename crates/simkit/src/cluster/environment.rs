//! State that the processes of one simulated cluster share: store, cloud, clock, faults.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use croft_cloud::CloudProvider;
use croft_ec2_sim::world::World;
use croft_runtime::clock::Clock;
use croft_scheduler::InstanceType;
use jiff::{SignedDuration, Timestamp};
use tokio::{sync::Notify, time::sleep};

use super::{store::Store, wire::Wire};
use crate::random::Random;

const START_SECOND: i64 = 1_780_000_000;

/// tokio's virtual clock, and a wall clock that may be off.
#[derive(Clone)]
pub struct SimClock {
    /// The start of the simulation.
    pub start: tokio::time::Instant,
    /// How far the wall clock is ahead, in milliseconds. It may be set again at any time, as NTP steps a clock.
    pub skew_ms: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock that starts now, without skew.
    #[must_use]
    pub fn start() -> Self {
        Self { start: tokio::time::Instant::now(), skew_ms: Arc::default() }
    }

    /// Wall time without the skew.
    #[must_use]
    pub fn true_wall(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.start.elapsed()).unwrap();
        Timestamp::from_second(START_SECOND).unwrap().checked_add(passed).unwrap()
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> Timestamp {
        let skew = SignedDuration::from_millis(self.skew_ms.load(Ordering::Relaxed));
        self.true_wall().checked_add(skew).unwrap()
    }
}

/// How many of a thousand calls fail, by way of failing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A call to the API server has its effect, and its answer is lost.
    pub api_lost: u64,
    /// A call doesn't arrive at the API server.
    pub api_cut: u64,
    /// The API server answers with a conflict.
    pub api_conflict: u64,
    /// The API server answers that there are too many requests.
    pub api_throttled: u64,
    /// A call to the cloud has its effect, and its answer is lost.
    pub cloud_lost: u64,
    /// A call doesn't arrive at the cloud.
    pub cloud_cut: u64,
    /// The cloud throttles.
    pub cloud_throttled: u64,
    /// Calls, answers and watch events that take seconds, so that later ones overtake them.
    pub slow: u64,
}

/// The connections of one process to store and cloud.
#[derive(Debug, Default)]
pub struct Links {
    /// A paused process does nothing, and continues where it was.
    pub paused: AtomicBool,
    /// No call arrives at the API server.
    pub api_cut: AtomicBool,
    /// No call arrives at the cloud.
    pub cloud_cut: AtomicBool,
    /// The process calls another account, which has no instance.
    pub elsewhere: AtomicBool,
    /// The API server knows the process's token no more: it answers every call with 401.
    pub unauthorized: AtomicBool,
    /// Kinds whose watch shows nothing new, as bits: see [`Links::stall`].
    stalled: AtomicU64,
    /// The attachments of volumes that the process's watch shows, by name, and since when.
    pub(crate) attachments: Mutex<BTreeMap<String, u64>>,
    /// The process is dead: nothing of it continues.
    pub(crate) dead: AtomicBool,
}

impl Links {
    /// Lets the watches of some kinds show nothing new, or go on: that of pods, or those of `kinds`, a bit for each kind in
    /// the order of the watches.
    pub fn stall(&self, kinds: u64, on: bool) {
        if on {
            self.stalled.fetch_or(kinds, Ordering::Relaxed);
        } else {
            self.stalled.fetch_and(!kinds, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_stalled(&self, kind: u64) -> bool {
        self.stalled.load(Ordering::Relaxed) & kind != 0
    }

    /// Notes that the process's watch shows an attachment, or shows that it is gone.
    pub(crate) fn show_attachment(&self, name: &str, is_there: bool, ms: u64) {
        let mut shown = self.attachments.lock().unwrap();
        if is_there {
            shown.entry(name.to_owned()).or_insert(ms);
        } else {
            shown.remove(name);
        }
    }

    /// Waits while the process is paused.
    pub(crate) async fn wait_while_paused(&self) {
        while self.paused.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Makes the provider of a process from its requests to AWS and its clock.
pub type MakeProvider = dyn Fn(Wire, Arc<dyn Clock>) -> Arc<dyn CloudProvider> + Send + Sync;

/// Store, cloud and clock of one simulated cluster, with the faults that are on.
pub struct Environment {
    /// The API server.
    pub store: Mutex<Store>,
    /// EC2.
    pub world: Arc<Mutex<World>>,
    /// Virtual time.
    pub clock: SimClock,
    /// How often each way of failing is drawn.
    pub faults: Mutex<Faults>,
    /// How many moments there were at which a process could have died.
    pub points: AtomicU64,
    /// At which of them it does.
    pub dies_at: AtomicU64,
    /// A process has died at its moment.
    pub died: Notify,
    /// No API server runs.
    pub api_down: AtomicBool,
    /// Look-ups of what a class names find nothing.
    pub finds_nothing: AtomicBool,
    /// Processes that start from now on run the real election, and pass calls through the real leader gate.
    pub elects: AtomicBool,
    /// Processes that start from now on keep the decision log and the ledger in the store's ConfigMaps.
    pub records: AtomicBool,
    /// Workloads have volumes: processes that start from now on watch them.
    pub has_volumes: AtomicBool,
    /// Makes the provider of processes that start from now on, in place of the model of one.
    pub make_provider: Mutex<Option<Arc<MakeProvider>>>,
    /// The instance types that the cloud offers, at the present prices.
    types: Mutex<Arc<[InstanceType]>>,
    /// Something in the store may have changed.
    pub changed: Notify,
    /// Calls to the API server, by verb and kind.
    pub calls: Mutex<BTreeMap<String, u64>>,
    pub(crate) random: Mutex<Random>,
    /// The holder of the Lease, and when it renewed it last.
    pub(crate) lease: Mutex<Option<(usize, Duration)>>,
}

impl Environment {
    /// True if a process with these links doesn't reach an API server.
    pub(crate) fn is_api_cut(&self, links: &Links) -> bool {
        links.api_cut.load(Ordering::Relaxed)
            || links.unauthorized.load(Ordering::Relaxed)
            || self.api_down.load(Ordering::Relaxed)
    }

    /// The instance types at their present prices.
    pub fn types(&self) -> Arc<[InstanceType]> {
        Arc::clone(&self.types.lock().unwrap())
    }

    /// Sets the instance types and prices that the cloud offers from now on.
    pub fn set_types(&self, types: Arc<[InstanceType]>) {
        *self.types.lock().unwrap() = types;
    }

    /// An environment without faults.
    #[must_use]
    pub fn new(
        store: Store,
        world: World,
        types: Arc<[InstanceType]>,
        clock: SimClock,
        random: Random,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: Mutex::new(store),
            world: Arc::new(Mutex::new(world)),
            clock,
            faults: Mutex::default(),
            points: AtomicU64::new(0),
            dies_at: AtomicU64::new(u64::MAX),
            died: Notify::new(),
            api_down: AtomicBool::new(false),
            finds_nothing: AtomicBool::new(false),
            elects: AtomicBool::new(false),
            records: AtomicBool::new(false),
            has_volumes: AtomicBool::new(false),
            make_provider: Mutex::default(),
            types: Mutex::new(types),
            changed: Notify::new(),
            calls: Mutex::default(),
            random: Mutex::new(random),
            lease: Mutex::new(None),
        })
    }

    /// True time, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.true_wall().as_millisecond()).unwrap()
    }

    /// Sets how often each way of failing is drawn from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    /// Draws how long something takes, in milliseconds.
    pub(crate) fn delay(&self, low: u64, high: u64) -> u64 {
        let slow = self.faults.lock().unwrap().slow;
        let mut random = self.random.lock().unwrap();
        let ms = random.between(low, high);
        if slow > 0 && random.permille(slow) { ms + random.between(100, 2_500) } else { ms }
    }

    /// A moment at which a process can die: before and after each of its effects.
    pub(crate) async fn point(&self, links: &Links) {
        if links.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.points.fetch_add(1, Ordering::Relaxed) == self.dies_at.load(Ordering::Relaxed) {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }
}
