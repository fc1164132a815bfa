//! Map, curves and log in Chromium with 2 and with 1,000 nodes. The page runs in this process, on a cluster that is written here; the API
//! server is a function that knows one operator.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc, time::Duration};

use axum::{Json, Router, routing::post};
use croft_page::{
    access::Reviewer,
    args::{AUDIENCE, BoundArgs},
    cluster::{objects::put, usage::NodeUse},
    http::{page::Page, router::router},
    state::{build::build, store::State},
};
use croft_policy::definitions::POOL_NAME_LABEL;
use croft_record::{
    SEGMENT_KEY,
    entry::{Entry, EntryKind, ObjectRef, PlanFigures},
    record::Record,
};
use croft_runtime::{
    clock::{Clock, SystemClock},
    health::Health,
    process::install_crypto,
    serve::{Limits, bind, serve},
    shutdown::Shutdown,
};
use croft_testkit::Browser;
use croft_tests::manifests::on_demand;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Node, Pod},
};
use kube::{Client, Config, api::ObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::browser::{Window, now};

const MINUTE: i64 = 60_000;
/// The pod that runs in each namespace: its name is one word that is wider than the narrow window.
const LONG_NAME: &str = "aworkloadwithanameaslongasoneofadeploymentmaybewithoutanyhyphen";

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn node(at: usize, pool: &str, is_ready: bool) -> Node {
    let name = format!("node-{at:04}");
    let cpu = ["2", "4", "8", "16"][at % 4];
    let resources = json!({"cpu": cpu, "memory": "15Gi", "pods": "58"});
    read(json!({
        "metadata": {"name": name, "labels": {
            POOL_NAME_LABEL: pool, "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": "m5.xlarge",
            "karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "us-east-1a",
        }},
        "status": {"allocatable": resources,
            "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]},
    }))
}

/// Two pods of a Deployment that wait, and one that runs, in each namespace.
fn pod(namespace: &str, name: &str, node: Option<&str>) -> Pod {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
    read(json!({
        "metadata": {"namespace": namespace, "name": name, "ownerReferences": owner},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }}
    }))
}

/// The last hour of the nodes: each tenant's first one was launched for two pods, and an earlier one is gone.
fn log(tenants: usize) -> ConfigMap {
    let now = now();
    let mut entries = Vec::new();
    let mut add = |minutes: i64, entry: Entry| {
        let sequence = entries.len() as u64 + 1;
        entries.push(Entry { sequence, at: now - minutes * MINUTE, ..entry });
    };
    let of = |at: usize, claim: &str, kind| Entry {
        object: ObjectRef::cluster("NodeClaim", &format!("{claim}-{at:02}")),
        pool: format!("pool-{at:02}"),
        tenants: vec![format!("tenant-{at:02}")],
        price: Some(90_000),
        ..Entry::new(0, kind)
    };
    let launched = |entry: Entry| Entry { condition: "Launched=True".to_owned(), ..entry };
    for at in 0..tenants {
        add(50, launched(of(at, "old", EntryKind::Condition)));
    }
    let figures = PlanFigures {
        instances: tenants,
        pods: 2 * tenants,
        cost: 90_000,
        bound: 80_000,
        ..PlanFigures::default()
    };
    add(30, Entry { plan: Some(figures), ..Entry::new(0, EntryKind::Plan) });
    for at in 0..tenants {
        let pods = vec![format!("ns-{at:02}/web-a"), format!("ns-{at:02}/web-b")];
        add(30, Entry { pods, ..of(at, "new", EntryKind::Create) });
    }
    for at in 0..tenants {
        add(29, launched(of(at, "new", EntryKind::Condition)));
    }
    add(20, of(0, "old", EntryKind::Deleting));
    add(10, of(0, "old", EntryKind::Gone));
    let bytes = Record { entries, damaged: Vec::new() }.to_bytes();
    ConfigMap {
        metadata: ObjectMeta { name: Some("croft-record-00".to_owned()), ..ObjectMeta::default() },
        binary_data: Some(BTreeMap::from([(SEGMENT_KEY.to_owned(), ByteString(bytes))])),
        ..ConfigMap::default()
    }
}

/// A cluster of so many nodes, of which each tenant has its share.
fn state(nodes: usize, tenants: usize) -> Arc<State> {
    let state = Arc::new(State::named("many-nodes".to_owned()));
    state.change(|cluster| {
        for at in 0..tenants {
            let (tenant, pool, namespace) =
                (format!("tenant-{at:02}"), format!("pool-{at:02}"), format!("ns-{at:02}"));
            put(&mut cluster.input.namespaces, read(json!({"metadata": {"name": namespace}})));
            let pool_object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
                "metadata": {"name": pool}, "spec": on_demand(&[], json!({}))});
            put(&mut cluster.input.pools, read(pool_object));
            let tenant_object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
                "metadata": {"name": tenant}, "spec": {"namespaces": [namespace], "pools": [pool]}});
            put(&mut cluster.input.tenants, read(tenant_object));
            cluster.put_pod(pod(&namespace, LONG_NAME, Some(&format!("node-{at:04}"))));
            for name in ["web-a", "web-b"] {
                cluster.put_pod(pod(&namespace, name, None));
            }
        }
        for at in 0..nodes {
            put(&mut cluster.input.nodes, node(at, &format!("pool-{:02}", at % tenants), true));
            cluster.usage.insert(format!("node-{at:04}"), NodeUse { cpu: 900, memory: 3 << 30 });
        }
    });
    state.change_log(|kept| kept.observe(&log(tenants)));
    build(&state, now());
    state
}

/// An API server that knows the token `operator`, whose user may read everything.
async fn api_server(stop: &Shutdown) -> Client {
    let token_review = |Json(mut review): Json<Value>| async move {
        let user = json!({"username": "operator", "groups": ["g"]});
        let known = review["spec"]["token"] == "operator";
        review["status"] = json!({"authenticated": known, "user": user, "audiences": [AUDIENCE]});
        Json(review)
    };
    let access_review = |Json(mut review): Json<Value>| async move {
        review["status"] = json!({"allowed": true});
        Json(review)
    };
    let routes = Router::new()
        .route("/apis/authentication.k8s.io/v1/tokenreviews", post(token_review))
        .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(access_review));
    let origin = served(routes, stop).await;
    Client::try_from(Config::new(origin.parse().unwrap())).unwrap()
}

/// Serves on loopback. Returns the origin.
async fn served(routes: Router, stop: &Shutdown) -> String {
    let (listener, address) = bind((Ipv4Addr::LOCALHOST, 0).into(), "a test").await.unwrap();
    let limits = Limits::for_reviews(Duration::ZERO);
    tokio::spawn(serve(listener, None, routes, limits, Arc::default(), stop.clone()));
    format!("http://{address}")
}

async fn page(state: Arc<State>, stop: &Shutdown) -> String {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let built = Health::default().gate("model");
    built.set(true);
    let client = api_server(stop).await;
    let reviewer = Reviewer::new(client, vec![AUDIENCE.to_owned()], clock.clone(), state.metrics().clone());
    let bounds = BoundArgs { max_connections: 64, max_inflight: 64, max_streams: 8 };
    served(router(Page::new(state, reviewer, clock, bounds, built, stop.clone())), stop).await
}

/// Every node is a block; a change shows without a read; the arrow keys reach the last one, and Enter opens it.
async fn map(window: &mut Window<'_>, state: &State, (nodes, tenants): (usize, usize)) {
    let last = format!("node-{:04}", nodes - 1);
    window.appears(&format!(".map .block.ready[data-node='{last}']"), "").await;
    let blocks = window.ask(json!({"do": "count", "selector": ".map .block"})).await;
    assert_eq!(blocks["count"], json!(nodes));
    let groups = window.ask(json!({"do": "count", "selector": ".map-group"})).await;
    assert_eq!(groups["count"], json!(tenants));
    window.appears(".legend", "strip at the left").await;
    window.appears(".cluster", "many-nodes").await;
    window.is_accessible("map").await;
    window.fits("map").await;

    state.change(|cluster| put(&mut cluster.input.nodes, node(0, "pool-00", false)));
    build(state, now());
    window.appears(".map .block.notReady[data-node='node-0000']", "").await;
    window.appears(".map-group .state.notReady", "1 not ready").await;
    state.change(|cluster| put(&mut cluster.input.nodes, node(0, "pool-00", true)));
    build(state, now());
    window.ask(json!({"do": "vanishes", "selector": ".map .block.notReady"})).await;

    // A group is folded and unfolded; its blocks go and come.
    let fold = ".map-group h3 button";
    window.ask(json!({"do": "click", "selector": fold})).await;
    window.ask(json!({"do": "vanishes", "selector": ".map .block[data-node='node-0000']"})).await;
    window.ask(json!({"do": "click", "selector": fold})).await;
    window.ask(json!({"do": "focus", "selector": ".map .block[tabindex='0']"})).await;
    window.ask(json!({"do": "press", "keys": ["End", "Enter"]})).await;
    window.appears("h1", &last).await;
}

async fn curves(window: &mut Window<'_>) {
    window.goto("curves", "Curves").await;
    window.appears(".chart svg .area", "").await;
    for title in ["$ per hour", "Pods that waited", "Nodes launched and removed", "lower bound"] {
        window.appears("figcaption", title).await;
    }
    window.appears(".area-legend", "tenant-01").await;
    window.appears("table td", "$").await;
    window.is_accessible("curves").await;
    window.fits("curves").await;
    window.ask(json!({"do": "click", "selector": "[aria-label=Areas] button:last-child"})).await;
    window.appears(".area-legend", "pool-01").await;
    // The cursor by keyboard: the first point is before the first scheduling run.
    window.ask(json!({"do": "focus", "selector": ".controls input[type=range]"})).await;
    window.ask(json!({"do": "press", "keys": ["Home"]})).await;
    window.appears(".readout", "unknown how many pods waited").await;
    window.ask(json!({"do": "click", "selector": "[aria-label=Zoom] button"})).await;
    window.appears("[aria-label=Zoom] button", "Zoom out").await;
    window.ask(json!({"do": "click", "selector": "[aria-label=Zoom] button:last-child"})).await;
    window.ask(json!({"do": "click", "selector": "[aria-label=Time] button:last-child"})).await;
    window.appears("[aria-label=Time] button[aria-pressed=true]", "month").await;
}

/// Pending pods and the log are grouped, and an address without a view says so.
async fn groups(window: &mut Window<'_>, tenants: usize) {
    window.goto("", "Overview").await;
    window.appears(".pending summary", "2 pods of ReplicaSet/web in ns-00").await;
    window.appears(".sum", &format!("{} pending pods", 2 * tenants)).await;
    window
        .appears(
            ".decision.launch summary",
            "1 node launched for 2 pods of tenant-00 in pool pool-00, $0.09/h",
        )
        .await;
    window.appears(".decision.removal summary", "1 node of tenant-00 in pool pool-00 removed").await;
    window.ask(json!({"do": "select", "selector": ".log select", "value": "removal"})).await;
    window.ask(json!({"do": "vanishes", "selector": ".decision.launch"})).await;
    window.ask(json!({"do": "click", "selector": ".decision.removal summary"})).await;
    window.appears(".decision.removal .timeline", "gone").await;
    window.is_accessible("log").await;
    window.goto("nowhere/at-all", "No such page").await;
    window.appears("main code", "#/nowhere/at-all").await;
}

/// Every other view fits into the window, also with a long name, and axe-core finds nothing serious. A plan can be opened.
async fn views(window: &mut Window<'_>) {
    let pod = format!("pods/ns-00/{LONG_NAME}");
    for (hash, title) in [
        ("tenants/tenant-00", "Tenant tenant-00"),
        ("pools/pool-00", "Pool pool-00"),
        ("nodes/node-0000", "Node node-0000"),
        (pod.as_str(), LONG_NAME),
        ("pods/ns-00/web-a", "Pod ns-00/web-a"),
        ("what-if", "What if"),
        ("plans", "Plans"),
    ] {
        window.goto(hash, title).await;
        window.fits(title).await;
        window.is_accessible(title).await;
    }
    window.ask(json!({"do": "click", "selector": "table td a"})).await;
    window.appears("h1", "Plan of ").await;
    window.appears(".run-claims li", "new-00 in pool pool-00, for 2 pods: ns-00/web-a, ns-00/web-b").await;
    window.appears(".facts dd", "How many choices the search compared").await;
    window.fits("a plan").await;
    window.is_accessible("a plan").await;
    window.goto("plans/1", "Plan of ").await;
    window.appears(".empty", "no scheduling run of that time").await;
}

#[tokio::test]
async fn map_curves_and_log_show_two_and_a_thousand_nodes_in_chromium() {
    install_crypto();
    let mut browser = Browser::start().unwrap();
    let stop = Shutdown::new();
    for (name, size, scheme, width) in [
        ("few", (2, 2), "light", 1_280),
        ("few-narrow", (2, 2), "dark", 400),
        ("many", (1_000, 20), "light", 1_280),
        ("many-narrow", (1_000, 20), "dark", 400),
    ] {
        let state = state(size.0, size.1);
        let origin = page(state.clone(), &stop).await;
        let mut window = Window::sized(&mut browser, name, origin, scheme, width).await;
        window.sign_in("operator").await;
        map(&mut window, &state, size).await;
        curves(&mut window).await;
        groups(&mut window, size.1).await;
        views(&mut window).await;
        window.has_no_errors().await;
        window.ask(json!({"do": "end"})).await;
    }
    stop.begin();
    browser.end().await.unwrap();
}
