//! Budgets: how many of a pool's nodes may be on their way out at once.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use croft_api::{TenantPool, budget::allowed, disruption::DisruptionReason};

use super::moves::Moves;
use crate::{decide::Round, names, snapshot::Snapshot};

/// Nodes of the pools that somebody has asked about, and those on their way out.
#[derive(Debug)]
pub struct Ledger<'a> {
    snapshot: &'a Snapshot,
    moves: &'a Moves<'a>,
    counts: RefCell<BTreeMap<String, Count>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    total: usize,
    out: usize,
    /// Those that go once what takes their place is there.
    waiting: usize,
}

/// A window may begin or end at any minute.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl<'a> Ledger<'a> {
    /// A ledger of what is there now.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, moves: &'a Moves<'a>) -> Self {
        Self { snapshot, moves, counts: RefCell::default() }
    }

    /// A node that isn't Ready is out already, whoever is to blame.
    fn count(&self, pool: &str) -> Count {
        let mut count = Count::default();
        for (name, claim) in self.snapshot.claims_of_pool(pool) {
            // What takes another's place isn't one more.
            if self.moves.is_awaited(name) {
                continue;
            }
            let node = self.snapshot.node_of(claim).map(|(_, node)| node);
            // A machine whose node has gone goes until its claim is released.
            let named = claim.status.as_ref().is_some_and(|status| status.node_name.is_some());
            let deleted = named && claim.metadata.deletion_timestamp.is_some();
            let leaving = deleted || node.is_some_and(|n| n.has_taint(names::DISRUPTED_TAINT) || !n.ready);
            // A share of what stays: one whose machine has ended is no node any more.
            count.total += usize::from(node.is_some_and(|n| n.ready || !deleted));
            if leaving {
                count.out += 1;
            } else if node.is_some() && self.moves.is_replaced(name) {
                count.waiting += 1;
            }
        }
        count
    }

    fn with<T>(&self, pool: &str, read: impl FnOnce(&mut Count) -> T) -> T {
        let mut counts = self.counts.borrow_mut();
        match counts.get_mut(pool) {
            Some(count) => read(count),
            None => read(counts.entry(pool.to_owned()).or_insert_with(|| self.count(pool))),
        }
    }

    /// How many more may go.
    pub fn left(&self, round: &mut Round<'_>, pool: &TenantPool, reason: DisruptionReason) -> usize {
        let Count { waiting, .. } = self.with(name_of(pool), |count| *count);
        self.left_of_move(round, pool, reason).1.saturating_sub(waiting)
    }

    /// How many may be on their way out at once, and how many more of those that wait may go now. A pool whose budgets
    /// can't be read keeps all, and is told so.
    pub fn left_of_move(
        &self,
        round: &mut Round<'_>,
        pool: &TenantPool,
        reason: DisruptionReason,
    ) -> (usize, usize) {
        let Count { total, out, .. } = self.with(name_of(pool), |count| *count);
        let budgets = &pool.spec.disruption.budgets;
        if budgets.iter().any(|b| b.schedule.is_some()) {
            round.wake_in(LOOK_AGAIN);
        }
        match allowed(budgets, total, reason, round.now.wall) {
            Ok(allowed) => (allowed, allowed.saturating_sub(out)),
            Err(error) => {
                round.tell(crate::decide::reference(pool), true, "BudgetUnreadable", error.to_string());
                (0, 0)
            }
        }
    }

    /// Notes that one that waited goes.
    pub fn go(&self, pool: &str) {
        self.with(pool, |count| {
            count.out += 1;
            count.waiting = count.waiting.saturating_sub(1);
        });
    }

    /// Notes that one more goes.
    pub fn take(&self, pool: &str) {
        self.with(pool, |count| count.out += 1);
    }
}

fn name_of(pool: &TenantPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}
