//! Tracks in-flight actions and backoff per key. The engine starts and ends keys; deciders ask whether a key is idle.

use std::{collections::BTreeMap, time::Duration};

use crate::{action::Key, result::Backoff, time::earliest};

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Keys on which no action may start now.
#[derive(Debug, Default)]
pub struct InFlight(BTreeMap<Key, Entry>);

#[derive(Debug, Default)]
struct Entry {
    in_flight: bool,
    until: Duration,
    failures: u32,
}

impl InFlight {
    /// True if an action may start on `key` at `mono` on the monotonic clock.
    #[must_use]
    pub fn is_idle(&self, key: &Key, mono: Duration) -> bool {
        self.0.get(key).is_none_or(|entry| !entry.in_flight && entry.until <= mono)
    }

    /// True while an action on `key` is in flight.
    #[must_use]
    pub fn is_in_flight(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|entry| entry.in_flight)
    }

    /// True while an action on any key that `matches` is in flight.
    pub fn any_in_flight(&self, matches: impl Fn(&Key) -> bool) -> bool {
        self.0.iter().any(|(key, entry)| entry.in_flight && matches(key))
    }

    /// Failures in a row of actions on `key`.
    #[must_use]
    pub fn failures(&self, key: &Key) -> u32 {
        self.0.get(key).map_or(0, |entry| entry.failures)
    }

    /// Records that an action on `key` starts.
    pub fn start(&mut self, key: Key) {
        self.0.entry(key).or_default().in_flight = true;
    }

    /// Records that an action on `key` has ended, and applies its backoff.
    pub fn end(&mut self, key: &Key, backoff: Backoff, mono: Duration) {
        if backoff == Backoff::None {
            self.0.remove(key);
            return;
        }
        let failures = if backoff.is_failure() { self.failures(key).saturating_add(1) } else { 0 };
        let exponential = |first: Duration| {
            first.saturating_mul(1 << (failures.saturating_sub(1)).min(16)).min(MAX_BACKOFF)
        };
        let wait = match backoff {
            Backoff::After(wait) | Backoff::Failed(wait) => wait,
            Backoff::ExponentialFrom(first) => exponential(first),
            Backoff::None | Backoff::Exponential => exponential(FIRST_BACKOFF),
        };
        self.0.insert(key.clone(), Entry { in_flight: false, until: mono.saturating_add(wait), failures });
    }

    /// Ends the backoff of `key`, since something has changed that the backoff waited for.
    pub fn end_backoff(&mut self, key: &Key) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.until = Duration::ZERO;
        }
    }

    /// When the next backoff ends. Entries whose backoff ended long ago are removed here, so that the map stays small.
    pub fn next_backoff_end(&mut self, mono: Duration) -> Option<Duration> {
        self.0.retain(|_, entry| entry.in_flight || entry.until.saturating_add(MAX_BACKOFF) > mono);
        self.0
            .values()
            .filter(|entry| !entry.in_flight && entry.until > mono)
            .fold(None, |next, entry| earliest(next, Some(entry.until)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_key_in_flight_or_in_backoff_is_not_idle() {
        let mut in_flight = InFlight::default();
        let key = Key::ListInstances;
        assert!(in_flight.is_idle(&key, at(0)));
        in_flight.start(key.clone());
        assert!(!in_flight.is_idle(&key, at(1_000_000)));
        in_flight.end(&key, Backoff::Exponential, at(1000));
        assert!(!in_flight.is_idle(&key, at(1249)));
        assert_eq!(in_flight.next_backoff_end(at(1000)), Some(at(1250)));
        assert!(in_flight.is_idle(&key, at(1250)));
    }

    #[test]
    fn backoff_grows_to_its_maximum_and_success_resets_it() {
        let mut in_flight = InFlight::default();
        let key = Key::ListInstances;
        let mut waits = Vec::new();
        for _ in 0..10 {
            in_flight.start(key.clone());
            in_flight.end(&key, Backoff::Exponential, at(0));
            waits.push(in_flight.0[&key].until.as_millis());
        }
        assert_eq!(waits[..4], [250, 500, 1000, 2000]);
        assert_eq!(waits[9], 60_000);
        in_flight.end(&key, Backoff::ExponentialFrom(at(1)), at(0));
        assert_eq!(in_flight.0[&key].until, at(1 << 10), "the eleventh failure in a row");
        in_flight.start(key.clone());
        in_flight.end(&key, Backoff::None, at(0));
        assert!(in_flight.is_idle(&key, at(0)));
        assert_eq!(in_flight.failures(&key), 0);
    }
}
