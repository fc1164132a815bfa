//! The log and the ledger at the points of curves, kept for a minute: all readers of a time ask for the same.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use super::store::State;
use crate::cluster::sampled::{Axis, Sampled};

/// Times that are kept: a day, a week and a month, and one that somebody zoomed to.
const KEPT: usize = 4;
/// As long as a bill is kept.
const FRESH_MILLIS: i64 = 60_000;

/// The times that were asked for last with when they were read, the newest first.
#[derive(Default)]
pub struct SampledTimes(Mutex<VecDeque<(i64, Arc<Sampled>)>>);

impl SampledTimes {
    fn get(&self, axis: &Axis, now: i64) -> Option<Arc<Sampled>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(read, _)| now.saturating_sub(*read) < FRESH_MILLIS);
        kept.iter().find(|(_, known)| is_same(&known.axis, axis)).map(|(_, known)| known.clone())
    }

    fn put(&self, now: i64, sampled: Arc<Sampled>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((now, sampled));
        kept.truncate(KEPT);
    }
}

/// True if both have the same points, and end within a step, or a minute of a long one.
fn is_same(one: &Axis, other: &Axis) -> bool {
    let grain = one.step.min(FRESH_MILLIS);
    (one.first, one.step) == (other.first, other.step)
        && one.to.div_euclid(grain) == other.to.div_euclid(grain)
}

/// The log and the ledger at the points from `from`, or since there are costs, up to `to`. Holds the log only while it is read, which
/// takes up to seconds.
#[must_use]
pub fn sampled(state: &State, from: i64, to: i64, now: i64) -> Arc<Sampled> {
    let begins = state.log().costs_begin();
    let axis = Axis::new(from.max(begins.unwrap_or(from)), to);
    if let Some(known) = state.sampled_times().get(&axis, now) {
        return known;
    }
    let sampled = Arc::new(Sampled::read(&state.log(), axis));
    state.sampled_times().put(now, sampled.clone());
    sampled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_minute_share_and_a_minute_later_it_is_read_again() {
        let state = State::default();
        let day = 24 * 3_600_000;
        let first = sampled(&state, 0, day + 1_000, day + 1_000);
        assert!(Arc::ptr_eq(&first, &sampled(&state, 7, day + 2_000, day + 2_000)));
        assert!(!Arc::ptr_eq(&first, &sampled(&state, day / 2, day + 2_000, day + 2_000)), "another time");
        assert!(!Arc::ptr_eq(&first, &sampled(&state, 0, day + 1_000, day + 70_000)), "what came late");
    }
}
