//! Validation of the search's result: the snapshot has changed since the search started, so each command is validated on
//! the current snapshot just before it is started.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::NodeClaim;
use croft_disruption::eligibility::ConsolidationStatus;
use croft_scheduler::{
    Price,
    consolidation::{Command, Consolidation, Rejection},
};

use crate::{
    definitions::conditions as reasons,
    disruption::{
        budgets::BudgetLedger,
        candidates::{Candidates, REASON, pods_hash},
        consolidation_status::ConsolidationStatuses,
        eligibility::{Eligibility, Past, evaluate},
        outcomes::{History, Outcome},
        replacement::{self, NewCommand},
        shares::ShareGuard,
        template_return::of_consolidation,
    },
    reconcile::{ReconcileContext, commands::Commands},
};

/// The inputs of validation beside the snapshot, and the state that it changes.
pub(crate) struct ValidationInputs<'p> {
    /// The searches, with the pods of their candidates.
    pub(crate) candidates: &'p Candidates,
    /// Commands in flight.
    pub(crate) commands: &'p Commands<'p>,
    /// The ledger of budgets.
    pub(crate) ledger: &'p BudgetLedger<'p>,
    /// The shares of pools.
    pub(crate) shares: &'p mut ShareGuard,
    /// Outcomes and backoff.
    pub(crate) history: &'p mut History,
    /// Statuses of nodes.
    pub(crate) statuses: &'p mut ConsolidationStatuses,
}

/// Validates and starts commands of the search.
#[derive(Debug, Default)]
pub struct Validation {
    /// The search's result, until the next pass.
    found: Option<Box<Consolidation>>,
}

impl Validation {
    /// Takes in the result of a search.
    pub fn observe(&mut self, found: Box<Consolidation>) {
        self.found = Some(found);
    }

    /// Starts every command of the search that is still valid.
    pub(crate) fn reconcile<'a>(
        &mut self,
        ctx: &mut ReconcileContext<'a>,
        inputs: &mut ValidationInputs<'_>,
    ) {
        let Some(found) = self.found.take() else { return };
        record_statuses(ctx, inputs.statuses, &found);
        let mut started = Started::default();
        for command in &found.commands {
            let claims: Vec<(&str, &'a Arc<NodeClaim>)> = command
                .nodes
                .iter()
                .filter_map(|node| ctx.snapshot.claim_of_node(node))
                .filter_map(|claim| Some((claim.metadata.name.as_deref()?, claim)))
                .collect();
            if !is_valid(ctx, inputs, command, &claims)
                || !keeps_shares(ctx, inputs.shares, command, &claims)
                || !started.fits(ctx, command)
            {
                search_again(inputs.history, &claims);
                inputs.history.count(REASON.as_str(), Outcome::Invalidated);
                continue;
            }
            // The next search would find the same until its pool's launches succeed: no reason to repeat it now.
            if let Err(why) = replacement::check_launches(ctx.snapshot, &command.instances) {
                let status = ConsolidationStatus::from(&Rejection::PodsUnschedulable(why));
                claims.iter().for_each(|(name, _)| inputs.statuses.set(name, status.clone()));
                inputs.history.count(REASON.as_str(), Outcome::Invalidated);
                continue;
            }
            let note = format!(
                "moving its pods saves ${}/h (${}/h instead of ${}/h)",
                command.saves(),
                command.after,
                command.before
            );
            let new = NewCommand {
                reason: REASON.as_str(),
                claims: &claims,
                instances: &command.instances,
                note: &note,
            };
            if replacement::start(ctx, inputs.history, &new) {
                started.add(command);
                let nodes: Vec<&str> = command.nodes.iter().map(String::as_str).collect();
                inputs.shares.take(ctx, &nodes, &command.instances);
                for (name, claim) in &claims {
                    inputs.ledger.take(&claim.spec.pool);
                    let status = ConsolidationStatus::consolidatable(reasons::REPLACING, note.clone());
                    inputs.statuses.set(name, status);
                }
                inputs.history.add_savings(command.saves());
            } else {
                // A key that the command needs is locked.
                search_again(inputs.history, &claims);
            }
        }
    }
}

fn search_again(history: &mut History, claims: &[(&str, &Arc<NodeClaim>)]) {
    claims.iter().for_each(|(_, claim)| history.search_again(&claim.spec.pool));
}

/// Records the status of every node that the search considered.
fn record_statuses(ctx: &ReconcileContext<'_>, statuses: &mut ConsolidationStatuses, found: &Consolidation) {
    let name = |node: &String| ctx.snapshot.claim_of_node(node)?.metadata.name.as_deref();
    for (node, rejection) in &found.rejections {
        if let Some(claim) = name(node) {
            statuses.set(claim, rejection.into());
        }
    }
    for command in &found.commands {
        for claim in command.nodes.iter().filter_map(name) {
            let message =
                format!("moving its pods would save ${}/h; the command is validated first", command.saves());
            statuses
                .set(claim, ConsolidationStatus::consolidatable(reasons::CONSOLIDATION_CANDIDATE, message));
        }
    }
}

/// True if the nodes are as the search saw them, and may still be removed.
fn is_valid(
    ctx: &mut ReconcileContext<'_>,
    inputs: &ValidationInputs<'_>,
    command: &Command,
    claims: &[(&str, &Arc<NodeClaim>)],
) -> bool {
    let snapshot = ctx.snapshot;
    if claims.len() != command.nodes.len() {
        return false;
    }
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for ((name, claim), node) in claims.iter().zip(&command.nodes) {
        let Some(pool) = snapshot.pools().get(&claim.spec.pool) else { return false };
        let searched = inputs.candidates.searched_pods(&claim.spec.pool, node);
        let unchanged = searched == Some(pods_hash(snapshot, node));
        let past = Past { commands: inputs.commands, history: inputs.history };
        let steady_since = inputs.candidates.steady_since(node);
        let eligibility = evaluate(ctx, past, name, claim, pool, steady_since);
        if !unchanged
            || !matches!(eligibility, Eligibility::Candidate { .. })
            || inputs.commands.concern(&claim.spec.pool)
        {
            return false;
        }
        *wanted.entry(&claim.spec.pool).or_default() += 1;
    }
    // With replacements, the nodes may be removed one after the other.
    wanted.iter().all(|(pool, count)| {
        let least = if command.instances.is_empty() { *count } else { 1 };
        let Some(pool) = snapshot.pools().get(*pool) else { return false };
        inputs.ledger.allowance(ctx, pool, REASON).more >= least
    })
}

/// True if the command leaves the pools of its nodes within their shares.
fn keeps_shares(
    ctx: &ReconcileContext<'_>,
    shares: &mut ShareGuard,
    command: &Command,
    claims: &[(&str, &Arc<NodeClaim>)],
) -> bool {
    let nodes: Vec<&str> = command.nodes.iter().map(String::as_str).collect();
    claims.iter().all(|(_, claim)| {
        let checked = shares.check(ctx, &claim.spec.pool, &nodes, &command.instances);
        checked
            .inspect_err(|conflict| tracing::debug!(error = ?conflict, "a command conflicts with a share"))
            .is_ok()
    })
}

/// The commands that this pass has started.
#[derive(Default)]
struct Started {
    nodes: Vec<String>,
    cost: Price,
}

impl Started {
    /// True if the command holds on the current snapshot, together with the commands that were started before it.
    fn fits(&self, ctx: &ReconcileContext<'_>, command: &Command) -> bool {
        let all: Vec<&str> = self.nodes.iter().chain(&command.nodes).map(String::as_str).collect();
        let claims = all.iter().filter_map(|node| ctx.snapshot.claim_of_node(node));
        let templates = of_consolidation(ctx.snapshot, claims);
        match replacement::plan_without(ctx.snapshot, ctx.solver, &all, &templates) {
            Ok(plan) if plan.unpriced() == 0 && plan.cost <= self.cost.saturating_add(command.after) => true,
            Ok(plan) => {
                let unpriced = plan.unpriced();
                tracing::debug!(now = %plan.cost, unpriced, planned = %command.after, "a command has become more expensive");
                false
            }
            Err(why) => {
                tracing::debug!(error = why, "a command is no longer valid");
                false
            }
        }
    }

    fn add(&mut self, command: &Command) {
        self.cost = self.cost.saturating_add(command.after);
        self.nodes.extend(command.nodes.iter().cloned());
    }
}
