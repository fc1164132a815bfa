//! DaemonSets whose template is not as admission would plan it now. A write of a template replaces the DaemonSet's pods,
//! and one edit of a Tenant or the CroftConfig may concern every node agent of the cluster, so few are written at a time.

use std::{collections::BTreeMap, time::Duration};

use croft_policy::{Rule, Tenants, plan_daemonset};
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

use super::{
    decide::Action,
    state::{Key, State},
};

/// Rollouts under way at once. A DaemonSet replaces one pod per node at a time by default: five leave every node with
/// nearly all of its agents, and a wrong edit is seen on five before it reaches the rest.
const AT_ONCE: usize = 5;
/// By then the watch shows the new generation of a DaemonSet that was written.
const SHOWS_AFTER: Duration = Duration::from_secs(5);
/// A rollout that takes longer holds up no other: one with an image that cannot be pulled never ends.
const ROLLOUT_LASTS: Duration = Duration::from_secs(120);

/// The writes that are due, as far as the rollouts under way leave room.
pub(super) fn unplanned(state: &mut State, view: &Tenants, mono: Duration) -> Vec<Action> {
    let mut due: BTreeMap<Key, Action> = BTreeMap::new();
    for (key, daemonset) in &state.daemonsets {
        if daemonset.metadata.deletion_timestamp.is_some() || state.absences.concern(view, &key.0, mono) {
            continue;
        }
        let planned = plan_daemonset(view, &key.0, &croft_api::convert::policy::daemonset(daemonset));
        if !planned.allowed() || planned.patch.is_empty() {
            continue;
        }
        let action = if planned.rule == Rule::Exempt {
            let version = state.daemonset_versions.get(key);
            restoration(key, daemonset, version, &planned.patch.into_json())
        } else {
            Some(Action::Touch(key.clone()))
        };
        due.extend(action.map(|action| (key.clone(), action)));
    }
    let rolling = &state.daemonsets_rolling;
    let is_under_way = |key: &Key, written: Duration| {
        let lasted = mono.saturating_sub(written);
        lasted < SHOWS_AFTER || (lasted < ROLLOUT_LASTS && rolling.contains(key))
    };
    state.daemonsets_written.retain(|key, written| due.contains_key(key) || is_under_way(key, *written));
    let under_way = state.daemonsets_written.iter().filter(|(key, at)| is_under_way(key, **at)).count();
    let mut waiting: Vec<(Option<Duration>, Key, Action)> = due
        .into_iter()
        .map(|(key, action)| (state.daemonsets_written.get(&key).copied(), key, action))
        .filter(|(written, key, _)| written.is_none_or(|at| !is_under_way(key, at)))
        .collect();
    // One whose write came to nothing has its next turn after those that had none.
    waiting.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    waiting.truncate(AT_ONCE.saturating_sub(under_way));
    let mut actions = Vec::with_capacity(waiting.len());
    for (_, key, action) in waiting {
        state.daemonsets_written.insert(key, mono);
        actions.push(action);
    }
    actions
}

/// The patch that takes what was injected out of a DaemonSet of an exempt namespace. It holds for the version that it was
/// made from only: it names tolerations by their places.
fn restoration(key: &Key, daemonset: &DaemonSet, version: Option<&String>, patch: &str) -> Option<Action> {
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": daemonset.metadata.uid}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version?}),
    ];
    operations.extend(serde_json::from_str::<Vec<Value>>(patch).ok()?);
    Some(Action::Restore { daemonset: key.clone(), patch: Value::Array(operations) })
}

/// True while the pods of `daemonset` are being replaced, as `kubectl rollout status` says it.
pub(super) fn is_rolling(daemonset: &DaemonSet) -> bool {
    let strategy = daemonset.spec.as_ref().and_then(|s| s.update_strategy.as_ref()?.type_.as_deref());
    let Some(status) = daemonset.status.as_ref().filter(|_| strategy != Some("OnDelete")) else {
        return false;
    };
    let desired = status.desired_number_scheduled;
    daemonset.metadata.generation > status.observed_generation
        || status.updated_number_scheduled.unwrap_or(0) < desired
        || status.number_available.unwrap_or(0) < desired
}
