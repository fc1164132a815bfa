//! Why each node stays or goes, on its claim: the condition `Consolidatable`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::{NodeClaim, condition::set};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::standing::{CONSOLIDATABLE, REWORDED_AFTER, Verdict};
use crate::{
    action::{Action, Key},
    decide::{Memory, Round, conditions},
};

/// Conditions written in one round: words give way to deeds.
const AT_ONCE: usize = 20;
/// What passes by itself is said once it has lasted this long: pods come and go on a busy node more often than anybody
/// reads.
const PASSING_FOR: Duration = Duration::from_secs(120);

/// What is to be said, and what was.
#[derive(Debug, Default)]
pub struct Saying {
    verdicts: BTreeMap<String, Verdict>,
    /// Claims whose verdict may not be on them yet.
    unsaid: BTreeSet<String>,
    /// When a claim's condition was last written.
    said: BTreeMap<String, Duration>,
    /// Since when a claim's verdict is one that passes by itself.
    passing: BTreeMap<String, Duration>,
    /// Claims by the reason of their verdict; words that were used once stay with 0.
    counts: BTreeMap<(bool, &'static str), usize>,
    /// How many claims there were when they were counted; none if verdicts have changed since.
    counted: Option<usize>,
}

impl Saying {
    pub(super) fn judge(&mut self, claim: &str, verdict: Verdict) {
        let known = self.verdicts.get(claim);
        if known != Some(&verdict) || !self.said.contains_key(claim) {
            self.verdicts.insert(claim.to_owned(), verdict);
            self.unsaid.insert(claim.to_owned());
            self.counted = None;
        }
    }

    /// How many nodes are to go or to stay, by the reason.
    pub fn counts(&self) -> impl Iterator<Item = (bool, &'static str, usize)> {
        self.counts.iter().map(|((goes, reason), count)| (*goes, *reason, *count))
    }

    fn count(&mut self, claims: usize) {
        self.counted = Some(claims);
        self.counts.values_mut().for_each(|count| *count = 0);
        for verdict in self.verdicts.values() {
            *self.counts.entry((verdict.goes, verdict.reason)).or_default() += 1;
        }
    }

    /// The verdict on a claim.
    #[must_use]
    pub fn of(&self, claim: &str) -> Option<&Verdict> {
        self.verdicts.get(claim)
    }
}

/// Writes conditions that are no longer what is so.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let saying = &mut memory.disruption.saying;
    if saying.counted != Some(snapshot.claims.len()) {
        saying.verdicts.retain(|name, _| snapshot.claims.contains_key(name));
        saying.said.retain(|name, _| snapshot.claims.contains_key(name));
        saying.passing.retain(|name, _| snapshot.claims.contains_key(name));
        saying.count(snapshot.claims.len());
    }
    if saying.unsaid.is_empty() {
        return;
    }
    let mut left = AT_ONCE;
    let mut waits = false;
    for name in saying.unsaid.clone() {
        let (Some(claim), Some(verdict)) = (snapshot.claims.get(&name), saying.verdicts.get(&name)) else {
            saying.unsaid.remove(&name);
            continue;
        };
        let news = news(claim, verdict);
        let recently =
            saying.said.get(&name).is_some_and(|at| round.now.mono.saturating_sub(*at) < REWORDED_AFTER);
        if news == News::None
            || news == News::Words && recently
            || claim.metadata.deletion_timestamp.is_some()
        {
            saying.said.entry(name.clone()).or_insert(round.now.mono);
            saying.unsaid.remove(&name);
            saying.passing.remove(&name);
            continue;
        }
        if !verdict.passes() {
            saying.passing.remove(&name);
        } else if !round
            .has_lasted(*saying.passing.entry(name.clone()).or_insert(round.now.mono), PASSING_FOR)
        {
            continue;
        }
        if left == 0 || !round.is_idle(&Key::Claim(name.clone())) {
            waits = true;
            continue;
        }
        left -= 1;
        saying.unsaid.remove(&name);
        saying.passing.remove(&name);
        saying.said.insert(name.clone(), round.now.mono);
        let mut status = claim.status.clone().unwrap_or_default();
        let generation = claim.metadata.generation;
        set(&mut status.conditions, verdict.statement(), generation, Time(round.now.wall));
        if let Some(call) = conditions::write_status(claim, &status) {
            round.act(Action::Write { key: Key::Claim(name), call, rest: Duration::ZERO });
        }
    }
    if waits {
        round.wake_in(Duration::from_secs(1));
    }
}

#[derive(PartialEq, Eq)]
enum News {
    None,
    Words,
    Reason,
}

fn news(claim: &NodeClaim, verdict: &Verdict) -> News {
    let told = claim.status.as_ref().and_then(|s| conditions::find(s, CONSOLIDATABLE));
    let Some(told) = told else { return News::Reason };
    if (told.status == "True") != verdict.goes || told.reason != verdict.reason {
        News::Reason
    } else if told.message != verdict.message {
        News::Words
    } else {
        News::None
    }
}
