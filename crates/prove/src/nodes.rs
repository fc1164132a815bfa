//! The node under attack, in each phase of both kinds of launcher.
//!
//! ```text
//!  Croft:  launched, registers with the starting taint and label ──registered──▶ the pool's labels, no starting taint
//!  other:  joins with the pool's own label and taint ────────────repaired────▶ the pool-name label, missing taints
//!  plain:  joins without any
//! ```

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use croft_policy::definitions::UNREGISTERED_TAINT;
use k8s_openapi::api::core::v1;
use serde_json::{Value, json};

use crate::{
    declared::{OWN_KEY, POOL, PoolSpec},
    policies::apply,
};

/// The node's name.
pub const NODE: &str = "node-1";

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The object.
    pub object: Value,
    /// The NodeClaim, if Croft launched it for the pool.
    pub claim: Option<Value>,
    /// True if it is a node of the pool, once the pool is declared.
    pub of_pool: bool,
    /// True if another process launched it before the policies knew the pool: nothing marked it, and it is closed once the
    /// controller has labelled it.
    pub is_from_before: bool,
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.object.to_string().hash(state);
    }
}

impl Node {
    /// A node of the pool as its kubelet registers it.
    #[must_use]
    pub fn registering(
        labels: &BTreeMap<String, String>,
        taints: &[v1::Taint],
        claim: Option<Value>,
    ) -> Self {
        let taints: Vec<Value> = taints.iter().map(|taint| json!(taint)).collect();
        Self { object: object(&json!(labels), &taints), claim, of_pool: true, is_from_before: false }
    }

    /// A node that another process launches for the pool: it has the pool's label and taint from the start.
    #[must_use]
    pub fn of_other_launcher(pool: Option<PoolSpec>) -> Self {
        let effects: &[&str] = if pool.is_some_and(|pool| pool.no_execute) {
            &["NoSchedule", "NoExecute"]
        } else {
            &["NoSchedule"]
        };
        let taints: Vec<Value> =
            effects.iter().map(|effect| json!({"key": OWN_KEY, "value": POOL, "effect": effect})).collect();
        let object = object(&json!({OWN_KEY: POOL}), &taints);
        Self { object, claim: None, of_pool: true, is_from_before: false }
    }

    /// A node of no pool.
    #[must_use]
    pub fn plain() -> Self {
        let object = object(&json!({"kubernetes.io/os": "linux"}), &[]);
        Self { object, claim: None, of_pool: false, is_from_before: false }
    }

    /// The node after a JSON Patch. The API server lets it test an absent field for null.
    ///
    /// # Panics
    /// If it doesn't apply.
    #[must_use]
    pub fn patched(&self, patch: &Value) -> Self {
        let mut node = self.clone();
        for (part, field) in [("metadata", "labels"), ("metadata", "finalizers"), ("spec", "taints")] {
            let part = node.object[part].as_object_mut().expect("a node has metadata and a spec");
            part.entry(field).or_insert(Value::Null);
        }
        apply(&mut node.object, patch);
        for part in ["metadata", "spec"] {
            let part = node.object[part].as_object_mut().expect("a node has metadata and a spec");
            part.retain(|_, value| !value.is_null());
        }
        node
    }

    /// The node as a typed object.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn typed(&self) -> v1::Node {
        serde_json::from_value(self.object.clone()).expect("a node is one")
    }

    /// True if Croft launched it and hasn't registered it.
    #[must_use]
    pub fn is_registering(&self) -> bool {
        self.claim.is_some() && self.taints().any(|taint| taint["key"] == UNREGISTERED_TAINT)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["labels"].get(key).and_then(Value::as_str)
    }

    /// The taints.
    pub fn taints(&self) -> impl Iterator<Item = &Value> {
        self.object["spec"]["taints"].as_array().into_iter().flatten()
    }

    /// Labels and taints in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let taint = |taint: &Value| {
            let part = |key: &str| taint[key].as_str().unwrap_or_default();
            format!("{}={}:{}", part("key"), part("value"), part("effect"))
        };
        let taints: Vec<String> = self.taints().map(taint).collect();
        format!("labels {} taints {}", self.object["metadata"]["labels"], taints.join(" "))
    }
}

fn object(labels: &Value, taints: &[Value]) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": NODE, "uid": "node", "resourceVersion": "20", "labels": labels,
            "annotations": {"kubelet": "wrote this"}},
        "spec": {"providerID": "aws:///us-east-1a/i-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "29"}},
    });
    if !taints.is_empty() {
        node["spec"]["taints"] = json!(taints);
    }
    node
}
