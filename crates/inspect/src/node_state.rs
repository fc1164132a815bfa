//! The state of a node, in the words of the page and of `croft top`.

use croft_api::{
    NodeClaim,
    condition::{INITIALIZED, INTERRUPTED},
    definitions::DISRUPTED_TAINT,
    stored::HasConditions as _,
};
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use crate::inventory::is_ready;

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// Its instance or its node isn't ready for pods yet.
    Launching,
    /// It takes pods.
    Ready,
    /// It was ready, and isn't now.
    NotReady,
    /// It is being removed.
    Draining,
    /// It is being removed, and an eviction was refused in the last minutes.
    Blocked,
    /// The cloud has announced its end.
    Interrupted,
}

impl NodeState {
    /// The word in tables and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Launching => "launching",
            Self::Ready => "ready",
            Self::NotReady => "notReady",
            Self::Draining => "draining",
            Self::Blocked => "blocked",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The state of a node, and why; the latter may be empty. A coming node has a NodeClaim alone. `is_blocked` says whether an eviction was
/// refused in the last minutes, which the decision log knows.
#[must_use]
pub fn node_state(node: Option<&Node>, claim: Option<&NodeClaim>, is_blocked: bool) -> (NodeState, String) {
    let conditions = claim.map(|claim| claim.conditions()).unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    let is_true = |kind: &str| find(kind).filter(|condition| condition.status == "True");
    let taints = node.and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default();
    let is_removed = claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some())
        || node.is_some_and(|node| node.metadata.deletion_timestamp.is_some())
        || taints.iter().any(|taint| taint.key == DISRUPTED_TAINT);
    if let Some(interrupted) = is_true(INTERRUPTED) {
        return (NodeState::Interrupted, interrupted.reason.clone());
    }
    if is_removed {
        let state = if is_blocked { NodeState::Blocked } else { NodeState::Draining };
        return (state, String::new());
    }
    let initialized = find(INITIALIZED);
    match node.filter(|_| initialized.is_none_or(|condition| condition.status == "True")) {
        None => {
            let last = conditions.iter().find(|condition| condition.status != "True");
            (NodeState::Launching, last.map(|condition| condition.reason.clone()).unwrap_or_default())
        }
        Some(node) if is_ready(node) => (NodeState::Ready, String::new()),
        Some(_) => (NodeState::NotReady, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(node: &Value, claim: &Value, is_blocked: bool) -> &'static str {
        let node: Option<Node> = serde_json::from_value(node.clone()).unwrap();
        let claim: Option<NodeClaim> = serde_json::from_value(claim.clone()).unwrap();
        let (state, _) = node_state(node.as_ref(), claim.as_ref(), is_blocked);
        assert_eq!(serde_json::to_value(state).unwrap(), json!(state.as_str()));
        state.as_str()
    }

    #[test]
    fn a_node_is_launching_ready_not_ready_draining_blocked_or_interrupted() {
        let node = |status: &str, taint: Option<&str>| {
            let taints: Vec<Value> =
                taint.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
            json!({"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": status}]}})
        };
        let claim = |kind: &str, status: &str| {
            let condition = json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-11-25T02:14:00Z"});
            json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": "c"},
                "spec": {"pool": "p", "instanceTypes": [], "zones": [], "capacityType": "on-demand", "nodeClassRef": {"group": "croft.dev", "kind": "EC2NodeClass", "name": "default"}},
                "status": {"conditions": [condition]},
            })
        };
        let (ready, none) = (node("True", None), Value::Null);
        let disrupted = node("True", Some("croft.dev/disrupted"));
        for (expected, node, claim, is_blocked) in [
            ("launching", &none, &claim("Launched", "False"), false),
            ("launching", &ready, &claim("Initialized", "False"), false),
            ("ready", &ready, &claim("Initialized", "True"), true),
            ("ready", &ready, &none, false),
            ("notReady", &node("Unknown", None), &none, false),
            ("draining", &disrupted, &none, false),
            ("blocked", &disrupted, &none, true),
            ("interrupted", &disrupted, &claim("Interrupted", "True"), true),
        ] {
            assert_eq!(state(node, claim, is_blocked), expected, "{node} {claim}");
        }
    }
}
