//! Random clusters from a seed.

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{CapacityType, Cluster, InstanceType, Offering, Pool, Price, Requirement, Resources};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use serde_json::{Value, json};

pub const NAMESPACE: &str = "oracle";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// Numbers that are as good as random and the same everywhere (xorshift64*).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % n.max(1)
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list.get(self.below(list.len())).copied().unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Pods that are alike but for their names.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub replicas: usize,
    pub labels: Value,
    pub spec: Value,
    pub disk: Disk,
}

/// The volume of a group's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    None,
    /// All use one claim, whose volume is in a zone already.
    Shared,
    /// Each has a claim of its own, whose volume is in a zone already.
    Own,
    /// Each has a claim of its own, whose volume is made where the pod comes to be.
    New,
}

impl Group {
    pub fn pods(&self) -> Vec<Value> {
        (0..self.replicas)
            .map(|i| {
                let mut spec = self.spec.clone();
                if let Some(claim) = self.claim(i) {
                    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
                }
                json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"namespace": NAMESPACE, "name": format!("{}-{i}", self.name), "labels": self.labels},
                    "spec": spec})
            })
            .collect()
    }

    /// The claim of one of its pods.
    pub fn claim(&self, pod: usize) -> Option<String> {
        match self.disk {
            Disk::None => None,
            Disk::Shared => Some(format!("disk-{}", self.name)),
            Disk::Own | Disk::New => Some(format!("disk-{}-{pod}", self.name)),
        }
    }
}

/// A cluster: pools, nodes, pods that run, pods that wait.
#[derive(Clone)]
pub struct Scene {
    pub pools: Vec<Pool>,
    pub nodes: Vec<Value>,
    pub running: Vec<Value>,
    pub waiting: Vec<Group>,
    /// How many volumes each node can attach, where it says so.
    pub attach: BTreeMap<String, usize>,
    /// Where volumes are made and where they are, by turns.
    pub disk_zones: Vec<String>,
}

fn catalog() -> Vec<InstanceType> {
    let mut kinds = Vec::new();
    for (cpu, factor, name) in [(1, 2, "c"), (2, 2, "c"), (4, 2, "c"), (2, 8, "r"), (4, 8, "r"), (8, 4, "m")]
    {
        let offer = |zone: &str, capacity_type, dollars: f64| Offering {
            zone: zone.to_owned(),
            capacity_type,
            price: Price::from_dollars(dollars),
            available: true,
            estimated: false,
        };
        let dollars = 0.04 * f64::from(cpu) + 0.005 * f64::from(cpu * factor);
        let mut offerings = Vec::new();
        for zone in ["zone-a", "zone-b", "zone-c"] {
            offerings.push(offer(zone, CapacityType::OnDemand, dollars));
            // No spot in one of the zones.
            if zone != "zone-c" {
                offerings.push(offer(zone, CapacityType::Spot, dollars * 0.4));
            }
        }
        let capacity =
            [("cpu", cpu.to_string()), ("memory", format!("{}Gi", cpu * factor)), ("pods", "16".to_owned())];
        let mut amounts = Resources::new();
        for (resource, text) in capacity {
            amounts.set_quantity(resource, text.parse().unwrap());
        }
        kinds.push(InstanceType {
            name: format!("{name}.{cpu}"),
            arch: if cpu == 4 && factor == 8 { "arm64" } else { "amd64" }.to_owned(),
            os: vec!["linux".to_owned()],
            capacity: amounts,
            overhead: Resources::new(),
            labels: BTreeMap::from([
                ("karpenter.k8s.aws/instance-family".to_owned(), name.to_owned()),
                ("karpenter.k8s.aws/instance-cpu".to_owned(), cpu.to_string()),
            ]),
            offerings,
        });
    }
    kinds
}

fn pools(dice: &mut Dice) -> Vec<Pool> {
    let kinds: Arc<[InstanceType]> = catalog().into();
    let count = 1 + dice.below(2);
    (0..count)
        .map(|n| {
            let name = format!("pool-{n}");
            let mut requirements = Vec::new();
            if dice.chance(50) {
                requirements.push(Requirement::any_of("karpenter.sh/capacity-type", ["spot", "on-demand"]));
            }
            if dice.chance(25) {
                requirements.push(Requirement::any_of(ZONE, ["zone-a", "zone-b"]));
            }
            let tainted = dice.chance(50);
            let taint = Taint {
                key: "node-pool".to_owned(),
                value: Some(name.clone()),
                effect: "NoSchedule".to_owned(),
                time_added: None,
            };
            Pool {
                key: "node-pool".to_owned(),
                value: name.clone(),
                requirements,
                taints: if tainted { vec![taint] } else { Vec::new() },
                instance_types: Arc::clone(&kinds),
                launches: true,
                name,
                ..Pool::default()
            }
        })
        .collect()
}

const APPS: [&str; 4] = ["a", "b", "c", "d"];

fn selector(dice: &mut Dice, own: &str) -> Value {
    let app = if dice.chance(70) { own } else { dice.of(&APPS) };
    match dice.below(4) {
        0 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [app]}]}),
        1 => {
            json!({"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]})
        }
        _ => json!({"matchLabels": {"app": app}}),
    }
}

fn spec(dice: &mut Dice, pools: &[Pool], app: &str) -> Value {
    let cpu = dice.of(&["100m", "250m", "500m", "900m", "1500m", "3", "7"]);
    let memory = dice.of(&["128Mi", "512Mi", "1Gi", "3Gi", "7Gi"]);
    let mut container =
        json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    if dice.chance(10) {
        container["ports"] = json!([{"containerPort": 80, "hostPort": 8000 + dice.below(2)}]);
    }
    let mut spec = json!({"containers": [container]});
    if dice.chance(15) {
        let restart = if dice.chance(50) { json!("Always") } else { Value::Null };
        spec["initContainers"] = json!([{"name": "i", "image": "i", "restartPolicy": restart, "resources": {"requests": {"cpu": "700m"}}}]);
    }
    let pool = pools.get(dice.below(pools.len())).unwrap();
    let mut selector_map = serde_json::Map::new();
    if dice.chance(60) {
        selector_map.insert("node-pool".to_owned(), json!(pool.name));
    }
    if dice.chance(10) {
        selector_map.insert("kubernetes.io/arch".to_owned(), json!(dice.of(&["amd64", "arm64"])));
    }
    if dice.chance(8) {
        selector_map.insert(ZONE.to_owned(), json!(dice.of(&["zone-a", "zone-b", "zone-c"])));
    }
    if !selector_map.is_empty() {
        spec["nodeSelector"] = Value::Object(selector_map);
    }
    if dice.chance(80) {
        spec["tolerations"] = json!([{"key": "node-pool", "operator": "Exists"}]);
    }
    let mut spreads = Vec::new();
    for (key, percent) in [(ZONE, 30), (HOST, 15)] {
        if dice.chance(percent) {
            let mut spread = json!({"topologyKey": key, "maxSkew": 1 + dice.below(2),
                "whenUnsatisfiable": if dice.chance(85) { "DoNotSchedule" } else { "ScheduleAnyway" },
                "labelSelector": selector(dice, app)});
            if spread["whenUnsatisfiable"] == "DoNotSchedule" && dice.chance(15) {
                spread["minDomains"] = json!(1 + dice.below(4));
            }
            if dice.chance(20) {
                spread["nodeTaintsPolicy"] = json!("Honor");
            }
            if dice.chance(15) {
                spread["nodeAffinityPolicy"] = json!("Ignore");
            }
            if dice.chance(15) {
                spread["matchLabelKeys"] = json!(["version"]);
            }
            spreads.push(spread);
        }
    }
    if !spreads.is_empty() {
        spec["topologySpreadConstraints"] = json!(spreads);
    }
    let mut affinity = serde_json::Map::new();
    if dice.chance(15) {
        let expressions = match dice.below(4) {
            0 => json!([{"key": "karpenter.k8s.aws/instance-family", "operator": "NotIn", "values": ["c"]}]),
            1 => json!([{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["2"]}]),
            2 => json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]),
            _ => json!([{"key": "nowhere", "operator": "DoesNotExist"}]),
        };
        affinity.insert(
            "nodeAffinity".to_owned(),
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}),
        );
    }
    for (kind, percent) in [("podAffinity", 12), ("podAntiAffinity", 18)] {
        if dice.chance(percent) {
            let key = dice.of(&[ZONE, HOST]);
            let term = json!({"topologyKey": key, "labelSelector": selector(dice, app)});
            affinity
                .insert(kind.to_owned(), json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]}));
        }
    }
    if !affinity.is_empty() {
        spec["affinity"] = Value::Object(affinity);
    }
    spec
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let dice = &mut Dice::new(seed);
        let pools = pools(dice);
        let (mut nodes, mut running) = (Vec::new(), Vec::new());
        let kinds = catalog();
        for n in 0..dice.below(5) {
            let pool = pools.get(dice.below(pools.len())).unwrap();
            let kind = kinds.get(dice.below(kinds.len())).unwrap();
            let zone = dice.of(&["zone-a", "zone-b", "zone-c"]);
            let name = format!("old-{n}");
            let labels = croft_labels(pool, kind, zone, "on-demand");
            nodes.push(node(&name, labels, &pool.taints, &kind.capacity));
            for p in 0..dice.below(3) {
                let app = dice.of(&APPS);
                let mut spec = json!({"nodeName": name, "containers": [{"name": "c", "image": "i",
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]});
                if dice.chance(20) {
                    let key = dice.of(&[ZONE, HOST]);
                    spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": dice.of(&APPS)}}}]}});
                }
                running.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": NAMESPACE,
                    "name": format!("old-{n}-{p}"), "labels": {"app": app, "tier": "x"}}, "spec": spec}));
            }
        }
        let mut waiting: Vec<Group> = (0..1 + dice.below(5))
            .map(|g| {
                let app = dice.of(&APPS);
                let mut labels = json!({"app": app});
                if dice.chance(60) {
                    labels["tier"] = json!(dice.of(&["x", "y"]));
                }
                Group {
                    name: format!("g{g}"),
                    replicas: 1 + dice.below(6),
                    spec: spec(dice, &pools, app),
                    labels,
                    disk: Disk::None,
                }
            })
            .collect();
        // Drawn last, so that a seed's cluster is otherwise what it was before there were volumes.
        let disks = std::env::var_os("ORACLE_DISKS").is_some();
        for group in &mut waiting {
            if disks && dice.chance(25) {
                group.disk = [Disk::Shared, Disk::Own, Disk::New][dice.below(3)];
            }
        }
        let mut attach = BTreeMap::new();
        for node in &nodes {
            if dice.chance(50) {
                attach.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), dice.below(3));
            }
        }
        let disk_zones = (0..3).map(|_| dice.of(&["zone-a", "zone-b", "zone-c"]).to_owned()).collect();
        Self { pools, nodes, running, waiting, attach, disk_zones }
    }

    /// The same for Croft. Gates are no matter here: they are lifted when the pods are nominated.
    pub fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::new();
        for pool in &self.pools {
            cluster.upsert_pool(pool.clone()).unwrap();
        }
        self.storage(&mut cluster);
        for node in &self.nodes {
            let node: Node = serde_json::from_value(node.clone()).unwrap();
            cluster.upsert_node(&node).unwrap();
        }
        for pod in self.running.iter().cloned().chain(self.waiting.iter().flat_map(Group::pods)) {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            cluster.upsert_pod(&pod).unwrap();
        }
        cluster
    }

    pub fn show(&self) -> String {
        let pools: Vec<Value> = self
            .pools
            .iter()
            .map(|p| json!({"name": p.name, "taints": p.taints, "requirements": p.requirements}))
            .collect();
        let waiting: Vec<Value> = self
            .waiting
            .iter()
            .map(|g| {
                json!({"name": g.name, "replicas": g.replicas, "labels": g.labels, "spec": g.spec,
                "disk": format!("{:?}", g.disk)})
            })
            .collect();
        json!({"pools": pools, "nodes": self.nodes, "running": self.running, "waiting": waiting,
            "attach": self.attach, "diskZones": self.disk_zones})
        .to_string()
    }
}

fn croft_labels(pool: &Pool, kind: &InstanceType, zone: &str, capacity: &str) -> BTreeMap<String, String> {
    let mut labels = kind.labels.clone();
    for (key, value) in [
        ("node-pool", pool.name.as_str()),
        ("node-restriction.kubernetes.io/pool", pool.name.as_str()),
        (ZONE, zone),
        ("karpenter.sh/capacity-type", capacity),
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

/// A node of every offering that the pool could launch.
pub fn every_node(pool: &Pool) -> Vec<Value> {
    let mut result = Vec::new();
    let allows = |key: &str, value: &str| {
        pool.requirements.iter().filter(|r| r.key == key).all(|r| r.matches(Some(value)))
    };
    let default_capacity = !pool.requirements.iter().any(|r| r.key == "karpenter.sh/capacity-type");
    for kind in pool.instance_types.iter() {
        for offering in &kind.offerings {
            let capacity = offering.capacity_type.as_str();
            let open = if default_capacity {
                capacity == "on-demand"
            } else {
                allows("karpenter.sh/capacity-type", capacity)
            };
            if open && allows(ZONE, &offering.zone) {
                let name = format!(
                    "every-{}-{}-{}-{capacity}",
                    pool.name,
                    kind.name.replace('.', "-"),
                    offering.zone
                );
                let labels = croft_labels(pool, kind, &offering.zone, capacity);
                result.push(node(&name, labels, &pool.taints, &kind.capacity));
            }
        }
    }
    result
}
