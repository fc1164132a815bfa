//! Pools, types and nodes of random clusters.

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{
    CapacityType, ComingNode, InstanceType, Offering, Pool, Price, Requirement, Resources,
};
use croft_simkit::Random;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const HOST: &str = "kubernetes.io/hostname";
pub const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
pub const GPU: &str = "example.com/gpu";
pub const TEMPLATE: &str = "croft.dev/template";
pub const CAPACITY: &str = "karpenter.sh/capacity-type";

/// Nodes by name.
pub type Nodes = BTreeMap<String, Node>;

fn amounts(list: &[(&str, String)]) -> Resources {
    let mut amounts = Resources::new();
    for (resource, text) in list {
        amounts.set_quantity(resource, text.parse().unwrap());
    }
    amounts
}

pub fn catalog() -> Vec<InstanceType> {
    let mut kinds = Vec::new();
    for (cpu, factor, name) in [(1, 2, "c"), (2, 2, "c"), (4, 2, "c"), (2, 8, "r"), (4, 8, "r"), (8, 4, "m")]
    {
        let offer = |zone: &str, capacity_type, dollars: f64| Offering {
            zone: zone.to_owned(),
            capacity_type,
            price: Price::from_dollars(dollars),
            available: true,
            estimated: false,
            available_count: None,
        };
        let dollars = 0.04 * f64::from(cpu) + 0.005 * f64::from(cpu * factor);
        let mut offerings = Vec::new();
        for zone in ZONES {
            offerings.push(offer(zone, CapacityType::OnDemand, dollars));
            // No spot in one of the zones.
            if zone != "zone-c" {
                offerings.push(offer(zone, CapacityType::Spot, dollars * 0.4));
            }
        }
        let mut capacity = vec![
            ("cpu", cpu.to_string()),
            ("memory", format!("{}Gi", cpu * factor)),
            ("pods", "16".to_owned()),
        ];
        if name == "m" {
            capacity.push((GPU, "2".to_owned()));
        }
        kinds.push(InstanceType {
            name: format!("{name}.{cpu}"),
            arch: if cpu == 4 && factor == 8 { "arm64" } else { "amd64" }.to_owned(),
            os: vec!["linux".to_owned()],
            capacity: amounts(&capacity),
            overhead: Resources::new(),
            labels: BTreeMap::from([
                ("karpenter.k8s.aws/instance-family".to_owned(), name.to_owned()),
                ("karpenter.k8s.aws/instance-cpu".to_owned(), cpu.to_string()),
            ]),
            attach_limits: BTreeMap::new(),
            offerings,
        });
    }
    kinds
}

pub fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: Some(value.to_owned()), effect: effect.to_owned(), time_added: None }
}

pub fn pools(random: &mut Random) -> Vec<Pool> {
    let kinds: Arc<[InstanceType]> = catalog().into();
    let count = 1 + random.index(2);
    (0..count)
        .map(|n| {
            let name = format!("pool-{n}");
            let mut requirements = Vec::new();
            if random.percent(50) {
                requirements.push(Requirement::any_of(CAPACITY, ["spot", "on-demand"]));
            }
            if random.percent(25) {
                requirements.push(Requirement::any_of(ZONE, ["zone-a", "zone-b"]));
            }
            let mut taints = Vec::new();
            if random.percent(50) {
                taints.push(taint("node-pool", &name, "NoSchedule"));
            }
            if random.percent(15) {
                taints.push(taint("quiet", "yes", "PreferNoSchedule"));
            }
            let startup_taints =
                if random.percent(20) { vec![taint("starting", "yes", "NoSchedule")] } else { Vec::new() };
            let mut limits = BTreeMap::new();
            if random.percent(15) {
                let limit = [("nodes", "3"), ("cpu", "16")][random.index(2)];
                limits.insert(limit.0.to_owned(), limit.1.parse().unwrap());
            }
            Pool {
                key: "node-pool".to_owned(),
                value: name.clone(),
                weight: if random.percent(25) { 10 } else { 0 },
                requirements,
                taints,
                startup_taints,
                limits,
                instance_types: Arc::clone(&kinds),
                launches: true,
                name,
                ..Pool::default()
            }
        })
        .collect()
}

/// Existing nodes: in a pool, cordoned, tainted, without a zone, or without a pool.
pub fn old_node(random: &mut Random, pools: &[Pool], name: &str) -> Value {
    let pool = &pools[random.index(pools.len())];
    let kinds = catalog();
    let kind = &kinds[random.index(kinds.len())];
    let zone = random.one_of(&ZONES);
    let mut labels = labels(pool, kind, zone, "on-demand");
    let mut taints = pool.taints.clone();
    if random.percent(6) {
        labels.remove(ZONE);
    }
    if random.percent(10) {
        labels.remove("node-pool");
        labels.remove("node-restriction.kubernetes.io/pool");
        taints.clear();
    }
    if random.percent(10) {
        let effect = random.one_of(&["NoSchedule", "PreferNoSchedule"]);
        taints.push(taint("busy", "yes", effect));
    }
    let cordoned = random.percent(8);
    if cordoned {
        // The taint of the node life cycle controller.
        taints.push(Taint { value: None, ..taint("node.kubernetes.io/unschedulable", "", "NoSchedule") });
    }
    let mut node = node(name, labels, &taints, &kind.capacity);
    if cordoned {
        node["spec"]["unschedulable"] = json!(true);
    }
    node
}

pub fn coming(random: &mut Random, pools: &[Pool], name: &str) -> ComingNode {
    let pool = &pools[random.index(pools.len())];
    let open = instances(pool);
    let (kind, zone, capacity_type) = &open[random.index(open.len())];
    ComingNode {
        claim: name.to_owned(),
        pool: pool.name.clone(),
        instance_type: kind.name.clone(),
        zone: zone.clone(),
        capacity_type: *capacity_type,
        labels: labels(pool, kind, zone, capacity_type.as_str()),
        taints: pool.taints.clone(),
        allocatable: kind.capacity.clone(),
        capacity: kind.capacity.clone(),
    }
}

pub fn labels(pool: &Pool, kind: &InstanceType, zone: &str, capacity: &str) -> BTreeMap<String, String> {
    let mut labels = kind.labels.clone();
    labels.extend(pool.labels.clone());
    if !pool.template.is_empty() {
        labels.insert(TEMPLATE.to_owned(), pool.template.clone());
    }
    for (key, value) in [
        ("node-pool", pool.name.as_str()),
        ("node-restriction.kubernetes.io/pool", pool.name.as_str()),
        (ZONE, zone),
        (CAPACITY, capacity),
        ("node.kubernetes.io/instance-type", kind.name.as_str()),
        ("kubernetes.io/arch", kind.arch.as_str()),
        ("kubernetes.io/os", "linux"),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels
}

pub fn node(
    name: &str,
    mut labels: BTreeMap<String, String>,
    taints: &[Taint],
    capacity: &Resources,
) -> Value {
    labels.insert(HOST.to_owned(), name.to_owned());
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"capacity": capacity, "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// Every offering that the pool could launch: type, zone, capacity type.
fn instances(pool: &Pool) -> Vec<(InstanceType, String, CapacityType)> {
    let by_default = !pool.requirements.iter().any(|r| r.key == CAPACITY);
    let mut result = Vec::new();
    for kind in pool.instance_types.iter() {
        for offering in &kind.offerings {
            let capacity = offering.capacity_type.as_str();
            let labels = labels(pool, kind, &offering.zone, capacity);
            let is_open = !by_default || capacity == "on-demand";
            if is_open && pool.requirements.iter().all(|requirement| requirement.is_met_by(&labels)) {
                result.push((kind.clone(), offering.zone.clone(), offering.capacity_type));
            }
        }
    }
    result
}

/// A node of every offering that the pool could launch.
pub fn every_node(pool: &Pool) -> Vec<Value> {
    let one = |(kind, zone, capacity): (InstanceType, String, CapacityType)| {
        let capacity = capacity.as_str();
        let (template, kind_name) = (&pool.template, kind.name.replace('.', "-"));
        let name = format!("every-{}-{template}-{kind_name}-{zone}-{capacity}", pool.name);
        node(&name, labels(pool, &kind, &zone, capacity), &pool.taints, &kind.capacity)
    };
    instances(pool).into_iter().map(one).collect()
}
