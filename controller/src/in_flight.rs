//! Tracks in-flight actions and backoff per key, and writes that the watch may not show yet. The engine starts and ends actions;
//! deciders ask whether a key is idle.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    action::{Action, Key},
    result::Backoff,
    time::earliest,
};

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The watch shows the effect of a write within this time.
const REPEAT_AFTER: Duration = Duration::from_secs(5);

/// Keys on which no action may start now, and actions that aren't repeated yet.
#[derive(Debug, Default)]
pub struct InFlight {
    entries: BTreeMap<Key, Entry>,
    /// The last action with a fingerprint, and its start.
    written: BTreeMap<Key, (String, Duration)>,
}

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
        self.entries.get(key).is_none_or(|entry| !entry.in_flight && entry.until <= mono)
    }

    /// True while an action on `key` is in flight.
    #[must_use]
    pub fn is_in_flight(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.in_flight)
    }

    /// True while an action on any key that `matches` is in flight.
    pub fn any_in_flight(&self, matches: impl Fn(&Key) -> bool) -> bool {
        self.entries.iter().any(|(key, entry)| entry.in_flight && matches(key))
    }

    /// Failures in a row of actions on `key`.
    #[must_use]
    pub fn failures(&self, key: &Key) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// True if the same action has started on its key so lately that the watch may not show it.
    #[must_use]
    pub fn is_repeated(&self, action: &Action, mono: Duration) -> bool {
        action.fingerprint().is_some_and(|fingerprint| {
            action
                .keys()
                .iter()
                .filter_map(|key| self.written.get(key))
                .any(|(written, at)| written == fingerprint && mono.saturating_sub(*at) < REPEAT_AFTER)
        })
    }

    /// Records that an action starts.
    pub fn start(&mut self, action: &Action, mono: Duration) {
        for key in action.keys() {
            if let Some(fingerprint) = action.fingerprint() {
                self.written.insert(key.clone(), (fingerprint.to_owned(), mono));
            }
            self.entries.entry(key).or_default().in_flight = true;
        }
    }

    /// Lets the last action on `key` be repeated at once. Returns true if it was one that isn't.
    pub fn forget_written(&mut self, key: &Key) -> bool {
        self.written.remove(key).is_some()
    }

    /// Lets every action be repeated at once.
    pub fn forget_all_written(&mut self) {
        self.written.clear();
    }

    /// Records that an action on `key` has ended, and applies its backoff.
    pub fn end(&mut self, key: &Key, backoff: Backoff, mono: Duration) {
        if backoff == Backoff::None {
            self.entries.remove(key);
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
        self.entries
            .insert(key.clone(), Entry { in_flight: false, until: mono.saturating_add(wait), failures });
    }

    /// Ends the backoff of `key`, since something has changed that the backoff waited for.
    pub fn end_backoff(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.until = Duration::ZERO;
        }
    }

    /// When the next backoff ends. What ended long ago is removed here, so that the maps stay small.
    pub fn next_backoff_end(&mut self, mono: Duration) -> Option<Duration> {
        let entries = &self.entries;
        self.written.retain(|key, (_, at)| {
            mono.saturating_sub(*at) < REPEAT_AFTER || entries.get(key).is_some_and(|entry| entry.in_flight)
        });
        self.entries.retain(|_, entry| entry.in_flight || entry.until.saturating_add(MAX_BACKOFF) > mono);
        self.entries
            .values()
            .filter(|entry| !entry.in_flight && entry.until > mono)
            .fold(None, |next, entry| earliest(next, Some(entry.until)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube_api::{Target, Verb};

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_key_in_flight_or_in_backoff_is_not_idle() {
        let mut in_flight = InFlight::default();
        let key = Key::ListInstances;
        assert!(in_flight.is_idle(&key, at(0)));
        in_flight.start(&Action::ListInstances, at(0));
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
            in_flight.start(&Action::ListInstances, at(0));
            in_flight.end(&key, Backoff::Exponential, at(0));
            waits.push(in_flight.entries[&key].until.as_millis());
        }
        assert_eq!(waits[..4], [250, 500, 1000, 2000]);
        assert_eq!(waits[9], 60_000);
        in_flight.end(&key, Backoff::ExponentialFrom(at(1)), at(0));
        assert_eq!(in_flight.entries[&key].until, at(1 << 10), "the eleventh failure in a row");
        in_flight.start(&Action::ListInstances, at(0));
        in_flight.end(&key, Backoff::None, at(0));
        assert!(in_flight.is_idle(&key, at(0)));
        assert_eq!(in_flight.failures(&key), 0);
    }

    #[test]
    fn a_write_is_not_repeated_until_the_watch_could_show_it_or_it_failed() {
        let write = |content: &str| {
            let target = Target::Namespace("a".to_owned());
            Action::write_once(target, Verb::Patch(json!(content)))
        };
        let key = Key::Namespace("a".to_owned());
        let mut in_flight = InFlight::default();
        in_flight.start(&write("x"), at(0));
        in_flight.end(&key, Backoff::None, at(100));
        assert_eq!(in_flight.next_backoff_end(at(4_999)), None);
        assert!(
            in_flight.is_repeated(&write("x"), at(4_999)) && !in_flight.is_repeated(&write("y"), at(4_999))
        );
        assert!(in_flight.is_idle(&key, at(4_999)), "another write may start");
        assert!(!in_flight.is_repeated(&write("x"), at(5_000)));

        in_flight.start(&write("x"), at(6_000));
        assert_eq!(in_flight.next_backoff_end(at(20_000)), None);
        assert!(in_flight.forget_written(&key), "it failed late, and is known to be repeated");
        assert!(!in_flight.is_repeated(&write("x"), at(6_001)) && !in_flight.forget_written(&key));
    }
}
