//! Every route as an operator, as a tenant's reader on its own and on another tenant, as a user without rights, and without a
//! token. The API server is a function. Everything of the other tenant has "bravo" in its name or message.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use croft_api::pool::PoolTemplate;
use croft_inspect::NodeUse;
use croft_manifest::{Input, LoadOptions, parse};
use croft_record::{
    SEGMENT_KEY,
    entry::{Entry, EntryKind, ObjectRef, PlanFigures},
    record::Record,
    snapshot::{
        mirror::{Mirror, ObjectName},
        writer::{SEGMENT_BYTES, SnapshotWriter},
    },
};
use croft_runtime::{clock::Clock, health::Health, shutdown::Shutdown};
use futures::StreamExt as _;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Node, Pod},
};
use kube::{Client, api::ObjectMeta};
use serde_json::{Value, json};
use tower::{ServiceExt as _, service_fn};

use super::{
    page::Page,
    router::{ENDPOINTS, router},
};
use crate::{
    access::Reviewer,
    args::{AUDIENCE, BoundArgs},
    cluster::objects::put,
    state::{build::build, store::State},
};

const NOW: i64 = 1_790_000_000_000;
const BEFORE: i64 = NOW - 60_000;
const POOL_LABEL: &str = "node-restriction.kubernetes.io/pool";

const OBJECTS: &str = "
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: alpha}
spec: {namespaces: [alpha-ns], pools: [pool-alpha, pool-shared]}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: bravo}
spec: {namespaces: [bravo-ns], pools: [pool-bravo, pool-shared]}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-alpha}
spec: {template: {spec: {nodeClassRef: {group: croft.dev, kind: EC2NodeClass, name: default}}}}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-bravo}
spec: {template: {spec: {nodeClassRef: {group: croft.dev, kind: EC2NodeClass, name: default}}}}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-shared}
spec: {template: {spec: {nodeClassRef: {group: croft.dev, kind: EC2NodeClass, name: default}}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: alpha-ns}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: bravo-ns}}
";

struct FixedClock;

impl Clock for FixedClock {
    fn monotonic(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millisecond(NOW).unwrap()
    }
}

fn node(name: &str, pool: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {POOL_LABEL: pool, "kubernetes.io/hostname": name,
            "node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "us-east-1a",
            "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "conditions": [{"type": "Ready", "status": "True"}]}
    }))
    .unwrap()
}

fn pod(namespace: &str, name: &str, node: Option<&str>) -> Pod {
    let pool = if namespace == "alpha-ns" { "pool-alpha" } else { "pool-bravo" };
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{namespace}-{name}")},
        "spec": {"nodeName": node, "nodeSelector": {POOL_LABEL: pool}, "schedulerName": "default-scheduler",
            "tolerations": [{"key": POOL_LABEL, "operator": "Equal", "value": pool, "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }}
    }))
    .unwrap()
}

/// An entry about a NodeClaim.
fn entry(sequence: u64, kind: EntryKind, tenants: &[&str], pods: &[&str], message: &str) -> Entry {
    let of = tenants.join("-and-");
    Entry {
        sequence,
        object: ObjectRef::cluster("NodeClaim", &format!("claim-{of}")),
        pool: if tenants.len() == 1 { format!("pool-{of}") } else { "pool-shared".to_owned() },
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        reason: "Some".to_owned(),
        message: message.to_owned(),
        price: Some(96_000),
        ..Entry::new(BEFORE, kind)
    }
}

fn log() -> ConfigMap {
    let launched = |sequence, tenants: &[&str]| Entry {
        condition: "Launched=True".to_owned(),
        ..entry(sequence, EntryKind::Condition, tenants, &[], "launched")
    };
    let figures = PlanFigures { inputs: "bravo".to_owned(), ..PlanFigures::default() };
    let pending = |sequence, pods: &[&str], message: &str| Entry {
        object: ObjectRef::default(),
        pool: String::new(),
        price: None,
        ..entry(sequence, EntryKind::Pending, &["alpha"], pods, message)
    };
    let entries = vec![
        Entry { sequence: 1, plan: Some(figures), ..Entry::new(BEFORE, EntryKind::Plan) },
        launched(2, &["alpha"]),
        Entry { tenants: vec!["bravo".to_owned()], ..launched(3, &["bravo"]) },
        launched(4, &["alpha", "bravo"]),
        entry(5, EntryKind::Event, &["bravo"], &["bravo-ns/bravo-pod"], "of bravo alone"),
        entry(
            6,
            EntryKind::Event,
            &["alpha", "bravo"],
            &["alpha-ns/shared-pod", "bravo-ns/bravo-pod"],
            "moves bravo-pod",
        ),
        entry(7, EntryKind::Event, &["alpha"], &["alpha-ns/alpha-pod"], "of alpha alone"),
        pending(8, &["alpha-ns/waiting", "bravo-ns/bravo-waits"], "no room"),
        entry(
            9,
            EntryKind::Create,
            &["alpha"],
            &["alpha-ns/alpha-pod"],
            "one of m5.large, m5.xlarge in us-east-1a, on-demand",
        ),
    ];
    slot("croft-record-00", Record { entries, damaged: Vec::new() }.to_bytes())
}

fn slot(name: &str, bytes: Vec<u8>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        binary_data: Some(BTreeMap::from([(SEGMENT_KEY.to_owned(), ByteString(bytes))])),
        ..ConfigMap::default()
    }
}

/// Snapshots of clusters, each at its time.
fn snapshots(of: &[(i64, &Input)]) -> ConfigMap {
    let mut writer = SnapshotWriter::resume([], SEGMENT_BYTES);
    let mut bytes = Vec::new();
    for (at, input) in of {
        let mut mirror = Mirror::default();
        macro_rules! observe {
            ($($kind:ident)*) => { $(for object in &input.$kind {
                let object = serde_json::to_value(&object.object).unwrap();
                let field = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
                let (kind, namespace, name) = (field("/kind"), field("/metadata/namespace"), field("/metadata/name"));
                let name = ObjectName { kind: &kind, namespace: &namespace, name: &name };
                mirror.observe(name, ("", 1), true, object.clone());
            })* };
        }
        observe!(tenants pools namespaces nodes pods);
        bytes = writer.append(&mut mirror, *at).unwrap().bytes;
        // The next one begins with every object of another mirror.
        writer = SnapshotWriter::resume([bytes.as_slice()], SEGMENT_BYTES);
    }
    slot("croft-snapshot-00", bytes)
}

pub(super) fn state() -> Arc<State> {
    let state = Arc::new(State::default());
    let input = parse("objects.yaml", OBJECTS, &LoadOptions::default()).unwrap();
    state.change(|cluster| {
        cluster.input = input;
        for name in ["alpha", "bravo", "shared"] {
            put(&mut cluster.input.nodes, node(&format!("node-{name}"), &format!("pool-{name}")));
        }
        for (namespace, name, node) in [
            ("alpha-ns", "alpha-pod", Some("node-alpha")),
            ("alpha-ns", "shared-pod", Some("node-shared")),
            ("alpha-ns", "waiting", None),
            ("bravo-ns", "bravo-pod", Some("node-bravo")),
            ("bravo-ns", "bravo-shared", Some("node-shared")),
            ("bravo-ns", "bravo-waits", None),
        ] {
            cluster.put_pod(pod(namespace, name, node));
        }
    });
    let snapshots = snapshots(&[(BEFORE, &state.cluster().input)]);
    state.change_log(|kept| {
        kept.observe(&log());
        kept.observe(&snapshots);
    });
    build(&state, NOW);
    state
}

/// The answer of the API server to a review: users are named by their tokens.
fn review(path: &str, asked: &Value) -> Value {
    if path.ends_with("/tokenreviews") {
        assert_eq!(asked["spec"]["audiences"], json!([AUDIENCE]), "the page's own audience");
        let token = asked["spec"]["token"].as_str().unwrap();
        let known = ["operator", "alpha", "without-rights", "for-the-api-server"].contains(&token)
            || token.starts_with("system:serviceaccount:alpha-ns:");
        // An authenticator that knows no audiences names none.
        let audiences = if token == "for-the-api-server" { json!([]) } else { json!([AUDIENCE]) };
        return json!({"authenticated": known, "user": {"username": token, "groups": ["g"]}, "audiences": audiences});
    }
    assert!(path.ends_with("/subjectaccessreviews"), "the page calls nothing else: {path}");
    let spec = &asked["spec"];
    let attributes = &spec["resourceAttributes"];
    assert_eq!((&attributes["verb"], &spec["groups"]), (&json!("list"), &json!(["g"])));
    let allowed = match spec["user"].as_str().unwrap() {
        "operator" => true,
        user if user == "alpha" || user.starts_with("system:serviceaccount:alpha-ns:") => {
            attributes["resource"] == "pods" && attributes["namespace"] == "alpha-ns"
        }
        _ => false,
    };
    json!({"allowed": allowed})
}

/// A page for `state`, and the number of reviews that it asked for.
fn page(state: Arc<State>) -> (Router, Arc<AtomicUsize>) {
    let bounds = BoundArgs { max_connections: 8, max_inflight: 8, max_streams: 1 };
    let (page, reviews) = page_with(state, bounds);
    (router(page), reviews)
}

/// The same with these bounds, before it has routes.
pub(super) fn page_with(state: Arc<State>, bounds: BoundArgs) -> (Arc<Page>, Arc<AtomicUsize>) {
    let reviews = Arc::new(AtomicUsize::new(0));
    let counted = reviews.clone();
    let api_server = service_fn(move |request: Request<kube::client::Body>| {
        let counted = counted.clone();
        async move {
            counted.fetch_add(1, Ordering::Relaxed);
            let (parts, body) = request.into_parts();
            assert_eq!(parts.method, Method::POST);
            let mut asked: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
            asked["status"] = review(parts.uri.path(), &asked);
            let answer = kube::client::Body::from(serde_json::to_vec(&asked).unwrap());
            Ok::<_, std::convert::Infallible>(http::Response::new(answer))
        }
    });
    let client = Client::new(api_server, "default");
    let clock: Arc<dyn Clock> = Arc::new(FixedClock);
    let built = Health::default().gate("model");
    built.set(true);
    let metrics = state.metrics().clone();
    let reviewer = Reviewer::new(client, vec![AUDIENCE.to_owned()], clock.clone(), metrics);
    (Page::new(state, reviewer, clock, bounds, built, Shutdown::new()), reviews)
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Answer { status: parts.status, headers: parts.headers, text }
}

pub(super) fn request(method: &Method, path: &str, token: Option<&str>, body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

fn deployment(namespace: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: new, namespace: {namespace}}}, spec: {{replicas: 2, selector: \
         {{matchLabels: {{app: new}}}}, template: {{metadata: {{labels: {{app: new}}}}, spec: {{containers: [{{name: c, image: i, \
         resources: {{requests: {{cpu: 100m}}}}}}]}}}}}}}}"
    )
}

/// An object whose pods another controller creates.
fn rollout(namespace: &str) -> String {
    deployment(namespace).replace("apps/v1, kind: Deployment", "argoproj.io/v1alpha1, kind: Rollout")
}

/// A route of data: method, path, body, and the statuses for an operator and for alpha's reader.
type Case = (Method, String, String, u16, u16);

/// Every route of data but the stream.
fn cases() -> Vec<Case> {
    let get = |path: &str, operator: u16, alpha: u16| {
        (Method::GET, format!("/api/v1/{path}"), String::new(), operator, alpha)
    };
    let post = |path: &str, body: String, operator: u16, alpha: u16| {
        (Method::POST, format!("/api/v1/{path}"), body, operator, alpha)
    };
    vec![
        get("session", 200, 200),
        get("overview", 200, 200),
        get("map", 200, 200),
        get(&format!("curves?from={}", NOW - 3_600_000), 200, 200),
        get(&format!("curves?from={}", NOW + 1), 400, 400),
        get(&format!("at?at={NOW}"), 200, 200),
        get(&format!("at?at={}", BEFORE - 1), 200, 200),
        get(&format!("at/pools/pool-alpha?at={NOW}"), 200, 200),
        get(&format!("at/pools/pool-bravo?at={NOW}"), 200, 404),
        get(&format!("at/pools/pool-shared?at={NOW}"), 200, 200),
        get(&format!("at/pools/none?at={NOW}"), 404, 404),
        get(&format!("at/tenants/alpha?at={NOW}"), 200, 200),
        get(&format!("at/tenants/bravo?at={NOW}"), 200, 404),
        get(&format!("at/tenants/none?at={NOW}"), 404, 404),
        get("tenants/alpha", 200, 200),
        get("tenants/bravo", 200, 404),
        get("tenants/none", 404, 404),
        get("tenants/alpha/pods", 200, 200),
        get("tenants/bravo/pods", 200, 404),
        get("tenants/none/pods", 404, 404),
        get("tenants/alpha/advice", 200, 200),
        get("tenants/bravo/advice", 200, 404),
        get("tenants/none/advice", 404, 404),
        get("pools/pool-alpha", 200, 200),
        get("pools/pool-bravo", 200, 404),
        get("pools/pool-shared", 200, 200),
        get("nodes/node-alpha", 200, 200),
        get("nodes/node-bravo", 200, 404),
        get("nodes/claim-bravo", 200, 404),
        get("nodes/node-shared", 200, 200),
        get("nodes/node-alpha/removal", 200, 200),
        get("nodes/node-bravo/removal", 200, 404),
        get("nodes/node-shared/removal", 200, 200),
        get("nodes/none/removal", 404, 404),
        get("nodes/node-alpha/advice", 200, 200),
        get("nodes/node-bravo/advice", 200, 404),
        get("nodes/node-shared/advice", 200, 200),
        get("nodes/none/advice", 404, 404),
        get("pods/alpha-ns/shared-pod/advice", 200, 200),
        get("pods/alpha-ns/waiting/advice", 200, 200),
        get("pods/bravo-ns/bravo-pod/advice", 200, 404),
        get("pods/alpha-ns/none/advice", 404, 404),
        get("nodes/claim-alpha-and-bravo", 200, 200),
        get("pods/alpha-ns/alpha-pod", 200, 200),
        get("pods/alpha-ns/waiting", 200, 200),
        get("pods/bravo-ns/bravo-pod", 200, 404),
        get("pods/bravo-ns/bravo-waits", 200, 404),
        get("plans", 200, 403),
        get("history", 200, 200),
        get("history?tenant=alpha", 200, 200),
        get("history?tenant=bravo", 200, 404),
        get(&format!("cost?from={BEFORE}"), 200, 200),
        post("what-if", deployment("alpha-ns"), 200, 200),
        post("what-if", deployment("bravo-ns"), 200, 403),
        post("what-if", rollout("alpha-ns"), 200, 200),
        post("what-if", rollout("bravo-ns"), 200, 403),
        post("what-if", OBJECTS.to_owned() + "---\n" + &deployment("alpha-ns"), 200, 403),
    ]
}

#[tokio::test]
async fn a_tenants_reader_gets_its_own_and_nothing_that_names_another_tenant() {
    let (router, _) = page(state());
    for (method, path, body, _, expected) in cases() {
        let Answer { status, text, .. } = send(&router, request(&method, &path, Some("alpha"), &body)).await;
        assert_eq!(status, expected, "{method} {path}: {text}");
        // The NodeClaim of the shared pool is named by the test, not by the tenant.
        let shown = text.replace("claim-alpha-and-bravo", "");
        assert!(status != 200 || !shown.contains("bravo"), "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn an_operator_gets_every_route() {
    let (router, _) = page(state());
    for (method, path, body, expected, _) in cases() {
        let Answer { status, text, .. } =
            send(&router, request(&method, &path, Some("operator"), &body)).await;
        assert_eq!(status, expected, "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn no_route_answers_without_a_token_with_a_wrong_one_or_without_rights() {
    let (router, _) = page(state());
    let stream = (Method::GET, "/api/v1/events".to_owned(), String::new(), 200, 200);
    for (method, path, body, _, _) in cases().into_iter().chain([stream]) {
        // A sign-out needs no reader; it is a DELETE.
        for (token, expected) in [
            (None, 401),
            (Some("wrong"), 401),
            (Some("for-the-api-server"), 401),
            (Some("without-rights"), 403),
        ] {
            let Answer { status, text, .. } = send(&router, request(&method, &path, token, &body)).await;
            assert_eq!(status, expected, "{method} {path} with {token:?}: {text}");
            assert!(!text.contains("alpha") && !text.contains("bravo"), "{method} {path}: {text}");
        }
    }
}

#[test]
fn the_cases_have_every_route() {
    // The stream has tests of its own below, and so have sign-in and sign-out.
    let others = [("get", "/api/v1/events"), ("post", "/api/v1/session"), ("delete", "/api/v1/session")];
    let cases = cases();
    for (method, route) in ENDPOINTS.iter().filter(|endpoint| !others.contains(endpoint)) {
        let is_of = |path: &str| {
            let (mut wanted, mut given) = (route.split('/'), path.split(['/', '?']));
            let same = wanted.by_ref().zip(given.by_ref()).all(|(a, b)| a == b || a.starts_with('{'));
            same && wanted.next().is_none()
        };
        let is_tested =
            cases.iter().any(|(of, path, ..)| of.as_str().eq_ignore_ascii_case(method) && is_of(path));
        assert!(is_tested, "no case for {method} {route}");
    }
}

#[tokio::test]
async fn an_entry_that_concerns_others_too_loses_its_message_and_their_pods() {
    let (router, _) = page(state());
    let Answer { text, .. } =
        send(&router, request(&Method::GET, "/api/v1/history", Some("alpha"), "")).await;
    let history: Value = serde_json::from_str(&text).unwrap();
    let numbered = |number: u64| {
        history["entries"]
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["n"] == number)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(numbered(5), Value::Null, "of bravo alone");
    assert_eq!(numbered(6)["pods"], json!(["alpha-ns/shared-pod"]));
    assert_eq!((&numbered(6)["m"], &numbered(6)["r"]), (&Value::Null, &json!("Some")));
    assert_eq!(numbered(7)["m"], "of alpha alone");
    assert_eq!((&numbered(8)["m"], &numbered(8)["pods"]), (&json!("no room"), &json!(["alpha-ns/waiting"])));
}

#[tokio::test]
async fn a_shared_node_shows_the_requests_of_the_readers_pods_alone() {
    let (router, _) = page(state());
    for (token, pods, cpu) in [("operator", 2, 1_000), ("alpha", 1, 500)] {
        let Answer { text, .. } =
            send(&router, request(&Method::GET, "/api/v1/pools/pool-shared", Some(token), "")).await;
        let pool: Value = serde_json::from_str(&text).unwrap();
        let node = &pool["nodes"][0];
        assert_eq!(
            (&node["pods"], &node["usedCpu"], &node["cpu"]),
            (&json!(pods), &json!(cpu), &json!(2_000)),
            "{token}"
        );
    }
}

#[tokio::test]
async fn the_map_has_each_node_once_by_pool_and_tells_its_use_to_those_who_see_all_of_it() {
    let state = state();
    state.change(|cluster| {
        let used = NodeUse { cpu: 1_500, memory: 4 << 30 };
        cluster.usage =
            ["node-alpha", "node-bravo", "node-shared"].map(|node| (node.to_owned(), used)).into();
    });
    build(&state, NOW + 1);
    let (router, _) = page(state);
    for (token, pools, known) in [
        ("operator", vec!["pool-alpha", "pool-bravo", "pool-shared"], 3),
        ("alpha", vec!["pool-alpha", "pool-shared"], 1),
    ] {
        let map = json(&router, "map", token).await;
        let of = |field: &str| {
            map["pools"].as_array().unwrap().iter().map(|pool| pool[field].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("name"), pools, "{token}");
        let nodes: Vec<Value> =
            of("nodes").iter().flat_map(|nodes| nodes.as_array().unwrap().clone()).collect();
        assert_eq!(nodes.len(), pools.len());
        let used: Vec<&Value> = nodes.iter().filter(|node| node["useCpu"] == 1_500).collect();
        assert_eq!(used.len(), known, "a shared node's use is others', too: {nodes:?}");
    }
    let shared = json(&router, "map", "alpha").await["pools"][1]["tenants"].clone();
    assert_eq!(shared, json!(["alpha"]), "without those that the reader doesn't see");
}

#[tokio::test]
async fn a_pools_templates_have_their_nodes_their_cost_and_what_rules_them_out() {
    let state = state();
    state.change(|cluster| {
        cluster.input.pools.for_each_mut(|pool| {
            let spec = &mut pool.spec;
            let Some(one) = spec.template.take() else { return };
            let template = |name: &str, weight: i32, limits: Value| -> PoolTemplate {
                let template = json!({"name": name, "weight": weight, "limits": limits, "spec": one.spec});
                serde_json::from_value(template).unwrap()
            };
            spec.templates =
                vec![template("steady", 0, json!({})), template("cheap", 10, json!({"nodes": 1}))];
        });
        for (name, pool, template) in [
            ("node-alpha", "pool-alpha", "steady"),
            ("node-alpha-2", "pool-alpha", "cheap"),
            ("node-alpha-3", "pool-alpha", "steady"),
            ("node-shared", "pool-shared", "cheap"),
        ] {
            let mut node = node(name, pool);
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert("croft.dev/template".to_owned(), template.to_owned());
            put(&mut cluster.input.nodes, node);
        }
    });
    build(&state, NOW);
    let (router, _) = page(state);
    for token in ["operator", "alpha"] {
        let pool = json(&router, "pools/pool-alpha", token).await;
        let [cheap, steady] = [&pool["templates"][0], &pool["templates"][1]];
        assert_eq!(
            (&cheap["name"], &cheap["weight"], &cheap["nodes"]),
            (&json!("cheap"), &json!(10), &json!(1))
        );
        assert_eq!(cheap["cost"]["micros"], 96_000, "{token}: {pool}");
        assert_eq!(cheap["passedOver"], "its limits (nodes 1) leave no room for another node");
        assert_eq!((&steady["nodes"], &steady["passedOver"]), (&json!(2), &Value::Null));
        assert_eq!(pool["nodes"][0]["template"], "steady", "{token}: {pool}");
        let map = json(&router, "map", token).await;
        let nodes = map["pools"][0]["nodes"].as_array().unwrap();
        let names: Vec<&str> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["node-alpha-2", "node-alpha", "node-alpha-3"], "{token}: by template");
        let shared = json(&router, "pools/pool-shared", token).await;
        let why = &shared["templates"][0]["passedOver"];
        assert_eq!(why.is_string(), token == "operator", "those who see every tenant alone: {shared}");
    }
}

#[tokio::test]
async fn curves_have_what_ran_by_tenant_and_pool_and_runs_for_operators_alone() {
    let (router, _) = page(state());
    let path = format!("curves?from={}", NOW - 3_600_000);
    let curves = json(&router, &path, "operator").await;
    assert_eq!(
        (&curves["from"], &curves["to"], &curves["step"]),
        (&json!(BEFORE), &json!(NOW), &json!(10_000))
    );
    let rate = |curves: &Value, pool: &str| {
        let series = curves["series"].as_array().unwrap().clone();
        series.into_iter().find(|one| one["pool"] == pool).map(|one| one["rates"].clone())
    };
    // Each NodeClaim costs 96,000 millionths of a dollar per hour from its launch on.
    for pool in ["pool-alpha", "pool-bravo", "pool-shared"] {
        assert_eq!(rate(&curves, pool), Some(json!(vec![96_000; 6])), "{pool}: {curves}");
    }
    assert_eq!(curves["launched"], json!([3, 0, 0, 0, 0, 0]));
    assert_eq!((&curves["removed"], &curves["waiting"]), (&json!(vec![0; 6]), &json!(vec![0; 6])));
    assert_eq!(curves["runs"], json!([]), "its run requested no instance");
    let own = json(&router, &path, "alpha").await;
    assert_eq!((rate(&own, "pool-alpha"), rate(&own, "pool-bravo")), (Some(json!(vec![96_000; 6])), None));
    assert_eq!((&own["waiting"], &own["runs"]), (&Value::Null, &Value::Null));
}

async fn json(router: &Router, path: &str, token: &str) -> Value {
    let Answer { status, text, .. } =
        send(router, request(&Method::GET, &format!("/api/v1/{path}"), Some(token), "")).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_snapshot_shows_what_the_present_shows_but_for_conditions() {
    let (router, _) = page(state());
    for token in ["operator", "alpha"] {
        let at = |path: &str| format!("at{path}?at={NOW}");
        for (now, then) in [
            ("overview", at("")),
            ("pools/pool-shared", at("/pools/pool-shared")),
            ("tenants/alpha", at("/tenants/alpha")),
        ] {
            let (now, then) = (json(&router, now, token).await, json(&router, &then, token).await);
            assert_eq!((&then["at"], &then["snapshot"]), (&json!(NOW), &json!(BEFORE)));
            for (field, value) in then["view"].as_object().unwrap() {
                if !["version", "at", "podList"].contains(&field.as_str()) {
                    assert_eq!(value, &now[field], "{token}: {field}");
                }
            }
        }
        let pods = json(&router, "tenants/alpha/pods", token).await;
        let then = json(&router, &at("/tenants/alpha"), token).await;
        assert_eq!(then["view"]["podList"], pods, "with the reason of the pending one");
        let before = json(&router, &format!("at?at={}", BEFORE - 1), token).await;
        assert_eq!((&before["snapshot"], &before["view"]), (&Value::Null, &Value::Null));
    }
    let begins = json(&router, "overview", "alpha").await["begins"].clone();
    assert_eq!(begins, json!(BEFORE));
}

#[tokio::test]
async fn a_snapshot_shows_a_tenants_reader_what_was_and_still_is_its_own() {
    let state = state();
    let mut then = state.cluster().input.clone();
    // The reader's namespace was another tenant's.
    for (tenant, namespace) in [("alpha", "bravo-ns"), ("bravo", "alpha-ns")] {
        let mut tenant = then.tenants.get("", tenant).unwrap().object.clone();
        tenant.spec.namespaces = vec![namespace.to_owned()];
        put(&mut then.tenants, tenant);
    }
    let (foreign, mut own) = (then, state.cluster().input.clone());
    // The reader's tenant used a pool that isn't its own any more.
    let mut alpha = own.tenants.get("", "alpha").unwrap().object.clone();
    alpha.spec.pools.push("pool-bravo".to_owned());
    put(&mut own.tenants, alpha);
    let slot = snapshots(&[(BEFORE - 2, &foreign), (BEFORE - 1, &own)]);
    state.change_log(|log| log.observe(&slot));
    let (router, _) = page(state);

    let swapped = json(&router, &format!("at?at={}", BEFORE - 2), "alpha").await;
    assert_eq!((&swapped["view"]["tenants"], &swapped["view"]["pools"]), (&json!([]), &json!([])));
    assert_eq!(swapped["view"]["pendingGroups"], json!([]), "{swapped}");
    let tenant = json(&router, &format!("at/tenants/alpha?at={}", BEFORE - 2), "alpha").await;
    assert_eq!(tenant["view"], Value::Null, "{tenant}");
    let all = json(&router, &format!("at?at={}", BEFORE - 2), "operator").await;
    assert_eq!(all["view"]["tenants"].as_array().map(Vec::len), Some(2), "{all}");

    let later = json(&router, &format!("at?at={}", BEFORE - 1), "alpha").await;
    let names: Vec<&Value> =
        later["view"]["pools"].as_array().unwrap().iter().map(|pool| &pool["name"]).collect();
    assert_eq!(names, [&json!("pool-alpha"), &json!("pool-shared")]);
    assert!(!later.to_string().contains("bravo"), "{later}");
}

#[tokio::test]
async fn a_nodes_life_begins_with_the_run_that_requested_it_which_operators_alone_see() {
    let (router, _) = page(state());
    for (token, first) in [("operator", "plan"), ("alpha", "condition")] {
        let node = json(&router, "nodes/claim-alpha", token).await;
        assert_eq!(node["timeline"][0]["k"], first, "{token}: {node}");
        assert_eq!(node["launch"]["pods"], json!(["alpha-ns/alpha-pod"]), "{token}");
        let types = &node["launch"]["choice"]["types"];
        assert_eq!(
            (&types[0]["instanceType"], &types[1]["instanceType"]),
            (&json!("m5.large"), &json!("m5.xlarge"))
        );
    }
}

#[tokio::test]
async fn what_keeps_a_shared_node_names_the_readers_pods_alone() {
    let (router, _) = page(state());
    for (token, pods, has_answer) in
        [("operator", vec!["bravo-shared", "shared-pod"], true), ("alpha", vec!["shared-pod"], false)]
    {
        let removal = json(&router, "nodes/node-shared/removal", token).await;
        let mut named: Vec<&str> =
            removal["pods"].as_array().unwrap().iter().map(|pod| pod["name"].as_str().unwrap()).collect();
        named.sort_unstable();
        assert_eq!((named, removal["answer"].is_string()), (pods, has_answer), "{token}: {removal}");
    }
}

#[tokio::test]
async fn advice_for_a_shared_node_counts_the_readers_constraints_alone() {
    let (router, _) = page(state());
    let mut counted = Vec::new();
    for token in ["operator", "alpha"] {
        let advice = json(&router, "nodes/node-shared/advice", token).await;
        assert!(token == "operator" || !advice.to_string().contains("bravo"), "{advice}");
        counted.push(advice["constraints"].as_i64().unwrap());
    }
    // Each of the two pods has no controller.
    assert_eq!(counted[0] - counted[1], 1);
}

#[tokio::test]
async fn a_pending_pod_has_its_recorded_reason_and_its_place_in_a_plan() {
    let (router, _) = page(state());
    let Answer { text, .. } =
        send(&router, request(&Method::GET, "/api/v1/pods/alpha-ns/waiting", Some("alpha"), "")).await;
    let detail: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(detail["pod"]["message"], "no room");
    assert_eq!(detail["outlook"]["node"]["node"], "node-alpha", "{text}");
}

#[tokio::test]
async fn answers_of_reviews_are_asked_for_once_in_ten_seconds() {
    tokio::time::pause();
    let (router, reviews) = page(state());
    let ask =
        async || send(&router, request(&Method::GET, "/api/v1/overview", Some("alpha"), "")).await.status;
    assert_eq!(ask().await, 200);
    let first = reviews.load(Ordering::Relaxed);
    assert_eq!(ask().await, 200);
    assert_eq!(reviews.load(Ordering::Relaxed), first);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(ask().await, 200);
    // The token and the granted right; a refused right counts for a minute.
    assert_eq!(reviews.load(Ordering::Relaxed), first + 2);
}

#[tokio::test]
async fn a_session_cookie_signs_in_this_site_and_no_other() {
    let (router, _) = page(state());
    let sign_in = |body: &str, kind: &str| {
        let request = Request::post("/api/v1/session").header(header::CONTENT_TYPE, kind);
        request.body(Body::from(body.to_owned())).unwrap()
    };
    let json = "application/json";
    for (body, kind, expected) in [
        ("{\"token\": \"alpha\"}", "text/plain", 400),
        ("{\"token\": \"alpha; Domain=x\"}", json, 400),
        ("alpha", json, 400),
        ("{\"token\": \"wrong\"}", json, 401),
        ("{\"token\": \"without-rights\"}", json, 403),
    ] {
        let answer = send(&router, sign_in(body, kind)).await;
        assert_eq!(answer.status, expected, "{body}: {}", answer.text);
        assert!(!answer.headers.contains_key(header::SET_COOKIE));
    }
    let answer = send(&router, sign_in("{\"token\": \"alpha\"}", json)).await;
    let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
    for attribute in ["HttpOnly", "Secure", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let pair = cookie.split(';').next().unwrap();
    for (site, expected) in [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)] {
        let request =
            Request::get("/api/v1/overview").header(header::COOKIE, pair).header("sec-fetch-site", site);
        let answer = send(&router, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, expected, "{site}: {}", answer.text);
    }
    let left = send(&router, request(&Method::DELETE, "/api/v1/session", None, "")).await;
    assert!(left.headers[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
}

#[tokio::test]
async fn every_answer_forbids_other_origins_and_private_ones_caches() {
    let (router, _) = page(state());
    for path in ["/", "/app.js", "/api/v1/overview", "/nothing"] {
        let answer = send(&router, request(&Method::GET, path, Some("alpha"), "")).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        let cache = if path.starts_with("/api") || path == "/nothing" { "no-store" } else { "no-cache" };
        assert_eq!(answer.headers[header::CACHE_CONTROL], cache, "{path}");
    }
    let write = send(&router, request(&Method::PUT, "/api/v1/tenants/alpha", Some("operator"), "{}")).await;
    assert_eq!(write.status, 405);
}

#[tokio::test]
async fn a_manifest_that_is_too_long_or_has_no_workload_is_refused_with_a_reason() {
    let (router, _) = page(state());
    let try_it = async |body: String| {
        send(&router, request(&Method::POST, "/api/v1/what-if", Some("operator"), &body)).await
    };
    assert_eq!(try_it("x".repeat(300 << 10)).await.status, 413);
    let nothing = try_it("{apiVersion: v1, kind: Namespace, metadata: {name: other}}".to_owned()).await;
    assert_eq!(nothing.status, 422);
    assert!(nothing.text.contains("no workload"), "{}", nothing.text);
    let many = try_it(deployment("alpha-ns").replace("replicas: 2", "replicas: 1000000")).await;
    assert_eq!(many.status, 422);
    assert!(many.text.contains("at most 2000"), "{}", many.text);
}

/// The page opens a scheduling run by its time.
#[tokio::test]
async fn history_of_a_runs_time_has_the_run_and_what_it_requested_for_operators_alone() {
    let (router, _) = page(state());
    let path = format!("/api/v1/history?from={BEFORE}&to={BEFORE}");
    for (reader, expected) in [("operator", true), ("alpha", false)] {
        let Answer { text, .. } = send(&router, request(&Method::GET, &path, Some(reader), "")).await;
        let history: Value = serde_json::from_str(&text).unwrap();
        let kinds: Vec<&Value> =
            history["entries"].as_array().unwrap().iter().map(|entry| &entry["k"]).collect();
        assert_eq!(kinds.contains(&&json!("plan")), expected, "{reader}: {text}");
        assert!(kinds.contains(&&json!("create")), "{reader}: {text}");
    }
}

#[tokio::test]
async fn events_carry_what_the_reader_sees_and_a_stream_too_many_is_refused() {
    let state = state();
    let (router, _) = page(state.clone());
    let opened =
        router.clone().oneshot(request(&Method::GET, "/api/v1/events", Some("alpha"), "")).await.unwrap();
    assert_eq!(opened.status(), 200);
    let refused = send(&router, request(&Method::GET, "/api/v1/events", Some("operator"), "")).await;
    assert_eq!(refused.status, 429, "one stream is open, and one may be");

    let mut events = opened.into_body().into_data_stream();
    state.change(|cluster| cluster.put_pod(pod("bravo-ns", "bravo-new", Some("node-bravo"))));
    build(&state, NOW + 1);
    state.change(|cluster| cluster.put_pod(pod("alpha-ns", "alpha-new", Some("node-shared"))));
    build(&state, NOW + 2);
    let event = tokio::time::timeout(Duration::from_secs(60), events.next()).await.unwrap().unwrap().unwrap();
    let text = String::from_utf8(event.to_vec()).unwrap();
    assert!(
        text.starts_with("event: change\ndata: {\"version\":3,"),
        "the change before is another tenant's: {text}"
    );
    assert!(
        text.contains("\"name\":\"node-shared\"") && text.contains("\"namespaces\":[\"alpha-ns\"]"),
        "{text}"
    );
    assert!(!text.contains("bravo"), "{text}");
    drop(events);
    let opened =
        router.clone().oneshot(request(&Method::GET, "/api/v1/events", Some("operator"), "")).await.unwrap();
    assert_eq!(opened.status(), 200, "the first one is closed");
}
