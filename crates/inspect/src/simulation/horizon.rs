//! The time that a search for a cheaper cluster looks at: now, or the end of consolidation.

use croft_manifest::Input;
use croft_runtime::clock::{Clock as _, SystemClock};
use jiff::Timestamp;

/// How far a search looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Horizon {
    /// The present: what disruption budgets and consolidateAfter let go now.
    Now,
    /// All the time that is needed: consolidateAfter is over for every node, the pods of PodDisruptionBudgets are healthy, and
    /// a disruption budget is no limit unless it is always zero.
    End,
}

/// The time that ages and schedules are measured by: when the input was recorded, or the present.
#[must_use]
pub fn time_of(input: &Input) -> Timestamp {
    input.recorded_at.unwrap_or_else(|| SystemClock.wall())
}
