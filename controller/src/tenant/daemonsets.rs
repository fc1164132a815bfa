//! DaemonSets whose template differs from what admission would plan now. A template write replaces the DaemonSet's
//! pods, and one edit of a Tenant or the CroftConfig may concern every node agent of the cluster, so few are
//! written at a time.

use std::{collections::BTreeMap, time::Duration};

use croft_policy::{Rule, Tenants, plan_daemonset};
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

use crate::{
    action::Action,
    kube_api::{Target, Verb},
    tenant::state::{ObjectName, State},
};

/// Concurrent rollouts. A DaemonSet replaces one pod per node at a time by default: five leave every node with
/// nearly all of its agents, and a wrong edit is visible on five DaemonSets before it reaches the others.
const MAX_CONCURRENT: usize = 5;
/// The watch shows the new generation of a written DaemonSet within this time.
const WATCH_DELAY: Duration = Duration::from_secs(5);
/// A rollout that takes longer blocks no other: one with an image that can't be pulled never ends.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(120);

/// The writes that are due, within the limit of concurrent rollouts.
pub(super) fn writes_due(state: &mut State, view: &Tenants, mono: Duration) -> Vec<Action> {
    let mut due: BTreeMap<ObjectName, Action> = BTreeMap::new();
    for (key, daemonset) in &state.daemonsets {
        if daemonset.metadata.deletion_timestamp.is_some() || state.absences.may_affect(view, &key.0, mono) {
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
            // An empty patch: admission plans it again.
            Some(write_template(key, Verb::Patch(json!({}))))
        };
        due.extend(action.map(|action| (key.clone(), action)));
    }
    let rolling = &state.daemonsets_rolling;
    let is_in_flight = |key: &ObjectName, written: Duration| {
        let lasted = mono.saturating_sub(written);
        lasted < WATCH_DELAY || (lasted < ROLLOUT_TIMEOUT && rolling.contains(key))
    };
    state.daemonsets_written.retain(|key, written| due.contains_key(key) || is_in_flight(key, *written));
    let in_flight = state.daemonsets_written.iter().filter(|(key, at)| is_in_flight(key, **at)).count();
    let mut waiting: Vec<(Option<Duration>, ObjectName, Action)> = due
        .into_iter()
        .map(|(key, action)| (state.daemonsets_written.get(&key).copied(), key, action))
        .filter(|(written, key, _)| written.is_none_or(|at| !is_in_flight(key, at)))
        .collect();
    // A DaemonSet whose write had no effect is retried after those that weren't written yet.
    waiting.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    waiting.truncate(MAX_CONCURRENT.saturating_sub(in_flight));
    let mut actions = Vec::with_capacity(waiting.len());
    for (_, key, action) in waiting {
        state.daemonsets_written.insert(key, mono);
        actions.push(action);
    }
    actions
}

/// The patch that removes what was injected into a DaemonSet of an exempt namespace. It names tolerations by index,
/// so it holds for one version only.
fn restoration(
    key: &ObjectName,
    daemonset: &DaemonSet,
    version: Option<&String>,
    patch: &str,
) -> Option<Action> {
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": daemonset.metadata.uid}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version?}),
    ];
    operations.extend(serde_json::from_str::<Vec<Value>>(patch).ok()?);
    Some(write_template(key, Verb::JsonPatch(Value::Array(operations))))
}

/// Writes a DaemonSet: its pods are replaced.
fn write_template((namespace, name): &ObjectName, verb: Verb) -> Action {
    Action::write_once(Target::DaemonSet(namespace.clone(), name.clone()), verb)
}
