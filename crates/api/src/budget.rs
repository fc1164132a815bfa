//! Disruption budgets: how many of a pool's nodes may be disrupted at once, and when. Used by the controller and the
//! CLI.

use jiff::Timestamp;

use crate::{
    disruption::{Budget, DisruptionReason},
    window::{Window, WindowError},
};

/// Why a budget can't be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// Its window can't be evaluated.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The share or number can't be parsed.
    #[error("failed to read nodes {0:?}: write a number or a share such as 10%")]
    Nodes(String),
}

/// True if `budget` applies at `now`: always without a schedule; otherwise from each scheduled time on for its
/// duration.
fn holds(budget: &Budget, now: Timestamp) -> Result<bool, WindowError> {
    let (Some(schedule), Some(duration)) = (&budget.schedule, &budget.duration) else { return Ok(true) };
    let window = Window { schedule, duration, time_zone: budget.time_zone.as_deref() };
    Ok(window.at(now)?.is_open)
}

/// The number of nodes that `nodes` means of `total`. A share is rounded up, so that a small pool isn't blocked for
/// ever.
fn count(nodes: &str, total: usize) -> Result<usize, BudgetError> {
    let wrong = || BudgetError::Nodes(nodes.to_owned());
    match nodes.strip_suffix('%') {
        Some(share) => {
            let share: usize = share.parse().map_err(|_| wrong())?;
            Ok(total.saturating_mul(share).div_ceil(100))
        }
        None => nodes.parse().map_err(|_| wrong()),
    }
}

/// The number of `total` nodes that may be disrupted at once for `reason` at `now`: the least of the budgets that
/// apply.
///
/// # Errors
/// If a budget can't be parsed. It must then count as zero.
pub fn allowed(
    budgets: &[Budget],
    total: usize,
    reason: DisruptionReason,
    now: Timestamp,
) -> Result<usize, BudgetError> {
    let mut least = usize::MAX;
    for budget in budgets.iter().filter(|b| b.reasons.is_empty() || b.reasons.contains(&reason)) {
        if holds(budget, now)? {
            least = least.min(count(&budget.nodes, total)?);
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(nodes: &str, reasons: &[DisruptionReason], window: Option<(&str, &str)>) -> Budget {
        Budget {
            nodes: nodes.to_owned(),
            reasons: reasons.to_vec(),
            schedule: window.map(|w| w.0.to_owned()),
            duration: window.map(|w| w.1.to_owned()),
            time_zone: None,
        }
    }

    #[test]
    fn strictest_budget_that_applies_for_the_reason_counts() {
        use DisruptionReason::{Drifted, Empty, Expired, Underutilized};
        let now = "2026-11-20T10:00:00Z".parse().unwrap();
        let night = Some(("0 0 * * *", "6h"));
        for (budgets, total, reason, expected) in [
            (vec![], 10, Empty, usize::MAX),
            (vec![budget("10%", &[], None)], 10, Empty, 1),
            (vec![budget("10%", &[], None)], 11, Empty, 2),
            (vec![budget("10%", &[], None)], 0, Empty, 0),
            (vec![budget("100%", &[], None), budget("3", &[Drifted], None)], 10, Drifted, 3),
            (vec![budget("100%", &[], None), budget("3", &[Drifted], None)], 10, Expired, 10),
            (vec![budget("5", &[], None), budget("0", &[], night)], 10, Underutilized, 5),
            (vec![budget("0", &[Empty, Underutilized], None)], 10, Underutilized, 0),
        ] {
            assert_eq!(allowed(&budgets, total, reason, now).unwrap(), expected, "{budgets:?} {reason:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let now = Timestamp::UNIX_EPOCH;
        for (budget, part) in [
            (budget("1", &[], Some(("61 9 * * *", "1h"))), "schedule"),
            (budget("1", &[], Some(("0 9 * * *", "soon"))), "duration"),
            (budget("few", &[], None), "nodes"),
            (budget("%", &[], None), "nodes"),
        ] {
            let error = allowed(&[budget], 10, DisruptionReason::Empty, now).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
