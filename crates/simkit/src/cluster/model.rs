//! Everything in a cluster but the controller: kubelets, kube-scheduler, workloads, budgets and the pod collector.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use croft_ec2_sim::world::{Happening, World};
use croft_scheduler::InstanceType;
use jiff::Timestamp;
use tokio::{task::JoinHandle, time::sleep};

use super::{
    daemonset,
    environment::Environment,
    index::{ClusterIndex, PodView},
    kubelet::{self, Kubelets},
    pod_gc::PodCollector,
    scheduler::{Placement, Scheduler},
    store::{Id, Logged, Store},
    volumes::Attachments,
    workload::{Workload, Workloads, write_budget},
};
use crate::random::Random;

/// How long things take, in milliseconds; ranges are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From the running instance to its Node.
    pub boot_ms: (u64, u64),
    /// From the Node to Ready.
    pub ready_ms: (u64, u64),
    /// From the binding of a pod to Running.
    pub start_ms: u64,
    /// From the deletion of a pod to its end.
    pub end_ms: u64,
    /// At most, from a cordon until kube-scheduler sees it.
    pub scheduler_lag_ms: u64,
}

/// One look of the models at the world.
pub(crate) struct Tick<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) world: &'a World,
    pub(crate) timing: &'a Timing,
    pub(crate) random: &'a mut Random,
    pub(crate) now: Timestamp,
    /// The same in milliseconds since 1970.
    pub(crate) ms: u64,
}

/// A pod that was created, changed or deleted.
pub struct PodChange<'a> {
    /// Its id.
    pub id: &'a Id,
    /// As it was; `None` for a new one.
    pub old: Option<&'a PodView>,
    /// As it is; `None` if it is gone.
    pub new: Option<&'a PodView>,
    /// True if its own controller deleted it, because fewer pods are wanted.
    pub is_scaled_down: bool,
    /// Milliseconds since 1970.
    pub ms: u64,
}

/// Measures while the models act.
pub trait Observer: Send + 'static {
    /// Called first in each tick, with the milliseconds since 1970.
    fn advance(&mut self, _index: &ClusterIndex, _ms: u64) {}
    /// An instance runs, or is gone.
    fn follow_instance(&mut self, _happening: &Happening, _world: &World, _ms: u64) {}
    /// A pod has changed.
    fn follow_pod(&mut self, _change: &PodChange<'_>, _index: &ClusterIndex) {}
    /// An object has changed that is no pod.
    fn follow_object(&mut self, _logged: &Logged, _index: &ClusterIndex) {}
}

impl Observer for () {}

/// The models over one store and one world.
pub struct ClusterModel<O = ()> {
    /// The workloads. Replicas may be changed at any time, the list itself may not.
    pub workloads: Vec<Workload>,
    /// The observer.
    pub observer: O,
    timing: Timing,
    random: Random,
    index: ClusterIndex,
    kubelets: Kubelets,
    scheduler: Scheduler,
    controllers: Workloads,
    collector: PodCollector,
    attachments: Attachments,
    /// Era and version of the store after the last tick, if it changed nothing.
    seen: Option<(u64, u64)>,
    wanted: Vec<u64>,
}

impl<O: Observer> ClusterModel<O> {
    /// Models of a cluster with these workloads. Nodes have the capacity that `types` says.
    pub fn new(
        workloads: Vec<Workload>,
        types: Arc<[InstanceType]>,
        timing: Timing,
        placement: Placement,
        random: Random,
        observer: O,
    ) -> Self {
        Self {
            index: ClusterIndex::new(&workloads),
            kubelets: Kubelets::new(types),
            scheduler: Scheduler::new(placement),
            controllers: Workloads::default(),
            collector: PodCollector::default(),
            attachments: Attachments::new(),
            seen: None,
            wanted: Vec::new(),
            workloads,
            observer,
            timing,
            random,
        }
    }

    /// Pods and nodes.
    #[must_use]
    pub const fn index(&self) -> &ClusterIndex {
        &self.index
    }

    /// Lets the observer look at what the models know.
    pub fn with_observer<T>(&mut self, look: impl FnOnce(&mut O, &ClusterIndex) -> T) -> T {
        look(&mut self.observer, &self.index)
    }

    /// Silences a kubelet from one moment to another, in milliseconds since 1970; its instance and its pods work on.
    pub fn silence(&mut self, instance: &str, from: u64, until: u64) {
        self.kubelets.silence(instance, from, until);
    }

    /// Lets other pods keep kube-scheduler busy until then, in milliseconds since 1970.
    pub const fn keep_scheduler_busy(&mut self, until: u64) {
        self.scheduler.keep_busy(until);
    }

    /// Lets this many of a thousand detachments of volumes come to no end while their node is there.
    pub const fn hang_detachments(&mut self, permille: u64) {
        self.attachments.hang_permille = permille;
    }

    /// After a restore of the store: the Node of an instance that was terminated since the backup isn't Ready.
    pub fn mark_lost(&mut self, store: &mut Store, world: &World, now: Timestamp) {
        let ms = u64::try_from(now.as_millisecond()).unwrap();
        self.read(store, ms);
        kubelet::mark_lost(&self.index, store, world, now);
    }

    /// Each model does what there is to do now. Answers when there is more to do, if nothing else changes.
    pub fn tick(&mut self, store: &mut Store, world: &mut World, now: Timestamp) -> Option<u64> {
        let ms = u64::try_from(now.as_millisecond()).unwrap();
        self.observer.advance(&self.index, ms);
        world.advance(ms);
        self.follow_replicas();
        if !self.is_idle(store, world, ms) {
            self.act(store, world, now, ms);
        }
        let models = [
            self.kubelets.next_due(ms),
            self.collector.next_due(ms),
            self.scheduler.next_due(),
            self.attachments.next_due(ms),
        ];
        let own = models.into_iter().chain([world.next_change()]);
        own.flatten().min()
    }

    fn follow_replicas(&mut self) {
        self.wanted.resize(self.workloads.len(), u64::MAX);
        for (n, (wanted, workload)) in self.wanted.iter_mut().zip(&self.workloads).enumerate() {
            if *wanted != workload.replicas {
                *wanted = workload.replicas;
                self.index.stale.insert(n);
                self.seen = None;
            }
        }
    }

    fn is_idle(&self, store: &Store, world: &World, ms: u64) -> bool {
        self.seen == Some((store.era, store.version))
            && !self.kubelets.has_silent()
            && !self.collector.is_waiting()
            && !self.kubelets.is_due(ms)
            && !self.attachments.is_due(ms)
            && self.scheduler.next_due().is_none_or(|due| due > ms)
            && !world.has_happenings()
    }

    fn act(&mut self, store: &mut Store, world: &mut World, now: Timestamp, ms: u64) {
        let before = (store.era, store.version);
        let happenings = world.take_happenings();
        for happening in &happenings {
            self.observer.follow_instance(happening, world, ms);
        }
        let (timing, mut random) = (self.timing, self.random.clone());
        let mut tick = Tick { store, world, timing: &timing, random: &mut random, now, ms };
        self.kubelets.follow(&happenings, &mut tick);
        self.kubelets.register(&mut tick);
        self.read(tick.store, ms);
        self.kubelets.report(&self.index, &mut tick);
        self.read(tick.store, ms);
        self.kubelets.run_pods(&self.workloads, &self.index, &mut tick);
        self.read(tick.store, ms);
        daemonset::place(&self.index, &mut tick);
        self.read(tick.store, ms);
        for number in std::mem::take(&mut self.index.stale) {
            let workload = self.workloads[number].clone();
            self.controllers.scale(number, &workload, &self.index, &mut tick);
            self.read(tick.store, ms);
            write_budget(number, &workload, &self.index, &mut tick);
        }
        self.read(tick.store, ms);
        self.collector.collect(&self.index, &mut tick);
        self.read(tick.store, ms);
        // Its cache takes in cordons while it is busy too.
        let open = self.scheduler.open_nodes(&self.index, &mut tick);
        if !self.scheduler.is_busy(ms) {
            for id in self.index.waiting.clone() {
                self.scheduler.bind(&id, &open, &self.index, &mut tick);
                self.read(tick.store, ms);
            }
        }
        if self.workloads.iter().any(|workload| !workload.volume_zones.is_empty()) {
            self.attachments.follow(&self.index, &mut tick);
        }
        let after = (tick.store.era, tick.store.version);
        self.random = random;
        self.seen = (after == before).then_some(after);
    }

    fn read(&mut self, store: &Store, ms: u64) {
        let (observer, scaled_down) = (&mut self.observer, &self.controllers.scaled_down);
        self.index.read(store, ms, |index, logged, old| {
            if logged.id.0 == "Pod" {
                let (id, old) = (&logged.id, old.as_ref());
                let is_scaled_down = scaled_down.contains(id);
                let new = index.pods().get(id).filter(|_| !logged.deleted);
                observer.follow_pod(&PodChange { id, old, new, is_scaled_down, ms }, index);
            } else {
                observer.follow_object(logged, index);
            }
        });
    }
}

impl<O: Observer> ClusterModel<O> {
    /// Lets the models act every `period` until the task is ended.
    pub fn run_every(
        model: &Arc<Mutex<Self>>,
        environment: &Arc<Environment>,
        period: Duration,
    ) -> JoinHandle<()> {
        let (environment, model) = (Arc::clone(environment), Arc::clone(model));
        tokio::spawn(async move {
            loop {
                {
                    let mut store = environment.store.lock().unwrap();
                    let mut world = environment.world.lock().unwrap();
                    model.lock().unwrap().tick(&mut store, &mut world, environment.clock.true_wall());
                }
                environment.changed.notify_waiters();
                sleep(period).await;
            }
        })
    }

    /// Lets the models act whenever something has changed, until the task is ended: a quiet hour costs nothing.
    pub fn run_on_change(model: &Arc<Mutex<Self>>, environment: &Arc<Environment>) -> JoinHandle<()> {
        /// Changes within this time are read together.
        const TOGETHER: Duration = Duration::from_millis(50);
        /// Entries of the log that watches may still have to read: none is more than a few seconds late.
        const LOG_KEPT: usize = 5_000;
        let (environment, model) = (Arc::clone(environment), Arc::clone(model));
        tokio::spawn(async move {
            loop {
                let changed = environment.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let (next, did) = {
                    let mut store = environment.store.lock().unwrap();
                    let mut world = environment.world.lock().unwrap();
                    let before = store.end();
                    let now = environment.clock.true_wall();
                    let next = model.lock().unwrap().tick(&mut store, &mut world, now);
                    if store.log.len() > 2 * LOG_KEPT {
                        store.forget_but(LOG_KEPT);
                    }
                    (next, store.end() != before)
                };
                if did {
                    environment.changed.notify_waiters();
                }
                let wait = next.map_or(3_600_000, |at| at.saturating_sub(environment.now_ms()).max(1));
                tokio::select! {
                    () = changed => sleep(TOGETHER).await,
                    () = sleep(Duration::from_millis(wait)) => {}
                }
            }
        })
    }
}
