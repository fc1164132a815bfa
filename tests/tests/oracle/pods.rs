//! Random pods, with every field of a pod's spec that kube-scheduler reads.

use croft_scheduler::Pool;
use croft_simkit::Random;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::fleet::{GPU, HOST, ZONE, ZONES};

/// Namespaces of pods, and the label by which affinity terms select the second.
pub const NAMESPACES: [&str; 2] = ["oracle", "oracle-b"];
pub const TEAM: &str = "team";
/// The value of the label [`TEAM`] on each of [`NAMESPACES`].
pub const TEAMS: [&str; 2] = ["a", "b"];
/// The RuntimeClass with overhead, and its overhead.
pub const RUNTIME: &str = "heavy";
pub const OVERHEAD: [(&str, &str); 2] = [("cpu", "250m"), ("memory", "120Mi")];
/// PriorityClasses by value. None preempts: no plan relies on preemption.
pub const PRIORITIES: [(&str, i32); 2] = [("oracle-high", 1000), ("oracle-low", -10)];
/// The beginning of the names of pods that are tried again.
pub const COPY: &str = "copy-";
/// The StorageClass of all volumes.
pub const CLASS: &str = "disk";
const APPS: [&str; 4] = ["a", "b", "c", "d"];

/// Pods that differ only in their names.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub namespace: &'static str,
    pub replicas: usize,
    pub labels: Value,
    pub spec: Value,
    pub disk: Disk,
    /// Its gate is never lifted, so it is no demand.
    pub gated: bool,
}

/// The spec of a claim, or of the template of one.
pub fn claim_spec(volume: Option<&str>) -> Value {
    json!({"accessModes": ["ReadWriteMany"], "storageClassName": CLASS, "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}}})
}

/// The volumes of a group's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    None,
    /// All use one claim, whose volume is in a zone already.
    Shared,
    /// Each has its own claim, whose volume is in a zone already.
    Own,
    /// Each has its own claim, whose volume is created in the zone of the pod.
    New,
    /// Each has a generic ephemeral volume: Croft plans before its claim is created.
    Ephemeral,
}

impl Group {
    pub fn pods(&self) -> Vec<Value> {
        (0..self.replicas)
            .map(|i| {
                let mut spec = self.spec.clone();
                if let Some(claim) = self.claim(i) {
                    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
                }
                if self.disk == Disk::Ephemeral {
                    let template = json!({"spec": claim_spec(None)});
                    spec["volumes"] = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}]);
                }
                if self.gated {
                    spec["schedulingGates"] = json!([{"name": "oracle.croft.dev/never"}]);
                }
                json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"namespace": self.namespace, "name": format!("{}-{i}", self.name), "labels": self.labels},
                    "spec": spec})
            })
            .collect()
    }

    /// The claim of one pod of the group.
    pub fn claim(&self, pod: usize) -> Option<String> {
        match self.disk {
            Disk::None | Disk::Ephemeral => None,
            Disk::Shared => Some(format!("disk-{}", self.name)),
            Disk::Own | Disk::New => Some(format!("disk-{}-{pod}", self.name)),
        }
    }
}

/// A group of pending pods.
pub fn group(random: &mut Random, pools: &[Pool], number: usize) -> Group {
    let app = random.one_of(&APPS);
    let labels = labels(random, app);
    Group {
        name: format!("g{number}"),
        namespace: NAMESPACES[usize::from(random.percent(20))],
        replicas: 1 + random.index(6),
        spec: spec(random, pools, app),
        labels,
        disk: if random.percent(12) {
            [Disk::Shared, Disk::Own, Disk::New, Disk::Ephemeral][random.index(4)]
        } else {
            Disk::None
        },
        gated: random.percent(4),
    }
}

fn labels(random: &mut Random, app: &str) -> Value {
    let mut labels = json!({"app": app});
    if random.percent(60) {
        labels["tier"] = json!(random.one_of(&["x", "y"]));
    }
    if random.percent(50) {
        labels["version"] = json!(random.one_of(&["1", "2"]));
    }
    labels
}

/// A pod that runs on `node`, including one being deleted, one being resized, and one with required anti-affinity.
pub fn running(random: &mut Random, node: &str, number: usize) -> Value {
    let app = random.one_of(&APPS);
    let cpu = random.one_of(&["100m", "100m", "500m", "1"]);
    let mut spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]});
    if random.percent(20) {
        let term = pod_term(random, app);
        spec["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    }
    if random.percent(10) {
        ports(random, &mut spec["containers"][0]);
    }
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": NAMESPACES[usize::from(random.percent(20))],
        "name": format!("{node}-{number}"), "labels": labels(random, app)}, "spec": spec});
    if random.percent(8) {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(600);
    }
    if random.percent(12) {
        let held = random.one_of(&["50m", "900m", "1500m"]);
        let actual = random.one_of(&["50m", "700m"]);
        let mut status = json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": held, "memory": "64Mi"}});
        if random.percent(80) {
            status["resources"] = json!({"requests": {"cpu": actual, "memory": "64Mi"}});
        }
        pod["status"] = json!({"phase": "Running", "containerStatuses": [status]});
        if random.percent(30) {
            pod["status"]["conditions"] =
                json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        }
    }
    pod
}

/// Labels that no selector matches.
pub fn unselected() -> Value {
    json!({"app": "none", "tier": "none"})
}

/// A DaemonSet's template, and its pod on a node: it runs on every node.
pub fn daemon_spec() -> Value {
    json!({"tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "150m", "memory": "100Mi"}}}]})
}

pub fn daemon_pod(node: &str) -> Value {
    let mut spec = daemon_spec();
    spec["nodeName"] = json!(node);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": NAMESPACES[0], "name": format!("agent-{node}"),
        "labels": unselected(), "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent",
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]}, "spec": spec})
}

fn selector(random: &mut Random, own: &str) -> Value {
    let app = if random.percent(70) { own } else { random.one_of(&APPS) };
    match random.index(5) {
        0 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [app]}]}),
        1 => {
            json!({"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]})
        }
        2 => {
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}, {"key": "tier", "operator": "DoesNotExist"}]})
        }
        _ => json!({"matchLabels": {"app": app}}),
    }
}

fn pod_term(random: &mut Random, app: &str) -> Value {
    let mut term =
        json!({"topologyKey": random.one_of(&[ZONE, HOST]), "labelSelector": selector(random, app)});
    match random.index(12) {
        0 => term["namespaceSelector"] = json!({}),
        1 => term["namespaceSelector"] = json!({"matchLabels": {TEAM: TEAMS[1]}}),
        2 => term["namespaces"] = json!([NAMESPACES[1]]),
        3 => term["namespaces"] = json!(NAMESPACES),
        4 => term["matchLabelKeys"] = json!(["version"]),
        5 => term["mismatchLabelKeys"] = json!(["version"]),
        _ => {}
    }
    term
}

fn ports(random: &mut Random, container: &mut Value) {
    let mut port = json!({"containerPort": 80, "hostPort": 8000 + random.index(2)});
    if random.percent(40) {
        port["hostIP"] = json!(random.one_of(&["10.0.0.1", "10.0.0.2"]));
    }
    if random.percent(20) {
        port["protocol"] = json!("UDP");
    }
    container["ports"] = json!([port]);
}

/// Requests: of containers, sidecars, init containers, the whole pod, and its runtime's overhead.
fn size(random: &mut Random) -> Value {
    let cpu = random.one_of(&["100m", "250m", "500m", "900m", "1500m", "3", "7"]);
    let memory = random.one_of(&["128Mi", "512Mi", "1Gi", "3Gi", "7Gi"]);
    let mut container =
        json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    if random.percent(8) {
        let count = random.one_of(&["1", "2"]);
        container["resources"]["requests"][GPU] = json!(count);
        container["resources"]["limits"] = json!({GPU: count});
    }
    if random.percent(10) {
        ports(random, &mut container);
    }
    let mut spec = json!({"containers": [container]});
    if random.percent(15) {
        let mut list = Vec::new();
        for n in 0..1 + random.index(2) {
            let restart = if random.percent(50) { json!("Always") } else { Value::Null };
            let cpu = random.one_of(&["300m", "700m"]);
            list.push(json!({"name": format!("i{n}"), "image": "i", "restartPolicy": restart, "resources": {"requests": {"cpu": cpu}}}));
        }
        spec["initContainers"] = json!(list);
    } else if random.percent(12) {
        // The pod-level request is at least that of its containers: here twice the largest of them.
        let whole = random.one_of(&["3", "7500m"]);
        spec["containers"][0]["resources"]["requests"] = json!({"cpu": "500m"});
        spec["containers"][0]["resources"]["limits"] = Value::Null;
        spec["resources"] = json!({"requests": {"cpu": whole, "memory": "1Gi"}});
    }
    if random.percent(8) {
        spec["runtimeClassName"] = json!(RUNTIME);
        spec["overhead"] =
            OVERHEAD.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect::<Map<_, _>>().into();
    }
    spec
}

fn tolerations(random: &mut Random) -> Value {
    let mut list = Vec::new();
    if random.percent(80) {
        list.push(json!({"key": "node-pool", "operator": "Exists"}));
    }
    if random.percent(10) {
        list.push(json!({"key": "busy", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}));
    }
    if random.percent(10) {
        list.push(json!({"key": "quiet", "operator": "Exists"}));
    }
    json!(list)
}

fn spreads(random: &mut Random, app: &str) -> Vec<Value> {
    let mut spreads = Vec::new();
    for (key, percent) in [(ZONE, 30), (HOST, 15)] {
        if random.percent(percent) {
            let mut spread = json!({"topologyKey": key, "maxSkew": 1 + random.index(2),
                "whenUnsatisfiable": if random.percent(80) { "DoNotSchedule" } else { "ScheduleAnyway" },
                "labelSelector": selector(random, app)});
            if spread["whenUnsatisfiable"] == "DoNotSchedule" && random.percent(15) {
                spread["minDomains"] = json!(1 + random.index(4));
            }
            if random.percent(20) {
                spread["nodeTaintsPolicy"] = json!("Honor");
            }
            if random.percent(15) {
                spread["nodeAffinityPolicy"] = json!("Ignore");
            }
            if random.percent(15) {
                spread["matchLabelKeys"] = json!(["version"]);
            }
            spreads.push(spread);
        }
    }
    spreads
}

fn affinity(random: &mut Random, app: &str) -> Map<String, Value> {
    let mut affinity = Map::new();
    let expressions = |random: &mut Random| match random.index(6) {
        0 => json!([{"key": "karpenter.k8s.aws/instance-family", "operator": "NotIn", "values": ["c"]}]),
        1 => json!([{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["2"]}]),
        2 => json!([{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["4"]}]),
        3 => json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]),
        4 => {
            json!([{"key": ZONE, "operator": "In", "values": [random.one_of(&ZONES), random.one_of(&ZONES)]}])
        }
        _ => json!([{"key": "nowhere", "operator": "DoesNotExist"}]),
    };
    let mut nodes = Map::new();
    if random.percent(15) {
        let mut terms = vec![json!({"matchExpressions": expressions(random)})];
        if random.percent(25) {
            terms.push(json!({"matchExpressions": expressions(random)}));
        }
        if random.percent(8) {
            terms.push(
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["old-0"]}]}),
            );
        }
        nodes.insert(
            "requiredDuringSchedulingIgnoredDuringExecution".to_owned(),
            json!({"nodeSelectorTerms": terms}),
        );
    }
    if random.percent(12) {
        nodes.insert(
            "preferredDuringSchedulingIgnoredDuringExecution".to_owned(),
            json!([{"weight": 10, "preference": {"matchExpressions": expressions(random)}}]),
        );
    }
    if !nodes.is_empty() {
        affinity.insert("nodeAffinity".to_owned(), Value::Object(nodes));
    }
    for (kind, percent) in [("podAffinity", 12), ("podAntiAffinity", 18)] {
        let mut pods = Map::new();
        if random.percent(percent) {
            let mut terms = vec![pod_term(random, app)];
            if random.percent(10) {
                terms.push(pod_term(random, app));
            }
            pods.insert("requiredDuringSchedulingIgnoredDuringExecution".to_owned(), json!(terms));
        }
        if random.percent(10) {
            let term = json!({"weight": 1 + random.index(100), "podAffinityTerm": pod_term(random, app)});
            pods.insert("preferredDuringSchedulingIgnoredDuringExecution".to_owned(), json!([term]));
        }
        if !pods.is_empty() {
            affinity.insert(kind.to_owned(), Value::Object(pods));
        }
    }
    affinity
}

fn spec(random: &mut Random, pools: &[Pool], app: &str) -> Value {
    let mut spec = size(random);
    let mut selector = Map::new();
    if random.percent(60) {
        selector.insert("node-pool".to_owned(), json!(pools[random.index(pools.len())].name));
    }
    if random.percent(10) {
        selector.insert("kubernetes.io/arch".to_owned(), json!(random.one_of(&["amd64", "arm64"])));
    }
    if random.percent(8) {
        selector.insert(ZONE.to_owned(), json!(random.one_of(&ZONES)));
    }
    if !selector.is_empty() {
        spec["nodeSelector"] = Value::Object(selector);
    }
    spec["tolerations"] = tolerations(random);
    let spreads = spreads(random, app);
    if !spreads.is_empty() {
        spec["topologySpreadConstraints"] = json!(spreads);
    }
    let affinity = affinity(random, app);
    if !affinity.is_empty() {
        spec["affinity"] = Value::Object(affinity);
    }
    if random.percent(20) {
        let (name, value) = PRIORITIES[random.index(PRIORITIES.len())];
        spec["priorityClassName"] = json!(name);
        spec["priority"] = json!(value);
        spec["preemptionPolicy"] = json!("Never");
    }
    spec
}

/// The group of a pod: its pods have one template, and the scheduler chooses which of them is bound.
pub fn group_of(pod: &str) -> &str {
    let name = pod.strip_prefix(COPY).unwrap_or(pod);
    name.rsplit_once('-').map_or(name, |(group, _)| group)
}

/// Namespace and name.
pub fn key(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// The priority of a pod with this spec.
pub fn priority(spec: &Value) -> i64 {
    spec["priority"].as_i64().unwrap_or(0)
}

/// The value of a type, or the type's default for `null`.
pub fn typed<T: DeserializeOwned + Default>(value: &Value) -> T {
    serde_json::from_value::<Option<T>>(value.clone()).unwrap().unwrap_or_default()
}
