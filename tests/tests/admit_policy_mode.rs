//! Policy mode on the real API server, with all of Croft down: the policies give the answers of the policy crate.
//!
//! Each object is created by dry run twice: in an exempt namespace, which shows it as the API server completes it, and
//! in its own. What the policy crate makes of the first must be the second. `CROFT_POLICY_OBJECTS` sets the number of
//! random objects; `make policy-mode` tries 10,000.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../../crates/policy/tests/world/mod.rs"]
#[allow(dead_code, missing_docs, reason = "it is the world of other tests")]
mod world;

use std::{collections::BTreeMap, fs, path::Path};

use croft_policy::{
    Config, Mutation, NonTenantPods, Phase, Tenants,
    definitions::{INJECTED_ANNOTATION, POOL_ANNOTATION, POOL_NAME_LABEL, UNREGISTERED_LABEL},
    evaluate, review,
};
use croft_simkit::Random;
use croft_testkit::ControlPlane;
use croft_tests::{
    arena::{self, Answer, create, mark_for},
    corpus,
};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

const SEED: u64 = 0x00c0_ffee;
/// Random objects of `make test`.
const OBJECTS: usize = 1_500;
/// Requests in flight.
const AT_ONCE: usize = 8;

/// The exempt namespace that shows what the API server itself adds.
const PLAIN: &str = "plain";
/// Namespaces of the world, with the annotation `croft.dev/pool` of some.
const NAMESPACES: [(&str, &str); 11] = [
    ("tenant-a", ""),
    ("tenant-a-gpu", "pool-a-gpu"),
    ("tenant-a-bad", "pool-b"),
    ("tenant-b", ""),
    ("tenant-c", ""),
    ("tenant-c-bad", "pool-b"),
    ("tenant-d", ""),
    ("tenant-lost", ""),
    ("non-tenant", ""),
    ("agents", ""),
    ("all-shared", ""),
];
/// A namespace that a tenant claims by label, and that is never marked.
const UNMARKED: &str = "labelled";
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

fn config(non_tenant_pods: NonTenantPods) -> Config {
    Config {
        non_tenant_pods,
        mutation: Mutation::Policy,
        exempt: vec![PLAIN.to_owned()],
        shared_with: vec!["all-shared".to_owned()],
        ..Config::default()
    }
}

/// A control plane with the world's namespaces, and no webhook.
async fn start() -> (ControlPlane, Client) {
    let (plane, _) = arena::quiet().await.unwrap();
    let webhooks = ["delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all"];
    plane.kubectl(webhooks).await.unwrap();
    let mut manifests = Vec::new();
    for (name, pool) in NAMESPACES.into_iter().chain([(PLAIN, ""), (UNMARKED, ""), ("new", "")]) {
        let annotations = if pool.is_empty() { json!({}) } else { json!({POOL_ANNOTATION: pool}) };
        manifests.push(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "annotations": annotations}}));
        manifests.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name}}));
    }
    let manifests: Vec<String> = manifests.iter().map(Value::to_string).collect();
    plane.apply(&manifests.join("\n---\n")).await.unwrap();
    let admin = plane.admin().await.unwrap();
    (plane, admin)
}

/// Marks the world's namespaces for `tenants`, with the mutating policies on, and waits until they act.
async fn policy_mode(plane: &ControlPlane, admin: &Client, tenants: &Tenants, namespaces: &[&str]) {
    mark_for(plane, tenants.declarations(), namespaces, Mutation::Policy).await.unwrap();
    let own = json!({"nodeSelector": {}, "tolerations": []});
    croft_testkit::wait::until("the mutating policies", arena::SOON, async || {
        let answer = create(admin, &arena::pod("tenant-a", "first", own.clone()), true).await?;
        let yes = matches!(&answer, Answer::Done(_));
        anyhow::Ok(croft_testkit::wait::Seen::from_option(yes.then_some(()), answer.sentence()))
    })
    .await
    .unwrap();
}

fn owned_namespaces() -> Vec<&'static str> {
    NAMESPACES.iter().map(|(name, _)| *name).chain([PLAIN]).collect()
}

fn one_of_many(random: &mut Random) -> usize {
    random.one_of(&[1, 1, 2, 3])
}

fn toleration(random: &mut Random) -> Value {
    let mut toleration = Map::new();
    let mut set = |key: &str, value: Value| drop(toleration.insert(key.to_owned(), value));
    let operator = if random.percent(85) {
        set("key", json!(random.one_of(&KEYS)));
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
    let operator = random.one_of(&["In", "NotIn", "Exists", "DoesNotExist"]);
    let mut expression = json!({"key": random.one_of(&KEYS), "operator": operator});
    if operator.ends_with("In") {
        let values: Vec<&str> = (0..one_of_many(random)).map(|_| random.one_of(&VALUES)).collect();
        expression["values"] = json!(values);
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

fn spec(random: &mut Random) -> Value {
    let mut spec =
        json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "c"}]});
    if random.percent(35) {
        let entries = (0..one_of_many(random)).map(|_| (random.one_of(&KEYS), random.one_of(&VALUES)));
        spec["nodeSelector"] = json!(entries.collect::<BTreeMap<_, _>>());
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
    spec
}

fn annotations(random: &mut Random) -> Value {
    if random.percent(20) { json!({POOL_ANNOTATION: random.one_of(&VALUES)}) } else { json!({}) }
}

fn random_pod(random: &mut Random) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "pod-", "annotations": annotations(random)}, "spec": spec(random)})
}

fn random_daemonset(random: &mut Random) -> Value {
    let mut annotations = annotations(random);
    if random.percent(40) {
        annotations[INJECTED_ANNOTATION] = json!(random.one_of(&RECORDS));
    }
    daemonset(annotations, spec(random))
}

fn daemonset(annotations: Value, spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {"metadata": {"labels": {"app": "agent"}, "annotations": annotations}, "spec": spec}}})
}

fn in_namespace(object: &Value, namespace: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// The answer of the policy crate to the creation of `object`, or its update from `old`: the object, or the rule of the
/// refusal.
fn expected(
    tenants: &Tenants,
    namespace: &str,
    old: Option<&Value>,
    object: &Value,
) -> Result<Value, String> {
    let kind = object["kind"].as_str().unwrap();
    let group = if kind == "DaemonSet" { "apps" } else { "" };
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": group, "version": "v1", "kind": kind}, "namespace": namespace,
        "operation": operation, "userInfo": {"username": "jane"}, "object": object, "oldObject": old}});
    let body = serde_json::to_vec(&body).unwrap();
    let request = review::parse(&body).unwrap();
    let outcome = evaluate(tenants, &request, Phase::Both);
    if let Some(denial) = outcome.denial {
        return Err(denial.message);
    }
    let patch: json_patch::Patch = serde_json::from_str(&outcome.patch.into_json()).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).unwrap();
    Ok(object)
}

/// The fields that Croft may change, without fields that the API server drops.
fn planned(object: &Value) -> Value {
    fn without_empty(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = |key: &str| matches!(key, "affinity" | "nodeAffinity");
                let entries = map.iter().map(|(key, value)| (key.clone(), without_empty(value)));
                entries
                    .filter(|(key, value)| {
                        !value.is_null() && (kept(key) || (*value != json!({}) && *value != json!([])))
                    })
                    .collect::<Map<_, _>>()
                    .into()
            }
            Value::Array(list) => list.iter().map(without_empty).collect(),
            other => other.clone(),
        }
    }
    let (metadata, spec) = match object["kind"].as_str() {
        Some("DaemonSet") => {
            (&object["spec"]["template"]["metadata"]["annotations"], &object["spec"]["template"]["spec"])
        }
        _ => (&object["metadata"]["annotations"], &object["spec"]),
    };
    without_empty(&json!({"annotations": metadata, "spec": spec}))
}

fn as_value(object: &DynamicObject, kind: &Value) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    value["kind"] = kind.clone();
    value
}

/// The difference between the answers to the creation of `object` in `namespace`, if there is one; true if it was
/// compared at all, which the API server refuses for an invalid object.
async fn compare(
    admin: &Client,
    tenants: &Tenants,
    namespace: &str,
    object: &Value,
) -> anyhow::Result<(bool, Option<String>)> {
    let Answer::Done(plain) = create(admin, &in_namespace(object, PLAIN), true).await? else {
        return Ok((false, None));
    };
    let mut plain = as_value(&plain, &object["kind"]);
    plain["metadata"]["namespace"] = json!(namespace);
    let wanted = expected(tenants, namespace, None, &plain);
    let found = create(admin, &in_namespace(object, namespace), true).await?;
    let difference = match (&wanted, &found) {
        (Err(_), Answer::Refused(_)) => None,
        (Ok(wanted), Answer::Done(found)) => {
            let (wanted, found) = (planned(wanted), planned(&as_value(found, &object["kind"])));
            (wanted != found).then(|| format!("wanted {wanted}\n found {found}"))
        }
        (wanted, found) => Some(format!("wanted {wanted:?}\n found {}", found.sentence())),
    };
    Ok((true, difference.map(|difference| format!("{namespace}: {object}\n{difference}"))))
}

/// Fails with the differences of all `cases`. Returns the number of those that were compared.
async fn compare_all(admin: &Client, tenants: &Tenants, cases: Vec<(String, Value)>) -> usize {
    let answers: Vec<(bool, Option<String>)> = stream::iter(cases)
        .map(|(namespace, object)| async move { compare(admin, tenants, &namespace, &object).await })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
        .unwrap();
    let count = answers.iter().filter(|(compared, _)| *compared).count();
    let differences: Vec<String> = answers.into_iter().filter_map(|(_, difference)| difference).collect();
    let first = differences.iter().take(5).cloned().collect::<Vec<_>>();
    assert!(differences.is_empty(), "{} differences in {count}:\n{}", differences.len(), first.join("\n\n"));
    count
}

fn random_cases(count: usize, seed: u64) -> Vec<(String, Value)> {
    let mut random = Random::new(seed);
    let mut case = || {
        let (namespace, _) = random.one_of(&NAMESPACES);
        let object = if random.percent(80) { random_pod(&mut random) } else { random_daemonset(&mut random) };
        (namespace.to_owned(), object)
    };
    (0..count).map(|_| case()).collect()
}

/// The objects of the policy crate's fixtures, completed so that the API server accepts them.
fn fixtures() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/policy/tests/fixtures");
    let names: Vec<&str> = NAMESPACES.iter().map(|(name, _)| *name).collect();
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let case: Value = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let namespace = case["namespace"].as_str().unwrap();
        let object = &case["object"];
        let is_daemonset = object["kind"] == "DaemonSet";
        let (metadata, spec) = if is_daemonset {
            (&object["spec"]["template"]["metadata"], &object["spec"]["template"]["spec"])
        } else {
            (&object["metadata"], &object["spec"])
        };
        let annotations = metadata["annotations"].clone();
        let record = annotations[INJECTED_ANNOTATION].as_str().unwrap_or_default();
        // The webhook is asked about nodes that are named, and about records that CEL can't read.
        if !names.contains(&namespace) || !spec["nodeName"].is_null() || record.starts_with('{') {
            continue;
        }
        let mut spec = spec.clone();
        spec["automountServiceAccountToken"] = json!(false);
        spec["containers"] = json!([{"name": "c", "image": "c"}]);
        let object = if is_daemonset {
            daemonset(annotations, spec)
        } else {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "fixture", "annotations": annotations}, "spec": spec})
        };
        cases.push((namespace.to_owned(), object));
    }
    cases
}

/// The pods and DaemonSets of the captured reviews that are created, as they were written.
fn captured() -> Vec<(String, Value)> {
    let mut cases = Vec::new();
    for (path, body) in corpus::reviews().unwrap() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let request = &review["request"];
        let mut object = request["object"].clone();
        let is_creation = request["operation"] == "CREATE" && request["subResource"].is_null();
        if !is_creation || !(name.starts_with("pods-") || name.starts_with("daemonsets-")) {
            continue;
        }
        let spec = if name.starts_with("pods-") { "/spec" } else { "/spec/template/spec" };
        if object.pointer(spec).is_none_or(|spec| !spec["nodeName"].is_null()) {
            continue;
        }
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences"] {
            object["metadata"].as_object_mut().unwrap().remove(field);
        }
        object.as_object_mut().unwrap().remove("status");
        cases.push((request["namespace"].as_str().unwrap().to_owned(), object));
    }
    cases
}

#[tokio::test]
async fn policies_answer_as_the_policy_crate_does() {
    let (plane, admin) = start().await;
    let count = std::env::var("CROFT_POLICY_OBJECTS").map_or(OBJECTS, |text| text.parse().unwrap());
    let namespaces = owned_namespaces();

    let tenants = world::world(config(NonTenantPods::KeepOut));
    policy_mode(&plane, &admin, &tenants, &namespaces).await;
    let of_fixtures = compare_all(&admin, &tenants, fixtures()).await;
    assert!(of_fixtures > 40, "fixtures were compared: {of_fixtures}");
    let random = compare_all(&admin, &tenants, random_cases(count, SEED)).await;
    assert!(random > count / 2, "most random objects are valid: {random} of {count}");
    updates(&admin, &tenants).await;
    others(&admin).await;

    let tenants = world::world(config(NonTenantPods::Reject));
    policy_mode(&plane, &admin, &tenants, &namespaces).await;
    let rejecting = compare_all(&admin, &tenants, random_cases(count / 5, SEED + 1)).await;

    let read = corpus::tenants(&corpus::folder().join("config.yaml")).unwrap();
    policy_mode(&plane, &admin, &read, &["tenant-a", "tenant-b", "non-tenant"]).await;
    let of_corpus = captured_pods(&admin, &read).await;
    println!(
        "compared {of_fixtures} fixtures, {random} and {rejecting} random objects, {of_corpus} of the corpus"
    );
}

/// Compares what the corpus holds, which has no exempt namespace: the captured object is complete already.
async fn captured_pods(admin: &Client, tenants: &Tenants) -> usize {
    let cases = captured();
    assert!(cases.len() > 8, "the corpus has pods and DaemonSets: {}", cases.len());
    for (namespace, object) in &cases {
        let wanted = expected(tenants, namespace, None, object);
        let found = create(admin, object, true).await.unwrap();
        match (&wanted, &found) {
            (Err(_), Answer::Refused(_)) => {}
            (Ok(wanted), Answer::Done(found)) => {
                assert_eq!(
                    planned(wanted),
                    planned(&as_value(found, &object["kind"])),
                    "{namespace}: {object}"
                );
            }
            (wanted, found) => {
                panic!("{namespace}: {object}\nwanted {wanted:?}\n found {}", found.sentence())
            }
        }
    }
    cases.len()
}

/// DaemonSets that exist are planned again from what the tenant wrote; one that was refused before can be labelled.
async fn updates(admin: &Client, tenants: &Tenants) {
    let mut random = Random::new(SEED + 2);
    let gvk = GroupVersionKind::gvk("apps", "v1", "DaemonSet");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "daemonsets");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for namespace in ["tenant-a", "tenant-c", "non-tenant", "agents"] {
        let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace, &resource);
        let first = daemonset(
            json!({}),
            json!({"automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "c"}], "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}),
        );
        let mut first = in_namespace(&first, namespace);
        first["metadata"]["name"] = json!("stored");
        let made: DynamicObject = serde_json::from_value(first).unwrap();
        let stored = api.create(&PostParams::default(), &made).await.unwrap();
        for _ in 0..40 {
            let mut next = as_value(&stored, &json!("DaemonSet"));
            let change = random_daemonset(&mut random);
            let (to, from) = (&mut next["spec"]["template"], &change["spec"]["template"]);
            for field in ["nodeSelector", "tolerations", "affinity"] {
                if random.percent(40) {
                    to["spec"][field] = from["spec"][field].clone();
                }
            }
            let object: DynamicObject = serde_json::from_value(next.clone()).unwrap();
            let found = arena::answer(api.replace("stored", &dry, &object).await).unwrap();
            let wanted = expected(tenants, namespace, Some(&as_value(&stored, &json!("DaemonSet"))), &next);
            match (&wanted, &found) {
                (Err(_), Answer::Refused(_)) => {}
                (Ok(wanted), Answer::Done(found)) => {
                    assert_eq!(
                        planned(wanted),
                        planned(&as_value(found, &json!("DaemonSet"))),
                        "{namespace}: {next}"
                    );
                }
                // An invalid object is refused by the API server, which the policy crate doesn't know.
                (_, Answer::Refused(status)) if status.code == 422 => {}
                (wanted, found) => {
                    panic!("{namespace}: {next}\nwanted {wanted:?}\n found {}", found.sentence())
                }
            }
        }
    }
}

/// Server-side apply, and namespaces whose annotations aren't written yet.
async fn others(admin: &Client) {
    let pods: Api<DynamicObject> = Api::namespaced_with(
        admin.clone(),
        "tenant-a",
        &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod")),
    );
    let params = PatchParams { dry_run: true, ..PatchParams::apply("tester") };
    let applied =
        pods.patch("applied", &params, &Patch::Apply(arena::pod("tenant-a", "applied", json!({})))).await;
    assert_eq!(applied.unwrap().data["spec"]["nodeSelector"], json!({"node-pool": "pool-a"}));

    let early = create(admin, &arena::pod(UNMARKED, "x", json!({})), true).await.unwrap();
    assert!(early.sentence().contains("are not written on it yet"), "{}", early.sentence());
    let new = create(admin, &arena::pod("new", "x", json!({})), true).await.unwrap();
    assert!(new.is_done(), "no tenant claims the namespace: {}", new.sentence());
    let tolerating = json!({"tolerations": [{"operator": "Exists"}]});
    match create(admin, &arena::pod("new", "x", tolerating), true).await.unwrap() {
        Answer::Done(pod) => assert!(!pod.data["spec"]["affinity"].is_null(), "kept out: {}", pod.data),
        refused @ Answer::Refused(_) => panic!("{}", refused.sentence()),
    }
}
