//! What a claim's node must look like, and the patches that make it so.

use std::collections::BTreeMap;

use croft_api::{NodeClaim, TenantPool};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Time};
use serde::Serialize;
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

/// JSON Patch that takes the node in: labels, annotations, taints of the claim that its kubelet left out, and the
/// unregistered taint off.
///
/// A JSON Patch can't put an annotation where there are none yet without racing everybody who puts the first one there,
/// and the cluster's own controllers do so right after a node is made. Pods wait for this patch, and for no annotation:
/// there [`marks`] writes them later.
#[must_use]
pub fn registration(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Value {
    let left_out = claim
        .spec
        .taints
        .iter()
        .filter(|t| !node.taints.iter().any(|held| held.key == t.key && held.effect == t.effect));
    let mut patch = Operations::on(node);
    let labels = missing(labels(claim), &node.labels);
    if node.labels.is_empty() {
        patch.test("/metadata/labels", &Value::Null);
        patch.add("/metadata/labels", &labels);
    } else {
        patch.set("labels", labels);
    }
    if node.annotated {
        patch.set("annotations", missing_annotations(claim, pool, node));
    }
    patch.taints(node, names::UNREGISTERED_TAINT, left_out);
    patch.finish()
}

/// Merge patch that gives a registered node its annotations; `None` if it has them.
#[must_use]
pub fn marks(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Option<Value> {
    let marked = node.annotations.get(names::CLAIM_ANNOTATION) == claim.metadata.name.as_ref();
    (!marked).then(
        || json!({"metadata": {"uid": node.uid, "annotations": missing_annotations(claim, pool, node)}}),
    )
}

fn missing_annotations(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Map<String, Value> {
    let wanted = annotations(claim, pool);
    missing(wanted.iter().map(|(key, value)| (key.as_str(), value.as_str())), &node.annotations)
}

/// Merge patch that undoes what was changed on a registered node; `None` if nothing was. Labels only: taints
/// change for many good reasons.
#[must_use]
pub fn repair(claim: &NodeClaim, node: &NodeView) -> Option<Value> {
    let labels = missing(labels(claim), &node.labels);
    (!labels.is_empty()).then(|| json!({"metadata": {"uid": node.uid, "labels": labels}}))
}

/// JSON Patch that keeps new pods off a node that is to go.
#[must_use]
pub fn cordon(node: &NodeView, now: Timestamp) -> Value {
    let taint = Taint {
        key: names::DISRUPTED_TAINT.to_owned(),
        effect: names::DISRUPTED_EFFECT.to_owned(),
        time_added: Some(Time(now)),
        value: None,
    };
    let mut patch = Operations::on(node);
    patch.add("/spec/unschedulable", &true);
    if !node.has_taint(names::DISRUPTED_TAINT) {
        patch.taints(node, "", std::iter::once(&taint));
    }
    patch.finish()
}

/// JSON Patch that takes back [`cordon`].
#[must_use]
pub fn uncordon(node: &NodeView) -> Value {
    let mut patch = Operations::on(node);
    patch.add("/spec/unschedulable", &false);
    patch.taints(node, names::DISRUPTED_TAINT, std::iter::empty());
    patch.finish()
}

/// A JSON Patch of a node. A node is written often while it starts: a patch that held for one version of it would meet
/// a conflict as often as not. This one depends on nothing but the places of the taints that it takes away, and the
/// API server applies it again by itself when others write meanwhile. Taints are an atomic list: a merge patch would
/// write all of them, and bring back or lose others'.
struct Operations(Vec<Value>);

impl Operations {
    fn on(node: &NodeView) -> Self {
        let mut patch = Self(Vec::new());
        patch.test("/metadata/uid", &node.uid);
        patch
    }

    fn test(&mut self, path: &str, value: &impl Serialize) {
        self.0.push(json!({"op": "test", "path": path, "value": value}));
    }

    fn add(&mut self, path: &str, value: &impl Serialize) {
        self.0.push(json!({"op": "add", "path": path, "value": value}));
    }

    /// Puts entries into a map of the metadata that is there.
    fn set(&mut self, map: &str, entries: Map<String, Value>) {
        for (key, value) in entries {
            self.add(&format!("/metadata/{map}/{}", key.replace('~', "~0").replace('/', "~1")), &value);
        }
    }

    /// Takes away the taints with the key `off`, and adds some at the end.
    fn taints<'a>(&mut self, node: &NodeView, off: &str, more: impl Iterator<Item = &'a Taint>) {
        // From the end: what is taken away moves what comes after it.
        for (at, _) in node.taints.iter().enumerate().rev().filter(|(_, taint)| taint.key == off) {
            self.test(&format!("/spec/taints/{at}/key"), &off);
            self.0.push(json!({"op": "remove", "path": format!("/spec/taints/{at}")}));
        }
        let more: Vec<&Taint> = more.collect();
        if node.taints.is_empty() && !more.is_empty() {
            self.test("/spec/taints", &Value::Null);
            self.add("/spec/taints", &more);
        } else {
            for taint in more {
                self.add("/spec/taints/-", taint);
            }
        }
    }

    fn finish(self) -> Value {
        Value::Array(self.0)
    }
}
