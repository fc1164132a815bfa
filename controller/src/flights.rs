//! What is under way, and what rests after a failure.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    action::{Key, Rest},
    time::earliest,
};

const FIRST_REST: Duration = Duration::from_millis(250);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Keys that no action may start on now.
#[derive(Debug, Default)]
pub struct Flights(BTreeMap<Key, Flight>);

#[derive(Debug, Default)]
struct Flight {
    flying: bool,
    until: Duration,
    failures: u32,
}

impl Flights {
    /// True if an action may start on `key` now.
    #[must_use]
    pub fn is_idle(&self, key: &Key, mono: Duration) -> bool {
        self.0.get(key).is_none_or(|f| !f.flying && f.until <= mono)
    }

    /// True while an action on `key` is under way.
    #[must_use]
    pub fn is_flying(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|f| f.flying)
    }

    /// True while an action on any key that `matches` is under way.
    pub fn any_flying(&self, matches: impl Fn(&Key) -> bool) -> bool {
        self.0.iter().any(|(key, f)| f.flying && matches(key))
    }

    /// How many times in a row an action on `key` has failed.
    #[must_use]
    pub fn failures(&self, key: &Key) -> u32 {
        self.0.get(key).map_or(0, |f| f.failures)
    }

    /// An action on `key` starts.
    pub fn start(&mut self, key: Key) {
        self.0.entry(key).or_default().flying = true;
    }

    /// An action on `key` has ended.
    pub fn end(&mut self, key: &Key, rest: Rest, mono: Duration) {
        let failures = match rest {
            Rest::None => {
                self.0.remove(key);
                return;
            }
            Rest::For(_) => 0,
            Rest::Grow | Rest::GrowFrom(_) | Rest::Failed(_) => self.failures(key).saturating_add(1),
        };
        let grown = |first: Duration| {
            first.saturating_mul(1 << (failures.saturating_sub(1)).min(16)).min(LONGEST_REST)
        };
        let rest = match rest {
            Rest::For(rest) | Rest::Failed(rest) => rest,
            Rest::GrowFrom(first) => grown(first),
            Rest::None | Rest::Grow => grown(FIRST_REST),
        };
        self.0.insert(key.clone(), Flight { flying: false, until: mono.saturating_add(rest), failures });
    }

    /// Something has changed that makes waiting on `key` pointless.
    pub fn wake(&mut self, key: &Key) {
        if let Some(flight) = self.0.get_mut(key) {
            flight.until = Duration::ZERO;
        }
    }

    /// When the next rest ends. Rests long over are forgotten here, so that the map doesn't grow.
    pub fn next_wake(&mut self, mono: Duration) -> Option<Duration> {
        self.0.retain(|_, f| f.flying || f.until.saturating_add(LONGEST_REST) > mono);
        self.0
            .values()
            .filter(|f| !f.flying && f.until > mono)
            .fold(None, |next, f| earliest(next, Some(f.until)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_key_in_flight_or_at_rest_starts_nothing() {
        let mut flights = Flights::default();
        let key = Key::Machines;
        assert!(flights.is_idle(&key, at(0)));
        flights.start(key.clone());
        assert!(!flights.is_idle(&key, at(1_000_000)));
        flights.end(&key, Rest::Grow, at(1000));
        assert!(!flights.is_idle(&key, at(1249)));
        assert_eq!(flights.next_wake(at(1000)), Some(at(1250)));
        assert!(flights.is_idle(&key, at(1250)));
    }

    #[test]
    fn rests_grow_up_to_a_limit_and_success_ends_them() {
        let mut flights = Flights::default();
        let key = Key::Machines;
        let mut rests = Vec::new();
        for _ in 0..10 {
            flights.start(key.clone());
            flights.end(&key, Rest::Grow, at(0));
            rests.push(flights.0[&key].until.as_millis());
        }
        assert_eq!(rests[..4], [250, 500, 1000, 2000]);
        assert_eq!(rests[9], 60_000);
        flights.end(&key, Rest::GrowFrom(at(1)), at(0));
        assert_eq!(flights.0[&key].until, at(1 << 10), "the eleventh failure in a row");
        flights.start(key.clone());
        flights.end(&key, Rest::None, at(0));
        assert!(flights.is_idle(&key, at(0)));
        assert_eq!(flights.failures(&key), 0);
    }
}
