//! What was decided, done and undone, for the metrics.

use std::collections::BTreeMap;

use croft_api::disruption::DisruptionReason;

/// Reason of what the cloud takes away.
pub const INTERRUPTED: &str = "Interrupted";
/// Reason of machines whose node hasn't been Ready for long.
pub const UNHEALTHY: &str = "Unhealthy";

/// How far a decision to give nodes back has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Machines are launched for it, or it needs none.
    Begun,
    /// The nodes go.
    Done,
    /// The nodes stay: what was to take their place didn't come, or no longer suffices.
    Undone,
    /// It was found and didn't hold any more when it was looked at again, so nothing was begun.
    Dropped,
}

impl Outcome {
    /// The word for it in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Done => "done",
            Self::Undone => "undone",
            Self::Dropped => "dropped",
        }
    }
}

/// How many decisions there have been, by reason and outcome.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<(&'static str, Outcome), u64>);

impl Tally {
    /// Notes one. The reason may be what an annotation says: anything but the known words is `Other`.
    pub fn note(&mut self, reason: &str, outcome: Outcome) {
        let known = DisruptionReason::ALL.map(DisruptionReason::as_str);
        let word = known.into_iter().chain([INTERRUPTED, UNHEALTHY]).find(|word| *word == reason);
        *self.0.entry((word.unwrap_or("Other"), outcome)).or_default() += 1;
    }

    /// Reason, outcome and how many.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Outcome, u64)> {
        self.0.iter().map(|((reason, outcome), count)| (*reason, *outcome, *count))
    }
}
