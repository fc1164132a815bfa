//! The switch between the webhook and the mutating policies: the parameter that turns the policies on.
//!
//! ```text
//!  to Policy:  parameter written ─▶ policies act ─▶ the webhook leaves pods to them
//!  to Webhook: the webhook asks about every pod ─▶ parameter written ─▶ policies stop
//! ```
//!
//! In between both act, which changes a pod once: each finds nothing to do after the other. So no pod is created while
//! neither acts, and there is no order in which processes could die that leaves such a time.

use std::{collections::BTreeSet, time::Duration};

use croft_api::condition::{MUTATION_IN_FORCE, Statement};
use croft_policy::{Mutation, Tenants, definitions::parameter::MUTATION, policies};

use crate::{
    definitions::conditions as reasons,
    tenant::{
        namespaces::{has_current_metadata, is_closed},
        state::State,
        status::live_replicas,
    },
};

/// The webhooks ask about every pod for this long before the policies stop: another API server may lag behind.
const SETTLES: Duration = Duration::from_secs(5);
/// Time between two probes while the mutating policies are missing.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// The mode that is written; the webhook's before anything is.
fn written(state: &State) -> Mutation {
    let mode = state.parameters.written.as_ref().and_then(|written| written.get(MUTATION));
    mode.and_then(|mode| Mutation::parse(mode)).unwrap_or_default()
}

/// Returns true if the mutating policies of this version act.
fn are_served(state: &State) -> bool {
    state.parameters.mutated_by.as_deref() == Some(policies::mutation::version().as_str())
}

/// Returns true if every namespace has what the policies read of it. A closed one has no pools: the policies refuse its pods.
fn has_all_metadata(state: &State, view: &Tenants, closed: &BTreeSet<String>) -> bool {
    let mut namespaces = state.namespaces.iter().filter(|(_, facts)| !facts.deleting);
    namespaces
        .all(|(name, facts)| has_current_metadata(view, name, facts) || is_closed(view, closed, name, facts))
}

/// Notes from when on the webhooks ask about every pod, by the reports of the replicas.
pub(super) fn observe_webhooks(state: &mut State, mono: Duration) {
    let modes: Vec<Mutation> = live_replicas(state, mono).filter_map(|(_, r)| r.report.registered).collect();
    let is_wide = !modes.is_empty() && modes.iter().all(|mode| *mode == Mutation::Webhook);
    let since = state.parameters.by_webhook.unwrap_or(mono);
    state.parameters.by_webhook = is_wide.then_some(since);
}

/// The mode to write. The `closed` namespaces get no pools for now.
pub(super) fn next_mode(
    state: &State,
    view: &Tenants,
    closed: &BTreeSet<String>,
    mono: Duration,
) -> Mutation {
    let is_wide = state.parameters.by_webhook.is_some_and(|since| mono.saturating_sub(since) >= SETTLES);
    match (view.declarations().mutation(), written(state)) {
        (Mutation::Policy, Mutation::Policy) => Mutation::Policy,
        (Mutation::Policy, Mutation::Webhook)
            if are_served(state) && has_all_metadata(state, view, closed) =>
        {
            Mutation::Policy
        }
        (Mutation::Webhook, Mutation::Policy) if !is_wide => Mutation::Policy,
        _ => Mutation::Webhook,
    }
}

/// Returns true if the mutating policies are wanted and were missing at the last probe, a while ago.
pub(super) fn needs_probe(state: &State, view: &Tenants, mono: Duration) -> bool {
    view.declarations().mutation() == Mutation::Policy
        && !are_served(state)
        && state.parameters.probed.is_none_or(|at| mono.saturating_sub(at) >= PROBE_EVERY)
}

/// The condition of the CroftConfig; `None` while the default mode is wanted and in force.
pub(super) fn statement(state: &State) -> Option<Statement> {
    let wanted = match state.config.admission.mutation {
        croft_api::config::Mutation::Webhook => Mutation::Webhook,
        croft_api::config::Mutation::Policy => Mutation::Policy,
    };
    let (status, reason, message) = match (wanted, written(state)) {
        (Mutation::Webhook, Mutation::Webhook) => return None,
        (Mutation::Policy, _) if !are_served(state) => (
            false,
            reasons::MUTATING_POLICIES_MISSING,
            "the API server does not evaluate the mutating policies of this version, so the webhook changes pods: Kubernetes \
             1.36 serves them; install them with the chart or manifests/overlays/policy-mode, or set \
             spec.admission.mutation: Webhook",
        ),
        (Mutation::Policy, Mutation::Policy) => (
            true,
            reasons::BY_POLICY,
            "policies inside the API server change pods and DaemonSets; the webhook is asked about nodes that are named outright",
        ),
        (Mutation::Policy, Mutation::Webhook) => (
            false,
            reasons::SWITCHING_MODE,
            "the policies begin to act once every namespace has its annotations; until then the webhook changes pods",
        ),
        (Mutation::Webhook, Mutation::Policy) => (
            false,
            reasons::SWITCHING_MODE,
            "the policies stop once croft-webhook asks about every pod; check its Deployment if this lasts",
        ),
    };
    Some(Statement { kind: MUTATION_IN_FORCE, status: Some(status), reason, message: message.to_owned() })
}
