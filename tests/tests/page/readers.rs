//! The answers that each reader gets by the API.

use std::time::Duration;

use clap::CommandFactory as _;
use croft_testkit::{
    Options, Part, http,
    wait::{Seen, until},
};
use croft_tests::{
    audit::{Audit, PAGE_USER},
    cli::croft_as,
    page_reader::{Answer, OPERATOR, PageReader},
    stack::{EVENTUALLY, log_tail},
};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    endpoints::{Call, Names, calls, hours_ago, shared},
    identity::uses_what_is_granted,
    world::{READER, SHARED, TENANTS, World},
};

async fn answer(reader: &PageReader, Call { method, path, body }: &Call) -> Answer {
    // One simulation runs at a time, and others wait for their turn for five seconds.
    until(path, EVENTUALLY, async || {
        let answer = reader.ask(method, path, body).await?;
        anyhow::Ok(Seen::from_option((answer.status != 429).then(|| answer.clone()), answer.text))
    })
    .await
    .unwrap()
}

/// No request without a token for the page, or of an account without rights, gets anything.
async fn requests_without_rights_are_refused(world: &World, calls: &[Call]) {
    let without_rights = world.reader((TENANTS[0], "without-rights")).await;
    let for_the_api_server = world.stack.plane.token_for(TENANTS[0], READER, None).await.unwrap();
    let refused = [
        (401, world.anonymous.clone()),
        (401, world.anonymous.with_token("no token at all")),
        (401, world.anonymous.with_token(for_the_api_server)),
        (403, without_rights),
    ];
    let stream = Call { method: "get", path: "/api/v1/events".to_owned(), body: String::new() };
    for (status, reader) in refused {
        for call in calls.iter().chain([&stream]) {
            let answer = answer(&reader, call).await;
            assert_eq!(answer.status, status, "{call:?}: {}", answer.text);
            for tenant in TENANTS {
                assert!(!answer.text.contains(&format!("pool-{tenant}")), "{call:?}: {}", answer.text);
            }
        }
    }
    let wrong = world.anonymous.ask("post", "/api/v1/session", r#"{"token": "wrong"}"#).await.unwrap();
    assert_eq!(wrong.status, 401, "{}", wrong.text);
}

/// A tenant's reader gets its own tenant, nothing that has another's names, and of another's names the answer for names that
/// there are none of.
async fn a_tenants_reader_sees_its_own(world: &World, mine: &str, other: &str) {
    let reader = world.reader((mine, READER)).await;
    let secret = world.names_of(other).await;
    assert!(secret.len() >= 4, "tenant, node, instance and claim: {secret:?}");
    let check = |call: &Call, answer: &Answer| {
        let found: Vec<&String> = secret.iter().filter(|name| answer.text.contains(*name)).collect();
        assert!(found.is_empty(), "{mine} gets {found:?} by {call:?}: {}", answer.text);
    };
    let (own, foreign, none) =
        (Names::of(world, mine).await, Names::of(world, other).await, Names::nothing());
    let shared = shared(&world.node(SHARED).await);
    for call in calls(&own).iter().chain(&shared) {
        let answer = answer(&reader, call).await;
        let expected = if call.path == "/api/v1/plans" { 403 } else { 200 };
        assert_eq!(answer.status, expected, "{call:?}: {}", answer.text);
        check(call, &answer);
    }
    let mut compared = 0;
    for (call, nothing) in calls(&foreign).iter().zip(calls(&none)) {
        let (theirs, nothing) = (answer(&reader, call).await, answer(&reader, &nothing).await);
        if theirs.status == 200 {
            // It names nothing.
            check(call, &theirs);
            continue;
        }
        let mut told = theirs.text.clone();
        for name in foreign.all() {
            told = told.replace(name, "no-such-name");
        }
        assert_eq!((theirs.status, told), (nothing.status, nothing.text), "{call:?}");
        compared += 1;
    }
    assert!(compared >= 7, "tenant, pool, node, claim, two pods, history and what-if: {compared}");

    let overview = reader.get("/api/v1/overview").await.unwrap().json();
    let names = |list: &str| -> Vec<Value> {
        overview[list].as_array().unwrap().iter().map(|row| row["name"].clone()).collect()
    };
    assert_eq!(names("tenants"), [json!(mine)], "{overview}");
    assert_eq!(names("pools"), [json!(own.pool), json!(SHARED)], "{overview}");
    let row = &overview["tenants"][0];
    assert_eq!(
        (&row["pods"], &row["pending"], &row["violations"]),
        (&json!(3), &json!(1), &json!(0)),
        "{row}"
    );
    let of_shared = reader.get(&format!("/api/v1/pools/{SHARED}")).await.unwrap().json();
    assert_eq!((&of_shared["pods"], &of_shared["tenants"]), (&json!(1), &json!([mine])), "{of_shared}");
    let pending = reader.get(&format!("/api/v1/pods/{mine}/{}", own.pods[1])).await.unwrap().json();
    assert_eq!(pending["pod"]["reason"], json!("InsufficientResources"), "{pending}");
    assert!(!pending["outlook"]["reasons"].as_array().unwrap().is_empty(), "{pending}");
    let running = reader.get(&format!("/api/v1/pods/{mine}/{}", own.pods[0])).await.unwrap().json();
    assert_eq!(running["node"]["name"], json!(own.node.0), "{running}");
    assert!(
        running["here"].as_str().is_some_and(|here| here.starts_with("This node was launched for it")),
        "{running}"
    );
    assert!(!running["timeline"].as_array().unwrap().is_empty(), "its life in the log: {running}");
    let node = reader.get(&format!("/api/v1/nodes/{}", own.node.1)).await.unwrap().json();
    assert_eq!((&node["name"], &node["node"]["state"]), (&json!(own.node.0), &json!("ready")), "{node}");
    assert!(
        node["node"]["price"].as_i64() > Some(0)
            && node["launch"]["pods"].as_array().is_some_and(|pods| !pods.is_empty()),
        "{node}"
    );
    let cost = reader.get(&format!("/api/v1/cost?from={}", hours_ago(3))).await.unwrap().json();
    assert!(!cost["lines"].as_array().unwrap().is_empty(), "{cost}");
}

async fn an_operator_sees_everything(world: &World) {
    let operator = world.reader(OPERATOR).await;
    for tenant in TENANTS {
        for call in calls(&Names::of(world, tenant).await) {
            let answer = answer(&operator, &call).await;
            assert_eq!(answer.status, 200, "{call:?}: {}", answer.text);
        }
    }
    let overview = operator.get("/api/v1/overview").await.unwrap().json();
    assert_eq!(overview["tenants"].as_array().unwrap().len(), 2, "{overview}");
    let plans = operator.get("/api/v1/plans").await.unwrap().json();
    assert!(plans[0]["plan"]["steps"].as_u64() > Some(0), "{plans}");
}

/// Reads a stream of events until one has `last`. Returns everything that it carried.
async fn read_events(reader: &PageReader, last: &'static str) -> JoinHandle<String> {
    let mut events = reader.events().await.unwrap();
    tokio::spawn(async move {
        let mut text = String::new();
        while let Some(part) = events.next().await {
            text.push_str(&part.unwrap());
            if text.contains(last) {
                return text;
            }
        }
        panic!("the stream ended: {text}");
    })
}

/// A launch for one tenant is an event for operators and that tenant. The other tenant's stream has nothing of it, though it
/// goes on.
async fn events_reach_their_readers_alone(world: &World) {
    let [mine, other] = TENANTS;
    let secret_before = world.names_of(other).await;
    let operator = read_events(&world.reader(OPERATOR).await, "\"pools\":[\"pool-alpha\"").await;
    let theirs = read_events(&world.reader((other, READER)).await, "\"state\":\"launching\"").await;
    let own = read_events(&world.reader((mine, READER)).await, "\"state\":\"launching\"").await;
    let scale = async |tenant: &str, replicas: &str| {
        let deployment = format!("deployment/{tenant}-web");
        world
            .stack
            .plane
            .kubectl(["scale", &deployment, "-n", tenant, "--replicas", replicas])
            .await
            .unwrap();
    };
    scale(other, "3").await;
    let theirs = tokio::time::timeout(EVENTUALLY, theirs).await.expect("an event of a launch").unwrap();
    assert!(theirs.contains("pool-bravo"), "{theirs}");
    let mut secret = world.names_of(other).await;
    secret.extend(secret_before);
    assert!(!own.is_finished(), "nothing was launched for {mine}");
    scale(mine, "3").await;
    let own = tokio::time::timeout(EVENTUALLY, own).await.expect("an event of a launch").unwrap();
    let found: Vec<&String> = secret.iter().filter(|name| own.contains(*name)).collect();
    assert!(found.is_empty(), "{mine} gets {found:?}: {own}");
    let all = tokio::time::timeout(EVENTUALLY, operator).await.expect("an event of the pool").unwrap();
    assert!(all.contains("pool-bravo"), "{all}");
}

/// The commands of tenants' people, who have rights in their own namespace alone.
async fn commands_ask_the_page(world: &mut World, mine: &str, other: &str) {
    let page = world.stack.croft.address(Part::Page).unwrap();
    let plane = &world.stack.plane;
    let kubeconfig = plane.kubeconfig_for("alpha-user", &["alpha-people"]).unwrap();
    let edit = ["create", "rolebinding", "people", "-n", mine, "--clusterrole=edit", "--group=alpha-people"];
    plane.kubectl(edit).await.unwrap();
    let ask = async |what: &str| {
        let ca = plane.authority_files().0;
        let words =
            format!("{what} --page https://{page} --page-ca {} --as-account {mine}/{READER}", ca.display());
        croft_as(&kubeconfig, &words).await.unwrap()
    };
    let [own, foreign] = [Names::of(world, mine).await, Names::of(world, other).await];
    let secret = world.names_of(other).await;
    let manifest = plane.folder().join("new.yaml");
    std::fs::write(&manifest, calls(&own).iter().map(|call| call.body.as_str()).collect::<String>()).unwrap();
    for (command, expected) in [
        (format!("explain pod {} -n {mine}", own.pods[0]), own.node.0.clone()),
        (format!("explain pod {} -n {mine}", own.pods[1]), "InsufficientResources".to_owned()),
        (format!("explain pod {} -n {mine} --at {}", own.pods[0], utc(hours_ago(0))), own.node.0.clone()),
        (format!("history tenant {mine} -o json"), own.node.1.clone()),
        (format!("cost -o json --from {}", utc(hours_ago(3))), mine.to_owned()),
        (format!("cost -o focus --from {}", utc(hours_ago(3))), mine.to_owned()),
        (format!("plan -f {} -n {mine} -o json", manifest.display()), own.pool.clone()),
        (format!("cost --by tenant --from {}", utc(hours_ago(3))), mine.to_owned()),
        (format!("history tenant {mine}"), "(--verbose shows each)".to_owned()),
        (format!("history tenant {mine} --verbose"), own.node.1.clone()),
        (format!("plan -f {} -n {mine}", manifest.display()), own.pool.clone()),
    ] {
        let (code, text) = ask(&command).await;
        assert!(code == 0 && text.contains(&expected), "{command}: {code} {text}");
        assert!(!secret.iter().any(|name| text.contains(name)), "{command}: {text}");
    }
    let (code, text) = ask(&format!("explain pod {} -n {other}", foreign.pods[0])).await;
    assert!(code != 0 && text.contains("404"), "{code} {text}");
    for (command, is_allowed) in every_other_command(&own, &foreign) {
        let (code, text) = croft_as(&kubeconfig, &command).await.unwrap();
        assert_eq!(code == 0, is_allowed, "{command}: {text}");
        // A refusal repeats the name that was asked for.
        let told = |name: &&String| text.contains(*name) && !command.contains(*name);
        assert_eq!(secret.iter().find(told), None, "{command}: {text}");
    }
}

/// Every command, as a tenant's person runs it without the page, and whether their own namespace is all that it reads: the API
/// server refuses the rest.
fn every_other_command(own: &Names, foreign: &Names) -> Vec<(String, bool)> {
    let mut calls = Vec::new();
    for command in croft_cli::Cli::command().get_subcommands() {
        let name = command.get_name();
        let of_command: Vec<String> = match name {
            // They ask no cluster, or change things: `croft_cli` has tests of each.
            "admit" | "break-glass" | "catalog" | "completion" | "import" | "lab" | "page" | "pause"
            | "resume" | "tenant" | "version" => Vec::new(),
            "events" => {
                calls.push((format!("events -n {}", own.namespace), true));
                vec![format!("events -n {}", foreign.namespace), "events".to_owned()]
            }
            "explain" => vec![
                format!("explain pod {} -n {}", own.pods[0], own.namespace),
                format!("explain pod {} -n {}", foreign.pods[0], foreign.namespace),
                format!("explain node {}", own.node.0),
                format!("explain pool {}", own.pool),
                format!("explain tenant {}", own.tenant),
            ],
            "history" => vec![format!("history tenant {}", own.tenant)],
            "simulate" => vec!["simulate --at 0s".to_owned()],
            "plan" => vec!["plan --live".to_owned()],
            "debug" => vec!["debug dump".to_owned(), "debug record".to_owned()],
            "top" => {
                ["json", "yaml", "wide", "csv"].map(|format| format!("top --nodes -o {format}")).to_vec()
            }
            "advise" | "audit" | "check" | "cost" | "uninstall" => vec![name.to_owned()],
            _ => panic!("{name} is new: say how a tenant's person calls it"),
        };
        calls.extend(of_command.into_iter().map(|words| (words, false)));
    }
    calls
}

fn utc(millis: i64) -> String {
    k8s_openapi::jiff::Timestamp::from_millisecond(millis).unwrap().to_string()
}

/// One reader opens streams until the page refuses; everybody else still gets one, and the reader keeps its own.
async fn streams_are_shared_among_readers(world: &World) {
    let [mine, other] = TENANTS;
    let greedy = world.reader((mine, READER)).await;
    let mut open = Vec::new();
    let refused = loop {
        match greedy.events().await {
            Ok(stream) => open.push(stream),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("429"), "{refused}");
    assert_eq!(open.len(), 128, "half of --max-streams");
    for reader in [OPERATOR, (other, READER)] {
        let stream = world.reader(reader).await.events().await;
        assert!(stream.is_ok(), "{reader:?}: {:?}", stream.err());
    }
}

/// A right that is taken away counts no longer than the page says.
async fn a_revoked_right_ends_reading(world: &World, mine: &str) {
    let reader = world.reader((mine, READER)).await;
    let mut events = reader.events().await.unwrap();
    world.stack.plane.kubectl(["delete", "rolebinding", READER, "-n", mine]).await.unwrap();
    until("the end of a right", EVENTUALLY, async || {
        let answer = reader.get("/api/v1/overview").await?;
        anyhow::Ok(Seen::from_option((answer.status == 403).then_some(()), answer.text))
    })
    .await
    .unwrap();
    let end = async { while events.next().await.is_some_and(|part| part.is_ok()) {} };
    tokio::time::timeout(EVENTUALLY, end).await.expect("the stream ends with the right");
}

#[tokio::test]
async fn each_reader_gets_its_own_part_by_every_route() {
    let (mut audit, options) = Audit::new(Options::default(), &[PAGE_USER]).unwrap();
    let mut world = World::start(options).await;
    let [alpha, bravo] = TENANTS;
    requests_without_rights_are_refused(&world, &calls(&Names::of(&world, alpha).await)).await;
    a_tenants_reader_sees_its_own(&world, alpha, bravo).await;
    a_tenants_reader_sees_its_own(&world, bravo, alpha).await;
    an_operator_sees_everything(&world).await;
    commands_ask_the_page(&mut world, alpha, bravo).await;
    events_reach_their_readers_alone(&world).await;
    streams_are_shared_among_readers(&world).await;
    a_revoked_right_ends_reading(&world, alpha).await;
    let health = world.stack.croft.health(Part::Page).unwrap();
    let metrics = http::get(health, "/metrics").await.unwrap().body;
    for line in [
        r#"croft_page_requests_total{route="/api/v1/tenants/{name}",code="404"} "#,
        r#"croft_page_model_objects{kind="tenants"} 2"#,
        r#"croft_page_reviews_total{kind="SubjectAccessReview"} "#,
    ] {
        assert!(metrics.contains(line), "{line} isn't in {metrics}");
    }
    assert!(!TENANTS.iter().any(|tenant| metrics.contains(tenant)), "no name of an object: {metrics}");
    uses_what_is_granted(&world.admin, &audit.take().unwrap()).await;
    let log = log_tail(&world.stack.plane, "croft-page");
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    // It ends when it is asked to, and not before.
    let status = world.stack.croft.stop(Part::Page, Duration::from_secs(30)).await.unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    world.stack.check().unwrap();
}
