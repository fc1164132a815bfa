//! Offerings without capacity, and for how long they are unavailable.
//!
//! ```text
//!              refused                pause over, a launch takes it
//!  available ───────────▶ unavailable ───────────────────────────────▶ probed by one launch
//!      ▲                      ▲                                            │         │
//!      │                      └────────── refused: the pause doubles ──────┘         │
//!      └───────────────────────────────── launched ──────────────────────────────────┘
//! ```
//!
//! A fixed pause is too long for a short shortage and too short for a long one, where all pools would retry at the same
//! moment (karpenter#1899). So the pause grows, and after it a single launch retries.

use std::{collections::BTreeMap, time::Duration};

use crate::error::{Fault, OfferingKey};

/// Pause after the first refusal.
pub const FIRST_PAUSE: Duration = Duration::from_secs(45);
/// The longest pause.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Time that a probe may take before another launch may retry.
pub const PROBE: Duration = Duration::from_secs(30);
/// Refusals are forgotten this long after the end of the last pause.
pub const MEMORY: Duration = Duration::from_secs(30 * 60);

/// Offerings without capacity.
pub type UnavailableOfferings = Unavailable<OfferingKey>;

/// Offerings without capacity, by key. Times are those of the caller's monotonic clock.
#[derive(Clone, Debug)]
pub struct Unavailable<K> {
    entries: BTreeMap<K, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    strikes: u32,
    until: Duration,
    probe_until: Option<Duration>,
    fault: Fault,
}

/// An unavailable entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnavailableEntry<'a, K> {
    /// The key.
    pub key: &'a K,
    /// The last refusal.
    pub fault: &'a Fault,
    /// Refusals in a row.
    pub strikes: u32,
    /// Time until one launch may retry it; zero while one does.
    pub next_try: Duration,
}

impl<K> Default for Unavailable<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Unavailable<K> {
    /// Records a refusal. Several refusals during one pause count as one, since they come from concurrent launches.
    pub fn refused(&mut self, key: &K, now: Duration, fault: &Fault) {
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            strikes: 0,
            until: now,
            probe_until: None,
            fault: fault.clone(),
        });
        let pausing = entry.strikes > 0 && entry.probe_until.is_none() && now < entry.until;
        if pausing {
            return;
        }
        if now > entry.until + MEMORY {
            entry.strikes = 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << entry.strikes.min(10)).min(LONGEST_PAUSE);
        *entry =
            Entry { strikes: entry.strikes + 1, until: now + pause, probe_until: None, fault: fault.clone() };
    }

    /// Records a success, which removes `key`.
    pub fn succeeded(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// True if `key` may be tried at `now`.
    #[must_use]
    pub fn is_available(&self, key: &K, now: Duration) -> bool {
        self.entries.get(key).is_none_or(|e| e.probe_until.map_or(now >= e.until, |probe| now >= probe))
    }

    /// Takes `key` for a launch. If its pause is over, this launch is the probe, and for others it stays unavailable.
    /// Returns false if it may not be tried.
    pub fn try_take(&mut self, key: &K, now: Duration) -> bool {
        if !self.is_available(key, now) {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(key) {
            entry.probe_until = Some(now + PROBE);
        }
        true
    }

    /// Releases a key that was taken but not tried.
    pub fn release(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.probe_until = None;
        }
    }

    /// The entries that are unavailable at `now`.
    pub fn current(&self, now: Duration) -> impl Iterator<Item = UnavailableEntry<'_, K>> {
        self.entries.iter().filter(move |(key, _)| !self.is_available(key, now)).map(move |(key, e)| {
            UnavailableEntry {
                key,
                fault: &e.fault,
                strikes: e.strikes,
                next_try: e.until.saturating_sub(now),
            }
        })
    }

    /// Removes expired entries, so that memory is bounded by present shortages.
    pub fn prune(&mut self, now: Duration) {
        self.entries.retain(|_, e| now <= e.until + MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FaultClass;

    fn fault() -> Fault {
        Fault {
            action: "CreateFleet",
            code: "InsufficientInstanceCapacity".to_owned(),
            class: FaultClass::NoCapacity,
            message: String::new(),
            meaning: "none is free",
            remedy: "",
        }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pause_doubles_up_to_its_maximum() {
        let mut unavailable = Unavailable::default();
        let mut now = s(1000);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            unavailable.refused(&"m5", now, &fault());
            let mut t = now;
            while !unavailable.is_available(&"m5", t) {
                t += s(1);
            }
            pauses.push((t - now).as_secs());
            assert!(unavailable.try_take(&"m5", t));
            now = t;
        }
        assert_eq!(pauses, [45, 90, 180, 360, 720, 900, 900]);
    }

    #[test]
    fn one_launch_probes_after_the_pause() {
        let mut unavailable = Unavailable::default();
        unavailable.refused(&1, s(0), &fault());
        assert!(!unavailable.try_take(&1, s(44)));
        let current: Vec<_> = unavailable.current(s(44)).map(|a| (*a.key, a.strikes, a.next_try)).collect();
        assert_eq!(current, [(1, 1, s(1))]);
        assert!(unavailable.try_take(&1, s(45)));
        assert!(!unavailable.try_take(&1, s(46)), "a probe is in flight");
        assert_eq!(unavailable.current(s(46)).map(|a| a.next_try).collect::<Vec<_>>(), [Duration::ZERO]);
        assert!(unavailable.is_available(&1, s(75)), "the probe never came back");
        unavailable.succeeded(&1);
        assert!(unavailable.try_take(&1, s(76)) && unavailable.try_take(&1, s(76)), "in use again for all");
    }

    #[test]
    fn simultaneous_refusals_count_once_and_old_ones_expire() {
        let mut unavailable = Unavailable::default();
        for _ in 0..50 {
            unavailable.refused(&1, s(0), &fault());
        }
        assert!(unavailable.is_available(&1, s(45)));
        let later = s(45) + MEMORY + s(1);
        unavailable.refused(&1, later, &fault());
        assert!(unavailable.is_available(&1, later + FIRST_PAUSE), "starts anew");
        unavailable.prune(later + FIRST_PAUSE + MEMORY + s(1));
        assert!(unavailable.entries.is_empty());
    }

    #[test]
    fn released_probe_can_be_taken_again() {
        let mut unavailable = Unavailable::default();
        unavailable.refused(&1, s(0), &fault());
        assert!(unavailable.try_take(&1, s(50)));
        unavailable.release(&1);
        assert!(unavailable.try_take(&1, s(50)));
    }
}
