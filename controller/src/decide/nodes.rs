//! What a claim's node must look like, and the patches that make it so.

use std::collections::BTreeMap;

use croft_api::{NodeClaim, TenantPool};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{names, snapshot::NodeView};

/// Labels that a claim's node must carry.
#[must_use]
pub fn labels(claim: &NodeClaim) -> BTreeMap<String, String> {
    let status = claim.status.clone().unwrap_or_default();
    let mut labels = status.labels;
    for (key, value) in [
        (names::INSTANCE_TYPE_LABEL, status.instance_type),
        (names::ZONE_LABEL, status.zone),
        (names::CAPACITY_TYPE_LABEL, status.capacity_type),
    ] {
        if let Some(value) = value {
            labels.insert(key.to_owned(), value);
        }
    }
    labels.extend(claim.spec.labels.clone());
    labels
}

/// Annotations that a claim's node must carry: the template's, and whose it is.
#[must_use]
pub fn annotations(claim: &NodeClaim, pool: Option<&TenantPool>) -> BTreeMap<String, String> {
    let template = pool.and_then(|p| p.spec.template.as_ref());
    let mut annotations = template.map(|t| t.metadata.annotations.clone()).unwrap_or_default();
    annotations.insert(names::CLAIM_ANNOTATION.to_owned(), claim.metadata.name.clone().unwrap_or_default());
    annotations
}

/// What of `wanted` isn't in `held`.
fn missing(wanted: BTreeMap<String, String>, held: &BTreeMap<String, String>) -> Map<String, Value> {
    wanted
        .into_iter()
        .filter(|(key, value)| held.get(key) != Some(value))
        .map(|(key, value)| (key, Value::String(value)))
        .collect()
}

/// Strategic merge patch that takes the node in: labels and annotations, taints of the claim that its kubelet
/// left out, and the unregistered taint off.
#[must_use]
pub fn registration(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Value {
    let mut taints: Vec<Value> = claim
        .spec
        .taints
        .iter()
        .filter(|t| !node.taints.iter().any(|held| held.key == t.key && held.effect == t.effect))
        .map(|t| json!({"key": t.key, "value": t.value, "effect": t.effect}))
        .collect();
    if node.has_taint(names::UNREGISTERED_TAINT) {
        taints.push(json!({"$patch": "delete", "key": names::UNREGISTERED_TAINT}));
    }
    let mut patch = json!({
        "metadata": {
            "uid": node.uid,
            "labels": missing(labels(claim), &node.labels),
            "annotations": missing(annotations(claim, pool), &node.annotations),
        },
    });
    if !taints.is_empty() {
        merge_spec(&mut patch, "taints", Value::Array(taints));
    }
    patch
}

/// Merge patch that undoes what was changed on a registered node; `None` if nothing was. Labels only: taints
/// change for many good reasons.
#[must_use]
pub fn repair(claim: &NodeClaim, node: &NodeView) -> Option<Value> {
    let labels = missing(labels(claim), &node.labels);
    (!labels.is_empty()).then(|| json!({"metadata": {"uid": node.uid, "labels": labels}}))
}

/// Strategic merge patch that keeps new pods off a node that is to go.
#[must_use]
pub fn cordon(node: &NodeView, now: Timestamp) -> Value {
    json!({
        "metadata": {"uid": node.uid},
        "spec": {
            "unschedulable": true,
            "taints": [{
                "key": names::DISRUPTED_TAINT,
                "effect": names::DISRUPTED_EFFECT,
                "timeAdded": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now),
            }],
        },
    })
}

/// Strategic merge patch that takes back [`cordon`].
#[must_use]
pub fn uncordon(node: &NodeView) -> Value {
    json!({
        "metadata": {"uid": node.uid},
        "spec": {
            "unschedulable": null,
            "taints": [{"$patch": "delete", "key": names::DISRUPTED_TAINT}],
        },
    })
}

fn merge_spec(patch: &mut Value, key: &str, value: Value) {
    if let Some(object) = patch.as_object_mut() {
        let spec = object.entry("spec").or_insert_with(|| json!({}));
        if let Some(spec) = spec.as_object_mut() {
            spec.insert(key.to_owned(), value);
        }
    }
}
