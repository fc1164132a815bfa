//! What the static policies read: written on Croft's own Namespace, and then seen in force.
//!
//! ```text
//!  Rules ──parameters()──▶ annotations of Croft's Namespace ──watch──▶ State ──Probe (dry run)──▶ refused: in force
//! ```
//!
//! A pool with a new key is accepted, and a Tenant Ready, only after the API server has refused a probe with the revision
//! that holds them. Where several API servers run, another may lag behind the one that answered; until it has caught up, the
//! built-in key, which needs no parameter, is what holds there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_policy::{
    Tenants,
    declarations::DeclaredTenant,
    definitions::{
        POOL_NAME_LABEL,
        parameter::{NON_TENANT_PODS, POOL_KEYS, REVISION, TENANTS},
    },
    policies::{
        self,
        parameters::{INACTIVE, claims},
    },
};
use serde_json::{Map, Value, json};

use super::{decide::Action, state::State, status};

/// Annotations of Croft's own Namespace by name.
pub type Written = BTreeMap<String, String>;

/// What is known of the policies and of what they read.
#[derive(Debug, Default)]
pub struct Parameters {
    /// Croft's own namespace.
    pub namespace: String,
    /// What stands on it; `None` if it isn't there.
    pub written: Option<Written>,
    /// What was last seen in force since this process started.
    pub in_force: Option<Written>,
    /// Policies that aren't there, or aren't those of this version.
    pub missing: Vec<String>,
}

impl Parameters {
    /// The keys of pools that were seen in force, or `None` as long as nothing was.
    fn keys(&self) -> Option<BTreeSet<&str>> {
        let keys = self.in_force.as_ref()?.get(POOL_KEYS)?;
        Some(keys.split(',').collect())
    }

    /// Whether the policies know `key`; `None` as long as that wasn't asked.
    #[must_use]
    pub fn knows(&self, key: &str) -> Option<bool> {
        if key == POOL_NAME_LABEL { Some(true) } else { self.keys().map(|keys| keys.contains(key)) }
    }

    /// Whether the policies know what `tenant` is and has; `None` as long as that wasn't asked.
    #[must_use]
    pub fn hold(&self, view: &Tenants, tenant: &DeclaredTenant) -> Option<bool> {
        let in_force = self.in_force.as_ref()?;
        let text = |name: &str| in_force.get(name).map(String::as_str).unwrap_or_default();
        let active = !matches!(text(NON_TENANT_PODS), "" | INACTIVE);
        let claims = claims(tenant);
        let claimed = text(TENANTS).split(';').any(|entry| entry == claims || entry.starts_with("*:"));
        let pools = tenant.pools.iter().filter_map(|(_, id)| view.declarations().pool((*id)?));
        let mut known = pools.map(|pool| self.knows(&pool.key).unwrap_or(false));
        Some(active && claimed && known.all(|known| known))
    }

    /// Takes in that the API server has refused the probe of `revision`.
    pub fn confirm(&mut self, revision: &str) {
        let written = self.written.iter().find(|w| w.get(REVISION).is_some_and(|r| r == revision));
        if let Some(written) = written {
            self.in_force = Some(written.clone());
        }
    }
}

/// True if non-tenant pods are judged: there is a Tenant, and every replica of the webhook has been seen to enforce it.
/// What has begun isn't taken back by a replica that lags.
pub(super) fn is_active(state: &State, view: &Tenants, mono: Duration) -> bool {
    view.declarations().is_active()
        && (has_begun(&state.parameters) || status::enforced_everywhere(state, mono))
}

fn has_begun(parameters: &Parameters) -> bool {
    let written = parameters.written.as_ref().and_then(|w| w.get(NON_TENANT_PODS)).map(String::as_str);
    written.is_some_and(|value| !value.is_empty() && value != INACTIVE)
}

/// The last Tenant has gone while nodes of pools are still there, as when the CRDs are deleted by mistake: what was written stays
/// in force until the nodes are gone, too.
fn outlives_tenants(state: &State, view: &Tenants) -> bool {
    !view.declarations().is_active()
        && has_begun(&state.parameters)
        && state.nodes.values().any(Option::is_some)
}

/// What is to be written, or to be asked.
pub(super) fn stale(state: &mut State, view: &Tenants, active: bool) -> Option<Action> {
    state.parameters.missing = missing(state);
    if outlives_tenants(state, view) {
        return None;
    }
    let Parameters { namespace, written, in_force, .. } = &state.parameters;
    let written = written.as_ref()?;
    let wanted = policies::parameters(view.declarations(), active);
    let differ: BTreeMap<&str, &String> = wanted
        .iter()
        .filter(|(name, text)| written.get(**name) != Some(*text))
        .map(|(n, t)| (*n, t))
        .collect();
    if !differ.is_empty() {
        let patch = json!({"metadata": {"annotations": differ}});
        return Some(Action::Parameters { namespace: namespace.clone(), patch });
    }
    let revision = wanted.get(REVISION)?;
    let confirmed = in_force.as_ref().and_then(|in_force| in_force.get(REVISION));
    (confirmed != Some(revision))
        .then(|| Action::Probe { namespace: namespace.clone(), revision: revision.clone() })
}

/// The policies and bindings that the API server doesn't have as this version installs them.
fn missing(state: &State) -> Vec<String> {
    let mut missing: Vec<String> = policies::documents(&state.parameters.namespace)
        .into_iter()
        .filter_map(|wanted| {
            let text = |pointer: &str| {
                wanted.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let name = text("/metadata/name");
            let there = state.policies.get(&(text("/kind"), name.clone()));
            let right = there.is_some_and(|there| {
                wanted.get("spec").zip(there.get("spec")).is_some_and(|(wanted, there)| holds(there, wanted))
            });
            (!right).then_some(name)
        })
        .collect();
    missing.dedup();
    missing
}

/// True if `there` says all that `wanted` says; the API server adds defaults.
fn holds(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            // An empty field may be absent.
            let empty =
                value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
            there.get(key).map_or(empty, |there| holds(there, value))
        }),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(t, w)| holds(t, w))
        }
        (there, wanted) => there == wanted,
    }
}
