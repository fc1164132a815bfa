//! Disruption budgets: how many of a pool's nodes may be disrupted at once, and when. Used by the controller and the
//! CLI.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use crate::{
    disruption::{Budget, DisruptionReason},
    duration,
};

/// Why a budget can't be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// The schedule is no crontab line.
    #[error("failed to read schedule {0:?}: {1}")]
    Schedule(String, String),
    /// The duration can't be parsed.
    #[error("failed to read a budget's duration: {0}")]
    Duration(#[from] duration::DurationError),
    /// The share or number can't be parsed.
    #[error("failed to read nodes {0:?}: write a number or a share such as 10%")]
    Nodes(String),
}

/// True if `budget` applies at `now`: always without a schedule; otherwise from each scheduled time on for its
/// duration.
///
/// # Errors
/// If the schedule or the duration can't be parsed.
pub fn holds(budget: &Budget, now: Timestamp) -> Result<bool, WindowError> {
    let (Some(schedule), Some(lasts)) = (&budget.schedule, &budget.duration) else { return Ok(true) };
    let wrong = |e: croner::errors::CronError| WindowError::Schedule(schedule.clone(), e.to_string());
    let cron = parse(schedule)?;
    let Some(lasts) = duration::parse(lasts)? else { return Ok(true) };
    let begun = match cron.find_previous_occurrence(&now.to_zoned(TimeZone::UTC), true) {
        Ok(begun) => begun.timestamp(),
        // There has been no scheduled time yet.
        Err(croner::errors::CronError::TimeSearchLimitExceeded) => return Ok(false),
        Err(error) => return Err(wrong(error)),
    };
    let lasts = SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
    Ok(now.duration_since(begun) < lasts)
}

fn parse(schedule: &str) -> Result<Cron, WindowError> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(schedule).map_err(|e| WindowError::Schedule(schedule.to_owned(), e.to_string()))
}

/// Checks a schedule.
///
/// # Errors
/// If it isn't a crontab line.
pub(crate) fn check_schedule(schedule: &str) -> Result<(), WindowError> {
    parse(schedule).map(drop)
}

/// The number of nodes that `nodes` means of `total`. A share is rounded up, so that a small pool isn't blocked for
/// ever.
fn count(nodes: &str, total: usize) -> Result<usize, WindowError> {
    let wrong = || WindowError::Nodes(nodes.to_owned());
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
) -> Result<usize, WindowError> {
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
        }
    }

    #[test]
    fn window_begins_with_its_schedule_and_ends_with_its_duration() {
        // 2026-11-20 is a Friday.
        for (schedule, lasts, now, expected) in [
            ("0 9 * * mon-fri", "8h", "2026-11-20T08:59:59Z", false),
            ("0 9 * * mon-fri", "8h", "2026-11-20T09:00:00Z", true),
            ("0 9 * * mon-fri", "8h", "2026-11-20T16:59:59Z", true),
            ("0 9 * * mon-fri", "8h", "2026-11-20T17:00:00Z", false),
            ("0 9 * * mon-fri", "8h", "2026-11-21T10:00:00Z", false),
            // Over midnight, and longer than the time between two starts.
            ("0 22 * * *", "4h", "2026-11-21T01:30:00Z", true),
            ("0 22 * * *", "4h", "2026-11-21T02:00:00Z", false),
            ("0 0 * * *", "48h", "2026-11-21T13:00:00Z", true),
            ("@hourly", "10m", "2026-11-21T13:09:59Z", true),
            ("@hourly", "10m", "2026-11-21T13:10:00Z", false),
            ("0 0 29 2 *", "24h", "2026-11-21T13:00:00Z", false),
            ("0 0 30 2 *", "24h", "2026-11-21T13:00:00Z", false),
        ] {
            let budget = budget("0", &[], Some((schedule, lasts)));
            assert_eq!(holds(&budget, now.parse().unwrap()).unwrap(), expected, "{schedule} {lasts} {now}");
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
            (budget("1", &[], Some(("0 9 * *", "1h"))), "schedule"),
            (budget("1", &[], Some(("0 9 * * * *", "1h"))), "schedule"),
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
