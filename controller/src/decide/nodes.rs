//! What a claim's node must look like, and the patches that make it so.

use std::collections::BTreeMap;

use croft_api::{NodeClaim, TenantPool};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Map, Value, json};

use crate::{names, snapshot::NodeView};

/// Labels that a claim's node must carry. The claim's own word stands over what the machine says.
fn labels(claim: &NodeClaim) -> impl Iterator<Item = (&str, &str)> {
    let own = &claim.spec.labels;
    let told = claim.status.iter().flat_map(|status| {
        let facts = [
            (names::INSTANCE_TYPE_LABEL, &status.instance_type),
            (names::ZONE_LABEL, &status.zone),
            (names::CAPACITY_TYPE_LABEL, &status.capacity_type),
        ];
        let known = facts.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let others = status.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let others = others.filter(move |(key, _)| facts.iter().all(|(k, v)| k != key || v.is_none()));
        known.chain(others)
    });
    told.filter(|(key, _)| !own.contains_key(*key)).chain(own.iter().map(|(k, v)| (k.as_str(), v.as_str())))
}

/// Annotations that a claim's node must carry: the template's, and whose it is.
fn annotations(claim: &NodeClaim, pool: Option<&TenantPool>) -> BTreeMap<String, String> {
    let template = pool.and_then(|p| p.spec.template.as_ref());
    let mut annotations = template.map(|t| t.metadata.annotations.clone()).unwrap_or_default();
    annotations.insert(names::CLAIM_ANNOTATION.to_owned(), claim.metadata.name.clone().unwrap_or_default());
    annotations
}

/// What of `wanted` isn't in `held`.
fn missing<'a>(
    wanted: impl Iterator<Item = (&'a str, &'a str)>,
    held: &BTreeMap<String, String>,
) -> Map<String, Value> {
    wanted
        .filter(|(key, value)| held.get(*key).map(String::as_str) != Some(value))
        .map(|(key, value)| (key.to_owned(), Value::String(value.to_owned())))
        .collect()
}

/// Patch that takes the node in: labels and annotations, taints of the claim that its kubelet left out, and the
/// unregistered taint off.
#[must_use]
pub fn registration(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Value {
    let left_out = claim
        .spec
        .taints
        .iter()
        .filter(|t| !node.taints.iter().any(|held| held.key == t.key && held.effect == t.effect));
    let kept = node.taints.iter().filter(|t| t.key != names::UNREGISTERED_TAINT);
    let taints: Vec<Taint> = kept.chain(left_out).cloned().collect();
    let annotations = annotations(claim, pool);
    let annotations = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut patch = json!({
        "metadata": {
            "uid": node.uid,
            "labels": missing(labels(claim), &node.labels),
            "annotations": missing(annotations, &node.annotations),
        },
    });
    if taints != node.taints {
        set_taints(&mut patch, node, &taints);
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

/// Patch that keeps new pods off a node that is to go.
#[must_use]
pub fn cordon(node: &NodeView, now: Timestamp) -> Value {
    let mut patch = json!({"metadata": {"uid": node.uid}, "spec": {"unschedulable": true}});
    if !node.has_taint(names::DISRUPTED_TAINT) {
        let mut taints = node.taints.clone();
        taints.push(Taint {
            key: names::DISRUPTED_TAINT.to_owned(),
            effect: names::DISRUPTED_EFFECT.to_owned(),
            time_added: Some(Time(now)),
            value: None,
        });
        set_taints(&mut patch, node, &taints);
    }
    patch
}

/// Patch that takes back [`cordon`].
#[must_use]
pub fn uncordon(node: &NodeView) -> Value {
    let mut patch = json!({"metadata": {"uid": node.uid}, "spec": {"unschedulable": null}});
    let taints: Vec<Taint> =
        node.taints.iter().filter(|t| t.key != names::DISRUPTED_TAINT).cloned().collect();
    if taints != node.taints {
        set_taints(&mut patch, node, &taints);
    }
    patch
}

/// A node's taints are an atomic list: every patch writes all of them. So that nobody else's is lost or brought
/// back, this one holds only for the version that it was made from.
fn set_taints(patch: &mut Value, node: &NodeView, taints: &[Taint]) {
    let Some(parts) = patch.as_object_mut() else { return };
    for (part, key, value) in
        [("metadata", "resourceVersion", json!(node.version.to_string())), ("spec", "taints", json!(taints))]
    {
        if let Some(fields) = parts.entry(part).or_insert_with(|| json!({})).as_object_mut() {
            fields.insert(key.to_owned(), value);
        }
    }
}
