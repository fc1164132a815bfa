//! The workloads, generated from fixed seeds.

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{CapacityType, InstanceType, Offering, Operator, Pool, Price, Requirement, Resources};
use croft_simkit::Xorshift;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const HOST: &str = "kubernetes.io/hostname";

fn resources(pairs: &[(&str, String)]) -> Resources {
    let mut r = Resources::new();
    for (name, text) in pairs {
        r.set_quantity(name, text.parse().unwrap());
    }
    r
}

pub fn catalog_a() -> Vec<InstanceType> {
    (1..=400u32)
        .map(|i| {
            let dollars = 0.1 * f64::from(i) + 0.1 * f64::from(i) * 2.0 * 1_073_741_824.0 / 1e9;
            let offer = |zone: &str, capacity_type| Offering {
                zone: zone.to_owned(),
                capacity_type,
                price: Price::from_dollars(dollars),
                available: true,
                estimated: false,
                available_count: None,
            };
            InstanceType {
                name: format!("a-{i}"),
                arch: "amd64".to_owned(),
                os: vec!["linux".to_owned()],
                capacity: resources(&[
                    ("cpu", i.to_string()),
                    ("memory", format!("{}Gi", 2 * i)),
                    ("pods", (10 * i).to_string()),
                ]),
                overhead: resources(&[("cpu", "100m".to_owned()), ("memory", "10Mi".to_owned())]),
                labels: BTreeMap::new(),
                attach_limits: BTreeMap::new(),
                offerings: vec![
                    offer("zone-1", CapacityType::Spot),
                    offer("zone-2", CapacityType::Spot),
                    offer("zone-1", CapacityType::OnDemand),
                    offer("zone-2", CapacityType::OnDemand),
                    offer("zone-3", CapacityType::OnDemand),
                ],
            }
        })
        .collect()
}

pub fn pool(name: &str, kinds: Arc<[InstanceType]>, requirements: Vec<Requirement>) -> Pool {
    Pool {
        name: name.to_owned(),
        key: "node-pool".to_owned(),
        value: name.to_owned(),
        requirements,
        instance_types: kinds,
        launches: true,
        ..Pool::default()
    }
}

pub fn any_capacity() -> Vec<Requirement> {
    vec![Requirement::any_of("karpenter.sh/capacity-type", ["spot", "on-demand"])]
}

pub fn compute() -> Vec<Requirement> {
    vec![
        Requirement::any_of("kubernetes.io/arch", ["amd64"]),
        Requirement::any_of("karpenter.k8s.aws/instance-category", ["c", "m", "r"]),
        Requirement {
            key: "karpenter.k8s.aws/instance-generation".to_owned(),
            operator: Operator::Gt,
            values: vec!["2".to_owned()],
            min_values: None,
        },
        Requirement::any_of("karpenter.sh/capacity-type", ["on-demand"]),
    ]
}

fn pod(name: &str, cpu: &str, memory: &str, labels: &Value, spec: Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]);
    let value = json!({
        "metadata": {"namespace": "default", "name": name, "labels": labels},
        "spec": spec,
    });
    serde_json::from_value(value).unwrap()
}

const CPUS: [&str; 5] = ["100m", "250m", "500m", "1000m", "1500m"];
const MEMORIES: [&str; 6] = ["100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi"];
const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// Five equal groups: plain, zone spread, host spread, zone affinity to themselves, host anti-affinity among themselves.
pub fn pods_a(count: usize) -> Vec<Pod> {
    let mut random = Xorshift::new(0xA5A5_1234_5678_9ABC);
    (0..count)
        .map(|i| {
            let (cpu, memory) = (random.one_of(&CPUS), random.one_of(&MEMORIES));
            let (own, other) = (random.one_of(&LETTERS), random.one_of(&LETTERS));
            let spread = |key: &str| {
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"my-label": other}}}]})
            };
            let (labels, spec) = match i * 5 / count {
                0 => (json!({"my-label": own}), json!({})),
                1 => (json!({"my-label": own}), spread(ZONE)),
                2 => (json!({"my-label": own}), spread(HOST)),
                3 => (
                    json!({"my-affinity": own}),
                    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"my-affinity": own}}}]}}}),
                ),
                _ => (
                    json!({"app": "nginx"}),
                    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "nginx"}}}]}}}),
                ),
            };
            pod(&format!("a-{i}"), cpu, memory, &labels, spec)
        })
        .collect()
}

/// Pods that prefer a zone and to be apart.
pub fn pods_b(count: usize) -> Vec<Pod> {
    let mut random = Xorshift::new(0xB5A5_1234_5678_9ABC);
    let term = |weight: i32, key: &str| {
        json!({"weight": weight, "podAffinityTerm": {"topologyKey": key,
            "labelSelector": {"matchLabels": {"app": "nginx"}}}})
    };
    (0..count)
        .map(|i| {
            let spec = json!({"affinity": {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference":
                    {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-1"]}]}}]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(10, ZONE), term(1, HOST)]}}});
            let (cpu, memory) = (random.one_of(&CPUS), random.one_of(&MEMORIES));
            pod(&format!("b-{i}"), cpu, memory, &json!({"app": "nginx"}), spec)
        })
        .collect()
}

/// The three mixes of workload C.
pub fn pods_c(mix: usize, count: usize) -> Vec<Pod> {
    let mut random = Xorshift::new(0xC5A5_1234_5678_9ABC + mix as u64);
    let sizes: Vec<(u64, u64)> = match mix {
        0 => vec![(900, 3174), (3500, 28672)],
        1 => (0..30)
            .map(|_| {
                (
                    random.one_of(&[250, 500, 900, 1000, 1500, 2000]),
                    random.one_of(&[512, 1024, 2048, 3100, 4096, 8192]),
                )
            })
            .collect(),
        _ => (0..80)
            .map(|_| {
                let cpu = 100 + 50 * random.index(80) as u64;
                (cpu, 128 + cpu * (1 + random.index(7) as u64) * 1024 / 1000)
            })
            .collect(),
    };
    (0..count)
        .map(|i| {
            let at = if mix == 2 { random.index(sizes.len()) } else { i * sizes.len() / count };
            let (cpu, memory) = sizes[at];
            let labels = json!({"app": format!("d{at}")});
            pod(&format!("c-{i}"), &format!("{cpu}m"), &format!("{memory}Mi"), &labels, json!({}))
        })
        .collect()
}

/// The templates of workload E's pool: what is paid for already, then spot, then on-demand, each until its limit. The two of spot
/// have one weight, so that price decides between them. Limits in dollars leave the cheapest packing the best one.
pub fn templates_e(kinds: &Arc<[InstanceType]>) -> Vec<Pool> {
    let template =
        |name: &str, weight, [arch, categories, capacity]: [&[&str]; 3], (limit, most): (&str, &str)| {
            let requirement = |key, values: &[&str]| Requirement::any_of(key, values.iter().copied());
            let requirements = vec![
                requirement("kubernetes.io/arch", arch),
                requirement("karpenter.k8s.aws/instance-category", categories),
                requirement("karpenter.sh/capacity-type", capacity),
            ];
            Pool {
                template: name.to_owned(),
                weight,
                template_limits: BTreeMap::from([(limit.to_owned(), most.parse().unwrap())]),
                ..pool("e", Arc::clone(kinds), requirements)
            }
        };
    let (amd, arm, all): ([&str; 1], [&str; 1], [&str; 3]) = (["amd64"], ["arm64"], ["c", "m", "r"]);
    let (spot, on_demand) = (["spot"], ["on-demand"]);
    vec![
        template("reserved", 50, [&amd, &["m"], &on_demand], ("cpu", "500")),
        template("spot", 30, [&amd, &all, &spot], ("costPerHour", "15")),
        template("spot-arm", 30, [&arm, &all, &spot], ("costPerHour", "20")),
        template("compute", 10, [&amd, &["c"], &on_demand], ("costPerHour", "40")),
        template("any", 0, [&["amd64", "arm64"], &all, &on_demand], ("nodes", "10000")),
    ]
}

/// The pods of a mix of workload C, of which every fiftieth selects a template of spot, and every tenth may not be interrupted.
pub fn pods_e(mix: usize, count: usize) -> Vec<Pod> {
    let ask = |(number, mut pod): (usize, Pod)| {
        let asked = match number % 50 {
            0 => ("croft.dev/template", "spot"),
            5 | 15 | 25 | 35 | 45 => ("karpenter.sh/capacity-type", "on-demand"),
            _ => return pod,
        };
        let selector = [asked].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        if let Some(spec) = &mut pod.spec {
            spec.node_selector = Some(selector);
        }
        pod
    };
    pods_c(mix, count).into_iter().enumerate().map(ask).collect()
}

/// A small random instance.
pub fn pods_random(seed: u64) -> Vec<Pod> {
    let mut random = Xorshift::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let count = 1 + random.index(60);
    let sizes: Vec<(usize, usize)> =
        (0..1 + random.index(12)).map(|_| (50 + random.index(6000), 64 + random.index(40_000))).collect();
    (0..count)
        .map(|i| {
            let (cpu, memory) = random.one_of(&sizes);
            pod(&format!("r-{i}"), &format!("{cpu}m"), &format!("{memory}Mi"), &json!({}), json!({}))
        })
        .collect()
}

/// A small cluster's pods: 20 to 100, in Deployments of up to 12 replicas. Every other cluster has the round requests that people
/// write, the others those that a recommender does.
pub fn pods_small(seed: u64) -> Vec<Pod> {
    let mut random = Xorshift::new((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let count = 20 + random.index(81);
    let mut pods = Vec::new();
    while pods.len() < count {
        let (cpu, memory) = if seed.is_multiple_of(2) {
            (
                random.one_of(&[50, 100, 250, 500, 1000, 2000, 4000]),
                random.one_of(&[128, 256, 512, 1024, 2048, 4096, 8192, 16_384]),
            )
        } else {
            (20 + random.index(4_000), 64 + random.index(12_000))
        };
        for _ in 0..(1 + random.index(12)).min(count - pods.len()) {
            let name = format!("s-{}", pods.len());
            pods.push(pod(&name, &format!("{cpu}m"), &format!("{memory}Mi"), &json!({}), json!({})));
        }
    }
    pods
}

/// The pools of that cluster.
pub fn pools_d(count: usize, kinds: &Arc<[InstanceType]>) -> Vec<Pool> {
    (0..count).map(|n| pool(&format!("pool-{n}"), Arc::clone(kinds), any_capacity())).collect()
}

/// A node of a cluster of 200 pools.
pub fn node_d(pools: usize, n: usize) -> Node {
    let name = format!("node-{n}");
    let node = json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "node-pool": format!("pool-{}", n % pools),
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", ZONE: format!("zone-{}", 1 + n % 3),
            "node.kubernetes.io/instance-type": "a-8", "karpenter.sh/capacity-type": "on-demand"}},
        "status": {"allocatable": {"cpu": "7900m", "memory": "16374Mi", "pods": "80"},
                   "capacity": {"cpu": "8", "memory": "16Gi", "pods": "80"}}});
    serde_json::from_value(node).unwrap()
}

/// A pod that runs on it.
pub fn running_d(pools: usize, n: usize, p: usize) -> Pod {
    let mut it = pod(
        &format!("run-{n}-{p}"),
        "750m",
        "1536Mi",
        &json!({"app": format!("app-{}", p % 5)}),
        json!({"nodeName": format!("node-{n}"), "nodeSelector": {"node-pool": format!("pool-{}", n % pools)}}),
    );
    it.metadata.namespace = Some(format!("tenant-{}", n % pools));
    it
}

/// New pods for that cluster: a fifth each spread over zones.
pub fn pods_d(pools: usize, count: usize) -> Vec<Pod> {
    let mut random = Xorshift::new(0xD5A5_1234_5678_9ABC);
    (0..count)
        .map(|i| {
            let pool = format!("pool-{}", i % pools);
            let mut spec = json!({"nodeSelector": {"node-pool": pool}});
            let app = format!("app-{}", random.index(5));
            if i % 5 == 0 {
                spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": app}}}]);
            }
            let mut it = pod(
                &format!("new-{i}"),
                random.one_of(&CPUS),
                random.one_of(&MEMORIES),
                &json!({"app": app}),
                spec,
            );
            it.metadata.namespace = Some(format!("tenant-{}", i % pools));
            it
        })
        .collect()
}
