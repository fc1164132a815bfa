//! The labels, annotations, taints and finalizer of a claim's node, and the patches that write them.

use std::collections::BTreeMap;

use croft_api::{NodeClaim, TenantPool, definitions::FINALIZER};
use croft_policy::{definitions::POOL_NAME_LABEL, node::NodeRepair};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Time};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{definitions::keys, json_pointer::escaped, state::NodeView};

/// Labels that a claim's node must carry. The claim's spec takes precedence over the instance's labels.
pub fn claim_labels(claim: &NodeClaim) -> impl Iterator<Item = (&str, &str)> {
    let own = &claim.spec.labels;
    let told = claim.status.iter().flat_map(|status| {
        let facts = [
            (keys::INSTANCE_TYPE_LABEL, &status.instance_type),
            (keys::ZONE_LABEL, &status.zone),
            (keys::CAPACITY_TYPE_LABEL, &status.capacity_type),
            (keys::CROFT_CAPACITY_TYPE_LABEL, &status.capacity_type),
        ];
        let known = facts.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let others = status.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let others = others.filter(move |(key, _)| facts.iter().all(|(k, v)| k != key || v.is_none()));
        known.chain(others)
    });
    told.filter(|(key, _)| !own.contains_key(*key)).chain(own.iter().map(|(k, v)| (k.as_str(), v.as_str())))
}

/// The node's labels with the claim's restored: drift is evaluated on these while a label that was changed by hand
/// is about to be repaired.
#[must_use]
pub fn restored_labels(claim: &NodeClaim, node: &NodeView) -> BTreeMap<String, String> {
    let mut all = node.labels.clone();
    all.extend(claim_labels(claim).map(|(key, value)| (key.to_owned(), value.to_owned())));
    all
}

/// Annotations that a claim's node must carry: the template's, and the claim's name.
fn annotations(claim: &NodeClaim, pool: Option<&TenantPool>) -> BTreeMap<String, String> {
    let template = pool.and_then(|p| p.spec.template.as_ref());
    let mut annotations = template.map(|t| t.metadata.annotations.clone()).unwrap_or_default();
    annotations.insert(keys::CLAIM_ANNOTATION.to_owned(), claim.metadata.name.clone().unwrap_or_default());
    annotations
}

/// The entries of `wanted` that aren't in `held`.
fn missing<'a>(
    wanted: impl Iterator<Item = (&'a str, &'a str)>,
    held: &BTreeMap<String, String>,
) -> Map<String, Value> {
    wanted
        .filter(|(key, value)| held.get(*key).map(String::as_str) != Some(value))
        .map(|(key, value)| (key.to_owned(), Value::String(value.to_owned())))
        .collect()
}

/// JSON Patch that registers the node: labels, annotations, taints of the claim that its kubelet left out, and the
/// removal of the unregistered taint.
///
/// A JSON Patch can't add the first annotation without racing other writers, and the cluster's own controllers
/// write annotations right after a node is created. Pods wait for this patch, and for no annotation: then
/// [`missing_marks`] writes them later.
#[must_use]
pub fn registration(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Value {
    let mut patch = Operations::of_node(node);
    patch.add_labels(node, missing(claim_labels(claim), &node.labels));
    if node.annotated {
        patch.add_entries("annotations", missing_annotations(claim, pool, node));
    }
    patch.add_finalizer(node);
    patch.remove_label(node, keys::UNREGISTERED_LABEL);
    patch.change_taints(node, keys::UNREGISTERED_TAINT, claim.spec.taints.iter());
    patch.finish()
}

/// JSON Patch that adds Croft's finalizer to a registered node; `None` if it is there or can't be added any more.
/// With it, deleting the Node drains the node first, as deleting its claim does.
#[must_use]
pub fn add_finalizer(node: &NodeView) -> Option<Value> {
    (!node.has_finalizer() && !node.deleting).then(|| {
        let mut patch = Operations::of_node(node);
        patch.add_finalizer(node);
        patch.finish()
    })
}

/// JSON Patch that removes Croft's finalizer; `None` if it isn't there.
#[must_use]
pub fn remove_finalizer(node: &NodeView) -> Option<Value> {
    let at = node.finalizers.iter().position(|f| f == FINALIZER)?;
    let mut patch = Operations::of_node(node);
    patch.test(&format!("/metadata/finalizers/{at}"), &FINALIZER);
    patch.0.push(json!({"op": "remove", "path": format!("/metadata/finalizers/{at}")}));
    Some(patch.finish())
}

/// Merge patch that gives a registered node its annotations; `None` if it has them.
#[must_use]
pub fn missing_marks(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Option<Value> {
    let has_marks = node.annotations.get(keys::CLAIM_ANNOTATION) == claim.metadata.name.as_ref();
    (!has_marks).then(
        || json!({"metadata": {"uid": node.uid, "annotations": missing_annotations(claim, pool, node)}}),
    )
}

fn missing_annotations(claim: &NodeClaim, pool: Option<&TenantPool>, node: &NodeView) -> Map<String, Value> {
    let wanted = annotations(claim, pool);
    missing(wanted.iter().map(|(key, value)| (key.as_str(), value.as_str())), &node.annotations)
}

fn value_of(taint: &Taint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

/// A change of a registered node, and the JSON Patch that restores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// Labels are missing, or have other values.
    pub labels: bool,
    /// Taints of the pool are missing, or have other values.
    pub taints: bool,
    /// The patch.
    pub patch: Value,
}

/// The changes of a registered node to restore; `None` if there are none. Of the taints, only those that keep other pods
/// off the pool; others change for many good reasons.
#[must_use]
pub fn repair(claim: &NodeClaim, node: &NodeView) -> Option<Repair> {
    let labels = missing(claim_labels(claim), &node.labels);
    let taints = claim.spec.taints.iter().filter(|taint| {
        let same = |held: &Taint| {
            (&held.key, &held.effect, value_of(held)) == (&taint.key, &taint.effect, value_of(taint))
        };
        claim.spec.labels.get(&taint.key).is_some_and(|label| label == value_of(taint))
            && !node.taints.iter().any(same)
    });
    let taints: Vec<&Taint> = taints.collect();
    if labels.is_empty() && taints.is_empty() {
        return None;
    }
    let (labels_changed, taints_changed) = (!labels.is_empty(), !taints.is_empty());
    let mut patch = Operations::of_node(node);
    patch.add_labels(node, labels);
    patch.change_taints(node, "", taints.into_iter());
    Some(Repair { labels: labels_changed, taints: taints_changed, patch: patch.finish() })
}

/// JSON Patch that gives a node of another provisioner the pool-name label and the taints of its pool, in one write, so
/// that no pod is bound in between, and ends its registration; or that removes the label, since the node has left the pool.
#[must_use]
pub fn repair_membership(node: &NodeView, missing: &NodeRepair) -> Value {
    let mut patch = Operations::of_node(node);
    match &missing.pool_name {
        Some(pool) => {
            let label = (POOL_NAME_LABEL.to_owned(), Value::String(pool.clone()));
            patch.add_labels(node, Map::from_iter([label]));
        }
        None => patch.remove_label(node, POOL_NAME_LABEL),
    }
    patch.remove_label(node, keys::UNREGISTERED_LABEL);
    let taints: Vec<Taint> = missing
        .taints
        .iter()
        .map(|taint| Taint {
            key: taint.key.clone(),
            value: Some(taint.value.clone()),
            effect: taint.effect.as_str().to_owned(),
            time_added: None,
        })
        .collect();
    patch.change_taints(node, keys::UNREGISTERED_TAINT, taints.iter());
    patch.finish()
}

/// JSON Patch that keeps new pods off a node that is being removed.
#[must_use]
pub fn cordon(node: &NodeView, now: Timestamp) -> Value {
    let taint = Taint {
        key: keys::DISRUPTED_TAINT.to_owned(),
        effect: keys::DISRUPTED_EFFECT.to_owned(),
        time_added: Some(Time(now)),
        value: None,
    };
    let mut patch = Operations::of_node(node);
    patch.add("/spec/unschedulable", &true);
    patch.change_taints(node, "", std::iter::once(&taint));
    patch.finish()
}

/// JSON Patch that reverts [`cordon`].
#[must_use]
pub fn uncordon(node: &NodeView) -> Value {
    let mut patch = Operations::of_node(node);
    patch.add("/spec/unschedulable", &false);
    patch.change_taints(node, keys::DISRUPTED_TAINT, std::iter::empty());
    patch.finish()
}

/// A JSON Patch of a node. A node is written often while it starts: a patch for one version of it would often meet
/// a conflict. This patch depends only on the positions of the taints that it removes, and the API server retries
/// it while others write. Taints are an atomic list: a merge patch would write all of them, and restore or drop the
/// taints of others.
struct Operations(Vec<Value>);

impl Operations {
    fn of_node(node: &NodeView) -> Self {
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

    /// Adds labels to the node, which may have none.
    fn add_labels(&mut self, node: &NodeView, labels: Map<String, Value>) {
        if node.labels.is_empty() {
            self.test("/metadata/labels", &Value::Null);
            self.add("/metadata/labels", &labels);
        } else {
            self.add_entries("labels", labels);
        }
    }

    /// Removes a label that the node has.
    fn remove_label(&mut self, node: &NodeView, key: &str) {
        if node.labels.contains_key(key) {
            let path = format!("/metadata/labels/{}", escaped(key));
            self.0.push(json!({"op": "remove", "path": path}));
        }
    }

    /// Adds entries to an existing map of the metadata.
    fn add_entries(&mut self, map: &str, entries: Map<String, Value>) {
        for (key, value) in entries {
            self.add(&format!("/metadata/{map}/{}", escaped(&key)), &value);
        }
    }

    /// Appends Croft's finalizer, unless it is there.
    fn add_finalizer(&mut self, node: &NodeView) {
        if node.has_finalizer() || node.deleting {
            return;
        }
        if node.finalizers.is_empty() {
            self.test("/metadata/finalizers", &Value::Null);
            self.add("/metadata/finalizers", &[FINALIZER]);
        } else {
            self.add("/metadata/finalizers/-", &FINALIZER);
        }
    }

    /// Removes the taints with the key `off`, and appends those of `wanted` that are missing. Key and effect name a
    /// taint: a taint that has them with another value gets the value.
    fn change_taints<'a>(&mut self, node: &NodeView, off: &str, wanted: impl Iterator<Item = &'a Taint>) {
        let mut more: Vec<&Taint> = Vec::new();
        for taint in wanted {
            let same = |held: &&Taint| held.key == taint.key && held.effect == taint.effect;
            match node.taints.iter().enumerate().find(|(_, held)| same(held)) {
                None => more.push(taint),
                Some((_, held)) if value_of(held) == value_of(taint) => {}
                Some((at, _)) => {
                    self.test(&format!("/spec/taints/{at}/key"), &taint.key);
                    self.test(&format!("/spec/taints/{at}/effect"), &taint.effect);
                    self.add(&format!("/spec/taints/{at}/value"), &value_of(taint));
                }
            }
        }
        // From the end: a removal shifts the positions after it.
        for (at, _) in node.taints.iter().enumerate().rev().filter(|(_, taint)| taint.key == off) {
            self.test(&format!("/spec/taints/{at}/key"), &off);
            self.0.push(json!({"op": "remove", "path": format!("/spec/taints/{at}")}));
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use croft_api::{
        EC2NodeClass,
        drift::{self, DriftStatus, Wanted},
    };
    use croft_policy::taint;

    use super::*;

    fn claim(status: &Value) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": "p-1"},
            "spec": {"pool": "p", "nodeClassRef": {"name": "c"}, "instanceTypes": ["m5.large"], "zones": ["a"],
                "capacityType": "on-demand", "labels": {"node-pool": "p"}},
            "status": status,
        }))
        .unwrap()
    }

    /// The operations after the test of the node's uid.
    fn operations(patch: &Value) -> &[Value] {
        &patch.as_array().unwrap()[1..]
    }

    #[test]
    fn a_nodes_labels_are_its_claims_then_the_facts_of_its_instance_then_its_types() {
        let of_type = json!({keys::ZONE_LABEL: "b", keys::INSTANCE_TYPE_LABEL: "m5.large", "node-pool": "q", "cpus": "2"});
        let claim = claim(&json!({"zone": "a", "capacityType": "spot", "labels": of_type}));
        let mut labels: Vec<(&str, &str)> = claim_labels(&claim).collect();
        labels.sort_unstable();
        let mut expected = [
            (keys::ZONE_LABEL, "a"),
            (keys::CAPACITY_TYPE_LABEL, "spot"),
            (keys::CROFT_CAPACITY_TYPE_LABEL, "spot"),
            (keys::INSTANCE_TYPE_LABEL, "m5.large"),
            ("cpus", "2"),
            ("node-pool", "p"),
        ];
        expected.sort_unstable();
        assert_eq!(labels, expected);
    }

    #[test]
    fn a_node_gets_the_finalizer_once_and_none_while_it_is_deleted() {
        let node = |finalizers: &[&str], deleting| NodeView {
            finalizers: finalizers.iter().map(|&one| one.to_owned()).collect(),
            deleting,
            ..NodeView::default()
        };
        let added = add_finalizer(&node(&["example.com/own"], false)).unwrap();
        let expected = json!({"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER});
        assert_eq!(operations(&added), [expected]);
        for node in [node(&[FINALIZER], false), node(&[], true), node(&[FINALIZER], true)] {
            assert_eq!(add_finalizer(&node), None, "{node:?}");
        }
    }

    #[test]
    fn membership_of_a_pool_is_its_label_and_taints_in_one_patch() {
        let held = |value: &str| Taint {
            key: "node-pool".to_owned(),
            value: Some(value.to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        let of_pool = taint::Taint {
            key: "node-pool".to_owned(),
            value: "p".to_owned(),
            effect: taint::Effect::NoSchedule,
        };
        let enters =
            NodeRepair { pool_name: Some("p".to_owned()), taints: vec![of_pool], is_starting: false };
        let leaves = NodeRepair { pool_name: None, taints: Vec::new(), is_starting: false };
        let labelled = |label: &str| [(label.to_owned(), "q".to_owned())].into();
        let path = format!("/metadata/labels/{}", escaped(POOL_NAME_LABEL));
        let bare = repair_membership(&NodeView::default(), &enters);
        assert_eq!(
            operations(&bare),
            [
                json!({"op": "test", "path": "/metadata/labels", "value": null}),
                json!({"op": "add", "path": "/metadata/labels", "value": {POOL_NAME_LABEL: "p"}}),
                json!({"op": "test", "path": "/spec/taints", "value": null}),
                json!({"op": "add", "path": "/spec/taints", "value": [held("p")]}),
            ]
        );
        let other = Taint { key: "other".to_owned(), ..held("x") };
        let tainted = NodeView {
            labels: labelled("team"),
            taints: vec![other.clone(), held("q")],
            ..NodeView::default()
        };
        assert_eq!(
            operations(&repair_membership(&tainted, &enters)),
            [
                json!({"op": "add", "path": path, "value": "p"}),
                json!({"op": "test", "path": "/spec/taints/1/key", "value": "node-pool"}),
                json!({"op": "test", "path": "/spec/taints/1/effect", "value": "NoSchedule"}),
                json!({"op": "add", "path": "/spec/taints/1/value", "value": "p"}),
            ]
        );
        let untainted = NodeView { taints: vec![other], ..tainted };
        let patch = repair_membership(&untainted, &enters);
        let appended = json!({"op": "add", "path": "/spec/taints/-", "value": held("p")});
        assert_eq!(operations(&patch)[1..], [appended]);
        let left = NodeView { labels: labelled(POOL_NAME_LABEL), ..NodeView::default() };
        assert_eq!(operations(&repair_membership(&left, &leaves)), [json!({"op": "remove", "path": path})]);
    }

    #[test]
    fn a_label_that_was_changed_by_hand_is_drift_only_when_it_cannot_be_restored_labels() {
        let class: EC2NodeClass = serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c"},
            "spec": {"amiSelectorTerms": [], "role": "r", "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
        }))
        .unwrap();
        let pool = |key: &str, value: &str| -> TenantPool {
            serde_json::from_value(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"},
                "spec": {"template": {"spec": {"nodeClassRef": {"name": "c"},
                    "requirements": [{"key": key, "operator": "In", "values": [value]}]}}},
            }))
            .unwrap()
        };
        let wanted =
            |key: &str, value: &str| Wanted::new(&Arc::new(pool(key, value)), &Arc::new(class.clone()));
        let claim = claim(&json!({"zone": "a", "capacityType": "on-demand"}));
        let node = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            NodeView { labels: labels.collect(), ..NodeView::default() }
        };
        let is_drift = |labels: &BTreeMap<String, String>, wanted: &Wanted| {
            matches!(drift::compare(&claim, labels, wanted), DriftStatus::Drifted(_))
        };
        let zone = wanted(keys::ZONE_LABEL, "a");
        for node in [node(&[]), node(&[(keys::ZONE_LABEL, "b")])] {
            assert!(!is_drift(&restored_labels(&claim, &node), &zone));
            assert!(is_drift(&node.labels, &zone));
        }
        // The pool wants another zone: the claim's own label differs.
        assert!(is_drift(&restored_labels(&claim, &node(&[])), &wanted(keys::ZONE_LABEL, "z")));
        // A label that the claim doesn't set, as the requirement is newer: the node's label counts.
        let amd = node(&[("kubernetes.io/arch", "amd64")]);
        assert!(!is_drift(&restored_labels(&claim, &amd), &wanted("kubernetes.io/arch", "amd64")));
        assert!(is_drift(&restored_labels(&claim, &amd), &wanted("kubernetes.io/arch", "arm64")));
        assert!(is_drift(&restored_labels(&claim, &node(&[])), &wanted("kubernetes.io/arch", "amd64")));
    }
}
