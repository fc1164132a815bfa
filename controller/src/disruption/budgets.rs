//! The ledger of disruption budgets: how many nodes of each pool may be disrupted in this pass.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use croft_api::{TenantPool, disruption::DisruptionReason};
use croft_disruption::budgets::{Allowance, NodeCounts, allowance};

use crate::{
    definitions::{events, keys},
    reconcile::{ReconcileContext, commands::Commands, object_reference},
    state::Snapshot,
};

/// A budget's window may begin or end at any minute.
const CHECK_AGAIN: Duration = Duration::from_secs(30);

/// Counts of the pools that were asked about. They are counted when a pool is first asked about.
#[derive(Debug)]
pub struct BudgetLedger<'a> {
    snapshot: &'a Snapshot,
    commands: &'a Commands<'a>,
    counts: RefCell<BTreeMap<String, NodeCounts>>,
}

impl<'a> BudgetLedger<'a> {
    /// A ledger of the current nodes.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, commands: &'a Commands<'a>) -> Self {
        Self { snapshot, commands, counts: RefCell::default() }
    }

    fn count(&self, pool: &str) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for (name, claim) in self.snapshot.claims_of_pool(pool) {
            // A replacement isn't one more node.
            if self.commands.is_replacement(name) {
                continue;
            }
            let node = self.snapshot.node_of(claim).map(|(_, node)| node);
            // An instance whose node is gone is out until its claim is released.
            let named = claim.status.as_ref().is_some_and(|status| status.node_name.is_some());
            let deleted = named && claim.metadata.deletion_timestamp.is_some();
            let out = deleted || node.is_some_and(|n| n.has_taint(keys::DISRUPTED_TAINT) || !n.ready);
            // Percentages are of the remaining nodes: a node whose instance has ended is none.
            counts.total += usize::from(node.is_some_and(|n| n.ready || !deleted));
            if out {
                counts.out += 1;
            } else if node.is_some() && self.commands.is_replaced(name) {
                counts.waiting += 1;
            }
        }
        counts
    }

    fn with<T>(&self, pool: &str, read: impl FnOnce(&mut NodeCounts) -> T) -> T {
        let mut counts = self.counts.borrow_mut();
        match counts.get_mut(pool) {
            Some(counts) => read(counts),
            None => read(counts.entry(pool.to_owned()).or_insert_with(|| self.count(pool))),
        }
    }

    /// The pool's allowance for `reason`. A pool whose budgets can't be read keeps every node, and gets an event.
    pub fn allowance(
        &self,
        ctx: &mut ReconcileContext<'_>,
        pool: &TenantPool,
        reason: DisruptionReason,
    ) -> Allowance {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let counts = self.with(name, |counts| *counts);
        let disruption = &pool.spec.disruption;
        if disruption.budgets.iter().any(|b| b.schedule.is_some()) {
            ctx.requeue_after(CHECK_AGAIN);
        }
        allowance(disruption, counts, reason, ctx.now.wall).unwrap_or_else(|error| {
            ctx.event(object_reference(pool), true, events::BUDGET_UNREADABLE, error.to_string());
            Allowance { at_once: 0, waiting: 0, more: 0 }
        })
    }

    /// Records that a waiting node is being removed.
    pub fn remove_waiting(&self, pool: &str) {
        self.with(pool, |counts| {
            counts.out += 1;
            counts.waiting = counts.waiting.saturating_sub(1);
        });
    }

    /// Records that one more node is being disrupted.
    pub fn take(&self, pool: &str) {
        self.with(pool, |counts| counts.out += 1);
    }
}
