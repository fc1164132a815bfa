//! The decision log on the lab: why a node was launched, kept and removed is told after the controller was killed and
//! restarted in between.

use std::{process::Stdio, time::Duration};

use croft_record::{
    SEGMENT_KEY,
    entry::{Entry, EntryKind, InstanceFacts, ObjectRef, Usage},
    ledger::{
        book::{HOUR_MILLIS, hour_of},
        closed::LEDGER_SLOTS,
    },
    payer::{Payer, Purpose, Share},
    slots::slot_name,
    writer::{Bounds, SLOTS, Writer},
};
use croft_testkit::{
    CroftOptions, Options, Part, http,
    moto::Moto,
    wait::{Seen, until},
};
use croft_tests::{
    cli::{croft, croft_with},
    manifests::{class, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, node_of, nodes},
};
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

const TENANT: &str = "tenant-a";
const POOL: &str = "pool-a";

/// The entries about the tenant.
async fn history(stack: &Stack) -> Vec<Value> {
    let (code, text) = croft(&stack.plane, &format!("history tenant {TENANT} -o json")).await.unwrap();
    if code == 0 {
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    } else {
        Vec::new()
    }
}

/// The rows of `croft cost` in this time, and the sum of their exact amounts.
async fn cost(stack: &Stack, from: i64, to: i64) -> (Vec<Value>, u64) {
    let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap();
    let arguments = format!("cost --by tenant,workload,purpose -o json --from {} --to {}", at(from), at(to));
    rows(&text(stack, &arguments).await)
}

/// The rows that `croft cost` printed, and the sum of their exact amounts.
fn rows(said: &str) -> (Vec<Value>, u64) {
    // A warning says where the log begins.
    let rows: Vec<Value> = serde_json::from_str(&said[said.find('[').unwrap()..]).unwrap();
    let sum = rows.iter().map(|row| row["exact"].as_str().unwrap().parse::<u64>().unwrap()).sum();
    (rows, sum)
}

/// Waits until the log has an entry that `matches`. Returns it.
async fn recorded(stack: &Stack, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
    until(what, EVENTUALLY, async || {
        let entries = history(stack).await;
        let found = entries.iter().find(|entry| matches(entry)).cloned();
        Ok::<_, kube::Error>(Seen::from_option(found, format!("{} entries: {entries:?}", entries.len())))
    })
    .await
    .unwrap()
}

async fn text(stack: &Stack, arguments: &str) -> String {
    let (code, text) = croft(&stack.plane, arguments).await.unwrap();
    assert_eq!(code, 0, "{arguments}: {text}");
    text
}

fn now() -> String {
    Timestamp::now().to_string()
}

/// Every slot is there, as the manifests name them, and is smaller than an object may be.
async fn slots(client: &Client) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "croft-system");
    let mut used = 0;
    for slot in 0..SLOTS {
        let object = api.get(&slot_name(slot)).await.unwrap();
        let bytes = object.binary_data.unwrap_or_default().remove(SEGMENT_KEY).map_or(0, |data| data.0.len());
        assert!(bytes < 300_000, "{bytes}");
        used += usize::from(bytes > 0);
    }
    assert!(used > 0);
}

/// The new leader makes a snapshot of the cluster that it finds, and the command line plans for it.
async fn a_snapshot_is_planned_for(stack: &Stack, pod: &str) {
    let planned = until("a snapshot", EVENTUALLY, async || {
        let (code, text) = croft(&stack.plane, "simulate --at 0s -o json").await.unwrap();
        let has = code == 0 && text.contains(&format!("{TENANT}/huge-"));
        Ok::<_, kube::Error>(Seen::from_option(has.then(|| text.clone()), text))
    })
    .await
    .unwrap();
    assert!(planned.contains("InsufficientResources"), "{planned}");
    let absent = "simulate --at 0s --without tenantpool/absent";
    let (code, refused) = croft(&stack.plane, absent).await.unwrap();
    assert!(code == 2 && refused.contains("there is no TenantPool absent"), "{refused}");
    let explained = text(stack, &format!("explain pod {pod} -n {TENANT} --at {}", now())).await;
    assert!(explained.contains("ran on node"), "snapshots are no part of the log: {explained}");
    let (code, refused) = croft(&stack.plane, "debug snapshot").await.unwrap();
    assert!(code == 1 && refused.contains("there is no CroftConfig default"), "{refused}");
    assert_eq!(
        stack.plane.kubectl(["get", "croftconfigs", "-o", "name"]).await.unwrap(),
        "",
        "it creates nothing"
    );
    let config = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"}, "spec": {}});
    stack.plane.apply(&config.to_string()).await.unwrap();
    // The next one would come after ten minutes.
    stack.plane.apply(&joined(&[deployment(TENANT, "asked", 1, "64", "256Mi")])).await.unwrap();
    until("a snapshot that was asked for", EVENTUALLY, async || {
        text(stack, "debug snapshot").await;
        let (code, text) = croft(&stack.plane, "simulate --at 0s -o json").await.unwrap();
        let has = code == 0 && text.contains(&format!("{TENANT}/asked-"));
        Ok::<_, kube::Error>(Seen::from_option(has.then_some(()), text))
    })
    .await
    .unwrap();
}

/// Every part of the ledger adds up to the time of the instance by EC2's clock, a minute at least.
async fn costs_add_up(stack: &Stack, claim: &str, entries: &[Value]) {
    let at = |kind: &str, condition: Option<&str>| {
        let of = |entry: &&Value| {
            entry["o"] == json!(format!("NodeClaim/{claim}"))
                && entry["k"] == json!(kind)
                && condition.is_none_or(|condition| entry["c"] == json!(condition))
        };
        entries.iter().find(of).unwrap_or_else(|| panic!("no {kind} in {entries:#?}"))
    };
    let launch = at("condition", Some("Launched=True"));
    let (launched, price) = (launch["inst"]["up"].as_i64().unwrap(), launch["usd"].as_u64().unwrap());
    let ended = at("ended", None)["inst"]["down"].as_i64().unwrap().max(launched + 60_000);
    at("gone", None);
    while Timestamp::now().as_millisecond() < ended {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let until = Timestamp::now().as_millisecond();
    let (rows, sum) = cost(stack, until - 24 * HOUR_MILLIS, until).await;
    assert_eq!(sum, price * (ended - launched).unsigned_abs(), "{rows:#?}");
    let web =
        rows.iter().find(|row| row["workload"] == json!("Deployment/web") && row["purpose"] == json!("used"));
    assert!(web.is_some_and(|row| row["tenant"] == json!(TENANT)), "{rows:#?}");
}

/// `croft events` that goes on until it is killed.
fn watch_events(stack: &Stack) -> Child {
    Command::new(CroftOptions::find().unwrap().binaries.join("croft"))
        .args(["events", "--watch", "--output=json", "--kubeconfig"])
        .arg(stack.plane.admin_kubeconfig())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// The same decision is an Event: once, and as it came.
async fn an_empty_nodes_event(stack: &Stack, mut watched: Child) {
    let events = text(stack, "events").await;
    assert!(events.contains("  Empty: "), "{events}");
    let mut lines = BufReader::new(watched.stdout.take().unwrap()).lines();
    let came = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["reason"] == json!("Empty") {
                return event;
            }
        }
        panic!("the watch ended");
    };
    let event = tokio::time::timeout(EVENTUALLY, came).await.expect("an Event of the empty node");
    assert_eq!(event["reportingController"], json!("croft.dev/controller"));
    watched.kill().await.unwrap();
}

#[tokio::test]
async fn a_node_is_explained_as_it_was_after_the_controller_was_killed() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let mut documents = vec![class("default")];
    documents.extend(tenant(TENANT, POOL, &on_demand(&["m5.large"], json!({"consolidateAfter": "1s"}))));
    let watched = watch_events(&stack);
    // A value that must be in no entry, and a pod that fits no type.
    let mut web = deployment(TENANT, "web", 1, "1500m", "256Mi");
    web["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "TOKEN", "value": "s3cret-value"}]);
    documents.extend([web, deployment(TENANT, "huge", 1, "64", "256Mi")]);
    stack.plane.apply(&joined(&documents)).await.unwrap();

    let up = until("the pod that fits", EVENTUALLY, async || {
        let pods = croft_tests::stack::pods(&client, TENANT).await?;
        let bound = pods.iter().find(|pod| !node_of(pod).is_empty()).cloned();
        Ok::<_, kube::Error>(Seen::from_option(bound, format!("{} pods", pods.len())))
    })
    .await
    .unwrap();
    let (node, pod) = (node_of(&up), up.name_any());
    let claim = claims(&client, POOL).await.unwrap()[0].name_any();
    recorded(&stack, "the node's initialization", |entry| {
        entry["node"] == json!(node) && entry["c"] == json!("Initialized=True")
    })
    .await;
    let bound = recorded(&stack, "the pod's binding", |entry| entry["k"] == json!("bound")).await;
    assert_eq!((&bound["o"], &bound["claim"]), (&json!(format!("Pod/{TENANT}/{pod}")), &json!(claim)));
    let while_it_ran = now();

    // A crash: another process leads, and knows what the first one wrote.
    stack.croft.kill(Part::Controller).unwrap();
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
    recorded(&stack, "the node's state", |entry| {
        entry["k"] == json!("state") && entry["pods"] == json!([format!("{TENANT}/{pod}")])
    })
    .await;
    a_snapshot_is_planned_for(&stack, &pod).await;
    stack.plane.kubectl(["-n", TENANT, "delete", "deployment", "web"]).await.unwrap();
    until("the end of the node", EVENTUALLY, async || {
        let left = nodes(&client).await?.contains_key(&node);
        Ok::<_, kube::Error>(Seen::from_option((!left).then_some(()), node.clone()))
    })
    .await
    .unwrap();
    recorded(&stack, "the claim's end", |entry| {
        entry["k"] == json!("gone") && entry["o"] == json!(format!("NodeClaim/{claim}"))
    })
    .await;

    let before = text(&stack, &format!("explain node {node} --at {while_it_ran}")).await;
    for part in [
        ": ready\n",
        &format!("pool {POOL}, used by {TENANT}"),
        &format!("NodeClaim {claim}"),
        "costs $0.0",
        &format!("launched for 1 pod: {TENANT}/{pod}"),
        "removed later, at ",
        ": Empty: ",
        "Registered=True",
    ] {
        assert!(before.contains(part), "{part} isn't in:\n{before}");
    }
    let after = text(&stack, &format!("explain node {claim} --at {}", now())).await;
    assert!(
        after.contains(": gone\n") && after.contains("removed at ") && after.contains(": Empty: "),
        "{after}"
    );
    assert!(after.lines().any(|line| line.contains("terminate") && line.contains("Instance/i-")), "{after}");

    an_empty_nodes_event(&stack, watched).await;

    let of_pod = text(&stack, &format!("explain pod {pod} -n {TENANT} --at {}", now())).await;
    assert!(of_pod.contains(&format!("ran on node {node}")) && of_pod.contains(&claim), "{of_pod}");
    let huge = croft_tests::stack::pods(&client, TENANT).await.unwrap()[0].name_any();
    let refused = text(&stack, &format!("explain pod {huge} -n {TENANT} --at {}", now())).await;
    assert!(refused.contains(": pending, InsufficientResources: "), "{refused}");

    let entries = history(&stack).await;
    costs_add_up(&stack, &claim, &entries).await;
    let numbers: Vec<u64> = entries.iter().filter_map(|entry| entry["n"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "one numbering over both leaders: {numbers:?}");
    assert!(!format!("{entries:?}").contains("s3cret"), "no environment value");
    let (code, other) = croft(&stack.plane, "history tenant tenant-b").await.unwrap();
    assert!(code == 2 && other.contains("did you mean tenant-a?"), "{other}");
    slots(&client).await;
    stack.check().unwrap();
}

/// A log of one instance from `from` on for `lasts` milliseconds.
fn log_of_one_instance(from: i64, lasts: i64, price: i64) -> Vec<u8> {
    let entry = |at, kind| Entry {
        object: ObjectRef::cluster("NodeClaim", "past"),
        pool: POOL.to_owned(),
        tenants: vec![TENANT.to_owned()],
        ..Entry::new(at, kind)
    };
    let instance = Some(InstanceFacts { capacity_type: "on-demand".to_owned(), ..InstanceFacts::default() });
    let payer = Payer {
        tenant: TENANT.to_owned(),
        namespace: TENANT.to_owned(),
        workload: "Deployment/web".to_owned(),
    };
    let share = Share { payer, purpose: Purpose::Used, cpu_millis: 1_000, memory_bytes: 4 << 30 };
    let usage = Some(Usage { cpu_millis: 2_000, memory_bytes: 8 << 30, shares: vec![share] });
    let launched = entry(from, EntryKind::Condition);
    let mut entries = [
        Entry { condition: "Launched=True".to_owned(), price: Some(price), instance, ..launched },
        Entry { price: Some(price), usage, ..entry(from + 60_000, EntryKind::State) },
        entry(from + lasts, EntryKind::Gone),
    ];
    let (mut writer, _) = Writer::resume([], Bounds::default());
    writer.append(&mut entries).remove(0).bytes
}

/// Replaces the log by this segment while no controller runs, as a log that began then or was overwritten.
async fn replace_log(stack: &mut Stack, segment: &[u8]) {
    stack.croft.kill(Part::Controller).unwrap();
    let api: Api<ConfigMap> = Api::namespaced(stack.plane.admin().await.unwrap(), "croft-system");
    for slot in 0..SLOTS {
        let bytes = if slot == 0 { segment.to_vec() } else { Vec::new() };
        let content = json!({"binaryData": {SEGMENT_KEY: k8s_openapi::ByteString(bytes)}});
        api.patch(&slot_name(slot), &PatchParams::default(), &Patch::Merge(content)).await.unwrap();
    }
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
}

/// Waits for the next leader's log, after the whole log was overwritten.
async fn overwrite_log(stack: &mut Stack) {
    replace_log(stack, &[]).await;
    until("a new log", EVENTUALLY, async || {
        let (code, said) = croft(&stack.plane, "cost").await?;
        Ok::<_, anyhow::Error>(Seen::from_option((code == 0).then_some(()), said))
    })
    .await
    .unwrap();
}

/// An instance that ran before the controller did, in milliseconds since 1970; `paid` is exact.
struct Past {
    from: i64,
    lasts: i64,
    now: i64,
    paid: u64,
}

/// Declares the tenant, and replaces the log by that of an instance which ran in the last three hours.
async fn record_past(stack: &mut Stack) -> Past {
    let mut documents = vec![class("default")];
    documents.extend(tenant(TENANT, POOL, &on_demand(&["m5.large"], json!({}))));
    stack.plane.apply(&joined(&documents)).await.unwrap();
    let now = hour_of(Timestamp::now().as_millisecond());
    let (from, lasts, price) = (now - 3 * HOUR_MILLIS + 600_000, 2 * HOUR_MILLIS - 123_456, 96_000);
    replace_log(stack, &log_of_one_instance(from, lasts, price)).await;
    Past { from, lasts, now, paid: u64::try_from(price * lasts).unwrap() }
}

/// Hours that no controller was there for are closed by the next one, counted by its metrics, and outlive the log.
#[tokio::test]
async fn closed_hours_outlive_the_log() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let Past { from, lasts, now, paid } = record_past(&mut stack).await;

    let api: Api<ConfigMap> = Api::namespaced(client, "croft-system");
    until("closed hours", EVENTUALLY, async || {
        let mut bytes = 0;
        for slot in SLOTS..SLOTS + LEDGER_SLOTS {
            let object = api.get(&slot_name(slot)).await?;
            bytes +=
                object.binary_data.unwrap_or_default().remove(SEGMENT_KEY).map_or(0, |data| data.0.len());
        }
        Ok::<_, kube::Error>(Seen::from_option((bytes > 0).then_some(()), "no slot".to_owned()))
    })
    .await
    .unwrap();
    let (rows, sum) = cost(&stack, from, now).await;
    assert_eq!(sum, paid, "{rows:#?}");
    let address = stack.croft.health(Part::Controller).unwrap();
    let metrics = until("the metric of closed hours", EVENTUALLY, async || {
        let text = http::get(address, "/metrics").await?.body;
        let line = text.lines().find(|line| {
            line.starts_with("croft_controller_ledger_cost_dollars_total{") && line.contains("\"used\"")
        });
        Ok::<_, anyhow::Error>(Seen::from_option(line.map(str::to_owned), text.clone()))
    })
    .await
    .unwrap();
    assert!(metrics.contains(&format!("tenant=\"{TENANT}\"")) && metrics.contains(POOL), "{metrics}");
    let used: f64 = metrics.rsplit(' ').next().unwrap().parse().unwrap();
    let half = (lasts - 60_000) as f64 / HOUR_MILLIS as f64 * 0.096 / 2.0;
    assert!((used - half).abs() < 1e-5, "{metrics}: {half}");

    // The log is overwritten, and the next leader goes on.
    overwrite_log(&mut stack).await;
    assert_eq!(cost(&stack, from, now).await, (rows, sum), "the ledger still has it");
    stack.check().unwrap();
}

/// The object store keeps what the cluster no longer has, and every command reads it there.
#[tokio::test]
async fn log_and_ledger_outlive_the_cluster_in_an_object_store() {
    const PLACE: &str = "s3://croft-record/prod";
    let folder = tempfile::tempdir().unwrap();
    let moto = Moto::start(folder.path(), &[]).await.unwrap();
    let address = moto.url.strip_prefix("http://").unwrap().parse().unwrap();
    assert_eq!(http::put(address, "/croft-record").await.unwrap().status, 200, "a bucket");
    let options = CroftOptions::find()
        .unwrap()
        .flag(Part::Controller, format!("--record-archive={PLACE}"))
        .flag(Part::Controller, format!("--aws-endpoint-url-s3={}", moto.url));
    let mut stack = Stack::start_with(Options::default(), options).await.unwrap();
    let Past { from, lasts, now, paid } = record_past(&mut stack).await;
    let leads = async |stack: &mut Stack| {
        let address = stack.croft.health(Part::Controller).unwrap();
        until("a leader that closed the hours", EVENTUALLY, async || {
            let text = http::get(address, "/metrics").await?.body;
            let closed = text.lines().any(|line| {
                line.strip_prefix("croft_controller_ledger_closed_timestamp_seconds ")
                    .is_some_and(|at| at != "0")
            });
            Ok::<_, anyhow::Error>(Seen::from_option(closed.then_some(()), text))
        })
        .await
        .unwrap();
    };
    leads(&mut stack).await;
    // A process that is asked to end copies what it has.
    stack.croft.stop(Part::Controller, EVENTUALLY).await.unwrap();

    let environment = [("AWS_ENDPOINT_URL_S3", moto.url.as_str()), ("AWS_REGION", "us-east-1")];
    let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap();
    let asked = [
        format!(
            "cost --by tenant,workload,purpose -o json --from {} --to {} --record {PLACE}",
            at(from),
            at(now)
        ),
        format!("explain node past --at {} --record {PLACE}", at(from + lasts / 2)),
        format!("history tenant {TENANT} --from {} --record {PLACE}", at(from)),
    ];
    let ask = async |stack: &Stack| {
        let mut answers = Vec::new();
        for arguments in &asked {
            let (code, said) = croft_with(&stack.plane, arguments, &environment).await.unwrap();
            assert_eq!(code, 0, "{arguments}: {said}");
            answers.push(said);
        }
        answers
    };
    let answers = ask(&stack).await;
    let (rows, sum) = rows(&answers[0]);
    assert_eq!(sum, paid, "{rows:#?}");
    assert!(answers[1].contains(&format!("used by {TENANT}")), "{}", answers[1]);
    assert!(answers[2].contains("NodeClaim/past"), "{}", answers[2]);

    // Every slot is overwritten, and another leader goes on in the archive.
    overwrite_log(&mut stack).await;
    stack.croft.stop(Part::Controller, EVENTUALLY).await.unwrap();
    let later = ask(&stack).await;
    assert_eq!(later[..2], answers[..2]);

    // A place that can't be read is named.
    let wrong = format!("cost --record {PLACE}");
    let (code, said) =
        croft_with(&stack.plane, &wrong, &[("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"), environment[1]])
            .await
            .unwrap();
    assert!(code == 1 && said.contains(PLACE), "{code}: {said}");
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
    stack.check().unwrap();
}
