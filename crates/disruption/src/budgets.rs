//! How many nodes of a pool may be disrupted now, and the least savings of a command.

use croft_api::{
    budget::{BudgetError, allowed},
    disruption::{Disruption, DisruptionReason},
};
use croft_scheduler::{Price, Quantity, consolidation::PoolConstraints};
use jiff::Timestamp;

/// Nodes of a pool, as its disruption budgets count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// All nodes; budgets in percent are shares of it.
    pub total: usize,
    /// Nodes that are not Ready or are being removed. A node that isn't Ready counts, whatever the cause.
    pub out: usize,
    /// Nodes that will be removed once their replacements are ready.
    pub waiting: usize,
}

/// How many nodes a budget lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Nodes that may be out at once.
    pub at_once: usize,
    /// Waiting nodes that may be removed now.
    pub waiting: usize,
    /// Other nodes that may be disrupted now.
    pub more: usize,
}

/// The allowance for `reason` at `now`: the strictest of the pool's budgets that apply counts.
///
/// # Errors
/// If a budget can't be read. Then no node may be disrupted.
pub fn allowance(
    disruption: &Disruption,
    counts: NodeCounts,
    reason: DisruptionReason,
    now: Timestamp,
) -> Result<Allowance, BudgetError> {
    let at_once = allowed(&disruption.budgets, counts.total, reason, now)?;
    let waiting = at_once.saturating_sub(counts.out);
    Ok(Allowance { at_once, waiting, more: waiting.saturating_sub(counts.waiting) })
}

/// The least savings of a command in the pool.
#[must_use]
pub fn min_savings(disruption: &Disruption) -> Price {
    dollars(disruption.min_savings())
}

/// A pool's field in dollars per hour. If it can't be read, no savings suffice: it may have been meant to keep every
/// node.
pub(crate) fn dollars(text: &str) -> Price {
    text.parse::<Quantity>().map_or(Price::MAX, |quantity| Price::from_micros(quantity.micros_floor()))
}

/// The pool's constraints for the search, when it may disrupt `nodes` nodes now.
#[must_use]
pub fn constraints(disruption: &Disruption, nodes: usize) -> PoolConstraints {
    PoolConstraints { min_savings: min_savings(disruption), nodes, steps: PoolConstraints::STEPS }
}

#[cfg(test)]
mod tests {
    use croft_api::disruption::Budget;

    use super::*;

    fn disruption(nodes: &str, min_savings: &str) -> Disruption {
        let budget = Budget {
            nodes: nodes.to_owned(),
            reasons: Vec::new(),
            schedule: None,
            duration: None,
            time_zone: None,
        };
        Disruption {
            budgets: vec![budget],
            min_savings: Some(min_savings.to_owned()),
            ..Disruption::default()
        }
    }

    #[test]
    fn nodes_that_are_out_or_wait_use_up_the_budget() {
        let reason = DisruptionReason::Drifted;
        for (nodes, total, out, waiting, expected) in [
            ("3", 10, 0, 0, (3, 3, 3)),
            ("3", 10, 1, 1, (3, 2, 1)),
            ("3", 10, 4, 1, (3, 0, 0)),
            ("10%", 11, 0, 0, (2, 2, 2)),
            ("0", 10, 0, 0, (0, 0, 0)),
        ] {
            let counts = NodeCounts { total, out, waiting };
            let found = allowance(&disruption(nodes, "0"), counts, reason, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!((found.at_once, found.waiting, found.more), expected, "{nodes} {counts:?}");
        }
        let counts = NodeCounts::default();
        assert!(allowance(&disruption("few", "0"), counts, reason, Timestamp::UNIX_EPOCH).is_err());
    }

    #[test]
    fn unreadable_min_savings_keep_every_node() {
        assert_eq!(min_savings(&disruption("1", "0.05")), Price::from_micros(50_000));
        assert_eq!(min_savings(&disruption("1", "much")), Price::MAX);
        assert_eq!(constraints(&disruption("1", "0.05"), 2).nodes, 2);
    }
}
