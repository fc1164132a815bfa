//! The disruption cost of moving a node's pods.

use std::collections::BTreeSet;

use croft_api::disruption::Disruption;
use croft_scheduler::Price;

use crate::budgets::dollars;

/// Pulling images for the first pod of an owner on a node costs this part of an eviction.
const PULL_PART: i64 = 16;
/// A pod-deletion-cost (KEP-2255) beyond this counts no further.
const MOST_DELETION_COST: i64 = 10_000;
/// A deletion cost of this much doubles the disruption cost.
const DOUBLING_DELETION_COST: i64 = 100;
/// Moving a pod that has just started costs so many times as much: whatever moved it or created it shows that the load
/// changes, and what the load changes soon saves little. Without this, a change of load that comes in steps moves the
/// same pods at each step.
const REST_FACTOR: i64 = 2;
const HOUR: u64 = 3_600;

/// The savings per hour that the eviction of a young pod of many replicas needs in the pool.
#[must_use]
pub fn eviction_cost(disruption: &Disruption) -> Price {
    dollars(disruption.eviction_cost())
}

/// A pod that would have to be moved.
#[derive(Clone, Copy, Debug)]
pub struct MovedPod<'a> {
    /// The uid of its controller; empty if it has none.
    pub owner: &'a str,
    /// Seconds since it started.
    pub age_seconds: u64,
    /// It has just started: within [`Disruption::rest`] of its pool.
    pub rests: bool,
    /// It ends by itself: a Job owns it.
    pub ends: bool,
    /// Pods of the same owner, itself included.
    pub replicas: usize,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`; 0 if absent.
    pub deletion_cost: i32,
}

/// The disruption cost of moving the pods of one node: the savings per hour that a command must exceed for them.
/// `eviction` is its pool's [`eviction_cost`].
pub fn of_node<'a>(eviction: Price, pods: impl IntoIterator<Item = MovedPod<'a>>) -> Price {
    let mut owners: BTreeSet<&str> = BTreeSet::new();
    let cost = |pod: MovedPod<'a>| {
        let MovedPod { owner, age_seconds, rests, ends, replicas, deletion_cost } = pod;
        PodCost { age_seconds, rests, ends, replicas, deletion_cost, first_of_owner: owners.insert(owner) }
            .price(eviction)
    };
    pods.into_iter().map(cost).sum()
}

/// Inputs of a pod's disruption cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodCost {
    /// Seconds since it started.
    pub age_seconds: u64,
    /// It has just started: within [`Disruption::rest`] of its pool.
    pub rests: bool,
    /// It ends by itself: a Job owns it.
    pub ends: bool,
    /// Pods of the same owner, itself included.
    pub replicas: usize,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`; 0 if absent.
    pub deletion_cost: i32,
    /// No other pod of the same owner on its node comes before it.
    pub first_of_owner: bool,
}

impl PodCost {
    /// The savings per hour that a command must exceed for this pod, where the eviction of a young one of many
    /// replicas costs `eviction`.
    ///
    /// Savings last until the load changes. So a command must save within an hour what moving its pods costs
    /// once, and within more the longer they have run: what has held for eight hours may be expected to hold
    /// for two more, and a cluster at rest ends near its bound. Age counts in steps, so that the cost changes
    /// seldom. A pod that ends by itself is nearer to its end the longer it has run, and loses its work: it never costs
    /// less. Where the pool's preference says so, a pod that has just started costs more. A pod without a second
    /// replica is unavailable while it moves.
    #[must_use]
    pub fn price(&self, eviction: Price) -> Price {
        let minutes = match self.age_seconds {
            age if self.ends || age < 3 * HOUR => 60,
            age if age < 8 * HOUR => 90,
            age if age < 16 * HOUR => 120,
            age if age < 32 * HOUR => 240,
            age if age < 64 * HOUR => 480,
            _ => 960,
        };
        let alone = match self.replicas {
            0 | 1 => 4,
            2 | 3 => 2,
            _ => 1,
        };
        let eviction = eviction.micros();
        let lately = if self.rests { REST_FACTOR } else { 1 };
        let own = (eviction.saturating_mul(60) / minutes * alone).saturating_mul(lately);
        let cost = i64::from(self.deletion_cost).clamp(-MOST_DELETION_COST, MOST_DELETION_COST);
        let own = if cost < 0 {
            own / 2
        } else {
            own.saturating_add(own.saturating_mul(cost) / DOUBLING_DELETION_COST)
        };
        Price::from_micros(own.saturating_add(if self.first_of_owner { eviction / PULL_PART } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use croft_api::disruption::Preference;

    use super::*;

    const OLD: PodCost = PodCost {
        age_seconds: 8 * HOUR,
        rests: false,
        ends: false,
        replicas: 10,
        deletion_cost: 0,
        first_of_owner: false,
    };
    const EVICTION: Price = Price::from_micros(8_000);

    #[test]
    fn cost_falls_with_age_and_rises_with_fewer_replicas_and_a_deletion_cost() {
        for (facts, micros) in [
            (OLD, 4_000),
            (PodCost { age_seconds: 0, ..OLD }, 8_000),
            (PodCost { age_seconds: 3 * HOUR - 1, ..OLD }, 8_000),
            (PodCost { age_seconds: 3 * HOUR, ..OLD }, 5_333),
            (PodCost { age_seconds: 16 * HOUR - 1, ..OLD }, 4_000),
            (PodCost { age_seconds: 16 * HOUR, ..OLD }, 2_000),
            (PodCost { age_seconds: 32 * HOUR, ..OLD }, 1_000),
            (PodCost { age_seconds: 64 * HOUR, ..OLD }, 500),
            (PodCost { age_seconds: 0, rests: true, ..OLD }, 16_000),
            (PodCost { age_seconds: 64 * HOUR, ends: true, ..OLD }, 8_000),
            (PodCost { replicas: 1, ..OLD }, 16_000),
            (PodCost { replicas: 3, ..OLD }, 8_000),
            (PodCost { first_of_owner: true, ..OLD }, 4_500),
            (PodCost { deletion_cost: 100, ..OLD }, 8_000),
            (PodCost { deletion_cost: -1, ..OLD }, 2_000),
            (PodCost { deletion_cost: i32::MAX, ..OLD }, 404_000),
            (PodCost { deletion_cost: i32::MIN, ..OLD }, 2_000),
            (PodCost { age_seconds: 0, replicas: 1, ..OLD }, 32_000),
        ] {
            assert_eq!(facts.price(EVICTION), Price::from_micros(micros), "{facts:?}");
            let double = facts.price(Price::from_micros(16_000)).micros();
            // Parts of a micro-dollar are cut off.
            assert!((2 * micros..=2 * micros + 1).contains(&double), "{facts:?}: {double}");
            assert_eq!(facts.price(Price::ZERO), Price::ZERO, "{facts:?}");
        }
    }

    #[test]
    fn an_eviction_cost_that_cannot_be_read_keeps_every_node_with_pods() {
        let cheapest = Disruption { preference: Preference::Cheapest, ..Disruption::default() };
        assert_eq!(eviction_cost(&cheapest), EVICTION);
        let disruption = Disruption { eviction_cost: Some("much".to_owned()), ..Disruption::default() };
        let unreadable = eviction_cost(&disruption);
        let pod = MovedPod {
            owner: "a",
            age_seconds: u64::MAX,
            rests: false,
            ends: false,
            replicas: 10,
            deletion_cost: -1,
        };
        let costly = MovedPod { age_seconds: 0, replicas: 1, deletion_cost: i32::MAX, ..pod };
        // No instance costs a thousand million dollars per hour.
        for pods in [vec![pod], vec![costly], vec![costly; 100]] {
            assert!(of_node(unreadable, pods) > Price::from_micros(1_000_000_000_000_000));
        }
        assert_eq!(of_node(unreadable, []), Price::ZERO);
    }

    #[test]
    fn only_the_first_pod_of_an_owner_pulls_images() {
        let pod = |owner| MovedPod {
            owner,
            age_seconds: 8 * HOUR,
            rests: false,
            ends: false,
            replicas: 10,
            deletion_cost: 0,
        };
        assert_eq!(of_node(EVICTION, []), Price::ZERO);
        let pods = [pod("a"), pod("a"), pod("b")];
        assert_eq!(of_node(EVICTION, pods), Price::from_micros(3 * 4_000 + 2 * 500));
    }
}
