//! What had no capacity, and for how long it is set aside.
//!
//! ```text
//!            refused                    pause over, a launch asks for it
//!  in use ───────────▶ set aside ─────────────────────────────────────▶ probed by one launch
//!    ▲                     ▲                                              │         │
//!    │                     └────────── refused: the pause doubles ────────┘         │
//!    └────────────────────────────────── launched ──────────────────────────────────┘
//! ```
//!
//! A fixed pause is too long for a blip and too short for an outage, where every pool would run into it
//! again at the same moment (karpenter#1899). So the pause grows, and when it ends one launch tries.

use std::{collections::BTreeMap, time::Duration};

use crate::error::Fault;

/// Pause after the first refusal.
pub const FIRST_PAUSE: Duration = Duration::from_secs(45);
/// The longest pause.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// How long a probe may take before another launch may try.
pub const PROBE: Duration = Duration::from_secs(30);
/// Refusals are forgotten this long after the last pause ended.
pub const MEMORY: Duration = Duration::from_secs(30 * 60);

/// What is set aside, by key; time is what the caller's monotonic clock says.
#[derive(Clone, Debug)]
pub struct SetAside<K> {
    entries: BTreeMap<K, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    strikes: u32,
    until: Duration,
    probe_until: Option<Duration>,
    why: Fault,
}

/// Something that is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside<'a, K> {
    /// What.
    pub key: &'a K,
    /// The refusal that set it aside last.
    pub why: &'a Fault,
    /// Refusals in a row.
    pub strikes: u32,
    /// How long until one launch may ask for it again; zero while one does.
    pub next_try: Duration,
}

impl<K> Default for SetAside<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> SetAside<K> {
    /// Notes a refusal. Several refusals during one pause are one: they come from launches that were
    /// under way together.
    pub fn refused(&mut self, key: &K, now: Duration, why: &Fault) {
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            strikes: 0,
            until: now,
            probe_until: None,
            why: why.clone(),
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
            Entry { strikes: entry.strikes + 1, until: now + pause, probe_until: None, why: why.clone() };
    }

    /// Notes a success: nothing is remembered of `key` any more.
    pub fn succeeded(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// True if `key` may be asked for at `now`.
    #[must_use]
    pub fn is_available(&self, key: &K, now: Duration) -> bool {
        self.entries.get(key).is_none_or(|e| e.probe_until.map_or(now >= e.until, |probe| now >= probe))
    }

    /// Takes `key` for a launch: if its pause is just over, this launch is the probe, and for the others
    /// it stays set aside. False if it may not be asked for.
    pub fn take(&mut self, key: &K, now: Duration) -> bool {
        if !self.is_available(key, now) {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(key) {
            entry.probe_until = Some(now + PROBE);
        }
        true
    }

    /// Gives back a key that was taken and then not asked for.
    pub fn untried(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.probe_until = None;
        }
    }

    /// What is set aside at `now`.
    pub fn current(&self, now: Duration) -> impl Iterator<Item = Aside<'_, K>> {
        self.entries.iter().filter(move |(key, _)| !self.is_available(key, now)).map(move |(key, e)| Aside {
            key,
            why: &e.why,
            strikes: e.strikes,
            next_try: e.until.saturating_sub(now),
        })
    }

    /// Forgets what has long been over, so that the map stays as small as the trouble.
    pub fn prune(&mut self, now: Duration) {
        self.entries.retain(|_, e| now <= e.until + MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FaultClass;

    fn why() -> Fault {
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
    fn the_pause_doubles_up_to_its_end() {
        let mut aside = SetAside::default();
        let mut now = s(1000);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            aside.refused(&"m5", now, &why());
            let mut t = now;
            while !aside.is_available(&"m5", t) {
                t += s(1);
            }
            pauses.push((t - now).as_secs());
            assert!(aside.take(&"m5", t));
            now = t;
        }
        assert_eq!(pauses, [45, 90, 180, 360, 720, 900, 900]);
    }

    #[test]
    fn one_launch_probes_while_the_others_stay_away() {
        let mut aside = SetAside::default();
        aside.refused(&1, s(0), &why());
        assert!(!aside.take(&1, s(44)));
        let current: Vec<_> = aside.current(s(44)).map(|a| (*a.key, a.strikes, a.next_try)).collect();
        assert_eq!(current, [(1, 1, s(1))]);
        assert!(aside.take(&1, s(45)));
        assert!(!aside.take(&1, s(46)), "a probe is under way");
        assert_eq!(aside.current(s(46)).map(|a| a.next_try).collect::<Vec<_>>(), [Duration::ZERO]);
        assert!(aside.is_available(&1, s(75)), "the probe never came back");
        aside.succeeded(&1);
        assert!(aside.take(&1, s(76)) && aside.take(&1, s(76)), "in use again for all");
    }

    #[test]
    fn refusals_of_one_moment_count_once_and_old_ones_not() {
        let mut aside = SetAside::default();
        for _ in 0..50 {
            aside.refused(&1, s(0), &why());
        }
        assert!(aside.is_available(&1, s(45)));
        let later = s(45) + MEMORY + s(1);
        aside.refused(&1, later, &why());
        assert!(aside.is_available(&1, later + FIRST_PAUSE), "starts anew");
        aside.prune(later + FIRST_PAUSE + MEMORY + s(1));
        assert!(aside.entries.is_empty());
    }

    #[test]
    fn an_untried_probe_is_given_back() {
        let mut aside = SetAside::default();
        aside.refused(&1, s(0), &why());
        assert!(aside.take(&1, s(50)));
        aside.untried(&1);
        assert!(aside.take(&1, s(50)));
    }
}
