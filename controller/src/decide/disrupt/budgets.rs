//! Budgets: how many of a pool's nodes may be on their way out at once.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{TenantPool, budget::allowed, disruption::DisruptionReason};

use super::moves::Moves;
use crate::{decide::Round, names, snapshot::Snapshot};

/// Nodes of every pool, and those on their way out.
#[derive(Debug, Default)]
pub struct Ledger<'a> {
    total: BTreeMap<&'a str, usize>,
    out: BTreeMap<&'a str, usize>,
}

/// A window may begin or end at any minute.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl<'a> Ledger<'a> {
    /// Counts. A node that isn't Ready is out already, whoever is to blame.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, moves: &Moves<'_>) -> Self {
        let mut ledger = Self::default();
        for (name, claim) in &snapshot.claims {
            // What takes another's place isn't one more.
            if moves.is_awaited(name) {
                continue;
            }
            let Some((_, node)) = snapshot.node_of(claim) else { continue };
            let pool = claim.spec.pool.as_str();
            *ledger.total.entry(pool).or_default() += 1;
            let leaving = claim.metadata.deletion_timestamp.is_some()
                || node.has_taint(names::DISRUPTED_TAINT)
                || moves.is_replaced(name)
                || !node.ready;
            *ledger.out.entry(pool).or_default() += usize::from(leaving);
        }
        ledger
    }

    /// How many more may go. A pool whose budgets can't be read keeps all, and is told so.
    pub fn left(&self, round: &mut Round<'_>, pool: &TenantPool, reason: DisruptionReason) -> usize {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let get = |map: &BTreeMap<&str, usize>| map.get(name).copied().unwrap_or(0);
        let budgets = &pool.spec.disruption.budgets;
        if budgets.iter().any(|b| b.schedule.is_some()) {
            round.wake_in(LOOK_AGAIN);
        }
        match allowed(budgets, get(&self.total), reason, round.now.wall) {
            Ok(allowed) => allowed.saturating_sub(get(&self.out)),
            Err(error) => {
                round.tell(crate::decide::reference(pool), true, "BudgetUnreadable", error.to_string());
                0
            }
        }
    }

    /// Notes that one more goes.
    pub fn take(&mut self, pool: &'a str) {
        *self.out.entry(pool).or_default() += 1;
    }
}
