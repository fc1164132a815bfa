//! The disruption cost of moving a pod.

use crate::model::price::Price;

/// Cost of moving one pod of many replicas once, in micro-dollars.
const ONCE_MICROS: i64 = 8_000;
/// Cost of pulling images for the first pod of an owner on a node, in micro-dollars.
const PULL_MICROS: i64 = 500;
/// A pod-deletion-cost (KEP-2255) beyond this counts no further.
const MOST_DELETION_COST: i64 = 10_000;
/// A deletion cost of this much doubles the disruption cost.
const DOUBLING_DELETION_COST: i64 = 100;
const HOUR: u64 = 3_600;

/// Inputs of a pod's disruption cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Seconds since it started.
    pub age_seconds: u64,
    /// Pods of the same owner, itself included.
    pub replicas: usize,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`; 0 if absent.
    pub deletion_cost: i32,
    /// No other pod of the same owner on its node comes before it.
    pub first_of_owner: bool,
}

impl PodFacts {
    /// The savings per hour that a command must exceed for this pod.
    ///
    /// Savings last until the load changes. So a command must save within an hour what moving its pods costs
    /// once, and within more the longer they have run: what has held for eight hours may be expected to hold
    /// for two more, and a cluster at rest ends near its bound. Age counts in steps, so that the cost changes
    /// seldom. A pod without a second replica is unavailable while it moves.
    #[must_use]
    pub fn disturbance(&self) -> Price {
        let minutes = match self.age_seconds {
            age if age < 3 * HOUR => 60,
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
        let own = ONCE_MICROS * 60 / minutes * alone;
        let cost = i64::from(self.deletion_cost).clamp(-MOST_DELETION_COST, MOST_DELETION_COST);
        let own = if cost < 0 { own / 2 } else { own + own * cost / DOUBLING_DELETION_COST };
        Price::from_micros(own + if self.first_of_owner { PULL_MICROS } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: PodFacts =
        PodFacts { age_seconds: 8 * HOUR, replicas: 10, deletion_cost: 0, first_of_owner: false };

    #[test]
    fn what_moving_a_pod_costs() {
        for (facts, micros) in [
            (OLD, 4_000),
            (PodFacts { age_seconds: 0, ..OLD }, 8_000),
            (PodFacts { age_seconds: 3 * HOUR - 1, ..OLD }, 8_000),
            (PodFacts { age_seconds: 3 * HOUR, ..OLD }, 5_333),
            (PodFacts { age_seconds: 16 * HOUR - 1, ..OLD }, 4_000),
            (PodFacts { age_seconds: 16 * HOUR, ..OLD }, 2_000),
            (PodFacts { age_seconds: 32 * HOUR, ..OLD }, 1_000),
            (PodFacts { age_seconds: 64 * HOUR, ..OLD }, 500),
            (PodFacts { replicas: 1, ..OLD }, 16_000),
            (PodFacts { replicas: 3, ..OLD }, 8_000),
            (PodFacts { first_of_owner: true, ..OLD }, 4_500),
            (PodFacts { deletion_cost: 100, ..OLD }, 8_000),
            (PodFacts { deletion_cost: -1, ..OLD }, 2_000),
            (PodFacts { deletion_cost: i32::MAX, ..OLD }, 404_000),
            (PodFacts { deletion_cost: i32::MIN, ..OLD }, 2_000),
            (PodFacts { age_seconds: 0, replicas: 1, ..OLD }, 32_000),
        ] {
            assert_eq!(facts.disturbance(), Price::from_micros(micros), "{facts:?}");
        }
    }
}
