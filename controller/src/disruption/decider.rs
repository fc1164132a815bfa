//! [`Disruption`]: the order of the deciders of disruption, and what they share.

use std::{collections::BTreeMap, time::Duration};

use croft_scheduler::consolidation::Consolidation;

use crate::{
    disruption::{
        budgets::BudgetLedger,
        candidates::Candidates,
        consolidation_status::ConsolidationStatuses,
        drift::{Drift, DriftInputs},
        eligibility::Past,
        emptiness::Emptiness,
        interruption::Interruptions,
        outcomes::History,
        repair,
        replacement::Replacement,
        shares::ShareGuard,
        validation::{Validation, ValidationInputs},
    },
    nodeclaim::{lifecycle::Lifecycle, status_checks},
    reconcile::{ReconcileContext, commands::Commands},
};

/// Disrupts nodes. Losing its memory makes waits start anew.
#[derive(Debug, Default)]
pub struct Disruption {
    interruptions: Interruptions,
    replacement: Replacement,
    emptiness: Emptiness,
    drift: Drift,
    candidates: Candidates,
    validation: Validation,
    shares: ShareGuard,
    statuses: ConsolidationStatuses,
    history: History,
}

impl Disruption {
    /// Messages of the interruption queue.
    pub fn interruptions_mut(&mut self) -> &mut Interruptions {
        &mut self.interruptions
    }

    /// Since when each empty node is cordoned, on the monotonic clock.
    #[must_use]
    pub const fn cordoned_since(&self) -> &BTreeMap<String, Duration> {
        self.emptiness.cordoned_since()
    }

    /// Why each node stays or is removed.
    #[must_use]
    pub const fn statuses(&self) -> &ConsolidationStatuses {
        &self.statuses
    }

    /// Outcomes of past disruptions.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// Takes in the result of a search for a cheaper cluster.
    pub fn observe_search(&mut self, found: Box<Consolidation>) {
        tracing::debug!(
            commands = found.commands.len(),
            before = %found.before,
            after = %found.after,
            steps = found.steps,
            "searched for a cheaper cluster"
        );
        self.validation.observe(found);
    }

    /// Decides which nodes to disrupt. `lifecycle` tells which nodes' labels were changed by hand.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, lifecycle: &Lifecycle) {
        let snapshot = ctx.snapshot;
        let commands = Commands::read(snapshot);
        let ledger = BudgetLedger::new(snapshot, &commands);
        let Self {
            interruptions,
            replacement,
            emptiness,
            drift,
            candidates,
            validation,
            shares,
            statuses,
            history,
        } = self;
        interruptions.reconcile(ctx, history, &commands);
        history.retain_known(snapshot, &commands);
        candidates.observe_pods(ctx);
        replacement.reconcile(ctx, history, &commands, &ledger);
        repair::reconcile(ctx, history);
        // A write of the status locks the claim, and would delay its deletion.
        status_checks::reconcile(ctx);
        shares.begin(ctx);
        emptiness.reconcile(ctx, history, &commands, &ledger, shares);
        drift.reconcile(
            ctx,
            &mut DriftInputs {
                lifecycle,
                commands: &commands,
                ledger: &ledger,
                shares: &mut *shares,
                history: &mut *history,
            },
        );
        validation.reconcile(
            ctx,
            &mut ValidationInputs {
                candidates,
                commands: &commands,
                ledger: &ledger,
                shares: &mut *shares,
                history: &mut *history,
                statuses,
            },
        );
        candidates.invalidate(history);
        candidates.reconcile(ctx, Past { commands: &commands, history }, &ledger, statuses);
        emptiness.report(statuses);
        statuses.reconcile(ctx);
    }
}
