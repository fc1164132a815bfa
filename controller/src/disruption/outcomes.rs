//! The history of disruptions: outcomes for the metrics, and backoff after a failed disruption.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::disruption::DisruptionReason;
use croft_scheduler::Price;

use crate::{
    reconcile::{ReconcileContext, commands::Commands},
    state::Snapshot,
};

/// Reason of instances that the cloud takes.
pub const INTERRUPTED: &str = "Interrupted";
/// Reason of nodes that haven't been Ready for long.
pub const UNHEALTHY: &str = "Unhealthy";

/// The outcome of a decision to disrupt nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Replacements are being launched, or none are needed.
    Started,
    /// The nodes are being removed.
    Completed,
    /// The nodes stay: a replacement wasn't launched, or no longer suffices.
    RolledBack,
    /// The command was found and no longer held when it was validated, so nothing was started.
    Invalidated,
}

impl Outcome {
    /// The value of the metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Completed => "completed",
            Self::RolledBack => "rolled_back",
            Self::Invalidated => "invalidated",
        }
    }
}

/// Past disruptions.
#[derive(Clone, Debug, Default)]
pub struct History {
    counts: BTreeMap<(&'static str, Outcome), u64>,
    /// Savings per hour of all consolidation commands that were started.
    saved: Price,
    /// Claims whose disruption failed, and until when they are left alone.
    backoff_until: BTreeMap<String, Duration>,
    /// Commands whose outcome is counted, while they exist.
    counted: BTreeSet<String>,
    /// Pools for which a part of the last search came to nothing, so that it must be repeated.
    search_again: BTreeSet<String>,
}

impl History {
    /// Counts one outcome. The reason may be an annotation's value: an unknown one counts as `Other`.
    pub fn count(&mut self, reason: &str, outcome: Outcome) {
        let known = DisruptionReason::ALL.map(DisruptionReason::as_str);
        let reason = known.into_iter().chain([INTERRUPTED, UNHEALTHY]).find(|known| *known == reason);
        *self.counts.entry((reason.unwrap_or("Other"), outcome)).or_default() += 1;
    }

    /// Counts the outcome of a command in flight, once.
    pub fn count_command(&mut self, id: &str, reason: &str, outcome: Outcome) {
        if self.counted.insert(id.to_owned()) {
            self.count(reason, outcome);
        }
    }

    /// Reason, outcome and count.
    pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, Outcome, u64)> {
        self.counts.iter().map(|((reason, outcome), count)| (*reason, *outcome, *count))
    }

    /// Savings per hour of all consolidation commands that were started.
    #[must_use]
    pub const fn saved(&self) -> Price {
        self.saved
    }

    /// Adds the savings of a command that was started.
    pub fn add_savings(&mut self, saves: Price) {
        self.saved = self.saved.saturating_add(saves);
    }

    /// Leaves `claim` alone until a time on the monotonic clock.
    pub fn back_off(&mut self, claim: &str, until: Duration) {
        self.backoff_until.insert(claim.to_owned(), until);
    }

    /// The rest of a claim's backoff at `mono` on the monotonic clock.
    #[must_use]
    pub fn backoff_left(&self, claim: &str, mono: Duration) -> Duration {
        self.backoff_until.get(claim).map_or(Duration::ZERO, |until| until.saturating_sub(mono))
    }

    /// True while `claim` is left alone; asks for another pass when that ends.
    #[must_use]
    pub fn is_in_backoff(&self, claim: &str, ctx: &mut ReconcileContext<'_>) -> bool {
        let left = self.backoff_left(claim, ctx.now.mono);
        if !left.is_zero() {
            ctx.requeue_after(left);
        }
        !left.is_zero()
    }

    /// Repeats the search for a pool.
    pub fn search_again(&mut self, pool: &str) {
        self.search_again.insert(pool.to_owned());
    }

    /// Takes the pools for which the search must be repeated.
    pub fn take_searches(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.search_again)
    }

    /// Forgets deleted claims and completed commands.
    pub fn retain_known(&mut self, snapshot: &Snapshot, commands: &Commands<'_>) {
        self.backoff_until.retain(|claim, _| snapshot.claims().contains_key(claim));
        self.counted.retain(|id| commands.contains(id));
    }
}
