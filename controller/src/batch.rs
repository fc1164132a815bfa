//! When to plan, and what of a plan more pods may still make cheaper.

use std::{collections::BTreeMap, time::Duration};

use croft_scheduler::{Machine, PodKey, Price};

/// A machine that was put off is launched after so many of a batch's longest times.
const LONGEST_HOLD: u32 = 2;

/// Pods that came one after another and are planned together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// When the first pod of the batch came.
    pub(crate) opened: Option<Duration>,
    /// The version of the picture that was planned last, and when.
    pub(crate) planned: Option<(u64, Duration)>,
    /// The picture's count of arrivals, as it was last seen.
    arrivals: u64,
    /// When the last pod came.
    last_arrival: Duration,
    /// The longest time between two pods since they began to come.
    longest_gap: Duration,
    /// Pods whose machine was put off, and since when.
    held: BTreeMap<PodKey, Duration>,
}

impl Batch {
    /// Takes in how many pods have come so far.
    pub(crate) fn see(&mut self, arrivals: u64, mono: Duration) {
        if arrivals == self.arrivals {
            return;
        }
        if self.opened.is_some() {
            self.longest_gap = self.longest_gap.max(mono.saturating_sub(self.last_arrival));
        }
        self.arrivals = arrivals;
        self.last_arrival = mono;
        self.opened.get_or_insert(mono);
    }

    /// From when on no more pods are expected: after `idle`, or twice the longest pause so far. On a busy API server
    /// the pods of one Deployment come in bursts with pauses between them, and a machine launched in such a pause is
    /// a small one that the next burst would have made a part of a large one. `most` is the longest wait.
    pub(crate) fn ends(&self, idle: Duration, most: Duration) -> Duration {
        self.last_arrival.saturating_add(idle.max(self.longest_gap.saturating_mul(2)).min(most.max(idle)))
    }

    /// A plan was made at `mono` of the picture's version `version`. What was put off is planned with what comes next.
    pub(crate) fn planned(&mut self, version: u64, arrivals: u64, held: bool, mono: Duration) {
        self.opened = held.then_some(mono);
        self.arrivals = arrivals;
        self.planned = Some((version, mono));
    }

    /// No more pods come.
    pub(crate) fn end(&mut self) {
        self.held.clear();
        self.longest_gap = Duration::ZERO;
    }

    /// Takes out of a plan what more pods may still make cheaper: smaller machines beside large ones, while pods keep
    /// coming. A large machine is full and costs the least per pod; a small one holds what was left over so far, and
    /// what every node keeps for itself weighs most there. True if something was taken out.
    pub(crate) fn hold(&mut self, machines: &mut Vec<Machine>, mono: Duration, longest: Duration) -> bool {
        let mut largest: BTreeMap<String, Price> = BTreeMap::new();
        for machine in machines.iter() {
            let price = largest.entry(machine.pool.clone()).or_insert(machine.price);
            *price = machine.price.max(*price);
        }
        let patience = longest.saturating_mul(LONGEST_HOLD);
        let waited =
            |pod: &PodKey| self.held.get(pod).is_some_and(|since| mono.saturating_sub(*since) >= patience);
        let held: Vec<Machine> = machines
            .extract_if(.., |machine| {
                let price = machine.price;
                let small =
                    largest.get(&machine.pool).is_some_and(|most| price + price + price <= *most + *most);
                small && !machine.pods.iter().any(waited)
            })
            .collect();
        for pod in held.iter().flat_map(|machine| &machine.pods) {
            self.held.entry(pod.clone()).or_insert(mono);
        }
        !held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use croft_scheduler::{CapacityType, Resources};

    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_pause_like_those_before_does_not_end_a_batch() {
        let mut batch = Batch::default();
        batch.see(1, at(1_000));
        assert_eq!(batch.ends(at(100), at(1_000)), at(1_100), "one pod alone waits for no other");
        batch.see(20, at(1_150));
        assert_eq!(batch.ends(at(100), at(1_000)), at(1_450), "the last pause was 150 ms");
        batch.see(20, at(1_300));
        assert_eq!(batch.ends(at(100), at(1_000)), at(1_450), "nobody came");
        batch.see(21, at(1_900));
        assert_eq!(batch.ends(at(100), at(1_000)), at(2_900), "never longer than a batch at the most");
        batch.planned(1, 21, false, at(2_900));
        batch.end();
        batch.see(22, at(9_000));
        assert_eq!(batch.ends(at(100), at(1_000)), at(9_100), "the pause before a batch is none in it");
    }

    fn machine(dollars: f64, pods: &[&str]) -> Machine {
        Machine {
            pool: "pool".to_owned(),
            price: Price::from_dollars(dollars).unwrap(),
            pods: pods.iter().map(|name| PodKey::new("a", name)).collect(),
            name: String::new(),
            instance_type: String::new(),
            zone: String::new(),
            capacity_type: CapacityType::default(),
            unpriced: false,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            requests: Resources::new(),
            allocatable: Resources::new(),
            capacity: Resources::new(),
            options: Vec::new(),
            zones: Vec::new(),
            requirements: Vec::new(),
        }
    }

    #[test]
    fn small_machines_wait_for_more_pods_but_not_for_ever() {
        let mut batch = Batch::default();
        let plan = || vec![machine(3.0, &["a", "b"]), machine(2.1, &["c"]), machine(1.0, &["d"])];
        for (ms, kept) in [(0, 2), (1_000, 2), (1_999, 2), (2_000, 3)] {
            let mut machines = plan();
            assert_eq!(batch.hold(&mut machines, at(ms), at(1_000)), kept == 2, "at {ms} ms");
            assert_eq!(machines.len(), kept, "at {ms} ms");
        }
        let mut alone = vec![machine(1.0, &["e"])];
        assert!(!batch.hold(&mut alone, at(0), at(1_000)), "beside nothing larger it isn't small");
    }
}
