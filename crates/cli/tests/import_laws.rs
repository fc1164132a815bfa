//! `croft import`, laws over random inputs: no field is lost in silence, and pods may use the nodes that they could use before.
//!
//! The nodes that pods could use before are worked out here from the input's JSON, by what Gatekeeper and kube-scheduler do with it; what they
//! may use now, by Croft's admission of the output.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::{self, Write},
    sync::{Arc, Mutex},
};

use croft_api::TenantPool;
use croft_cli::Output;
use croft_inspect::admission::{Admission, Outcome};
use croft_manifest::{LoadOptions, parse};
use croft_simkit::Random;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

const LONG: &str = "a-platform-team-with-a-name-of-forty-chars";
const KEYS: [&str; 3] = ["node-pool", "example.com/team", "node-restriction.kubernetes.io/pool"];
const NAMESPACES: [&str; 4] = ["shop", "team-a", "team-b", "web"];

fn values() -> [String; 6] {
    ["a", "b", "team_a", "team-a", &format!("{LONG}-one"), &format!("{LONG}-two")].map(str::to_owned)
}

fn value(random: &mut Random) -> String {
    random.pick(&values()).unwrap().clone()
}

fn key(random: &mut Random) -> &'static str {
    random.one_of(&KEYS)
}

/// Objects that an API server may hold, with a label `marker` on the nodes of each pool.
fn world(seed: u64) -> Vec<Value> {
    let mut random = Random::new(seed);
    let mut objects: BTreeMap<(String, String), Value> = BTreeMap::new();
    for n in 0..random.between(0, 4) {
        let object = if random.percent(70) { node_pool(&mut random, n) } else { provisioner(&mut random, n) };
        objects.insert(identity(&object), object);
    }
    for _ in 0..random.between(0, 2) {
        let object = class(&mut random);
        objects.insert(identity(&object), object);
    }
    for n in 0..random.between(1, 6) {
        let object = mutation(&mut random, n);
        objects.insert(identity(&object), object);
    }
    objects.into_values().collect()
}

fn identity(object: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn metadata(random: &mut Random, name: &str) -> Value {
    let mut metadata = json!({"name": name});
    if random.percent(30) {
        metadata["labels"] = json!({"example.com/owner": "team-a", "app.kubernetes.io/managed-by": "Helm"});
        metadata["annotations"] = json!({"example.com/note": "kept", "karpenter.sh/do-not-disrupt": "true"});
    }
    if random.percent(20) {
        metadata["namespace"] = json!("gatekeeper-system");
        metadata["finalizers"] = json!(["example.com/mine"]);
    }
    metadata
}

fn name(random: &mut Random) -> String {
    value(random).replace('_', ".")
}

fn taints_and_labels(random: &mut Random, n: u64) -> (Value, Value) {
    let mut labels = json!({"marker": format!("p{n}")});
    let mut taints = Vec::new();
    if random.percent(85) {
        let (key, value) = (key(random), value(random));
        taints
            .push(json!({"key": key, "value": value, "effect": random.one_of(&["NoSchedule", "NoExecute"])}));
        if random.percent(80) {
            labels[key] = json!(value);
        }
        if random.percent(20) {
            taints.push(json!({"key": key, "value": value, "effect": "PreferNoSchedule"}));
        }
    }
    if random.percent(25) {
        labels[key(random)] = json!(value(random));
    }
    if random.percent(15) {
        taints.push(json!({"key": key(random), "value": value(random), "effect": "NoSchedule"}));
    }
    (json!(taints), labels)
}

fn requirements(random: &mut Random) -> Value {
    let mut all = vec![json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]})];
    if random.percent(20) {
        all.push(json!({"key": key(random), "operator": "In", "values": [value(random)]}));
    }
    if random.percent(20) {
        all.push(json!({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["3"], "minValues": 2}));
    }
    json!(all)
}

fn node_pool(random: &mut Random, n: u64) -> Value {
    let (taints, labels) = taints_and_labels(random, n);
    let old = random.percent(30);
    let version = if old { "v1beta1" } else { "v1" };
    let name = name(random);
    let mut spec = json!({"template": {"metadata": {"labels": labels}, "spec": {
        "taints": taints, "requirements": requirements(random), "nodeClassRef": {"name": "default"}}}});
    if random.percent(50) {
        spec["template"]["spec"]["nodeClassRef"] = if old {
            json!({"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"})
        } else {
            json!({"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"})
        };
    }
    if random.percent(30) {
        spec["limits"] = json!({"cpu": 100, "memory": "400Gi"});
        spec["weight"] = json!(random.between(1, 90));
    }
    if random.percent(30) {
        spec["template"]["metadata"]["annotations"] = json!({"example.com/a": "b"});
        spec["template"]["spec"]["startupTaints"] =
            json!([{"key": key(random), "value": "x", "effect": "NoSchedule"}]);
        spec["template"]["spec"]["terminationGracePeriod"] = json!("1h");
    }
    if old {
        spec["disruption"] = json!({"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"});
        spec["template"]["spec"]["kubelet"] = json!({"maxPods": 20, "podsPerCore": 2});
    } else if random.percent(50) {
        spec["disruption"] = json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s",
            "budgets": [{"nodes": "10%", "reasons": ["Drifted"]}], "consolidateWhen": {"savings": "1"}});
    }
    json!({"apiVersion": format!("karpenter.sh/{version}"), "kind": "NodePool", "metadata": metadata(random, &name), "spec": spec})
}

fn provisioner(random: &mut Random, n: u64) -> Value {
    let (taints, labels) = taints_and_labels(random, n);
    let name = name(random);
    let mut spec = json!({"taints": taints, "labels": labels, "limits": {"resources": {"cpu": "100"}}});
    if random.percent(50) {
        spec["requirements"] = requirements(random);
        spec["consolidation"] = json!({"enabled": random.percent(50)});
    }
    if random.percent(50) {
        spec["ttlSecondsAfterEmpty"] = json!(30);
        spec["kubeletConfiguration"] = json!({"maxPods": 20});
    }
    if random.percent(50) {
        spec["provider"] =
            json!({"instanceProfile": "node", "subnetSelector": {"a": "x,y"}, "launchTemplate": "old"});
    } else {
        spec["providerRef"] = json!({"name": "default", "kind": "AWSNodeTemplate"});
    }
    json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": metadata(random, &name), "spec": spec})
}

fn class(random: &mut Random) -> Value {
    let metadata = metadata(random, "default");
    if random.percent(50) {
        let mut spec = json!({"role": "node", "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"name": "mine"}, {"id": "sg-1"}], "context": "odd"});
        match random.below(3) {
            0 => spec["amiFamily"] = json!("AL2"),
            1 => spec["amiSelectorTerms"] = json!([{"alias": "al2@latest"}]),
            _ => spec["amiSelectorTerms"] = json!([{"alias": "bottlerocket@latest"}]),
        }
        return json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": metadata, "spec": spec});
    }
    let mut spec = json!({"subnetSelector": {"a": "b", "aws-ids": "subnet-1,subnet-2"}, "securityGroupSelector": {"c": "d"}});
    if random.percent(50) {
        spec["amiFamily"] = json!("Bottlerocket");
    }
    json!({"apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": metadata, "spec": spec})
}

fn toleration(random: &mut Random, key: &str, value: &str) -> Value {
    let mut toleration = if random.percent(70) {
        json!({"key": key, "operator": "Equal", "value": value})
    } else {
        json!({"key": key, "operator": "Exists"})
    };
    if random.percent(50) {
        toleration["effect"] = json!(random.one_of(&["NoSchedule", "NoExecute", "PreferNoSchedule"]));
    }
    if random.percent(15) {
        toleration["tolerationSeconds"] = json!(60);
    }
    toleration
}

fn mutation(random: &mut Random, n: u64) -> Value {
    let (key, value) = (key(random), value(random));
    let mut pins = json!({key: value});
    if random.percent(20) {
        pins[self::key(random)] = json!(self::value(random));
    }
    if random.percent(15) {
        pins["kubernetes.io/arch"] = json!("arm64");
    }
    let (kind, location, parameters) = match random.below(10) {
        0..5 => ("Assign", "spec.nodeSelector".to_owned(), json!({"assign": {"value": pins}})),
        5 => ("Assign", format!("spec.nodeSelector.{key}"), json!({"assign": {"value": value}})),
        6 => (
            "ModifySet",
            "spec.tolerations".to_owned(),
            json!({"operation": random.one_of(&["merge", "prune"]),
            "values": {"fromList": [toleration(random, key, &value)]}}),
        ),
        _ => {
            let other = self::key(random);
            let list = [toleration(random, key, &value), toleration(random, other, "other")];
            ("Assign", "spec.tolerations".to_owned(), json!({"assign": {"value": list}}))
        }
    };
    let mut matched = json!({"scope": "Namespaced"});
    let mut names: Vec<&str> = (0..random.between(1, 3)).map(|_| random.one_of(&NAMESPACES)).collect();
    names.sort_unstable();
    names.dedup();
    match random.below(10) {
        0 => matched["namespaceSelector"] = json!({"matchLabels": {"team": "a"}}),
        1 => matched["namespaces"] = json!(["team-*"]),
        2 => {
            matched["namespaces"] = json!(names);
            matched["excludedNamespaces"] = json!([NAMESPACES[0], "kube-*"]);
        }
        _ => matched["namespaces"] = json!(names),
    }
    if random.percent(15) {
        matched["labelSelector"] = json!({"matchLabels": {"app": "web"}});
    }
    let name = format!("m{n}");
    json!({"apiVersion": "mutations.gatekeeper.sh/v1", "kind": kind, "metadata": metadata(random, &name), "spec": {
        "applyTo": [{"groups": [""], "kinds": ["Pod"], "versions": ["v1"]}], "location": location, "match": matched,
        "parameters": parameters}})
}

/// A stream that keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// All that a user sees.
#[derive(Debug, PartialEq)]
struct Imported {
    code: u8,
    out: String,
    notes: String,
}

fn imported(objects: &[Value]) -> Imported {
    let text: String = objects.iter().fold(String::new(), |mut text, object| {
        writeln!(text, "{object}\n---").unwrap();
        text
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input.yaml");
    fs::write(&file, text).unwrap();
    let (out, notes) = (Kept::default(), Kept::default());
    let args = ["croft", "import", "gatekeeper", "--filename", file.to_str().unwrap()].map(Into::into);
    let code =
        croft_cli::run_with(args.to_vec(), &mut Output::to(Box::new(out.clone()), Box::new(notes.clone())));
    // The folder has another name each time.
    let notes = notes.text().replace(folder.path().to_str().unwrap(), "");
    Imported { code, out: out.text(), notes }
}

/// The JSON pointers of all texts, numbers and booleans.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            leaves(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| leaves(item, &format!("{at}/{index}"), found));
        }
        Value::Null => {}
        _ => found.push(at.to_owned()),
    }
}

#[test]
fn another_value_of_any_field_shows_in_the_output_or_in_a_note() {
    for seed in 0..12 {
        let objects = world(seed);
        let before = imported(&objects);
        let mut random = Random::new(seed);
        for (at, object) in objects.iter().enumerate() {
            let title = format!("{} {} isn't carried over", identity(object).0, identity(object).1);
            if before.notes.contains(&title) {
                continue;
            }
            let mut found = Vec::new();
            leaves(object, "", &mut found);
            // The API server stores no namespace of a cluster-scoped object.
            found.retain(|leaf| leaf != "/metadata/namespace");
            for leaf in found.iter().filter(|_| random.percent(15)) {
                let mut changed = objects.clone();
                let value = changed[at].pointer_mut(leaf).unwrap();
                *value = match &*value {
                    Value::String(text) => json!(format!("{text}x")),
                    Value::Bool(is) => json!(!*is),
                    other => json!(other.as_i64().unwrap() + 1),
                };
                assert!(imported(&changed) != before, "seed {seed}: {leaf} of {object}\n{before:?}");
            }
        }
    }
}

/// The mutations of Gatekeeper that concern a namespace, in the order in which it applies them; `None` if that can't be said without
/// the labels of namespaces and pods.
fn mutations<'o>(objects: &'o [Value], namespace: &str) -> Option<Vec<&'o Value>> {
    let mut found = Vec::new();
    for object in
        objects.iter().filter(|object| ["Assign", "ModifySet"].contains(&object["kind"].as_str().unwrap()))
    {
        let matched = &object["spec"]["match"];
        if ["namespaceSelector", "labelSelector"].iter().any(|field| matched.get(*field).is_some()) {
            return None;
        }
        let is_like = |pattern: &Value| {
            let pattern = pattern.as_str().unwrap();
            pattern.strip_suffix('*').map_or(namespace == pattern, |start| namespace.starts_with(start))
        };
        let any = |field: &str| {
            matched.get(field).and_then(Value::as_array).is_some_and(|all| all.iter().any(is_like))
        };
        if matched["namespaces"].to_string().contains('*') {
            return None;
        }
        if any("namespaces") && !any("excludedNamespaces") {
            found.push(object);
        }
    }
    found.sort_by_key(|object| identity(object));
    Some(found)
}

/// Node selector and tolerations of a pod after the mutations.
fn mutated(mutations: &[&Value]) -> (BTreeMap<String, String>, Vec<Value>) {
    let (mut selector, mut tolerations) = (BTreeMap::new(), Vec::new());
    for mutation in mutations {
        let spec = &mutation["spec"];
        let location = spec["location"].as_str().unwrap();
        let value = &spec["parameters"]["assign"]["value"];
        if location == "spec.nodeSelector" {
            selector = serde_json::from_value(value.clone()).unwrap();
        } else if let Some(key) = location.strip_prefix("spec.nodeSelector.") {
            selector.insert(key.to_owned(), value.as_str().unwrap().to_owned());
        } else if mutation["kind"] == "Assign" {
            tolerations = value.as_array().unwrap().clone();
        } else if spec["parameters"]["operation"] == "merge" {
            tolerations.extend(spec["parameters"]["values"]["fromList"].as_array().unwrap().iter().cloned());
        }
    }
    (selector, tolerations)
}

struct Nodes {
    marker: String,
    labels: BTreeMap<String, String>,
    allowed: Vec<Value>,
    taints: Vec<Value>,
}

/// The nodes of each pool of Karpenter.
fn nodes(objects: &[Value]) -> Vec<Nodes> {
    let pools = objects
        .iter()
        .filter(|object| ["NodePool", "Provisioner"].contains(&object["kind"].as_str().unwrap()));
    let nodes = pools.map(|object| {
        let spec = &object["spec"];
        let is_new = object["kind"] == "NodePool";
        let labels = if is_new { &spec["template"]["metadata"]["labels"] } else { &spec["labels"] };
        let inner = if is_new { &spec["template"]["spec"] } else { spec };
        let list = |field: &str| inner[field].as_array().cloned().unwrap_or_default();
        let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap();
        Nodes {
            marker: labels["marker"].clone(),
            labels,
            allowed: list("requirements"),
            taints: list("taints"),
        }
    });
    nodes.collect()
}

impl Nodes {
    fn can_have(&self, key: &str, value: &str) -> bool {
        let of_key = |one: &&Value| one["key"] == key;
        let requirement = self.allowed.iter().find(of_key);
        let is_allowed =
            requirement.is_none_or(|one| one["values"].as_array().unwrap().contains(&json!(value)));
        match self.labels.get(key) {
            Some(label) => label == value,
            None => is_allowed && (requirement.is_some() || key == "kubernetes.io/arch"),
        }
    }

    fn are_tolerated(&self, tolerations: &[Value]) -> bool {
        self.taints.iter().filter(|taint| taint["effect"] != "PreferNoSchedule").all(|taint| {
            tolerations.iter().any(|one| {
                one["key"] == taint["key"]
                    && (one["operator"] == "Exists" || one["value"] == taint["value"])
                    && one.get("effect").is_none_or(|effect| *effect == taint["effect"])
            })
        })
    }
}

/// The pools of the output that a pod of a namespace can get.
fn usable(admission: &Admission, namespace: &str, pools: &[String]) -> BTreeSet<String> {
    let is_usable = |pool: &&String| {
        let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": namespace, "annotations": {"croft.dev/pool": pool}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
        let verdict = admission.pod(&pod);
        !matches!(verdict.outcome, Outcome::Denied(_)) && verdict.pool.as_ref() == Some(*pool)
    };
    pools.iter().filter(is_usable).cloned().collect()
}

/// The markers of the nodes of a pool of the output.
fn markers(pool: &TenantPool) -> Vec<String> {
    let marker = |pool: &TenantPool| pool.spec.template.as_ref()?.metadata.labels.get("marker").cloned();
    pool.by_template().filter_map(|(_, pool)| marker(&pool)).collect()
}

#[test]
fn pods_may_use_the_nodes_that_they_could_use_before_and_no_others() {
    let (mut compared, mut kept) = (0, 0);
    for seed in 0..150 {
        let objects = world(seed);
        let output = imported(&objects);
        if output.code == 2 {
            continue;
        }
        // An object to correct, such as a Tenant whose namespaces must be written, is a comment: the output can be applied as it is.
        let lost: Vec<&str> =
            output.out.split("---\n").filter(|text| text.contains("# correct by hand: ")).collect();
        let input = parse("output", &output.out, &LoadOptions::default())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", output.out));
        let admission = Admission::new(&input).unwrap();
        let collisions = admission.tenants().declarations().collisions();
        assert!(collisions.is_empty(), "seed {seed}: {collisions:?}");
        let (all, said) = (nodes(&objects), output.notes.lines().collect::<Vec<_>>());
        let names: Vec<String> = input.pools.iter().map(|pool| pool.metadata.name.clone().unwrap()).collect();
        for namespace in NAMESPACES {
            let Some(mutations) = mutations(&objects, namespace) else { continue };
            let (selector, tolerations) = mutated(&mutations);
            let has_all = |nodes: &&Nodes| selector.iter().all(|(key, value)| nodes.can_have(key, value));
            let selected: Vec<&Nodes> = all.iter().filter(has_all).collect();
            let before: BTreeSet<&str> = selected
                .iter()
                .filter(|nodes| nodes.are_tolerated(&tolerations))
                .map(|nodes| nodes.marker.as_str())
                .collect();
            let own: Vec<(&String, &String)> =
                selector.iter().filter(|(key, _)| *key != "kubernetes.io/arch").collect();
            let mut after = BTreeSet::new();
            for name in usable(&admission, namespace, &names) {
                let pool = input.pools.get("", &name).unwrap();
                let markers = markers(pool);
                if markers.is_empty() {
                    // A pool of another provisioner: it has the label that the pods select.
                    let label = (&pool.spec.key, pool.spec.value.as_ref().unwrap_or(&name));
                    assert!(
                        own.contains(&label),
                        "seed {seed}: {namespace} uses {label:?} and selects {own:?}"
                    );
                    after.insert(name);
                    continue;
                }
                for marker in &markers {
                    let nodes = all.iter().find(|nodes| nodes.marker == *marker).unwrap();
                    for (key, value) in selector.iter().filter(|(key, value)| !nodes.can_have(key, value)) {
                        let label = format!("{key}={value}");
                        let why = ["isn't carried over", "also get the label"];
                        let is_why = |note: &str| why.iter().any(|why| note.contains(why));
                        let is_said = said.iter().any(|note| note.contains(&label) && is_why(note));
                        assert!(is_said, "seed {seed}: {namespace} uses {marker}, whose nodes lack {label}");
                    }
                }
                // The nodes of one taint are one boundary.
                assert!(
                    before.is_empty() || markers.iter().any(|marker| before.contains(marker.as_str())),
                    "seed {seed}: {namespace} uses {markers:?}, and could use {before:?}"
                );
                after.extend(markers);
            }
            compared += 1;
            let is_lost = lost.iter().any(|text| {
                text.contains("kind: TenantPool") || text.contains(&format!("  - {namespace}\n"))
            });
            if own.is_empty() || is_lost {
                continue;
            }
            kept += 1;
            assert!(!after.is_empty(), "seed {seed}: {namespace} selects {own:?} and has no pool");
            for marker in before {
                assert!(
                    after.contains(marker),
                    "seed {seed}: {namespace} could use {marker}, and uses {after:?}"
                );
            }
        }
    }
    assert!(compared > 120 && kept > 30, "{compared} {kept}");
}
