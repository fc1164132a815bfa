//! Random pods, DaemonSets and other workloads.

use std::collections::BTreeMap;

use croft_policy::definitions::{INJECTED_ANNOTATION, POOL_ANNOTATION, POOL_NAME_LABEL, UNREGISTERED_LABEL};
use croft_simkit::Random;
use serde_json::{Map, Value, json};

use super::NAMESPACES;

const KEYS: [&str; 5] = ["node-pool", "example.com/gpu", POOL_NAME_LABEL, UNREGISTERED_LABEL, "zone"];
const VALUES: [&str; 8] = ["pool-a", "pool-b", "pool-c", "pool-d", "a", "pool-a-gpu", "pool-gone", "x"];
const RECORDS: [&str; 8] = [
    "pin:node-pool=pool-a;tolerate:node-pool=pool-a:NoSchedule",
    "exclude:node-pool::;exclude:node-restriction.kubernetes.io/pool::",
    "exclude:node-restriction.kubernetes.io/pool::1",
    "exclude:node-restriction.kubernetes.io/pool:pool-a,pool-b:0",
    "exclude:croft.dev/unregistered::0,1;bad",
    "tolerate:example.com/gpu=a:NoExecute",
    "pin:a",
    "",
];

/// Labels by which the pools of tenant-e differ, beside keys and values that no pool declares.
const KINDS: [(&str, &[&str]); 8] = [
    ("kubernetes.io/arch", &["amd64", "arm64"]),
    ("beta.kubernetes.io/arch", &["amd64", "arm64"]),
    ("karpenter.sh/capacity-type", &["spot", "on-demand", "reserved"]),
    ("karpenter.k8s.aws/instance-cpu", &["2", "4", "64", "many"]),
    ("team", &["x", "y"]),
    ("croft.dev/template", &["first", "second", "z"]),
    ("lane", &["fast", "slow", "z"]),
    ("zone", &["x", ""]),
];
const RESOURCES: [&str; 5] = ["nvidia.com/gpu", "amd.com/gpu", "example.com/fpga", "cpu", "hugepages-2Mi"];

/// Label and effects of pools, as admission adds them.
const PINS: [(&str, &str, &[&str]); 5] = [
    ("node-pool", "pool-a", &["NoSchedule"]),
    ("node-pool", "pool-c", &["NoSchedule"]),
    ("node-pool", "arm", &["NoSchedule"]),
    ("example.com/gpu", "a", &["NoSchedule", "NoExecute"]),
    (POOL_NAME_LABEL, "pool-d", &["NoExecute"]),
];

/// A key that pods select nodes by, with values that it may have.
fn label(random: &mut Random) -> (&'static str, &'static [&'static str]) {
    if random.percent(40) { random.one_of(&KINDS) } else { (random.one_of(&KEYS), &VALUES) }
}

/// A container, which may need an extended resource.
fn container(random: &mut Random, name: &str) -> Value {
    let mut container = json!({"name": name, "image": "c"});
    if random.percent(25) {
        let amount = random.one_of(&["1", "0", "2"]);
        let amounts = json!({random.one_of(&RESOURCES): amount});
        // The API server refuses other pairs.
        container["resources"] = json!({"limits": amounts, "requests": amounts});
        if random.percent(30) {
            container["resources"] = json!({"limits": amounts});
        }
    }
    container
}

fn one_of_many(random: &mut Random) -> usize {
    random.one_of(&[1, 1, 2, 3])
}

fn toleration(random: &mut Random) -> Value {
    let mut toleration = Map::new();
    let mut set = |key: &str, value: Value| drop(toleration.insert(key.to_owned(), value));
    let operator = if random.percent(85) {
        set("key", json!(if random.percent(10) { "team" } else { random.one_of(&KEYS) }));
        random.one_of(&["Exists", "Equal", "", "Equal"])
    } else {
        "Exists"
    };
    if !operator.is_empty() {
        set("operator", json!(operator));
    }
    if operator != "Exists" {
        set("value", json!(random.one_of(&VALUES)));
    }
    let effect = random.one_of(&["NoSchedule", "NoExecute", "PreferNoSchedule", ""]);
    if !effect.is_empty() {
        set("effect", json!(effect));
    }
    if effect == "NoExecute" && random.percent(40) {
        set("tolerationSeconds", json!(60));
    }
    Value::Object(toleration)
}

fn expression(random: &mut Random) -> Value {
    let operator = random.one_of(&["In", "NotIn", "Exists", "DoesNotExist", "In", "NotIn", "Gt", "Lt"]);
    let (key, possible) = label(random);
    let mut expression = json!({"key": key, "operator": operator});
    if operator.ends_with("In") {
        let values: Vec<&str> = (0..one_of_many(random)).map(|_| random.one_of(possible)).collect();
        expression["values"] = json!(values);
    } else if !operator.ends_with("st") && !operator.ends_with("ts") {
        expression["values"] = json!([random.one_of(&["2", "4", "64"])]);
    }
    expression
}

fn term(random: &mut Random) -> Value {
    let mut term = json!({});
    if random.percent(80) {
        let expressions: Vec<Value> = (0..one_of_many(random)).map(|_| expression(random)).collect();
        term["matchExpressions"] = json!(expressions);
    }
    if random.percent(20) {
        term["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
    }
    term
}

/// Writes what pins a pod to a pool into its spec, and sometimes a further toleration before or after it.
fn pin(random: &mut Random, spec: &mut Value) {
    let (key, value, effects) = random.one_of(&PINS);
    let exact = |effect: &&str| json!({"key": key, "operator": "Equal", "value": value, "effect": effect});
    let mut tolerations: Vec<Value> = effects.iter().map(exact).collect();
    if random.percent(40) {
        let place = if random.percent(50) { 0 } else { tolerations.len() };
        tolerations.insert(place, toleration(random));
    }
    spec["nodeSelector"] = json!({key: value});
    spec["tolerations"] = json!(tolerations);
}

fn spec(random: &mut Random) -> Value {
    let mut spec = json!({"automountServiceAccountToken": false, "containers": [container(random, "c")]});
    if random.percent(15) {
        spec["initContainers"] = json!([container(random, "first")]);
    }
    if random.percent(35) {
        let mut entry = |_| {
            let (key, possible) = label(random);
            (key, random.one_of(possible))
        };
        let entries: BTreeMap<_, _> = (0..2).map(&mut entry).collect();
        let count = one_of_many(random);
        spec["nodeSelector"] = json!(entries.into_iter().take(count).collect::<BTreeMap<_, _>>());
    }
    if random.percent(60) {
        let list: Vec<Value> = (0..one_of_many(random)).map(|_| toleration(random)).collect();
        spec["tolerations"] = json!(list);
    }
    if random.percent(40) {
        spec["affinity"] = match random.below(10) {
            0 => json!({}),
            1 => json!({"nodeAffinity": {}}),
            _ => {
                let terms: Vec<Value> = (0..one_of_many(random)).map(|_| term(random)).collect();
                json!({"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
            }
        };
    }
    if random.percent(15) {
        pin(random, &mut spec);
    }
    spec
}

fn annotations(random: &mut Random) -> Value {
    if random.percent(20) { json!({POOL_ANNOTATION: random.one_of(&VALUES)}) } else { json!({}) }
}

fn pod(random: &mut Random) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "pod-", "annotations": annotations(random)}, "spec": spec(random)})
}

/// A DaemonSet with this record among its template's annotations, if it isn't null.
pub(crate) fn daemonset(random: &mut Random) -> Value {
    let mut annotations = annotations(random);
    if random.percent(40) {
        annotations[INJECTED_ANNOTATION] = json!(random.one_of(&RECORDS));
    }
    workload("DaemonSet", annotations, spec(random))
}

/// A workload with a pod template.
pub(crate) fn workload(kind: &str, annotations: Value, spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {"metadata": {"labels": {"app": "agent"}, "annotations": annotations}, "spec": spec}}})
}

/// The namespace and the pod of a creation.
pub(crate) fn pod_creation(random: &mut Random) -> (String, Value) {
    let (namespace, _) = random.one_of(&NAMESPACES);
    (namespace.to_owned(), pod(random))
}

/// The namespace and the object of a creation.
pub(crate) fn creation(random: &mut Random) -> (String, Value) {
    let (namespace, _) = random.one_of(&NAMESPACES);
    let object = match random.below(10) {
        0 => workload(random.one_of(&["Deployment", "ReplicaSet"]), annotations(random), spec(random)),
        1 | 2 => daemonset(random),
        _ => pod(random),
    };
    (namespace.to_owned(), object)
}
