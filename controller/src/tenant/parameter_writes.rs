//! Writes and probes of the parameters of the admission policies.

use std::{collections::BTreeMap, time::Duration};

use croft_policy::{
    Mutation, Tenants,
    definitions::parameter::{NON_TENANT_PODS, PROBE, REVISION},
    policies::{
        self,
        parameters::{Creation, INACTIVE},
    },
};
use serde_json::{Map, Value, json};

use crate::{
    action::{Action, Key},
    kube_api::{Call, Target, Verb},
    tenant::{mutation, objects::Comparison, parameters::Parameters, state::State, status},
};

/// Fields of policies and bindings with the values that the API server adds.
const DEFAULTS: [(&str, Option<&str>); 3] =
    [("failurePolicy", Some("Fail")), ("matchPolicy", Some("Equivalent")), ("scope", Some("*"))];

/// Returns true if non-tenant pods are evaluated: since every replica of the webhook has enforced a Tenant, for as long as a Tenant or
/// a pool exists. A replica that lags doesn't revert this.
pub(super) fn is_active(state: &State, view: &Tenants, mono: Duration) -> bool {
    view.declarations().is_active()
        && (is_written_active(&state.parameters) || status::enforced_everywhere(state, mono))
}

fn is_written_active(parameters: &Parameters) -> bool {
    let written = parameters.written.as_ref().and_then(|w| w.get(NON_TENANT_PODS)).map(String::as_str);
    written.is_some_and(|value| !value.is_empty() && value != INACTIVE)
}

/// Returns true if the last Tenant and the last pool are gone while nodes of pools remain, as when the CRDs are deleted by mistake:
/// the parameters stay in force until the nodes are gone.
fn remains_in_force(state: &State, view: &Tenants) -> bool {
    !view.declarations().is_active() && !is_over(state, view) && is_written_active(&state.parameters)
}

/// Returns true if there is no Tenant, no pool, and no node of one.
pub(super) fn is_over(state: &State, view: &Tenants) -> bool {
    !view.declarations().is_active() && !state.nodes.values().any(Option::is_some)
}

/// Takes in which webhooks are registered, and which policies are missing.
pub(super) fn observe(state: &mut State, mono: Duration) {
    mutation::observe_webhooks(state, mono);
    state.parameters.policies_missing = missing_policies(state);
}

/// The next write or probe of the parameters.
pub(super) fn next_write(
    state: &State,
    view: &Tenants,
    (active, kept): (bool, &Comparison),
    mono: Duration,
) -> Option<Action> {
    if remains_in_force(state, view) {
        return None;
    }
    let Parameters { namespace, written, in_force, .. } = &state.parameters;
    let written = written.as_ref()?;
    let call = |verb| Call { target: Target::Namespace(namespace.clone()), verb };
    let mode = mutation::next_mode(state, view, &kept.incomplete, mono);
    let creation = |tenant: &str| match kept.created.get(tenant) {
        // In Policy mode pods of a namespace without the annotation of its pools are refused by the API server.
        _ if mode == Mutation::Webhook && !status::is_enforced(state, tenant, mono) => Creation::Pending,
        Some(created) if created.is_full() => Creation::Full,
        _ => Creation::Open,
    };
    let wanted = policies::parameters(view.declarations(), active, mode, creation);
    let differ: BTreeMap<&str, &String> = wanted
        .iter()
        .filter(|(name, text)| written.get(**name) != Some(*text))
        .map(|(n, t)| (*n, t))
        .collect();
    if !differ.is_empty() {
        let patch = json!({"metadata": {"annotations": differ}});
        return Some(Action::Write {
            key: Key::Parameters,
            fingerprint: Some(patch.to_string()),
            call: call(Verb::Patch(patch)),
            requeue_after: Duration::ZERO,
            events: Vec::new(),
        });
    }
    let revision = wanted.get(REVISION)?;
    let confirmed = in_force.as_ref().and_then(|in_force| in_force.get(REVISION));
    (confirmed != Some(revision) || mutation::needs_probe(state, view, mono)).then(|| {
        let patch = json!({"metadata": {"annotations": {PROBE: revision}}});
        Action::ProbeParameters { revision: revision.clone(), call: call(Verb::DryRunPatch(patch)) }
    })
}

/// The policies and bindings that are missing or differ from those that this version installs.
fn missing_policies(state: &State) -> Vec<String> {
    let mut missing: Vec<String> = policies::documents(&state.parameters.namespace)
        .into_iter()
        .filter_map(|wanted| {
            let text = |pointer: &str| {
                wanted.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let name = text("/metadata/name");
            let there = state.policies.get(&(text("/kind"), name.clone()));
            let right = there.is_some_and(|there| {
                wanted
                    .get("spec")
                    .zip(there.get("spec"))
                    .is_some_and(|(wanted, there)| matches_installed(there, wanted))
            });
            (!right).then_some(name)
        })
        .collect();
    missing.dedup();
    missing
}

/// Returns true if `there` is `wanted` with the defaults that the API server adds. More conditions or selectors would let pass what the
/// policy is to refuse.
fn matches_installed(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            // An empty field may be absent.
            let is_alike = |(key, value): (&String, &Value)| {
                there.get(key).map_or_else(|| is_empty(value), |there| matches_installed(there, value))
            };
            let is_default = |(key, value): (&String, &Value)| {
                wanted.contains_key(key) || is_empty(value) || DEFAULTS.contains(&(key, value.as_str()))
            };
            wanted.iter().all(is_alike) && there.iter().all(is_default)
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(t, w)| matches_installed(t, w))
        }
        (there, wanted) => there == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(Map::is_empty)
}
