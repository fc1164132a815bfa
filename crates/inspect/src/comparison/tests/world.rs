//! Small clusters whose costs can be computed by hand.
//!
//! | type | CPU that pods may use | on-demand | spot |
//! |---|---|---|---|
//! | f.small | 2 | 0.10 | |
//! | f.large | 8 | 0.40 | 0.12 |
//! | g.large | 8 | 0.20 | |

use std::sync::Arc;

use croft_manifest::{LoadOptions, parse};
use croft_scheduler::{Catalog, InstanceType, Options};
use serde_json::{Value, json};

use crate::comparison::{Comparison, PoolRow, compare};

fn types() -> Arc<[InstanceType]> {
    let offering = |paid: &str, price: f64| json!({"zone": "z1", "capacityType": paid, "price": price});
    let one = |family: &str, size: &str, cpu: &str, offerings: Value| {
        json!({"name": format!("{family}.{size}"), "arch": "amd64", "offerings": offerings,
            "capacity": {"cpu": cpu, "memory": "64Gi", "pods": "100"},
            "labels": {"karpenter.k8s.aws/instance-family": family}})
    };
    let catalog = json!({"instanceTypes": [
        one("f", "small", "2", json!([offering("on-demand", 0.1)])),
        one("f", "large", "8", json!([offering("on-demand", 0.4), offering("spot", 0.12)])),
        one("g", "large", "8", json!([offering("on-demand", 0.2)])),
    ]});
    serde_json::from_value::<Catalog>(catalog).unwrap().instance_types.into()
}

/// A node of a type with labels of its launcher.
pub(super) fn node(name: &str, kind: &str, labels: &Value) -> Value {
    let mut all = json!({
        "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": "z1", "node.kubernetes.io/instance-type": kind,
    });
    for (key, value) in labels.as_object().unwrap() {
        all[key] = value.clone();
    }
    let amounts = json!({"cpu": "8", "memory": "64Gi", "pods": "100"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all},
        "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A node of the managed node group `web`.
pub(super) fn web_node(name: &str, kind: &str) -> Value {
    node(
        name,
        kind,
        &json!({"eks.amazonaws.com/nodegroup": "web", "eks.amazonaws.com/capacityType": "ON_DEMAND"}),
    )
}

/// A pod of one CPU on a node, or pending; `more` is merged into its spec.
pub(super) fn pod(namespace: &str, name: &str, on: Option<&str>, more: &Value) -> Value {
    let mut spec = json!({"containers": [
        {"name": "a", "image": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    if let Some(on) = on {
        spec["nodeName"] = json!(on);
    }
    let phase = if on.is_some() { "Running" } else { "Pending" };
    json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"phase": phase},
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")}})
}

/// A DaemonSet of one CPU on every node.
pub(super) fn daemon_set(namespace: &str, name: &str) -> Value {
    let labels = json!({"app": name});
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

/// The Tenant `shop` with the namespace and the pool of that name, whose spec has `more` beside its key.
pub(super) fn tenant(more: &Value) -> Vec<Value> {
    let mut spec = json!({"key": "node-pool"});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let of = |kind: &str, spec: &Value| json!({"apiVersion": "croft.dev/v1alpha1", "kind": kind, "metadata": {"name": "shop"}, "spec": spec});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        of("Tenant", &json!({"namespaces": ["shop"], "pools": ["shop"]})),
        of("TenantPool", &spec),
    ]
}

/// The comparison of a cluster with these objects.
pub(super) fn compared(objects: &[Value]) -> Comparison {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let input = parse("cluster.yaml", &list, &LoadOptions::default()).unwrap();
    compare(&input, &types(), &Options::default()).unwrap()
}

pub(super) fn row<'c>(comparison: &'c Comparison, pool: &str) -> &'c PoolRow {
    comparison.pools.iter().find(|row| row.pool == pool).unwrap()
}
