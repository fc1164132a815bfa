//! Objects for the tests, from short JSON.
#![allow(dead_code, missing_docs, reason = "each test program uses some of it")]

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{
    CapacityType, Cluster, ComingNode, InstanceType, Offering, Options, Plan, Pool, Price, Requirement,
    Resources, solve,
};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use serde_json::{Value, json};

pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const HOST: &str = "kubernetes.io/hostname";
pub const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

pub fn resources(pairs: &[(&str, &str)]) -> Resources {
    let mut r = Resources::new();
    for (name, text) in pairs {
        r.set_quantity(name, text.parse().unwrap());
    }
    r
}

/// A type with on-demand offerings in zones a, b and c.
pub fn kind(name: &str, cpu: &str, memory: &str, dollars: f64) -> InstanceType {
    InstanceType {
        name: name.to_owned(),
        arch: "amd64".to_owned(),
        os: vec!["linux".to_owned()],
        capacity: resources(&[
            ("cpu", cpu),
            ("memory", memory),
            ("pods", "110"),
            ("ephemeral-storage", "20Gi"),
        ]),
        overhead: Resources::new(),
        labels: BTreeMap::new(),
        attach_limits: BTreeMap::new(),
        offerings: ZONES
            .map(|zone| Offering {
                zone: zone.to_owned(),
                capacity_type: CapacityType::OnDemand,
                price: Price::from_dollars(dollars),
                available: true,
                estimated: false,
                available_count: None,
            })
            .to_vec(),
    }
}

/// 1, 2, 4, 8 and 16 processors with 4 GiB each, 0.05 $ per processor.
pub fn kinds() -> Vec<InstanceType> {
    [1u32, 2, 4, 8, 16]
        .map(|n| kind(&format!("m.{n}"), &n.to_string(), &format!("{}Gi", 4 * n), 0.05 * f64::from(n)))
        .to_vec()
}

/// The types of [`kinds`], on-demand, and for the price that `spot` makes of it on spot.
pub fn both(spot: impl Fn(Price) -> Price) -> Vec<InstanceType> {
    let mut kinds = kinds();
    for kind in &mut kinds {
        let of_spot = |offering: &Offering| Offering {
            capacity_type: CapacityType::Spot,
            price: offering.price.map(&spot),
            ..offering.clone()
        };
        let on_spot: Vec<Offering> = kind.offerings.iter().map(of_spot).collect();
        kind.offerings.extend(on_spot);
    }
    kinds
}

pub fn pool(name: &str, kinds: Vec<InstanceType>) -> Pool {
    Pool {
        name: name.to_owned(),
        key: "node-pool".to_owned(),
        value: name.to_owned(),
        instance_types: Arc::from(kinds),
        launches: true,
        ..Pool::default()
    }
}

pub fn taint(key: &str, value: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }
}

pub fn requirement(key: &str, values: &[&str]) -> Requirement {
    Requirement::any_of(key, values.iter().copied())
}

pub fn merge(to: &mut Value, from: &Value) {
    match (to, from) {
        (Value::Object(to), Value::Object(from)) => {
            for (k, v) in from {
                merge(to.entry(k.clone()).or_insert(Value::Null), v);
            }
        }
        (to, from) => *to = from.clone(),
    }
}

/// A pod; `more` is merged into it.
pub fn pod(name: &str, cpu: &str, memory: &str, more: Value) -> Pod {
    let mut value = json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
    });
    merge(&mut value, &more);
    serde_json::from_value(value).unwrap()
}

pub fn node(name: &str, cpu: &str, memory: &str, labels: Value) -> Node {
    let mut value = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
                   "capacity": {"cpu": cpu, "memory": memory, "pods": "110"}},
    });
    merge(&mut value, &json!({"metadata": {"labels": labels}}));
    serde_json::from_value(value).unwrap()
}

/// Gives a node the taint `mine=x`.
pub fn add_taint(node: &mut Node) {
    node.spec.get_or_insert_default().taints = Some(vec![taint("mine", "x")]);
}

/// A node of pool `p` that comes for `claim`, without a label of its host yet.
pub fn coming(claim: &str, cpu: &str, memory: &str, labels: Value) -> ComingNode {
    let mut all = json!({"node-pool": "p"});
    merge(&mut all, &labels);
    ComingNode {
        claim: claim.to_owned(),
        pool: "p".to_owned(),
        zone: all.get(ZONE).and_then(Value::as_str).unwrap_or_default().to_owned(),
        labels: serde_json::from_value(all).unwrap(),
        allocatable: resources(&[("cpu", cpu), ("memory", memory), ("pods", "110")]),
        ..ComingNode::default()
    }
}

pub fn cluster(pools: Vec<Pool>, pods: &[Pod]) -> Cluster {
    let mut cluster = Cluster::new();
    for pool in pools {
        cluster.upsert_pool(pool).unwrap();
    }
    for pod in pods {
        cluster.upsert_pod(pod).unwrap();
    }
    cluster
}

pub fn plan(cluster: &Cluster) -> Plan {
    solve(cluster, &Options::default(), &|| false)
}

/// "pool: detail" of the first pod left over.
pub fn why(plan: &Plan) -> Vec<String> {
    let first = plan.unschedulable.first().expect("nothing is left over");
    first.reasons.iter().map(|r| format!("{} {}: {}", r.pool, r.reason, r.detail)).collect()
}
