//! kube-scheduler as the adversary: it may bind a pod to a node wherever the pod's constraints allow it. Written by
//! Kubernetes' documentation alone, so that a mistake of Croft's isn't one here too.

use serde_json::Value;

use crate::nodes::{NODE, Node};

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// True if a pod with `spec` may be bound to `node` as both are now.
#[must_use]
pub fn may_bind(spec: &Value, node: &Node) -> bool {
    items(spec, "schedulingGates").next().is_none()
        && node.taints().all(|taint| items(spec, "tolerations").any(|t| tolerates(t, taint)))
        && may_match(spec, node)
}

/// True if the node's labels meet the pod's selector and affinity.
#[must_use]
pub fn may_match(spec: &Value, node: &Node) -> bool {
    selects(spec, node) && matches_affinity(spec, node)
}

/// Every taint counts, whatever its effect: PreferNoSchedule isn't in the alphabet.
fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let key = text(toleration, "key");
    let value_matches = match text(toleration, "operator") {
        "Exists" => true,
        "" | "Equal" => text(toleration, "value") == text(taint, "value"),
        _ => false,
    };
    let effect = text(toleration, "effect");
    let key_matches =
        if key.is_empty() { text(toleration, "operator") == "Exists" } else { key == text(taint, "key") };
    key_matches && value_matches && (effect.is_empty() || effect == text(taint, "effect"))
}

fn selects(spec: &Value, node: &Node) -> bool {
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    selector.into_iter().flatten().all(|(key, value)| node.label(key) == value.as_str())
}

fn matches_affinity(spec: &Value, node: &Node) -> bool {
    let required = spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    required.is_none_or(|required| items(required, "nodeSelectorTerms").any(|term| matches_term(term, node)))
}

/// A term without any requirement matches no node.
fn matches_term(term: &Value, node: &Node) -> bool {
    let mut requirements = items(term, "matchExpressions").chain(items(term, "matchFields")).peekable();
    requirements.peek().is_some()
        && items(term, "matchExpressions").all(|e| matches_expression(e, node.label(text(e, "key"))))
        && items(term, "matchFields").all(|e| matches_expression(e, Some(NODE)))
}

fn matches_expression(expression: &Value, label: Option<&str>) -> bool {
    let listed = || items(expression, "values").any(|value| value.as_str() == label);
    match text(expression, "operator") {
        "In" => label.is_some() && listed(),
        "NotIn" => label.is_none() || !listed(),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        other => panic!("{other} isn't in the alphabet"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::declared::{OWN_KEY, POOL};

    #[test]
    fn constraints_allow_what_kubernetes_documents() {
        let node = Node::of_other_launcher(None);
        let key = json!({"key": OWN_KEY, "operator": "Exists"});
        let terms = |terms: Value| {
            json!({"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        let absent = json!({"matchExpressions": [{"key": OWN_KEY, "operator": "DoesNotExist"}]});
        let present = json!({"matchExpressions": [{"key": OWN_KEY, "operator": "In", "values": [POOL]}]});
        for (spec, expected) in [
            (json!({}), false),
            (json!({"tolerations": [key]}), true),
            (json!({"tolerations": [{"key": OWN_KEY, "value": POOL, "effect": "NoSchedule"}]}), true),
            (json!({"tolerations": [{"key": OWN_KEY, "value": "other"}]}), false),
            (json!({"tolerations": [{"key": OWN_KEY, "operator": "Exists", "effect": "NoExecute"}]}), false),
            (json!({"tolerations": [{"operator": "Exists"}]}), true),
            (json!({"tolerations": [key], "schedulingGates": [{"name": "g"}]}), false),
            (json!({"tolerations": [key], "nodeSelector": {OWN_KEY: POOL}}), true),
            (json!({"tolerations": [key], "nodeSelector": {OWN_KEY: "other"}}), false),
            (terms(json!([absent])), false),
            (terms(json!([absent, present])), true),
            (terms(json!([{}])), false),
            (terms(json!([])), false),
            (
                terms(
                    json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]),
                ),
                true,
            ),
        ] {
            assert_eq!(may_bind(&spec, &node), expected, "{spec}");
        }
    }
}
