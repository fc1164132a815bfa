//! Measures a month: instances by the hour, pods by the day, evictions, and how long pods wait.

use std::collections::BTreeMap;

use croft_ec2_sim::{
    resources::Instance,
    world::{Happening, World},
};
use croft_scheduler::InstanceType;
use croft_simkit::{ClusterIndex, Logged, Observer, PodChange, PodView, Workload};

use crate::{demand::Demand, watchdog::Watchdog};

const HOUR_MS: f64 = 3_600_000.0;

/// Dollars of some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// For instances.
    pub paid: f64,
    /// For pods that waited, each at the price of the cheapest instance that takes it alone. A cluster that launched those
    /// would have had no waiting pod, so the two together are never below the bound for all pods.
    pub waiting: f64,
}

/// Sums over time.
#[derive(Debug)]
pub struct Meter {
    pub evictions: u64,
    /// Instances that were launched.
    pub launches: u64,
    pub watchdog: Watchdog,
    /// Of each workload.
    apps: Vec<String>,
    types: BTreeMap<String, InstanceType>,
    /// Price per hour of running instances, by id.
    prices: BTreeMap<String, f64>,
    spent: Spent,
    /// Dollars per hour of an instance for one pod, of each workload.
    alone: Vec<f64>,
    pod_ms: f64,
    node_ms: f64,
    /// Pods that were bound, and how long they waited together.
    bound: (u64, u64),
    read_until: u64,
}

impl Meter {
    pub fn new(demand: &Demand) -> Self {
        let Demand { workloads, types, .. } = demand;
        Self {
            evictions: 0,
            launches: 0,
            watchdog: Watchdog::default(),
            alone: workloads.iter().map(|w| price_alone(w, types)).collect(),
            apps: workloads.iter().map(|w| w.app.clone()).collect(),
            types: types.iter().map(|t| (t.name.clone(), t.clone())).collect(),
            prices: BTreeMap::new(),
            spent: Spent::default(),
            pod_ms: 0.0,
            node_ms: 0.0,
            bound: (0, 0),
            read_until: 0,
        }
    }

    pub fn pod_days(&self) -> f64 {
        self.pod_ms / HOUR_MS / 24.0
    }

    pub fn node_days(&self) -> f64 {
        self.node_ms / HOUR_MS / 24.0
    }

    /// Seconds from a pod's creation to its binding, on average.
    pub fn waited(&self) -> f64 {
        self.bound.1 as f64 / self.bound.0.max(1) as f64 / 1000.0
    }

    /// Dollars since the last call. The wait of a pod is in the call after its end.
    pub fn close(&mut self, index: &ClusterIndex, ms: u64) -> Spent {
        self.advance(index, ms);
        std::mem::take(&mut self.spent)
    }

    /// A pod no longer waits: it is bound, or gone.
    fn end_wait(&mut self, pod: &PodView, ms: u64) {
        let waited = ms.saturating_sub(pod.seen_ms);
        let alone = pod.workload.map_or(0.0, |workload| self.alone[workload]);
        self.spent.waiting += alone * waited as f64 / HOUR_MS;
    }

    fn price(&self, instance: &Instance) -> f64 {
        let mut offerings = self.types[&instance.instance_type].offerings.iter();
        offerings.find(|o| o.zone == instance.zone).unwrap().price.unwrap().dollars()
    }
}

/// Dollars per hour of the cheapest instance that takes a pod of `workload`.
fn price_alone(workload: &Workload, types: &[InstanceType]) -> f64 {
    let takes = |kind: &&InstanceType| {
        let allocatable = kind.allocatable();
        allocatable.get("cpu") >= workload.cpu_millis && allocatable.get("memory") >= workload.memory_mi << 20
    };
    let offerings = types.iter().filter(takes).flat_map(|kind| &kind.offerings);
    offerings.filter_map(|offering| offering.price).min().unwrap().dollars()
}

impl Observer for Meter {
    fn advance(&mut self, index: &ClusterIndex, ms: u64) {
        let passed = ms.saturating_sub(self.read_until) as f64;
        if self.read_until > 0 {
            self.spent.paid += self.prices.values().sum::<f64>() * passed / HOUR_MS;
            self.pod_ms += index.pods().len() as f64 * passed;
            self.node_ms += index.nodes().len() as f64 * passed;
        }
        self.read_until = ms;
    }

    fn follow_instance(&mut self, happening: &Happening, world: &World, ms: u64) {
        let (Happening::Running(id) | Happening::Gone(id)) = happening;
        let Some(instance) = world.instance(id) else { return };
        let is_billed = self.prices.contains_key(id);
        if !is_billed {
            self.launches += 1;
            // An instance is billed from its launch on.
            self.spent.paid += self.price(instance) * ms.saturating_sub(instance.launched) as f64 / HOUR_MS;
        }
        match happening {
            Happening::Running(_) => self.prices.insert(id.clone(), self.price(instance)),
            Happening::Gone(_) => self.prices.remove(id),
        };
    }

    fn follow_pod(&mut self, change: &PodChange<'_>, index: &ClusterIndex) {
        let Some(new) = change.new else {
            if let Some(old) = change.old.filter(|old| old.node.is_none()) {
                self.end_wait(old, change.ms);
            }
            return;
        };
        if new.node.is_some() && change.old.is_none_or(|old| old.node.is_none()) {
            self.end_wait(new, change.ms);
            self.bound = (self.bound.0 + 1, self.bound.1 + change.ms.saturating_sub(new.seen_ms));
        }
        let is_evicted = new.deleting && !change.is_scaled_down && change.old.is_none_or(|old| !old.deleting);
        if !is_evicted {
            return;
        }
        self.evictions += 1;
        // The eviction of a pod that doesn't run takes nothing from its workload.
        if let Some(workload) = new.workload.filter(|_| change.old.is_some_and(|old| old.running)) {
            let others = index.pods_of(workload).filter(|(id, _)| *id != change.id);
            let up = others.filter(|(_, pod)| pod.running && !pod.deleting).count() as u64;
            self.watchdog.follow_eviction(&change.id.2, &self.apps[workload], up);
        }
    }

    fn follow_object(&mut self, logged: &Logged, index: &ClusterIndex) {
        match logged.id.0 {
            "NodeClaim" => self.watchdog.follow_claim(&logged.id.2, &logged.object, logged.deleted, index),
            "PodDisruptionBudget" => self.watchdog.follow_budget(&logged.id.2, &logged.object),
            _ => {}
        }
    }
}
