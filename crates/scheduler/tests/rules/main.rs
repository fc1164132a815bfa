//! The rules of kube-scheduler: a module for each constraint and one with a table of all, the order of binding, and
//! nominations.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../build/mod.rs"]
mod build;
mod demand;
mod feasibility;
mod host_ports;
mod node_affinity;
mod nominate;
mod pod_affinity;
mod pod_anti_affinity;
mod resources;
mod shares;
mod taints;
mod templates;
mod topology_spread;
mod turns;
mod volumes;
mod waiting;

use std::collections::BTreeMap;

use build::{ZONE, cluster, kinds, plan, pod, pool};
use croft_scheduler::{InstanceType, Plan};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const TYPE: &str = "node.kubernetes.io/instance-type";

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The type of the only new instance.
fn only_type(plan: &Plan) -> &str {
    assert_eq!(plan.instances.len(), 1, "{:?}", plan.unschedulable);
    &plan.instances[0].instance_type
}

fn zones(plan: &Plan) -> BTreeMap<&str, usize> {
    plan.instances.iter().fold(BTreeMap::new(), |mut zones, m| {
        *zones.entry(m.zone.as_str()).or_default() += m.pods.len();
        zones
    })
}

fn one(more: Value) -> Plan {
    plan(&cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", more)]))
}

fn with_labels(key: &str) -> Vec<InstanceType> {
    let mut all = kinds();
    for kind in &mut all {
        kind.labels.insert(key.to_owned(), (kind.capacity.get("cpu") / 1000).to_string());
    }
    all
}

fn spread(more: Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}}});
    for (key, value) in more.as_object().unwrap() {
        constraint[key] = value.clone();
    }
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"topologySpreadConstraints": [constraint]}})
}

fn many(count: usize, cpu: &str, more: &Value) -> Vec<Pod> {
    (0..count).map(|i| pod(&format!("p{i}"), cpu, "1Gi", more.clone())).collect()
}

fn near(key: &str, app: &str) -> Value {
    json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}})
}

fn app(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}})
}
