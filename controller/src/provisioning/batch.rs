//! Batches of pending pods: when to plan, and which small instances of a plan wait for more pods.

use std::{collections::BTreeMap, time::Duration};

use croft_scheduler::{PlannedInstance, PodKey, Price};

/// A deferred instance is launched after so many maximum batch times.
const MAX_DEFERRALS: u32 = 2;

/// Pods that arrive shortly after each other and are planned together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// When the first pod of the batch arrived.
    pub(crate) opened: Option<Duration>,
    /// The snapshot's version at the last plan, and when.
    pub(crate) planned: Option<(u64, Duration)>,
    /// The snapshot's count of arrivals, as last observed.
    arrivals: u64,
    /// When the last pod arrived.
    last_arrival: Duration,
    /// The longest time between two pods of the batch.
    longest_gap: Duration,
    /// Pods whose instance was deferred, and since when.
    deferred: BTreeMap<PodKey, Duration>,
}

impl Batch {
    /// Takes in the count of arrivals so far.
    pub(crate) fn observe(&mut self, arrivals: u64, mono: Duration) {
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

    /// When the batch ends: after `idle` without a pod, or twice the longest pause so far, and after `most` at the
    /// latest. On a busy API server the pods of one Deployment arrive in bursts with pauses between them. An
    /// instance launched in such a pause is a small one; the next burst would have made it part of a large one.
    pub(crate) fn ends(&self, idle: Duration, most: Duration) -> Duration {
        self.last_arrival.saturating_add(idle.max(self.longest_gap.saturating_mul(2)).min(most.max(idle)))
    }

    /// Records a plan at `mono` of the snapshot's version `version`. Deferred pods are planned with the next batch.
    pub(crate) fn record_plan(&mut self, version: u64, arrivals: u64, deferred: bool, mono: Duration) {
        self.opened = deferred.then_some(mono);
        self.arrivals = arrivals;
        self.planned = Some((version, mono));
    }

    /// Records that no more pods arrive.
    pub(crate) fn end(&mut self) {
        self.deferred.clear();
        self.longest_gap = Duration::ZERO;
    }

    /// Defers instances of a plan that more pods may make cheaper: smaller instances beside large ones, while pods
    /// arrive. A large instance is full and costs the least per pod; a small one holds what was left over so far,
    /// and each node's own overhead weighs most there. True if any was deferred.
    pub(crate) fn defer(
        &mut self,
        instances: &mut Vec<PlannedInstance>,
        mono: Duration,
        longest: Duration,
    ) -> bool {
        let mut largest: BTreeMap<String, Price> = BTreeMap::new();
        for instance in instances.iter() {
            let Some(price) = instance.price else { continue };
            let most = largest.entry(instance.pool.clone()).or_insert(price);
            *most = price.max(*most);
        }
        let patience = longest.saturating_mul(MAX_DEFERRALS);
        let waited = |pod: &PodKey| {
            self.deferred.get(pod).is_some_and(|since| mono.saturating_sub(*since) >= patience)
        };
        let deferred: Vec<PlannedInstance> = instances
            .extract_if(.., |instance| {
                let most = instance.price.zip(largest.get(&instance.pool));
                let small = most.is_some_and(|(price, most)| price + price + price <= *most + *most);
                small && !instance.pods.iter().any(waited)
            })
            .collect();
        for pod in deferred.iter().flat_map(|instance| &instance.pods) {
            self.deferred.entry(pod.clone()).or_insert(mono);
        }
        !deferred.is_empty()
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
    fn a_pause_like_earlier_ones_does_not_end_a_batch() {
        let mut batch = Batch::default();
        batch.observe(1, at(1_000));
        assert_eq!(batch.ends(at(100), at(1_000)), at(1_100), "one pod alone waits for no other");
        batch.observe(20, at(1_150));
        assert_eq!(batch.ends(at(100), at(1_000)), at(1_450), "the last pause was 150 ms");
        batch.observe(20, at(1_300));
        assert_eq!(batch.ends(at(100), at(1_000)), at(1_450), "no pod arrived");
        batch.observe(21, at(1_900));
        assert_eq!(batch.ends(at(100), at(1_000)), at(2_900), "never longer than a batch at the most");
        batch.record_plan(1, 21, false, at(2_900));
        batch.end();
        batch.observe(22, at(9_000));
        assert_eq!(batch.ends(at(100), at(1_000)), at(9_100), "the pause before a batch is none in it");
    }

    fn instance(dollars: f64, pods: &[&str]) -> PlannedInstance {
        PlannedInstance {
            template: String::new(),
            pool: "pool".to_owned(),
            price: Price::from_dollars(dollars),
            pods: pods.iter().map(|name| PodKey::new("a", name)).collect(),
            name: String::new(),
            instance_type: String::new(),
            zone: String::new(),
            capacity_type: CapacityType::default(),
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
    fn small_instances_are_deferred_for_a_limited_time() {
        let mut batch = Batch::default();
        let plan = || vec![instance(3.0, &["a", "b"]), instance(2.1, &["c"]), instance(1.0, &["d"])];
        for (ms, kept) in [(0, 2), (1_000, 2), (1_999, 2), (2_000, 3)] {
            let mut instances = plan();
            assert_eq!(batch.defer(&mut instances, at(ms), at(1_000)), kept == 2, "at {ms} ms");
            assert_eq!(instances.len(), kept, "at {ms} ms");
        }
        let mut alone = vec![instance(1.0, &["e"])];
        assert!(
            !batch.defer(&mut alone, at(0), at(1_000)),
            "an instance without a larger one is not deferred"
        );
    }
}
