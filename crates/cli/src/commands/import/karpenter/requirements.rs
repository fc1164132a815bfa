//! Requirements of a pool's nodes: those of the input, and those that Karpenter assumed where the input has none.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::commands::import::{
    fields::{Fields, Report},
    pools::{NodeFacts, PoolDraft},
};

/// The capacity type, of which Croft assumes `on-demand` where a pool names none.
pub(super) const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// Beginnings of the labels that follow from an instance.
const OF_INSTANCES: [&str; 11] = [
    "beta.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    CAPACITY_TYPE,
    "karpenter.k8s.aws/",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "topology.ebs.csi.aws.com/",
    "topology.k8s.aws/",
    "topology.kubernetes.io/",
];

/// The beginning of an instance's labels in EKS Auto Mode, and of the same labels everywhere else.
const AUTO_MODE: (&str, &str) = ("eks.amazonaws.com/instance-", "karpenter.k8s.aws/instance-");

/// True if some requirement is about the label.
pub(super) fn is_named(requirements: &[Fields], key: &str) -> bool {
    requirements.iter().any(|one| one.left().get("key").is_some_and(|found| found == key))
}

/// Takes out of the labels of a pool's nodes those that follow from the instance: Karpenter chose instances by them. Returns them as
/// requirements.
pub(super) fn of_labels(labels: &mut BTreeMap<String, String>, report: &mut Report<'_>) -> Vec<Value> {
    let mut chosen = Vec::new();
    labels.retain(|key, value| {
        let is_chosen = is_of_instance(key);
        if is_chosen {
            report.note(format_args!(
                "the label {key}={value} is a requirement here: nodes have it by their instance"
            ));
            chosen.push(json!({"key": key, "operator": "In", "values": [value]}));
        }
        !is_chosen
    });
    chosen
}

/// The requirements that are carried over. One on the key of the pool's own `label` is that label, and `labels` are those that the
/// template gives.
pub(super) fn carried(
    requirements: Vec<Fields>,
    label: Option<&(String, String)>,
    labels: &BTreeMap<String, String>,
    facts: &mut NodeFacts,
    report: &mut Report<'_>,
) -> Vec<Value> {
    let listed: Vec<Value> = requirements
        .iter()
        .filter(|one| one.left().get("operator").is_some_and(|operator| operator == "In"))
        .filter_map(|one| one.left().get("key").cloned())
        .collect();
    let is_given = |key: &str| labels.contains_key(key) || listed.iter().any(|listed| listed == key);
    requirements
        .into_iter()
        .filter_map(|fields| requirement(fields, label, &is_given, facts, report))
        .collect()
}

/// A requirement that is carried over; `is_given` says which labels nodes can have beside those of their instance.
fn requirement(
    mut fields: Fields,
    label: Option<&(String, String)>,
    is_given: &dyn Fn(&str) -> bool,
    facts: &mut NodeFacts,
    report: &mut Report<'_>,
) -> Option<Value> {
    let mut original = fields.left().clone();
    let key = fields.text("key", report).unwrap_or_default();
    let operator = fields.text("operator", report).unwrap_or_default();
    let values = fields.texts("values", report);
    if matches!(operator.as_str(), "In" | "Exists") {
        facts.allowed.insert(key.clone(), (operator == "In").then(|| values.clone()));
    }
    if let Some((_, value)) = label.filter(|(own, _)| *own == key) {
        if operator == "In" && values.len() == 1 && values.contains(value) {
            fields.end(report);
        } else {
            report.note_loss(format_args!(
                "a requirement on the pool's key isn't carried over, its nodes have {value}: {original}"
            ));
        }
        return None;
    }
    let (of_auto_mode, of_all) = AUTO_MODE;
    if let Some(rest) = key.strip_prefix(of_auto_mode) {
        let renamed = format!("{of_all}{rest}");
        report.note(format_args!(
            "its requirement on {key} is one on {renamed} here: nodes have that label alone, so pods select it"
        ));
        if let Some(key) = original.get_mut("key") {
            *key = json!(renamed);
        }
        return Some(original);
    }
    // Karpenter gives its nodes the value that their pods select. Without a value nothing gives Croft's nodes the label, and a pool
    // with such a requirement launches none.
    let needs_label = !matches!(operator.as_str(), "In" | "NotIn" | "DoesNotExist");
    if needs_label && !is_of_instance(&key) && !is_given(&key) {
        report.note_loss(format_args!(
            "a requirement isn't carried over, since no node would have the label {key}: write In with the values that pods may select, or a \
             label in spec.template.metadata.labels: {original}"
        ));
        return None;
    }
    Some(original)
}

fn is_of_instance(key: &str) -> bool {
    OF_INSTANCES.iter().any(|start| key.starts_with(start))
}

/// Adds the requirements that Karpenter assumed to those of a pool.
pub(super) fn assume(draft: &mut PoolDraft, assumed: &[Value]) {
    let templates = draft.nodes.iter_mut().filter_map(|nodes| nodes.template.as_mut()?.get_mut("spec"));
    for template in templates.filter_map(Value::as_object_mut).filter(|_| !assumed.is_empty()) {
        let list = template.entry("requirements").or_insert_with(|| json!([]));
        list.as_array_mut().into_iter().for_each(|list| list.extend(assumed.iter().cloned()));
    }
}
