//! The labels of Karpenter's pools that pods of the input select. The template of such a pool gives the label to Croft's nodes.
//!
//! Karpenter gives each node the name of its pool as a label, and Croft gives it only where pods need it: a Karpenter that stays beside
//! Croft counts every node that has it.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::definitions::KARPENTER_POOL_LABELS;
use croft_manifest::RawObject;
use serde_json::{Map, Value, json};

use super::{
    note::Note,
    pools::{NodeDraft, PoolDraft},
};
use crate::{croft_object::text, table::shortened};

/// Where objects have the spec of a pod: pods, workloads, CronJobs, PodTemplates.
const POD_SPECS: [&str; 4] =
    ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec", "/template/spec"];
/// At most this many workloads are named.
const NAMED: usize = 3;

/// The spec of the pods of an object, whatever its kind is.
pub(super) fn pod_spec(object: &RawObject) -> Option<&Value> {
    let mut specs = POD_SPECS.iter().filter_map(|path| object.value.pointer(path));
    specs.find(|spec| spec.get("containers").is_some_and(Value::is_array))
}

/// Gives Karpenter's labels to the templates of the pools whose nodes pods select by them.
pub(super) fn give_labels(objects: &[RawObject], drafts: &mut [PoolDraft], notes: &mut Vec<Note>) {
    for label in KARPENTER_POOL_LABELS {
        // A pod with required affinity needs one of the values.
        let mut by_value: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut pending: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for object in objects {
            let values = pod_spec(object).map(|spec| selected(spec, label)).unwrap_or_default();
            let (known, unknown): (Vec<&str>, Vec<&str>) =
                values.into_iter().partition(|value| !places(drafts, label, value).is_empty());
            if known.is_empty() && !unknown.is_empty() {
                pending.entry(unknown.join(" or ")).or_default().push(title(object));
            }
            known.into_iter().for_each(|value| by_value.entry(value).or_default().push(title(object)));
        }
        for (value, workloads) in by_value {
            for (at, kind) in places(drafts, label, value) {
                if let Some(draft) = drafts.get_mut(at) {
                    give(draft, kind, label, value, &workloads);
                }
            }
        }
        notes.extend(pending.into_iter().map(|(values, workloads)| {
            Note::change(format!(
                "pods select {label}={values}, and no pool of the input has that name: they stay pending until \
                 spec.template.metadata.labels of a pool has the label: {}",
                shortened(&workloads, NAMED)
            ))
        }));
    }
}

/// Gives a label to a template of a pool.
fn give(draft: &mut PoolDraft, kind: usize, label: &str, value: &str, workloads: &[String]) {
    let Some(nodes) = draft.nodes.get_mut(kind) else { return };
    let Some(labels) = nodes.template.as_mut().and_then(template_labels) else { return };
    labels.insert(label.to_owned(), json!(value));
    draft.notes.push(Note::change(format!(
        "{}: its nodes get the label {label}={value}, which pods select: {}",
        nodes.source,
        shortened(workloads, NAMED)
    )));
}

/// The values of `label` that a pod's node selector or required node affinity names.
fn selected<'p>(spec: &'p Value, label: &str) -> BTreeSet<&'p str> {
    let by_selector = spec.get("nodeSelector").and_then(|selector| selector.get(label)?.as_str());
    let terms = spec
        .pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")
        .and_then(Value::as_array);
    let expressions = terms.into_iter().flatten().filter_map(|term| term.get("matchExpressions")?.as_array());
    let of_label =
        expressions.flatten().filter(|one| text(one, "key") == label && text(one, "operator") == "In");
    let values = of_label.filter_map(|one| one.get("values")?.as_array()).flatten();
    by_selector.into_iter().chain(values.filter_map(Value::as_str)).collect()
}

/// Kind, namespace and name.
fn title(object: &RawObject) -> String {
    let namespace = object.value.pointer("/metadata/namespace").and_then(Value::as_str);
    namespace
        .map_or_else(|| object.title(), |namespace| format!("{} {namespace}/{}", object.kind, object.name))
}

/// The places of the nodes that have the label at Karpenter, by pool and kind of its nodes; else of those that have the name under
/// Karpenter's other label: a NodePool that took the place of the Provisioner of its name.
fn places(drafts: &[PoolDraft], label: &str, value: &str) -> Vec<(usize, usize)> {
    let with = |key: &str| -> Vec<(usize, usize)> {
        let all = drafts.iter().enumerate().flat_map(|(at, draft)| {
            draft.nodes.iter().enumerate().map(move |(kind, nodes)| (at, kind, nodes))
        });
        let has = |nodes: &NodeDraft| nodes.has_label(key, value);
        all.filter(|(_, _, nodes)| has(nodes)).map(|(at, kind, _)| (at, kind)).collect()
    };
    let named = with(label);
    if !named.is_empty() {
        return named;
    }
    KARPENTER_POOL_LABELS.into_iter().filter(|other| *other != label).flat_map(with).collect()
}

/// The labels of a template.
fn template_labels(template: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    let metadata = template.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_selector_and_required_affinity_with_in_select_a_label() {
        let term = |operator: &str, values: &[&str]| {
            let expression = json!({"key": "karpenter.sh/nodepool", "operator": operator, "values": values});
            json!({ "matchExpressions": [expression] })
        };
        let spec = json!({
            "nodeSelector": {"karpenter.sh/nodepool": "a", "karpenter.sh/provisioner-name": "b"},
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    term("In", &["c", "d"]), term("NotIn", &["e"]), term("Exists", &[]), {}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term("In", &["f"])}],
            }},
        });
        assert_eq!(selected(&spec, "karpenter.sh/nodepool").into_iter().collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(selected(&spec, "karpenter.sh/provisioner-name").into_iter().collect::<Vec<_>>(), ["b"]);
    }
}
