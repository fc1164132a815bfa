//! Which nodes a topology spread constraint counts: `nodeAffinityPolicy` and `nodeTaintsPolicy`.

use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration, TopologySpreadConstraint,
};

use super::pods::{Group, typed};

/// True if the spread of `group` counts the pods of `node`, and the node's domain.
pub fn is_included(spread: &TopologySpreadConstraint, group: &Group, node: &Node) -> bool {
    let ignores_affinity = spread.node_affinity_policy.as_deref() == Some("Ignore");
    let honors_taints = spread.node_taints_policy.as_deref() == Some("Honor");
    (ignores_affinity || is_selected(group, node)) && (!honors_taints || is_tolerated(group, node))
}

fn is_selected(group: &Group, node: &Node) -> bool {
    let selector = group.spec["nodeSelector"].as_object();
    let has = |(key, value): (&String, &serde_json::Value)| label(node, key) == value.as_str();
    let affinity: Affinity = typed(&group.spec["affinity"]);
    let required = affinity.node_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution);
    selector.is_none_or(|pairs| pairs.iter().all(has))
        && required.is_none_or(|terms| terms.node_selector_terms.iter().any(|term| is_met(term, node)))
}

fn is_met(term: &NodeSelectorTerm, node: &Node) -> bool {
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    (!fields.is_empty() || !expressions.is_empty())
        && fields.iter().all(|field| holds(field, name))
        && expressions.iter().all(|expression| holds(expression, label(node, &expression.key)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_one = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let numbers = number(value).zip(number(values.first().map(String::as_str)));
    match requirement.operator.as_str() {
        "In" => is_one,
        "NotIn" => !is_one,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers.is_some_and(|(own, least)| own > least),
        "Lt" => numbers.is_some_and(|(own, most)| own < most),
        other => panic!("operator {other} is unknown"),
    }
}

fn is_tolerated(group: &Group, node: &Node) -> bool {
    let tolerations: Vec<Toleration> = typed(&group.spec["tolerations"]);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let mut hard = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    hard.all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    let any_value = toleration.operator.as_deref() == Some("Exists");
    (is_empty(&toleration.effect) || toleration.effect.as_ref() == Some(&taint.effect))
        && (is_empty(&toleration.key) || toleration.key.as_ref() == Some(&taint.key))
        && (any_value
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

/// The value of a label.
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
