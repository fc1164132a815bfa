//! Decision tables: what is, and what is to be done about it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{sync::Arc, time::Duration};

use croft_api::condition::{READY, Statement};
use croft_api::{EC2NodeClass, NodeClaim, TenantPool};
use croft_cloud::{ClassFindings, MachineState, Terminated};
use croft_controller::{
    action::{Action, Key, News, Report, Rest},
    engine::{Engine, KINDS, Step},
    seam::{Target, Verb},
    settings::Settings,
    snapshot::Change,
    time::Now,
};
use croft_scheduler::InstanceType;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const START_SECOND: i64 = 1_780_000_000;

fn at(seconds: u64) -> Now {
    Now {
        wall: Timestamp::from_second(START_SECOND + i64::try_from(seconds).unwrap()).unwrap(),
        mono: Duration::from_secs(seconds),
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Box<T> {
    Box::new(serde_json::from_value(value).unwrap())
}

fn time(seconds: u64) -> String {
    at(seconds).wall.to_string()
}

/// An engine that knows a class with its offers, and one pool.
struct Bench {
    engine: Engine,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { engine: Engine::new(Settings::default()) };
        for kind in KINDS {
            bench.see(0, Change::Synced(kind));
        }
        bench.see(
            0,
            Change::Class(read::<EC2NodeClass>(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass",
                "metadata": {"name": "class", "uid": "class-uid", "resourceVersion": "1", "generation": 1},
                "spec": {"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
            }))),
        );
        bench.see(
            0,
            Change::Pool(read::<TenantPool>(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
                "metadata": {"name": "pool-a", "uid": "pool-uid", "resourceVersion": "2", "generation": 1,
                    "finalizers": ["croft.dev/pool"]},
                "spec": {"key": "node-pool", "disruption": {"consolidateAfter": "30s"},
                    "template": {"spec": {"nodeClassRef": {"name": "class"}}}},
            }))),
        );
        // What is asked about the class is answered at once; everything else is left to the tests.
        let step = bench.engine.step(at(0));
        for action in step.actions {
            bench.answer(0, action);
        }
        let step = bench.engine.step(at(0));
        for action in step.actions {
            bench.answer(0, action);
        }
        bench
    }

    fn answer(&mut self, seconds: u64, action: Action) {
        let keys = action.keys();
        let news = match action {
            Action::Resolve(_) => vec![News::Findings(
                "class".to_owned(),
                Box::new(ClassFindings {
                    conditions: vec![Statement {
                        kind: READY,
                        status: Some(true),
                        reason: "Ready",
                        message: String::new(),
                    }],
                    ..ClassFindings::default()
                }),
            )],
            Action::AskOffers(_) => vec![News::Offers("class".to_owned(), Ok(types()))],
            _ => Vec::new(),
        };
        self.engine.complete(Report { news, ..Report::done(keys) }, at(seconds));
    }

    fn see(&mut self, seconds: u64, change: Change) {
        self.engine.observe(change, at(seconds));
    }

    /// The actions of a step that aren't upkeep of pools, classes and lists.
    fn decide(&mut self, seconds: u64) -> Vec<Action> {
        let Step { actions, .. } = self.engine.step(at(seconds));
        let (kept, upkeep): (Vec<_>, Vec<_>) = actions.into_iter().partition(|action| {
            !matches!(
                action,
                Action::ListMachines
                    | Action::Resolve(_)
                    | Action::AskOffers(_)
                    | Action::Sweep { .. }
                    | Action::Tell(_)
            ) && !action.keys().iter().all(|key| matches!(key, Key::Pool(_)))
        });
        for action in upkeep {
            self.answer(seconds, action);
        }
        kept
    }
}

fn types() -> Arc<[InstanceType]> {
    croft_cloud::builtin_catalog()
        .iter()
        .filter(|t| t.name == "m5.large" || t.name == "m5.xlarge")
        .cloned()
        .collect()
}

fn pod(name: &str, node: Option<&str>) -> Change {
    Change::Pod(read(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "tenant-a", "uid": format!("{name}-uid"),
            "resourceVersion": if node.is_some() { "500" } else { "100" }},
        "spec": {
            "nodeName": node,
            "nodeSelector": {"node-pool": "pool-a"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Pending"},
    })))
}

fn claim(version: u64, status: Value, deleted: bool) -> Change {
    let mut object = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
        "metadata": {"name": "pool-a-1", "uid": "claim-uid", "resourceVersion": version.to_string(),
            "creationTimestamp": time(0), "finalizers": ["croft.dev/termination"]},
        "spec": {"pool": "pool-a", "nodeClassRef": {"name": "class"}, "instanceTypes": ["m5.large"],
            "zones": ["us-east-1a"], "capacityType": "on-demand", "labels": {"node-pool": "pool-a"},
            "taints": [{"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"}]},
        "status": status,
    });
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!(time(0));
    }
    Change::Claim(read::<NodeClaim>(object))
}

fn condition(kind: &str, since: u64) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time(since)})
}

fn launched(more: &[&str]) -> Value {
    let mut conditions = vec![condition("Launched", 0)];
    conditions.extend(more.iter().map(|kind| condition(kind, 0)));
    json!({"providerId": "aws:///us-east-1a/i-1", "nodeName": "node-1", "instanceType": "m5.large",
        "zone": "us-east-1a", "capacityType": "on-demand", "conditions": conditions})
}

fn node(version: u64, provider_id: &str, labels: Value, taints: Value, ready: bool) -> Change {
    Change::Node(read(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-1", "uid": "node-uid", "resourceVersion": version.to_string(), "labels": labels},
        "spec": {"providerID": provider_id, "taints": taints,
            "unschedulable": taints_have(&taints, "croft.dev/disrupted")},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "allocatable": {"cpu": "1930m", "memory": "7Gi", "pods": "29"}},
    })))
}

fn taints_have(taints: &Value, key: &str) -> bool {
    taints.as_array().is_some_and(|t| t.iter().any(|t| t["key"] == json!(key)))
}

fn registered_labels() -> Value {
    json!({"node-pool": "pool-a", "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/zone": "us-east-1a", "karpenter.sh/capacity-type": "on-demand"})
}

fn verb(actions: &[Action]) -> (&Target, &Verb) {
    match actions {
        [Action::Write { call, .. }] => (&call.target, &call.verb),
        other => panic!("one write expected, not {other:?}"),
    }
}

#[test]
fn pods_are_planned_once_their_batch_is_idle_and_not_again_while_claims_are_made() {
    let mut bench = Bench::new();
    bench.see(1, pod("a", None));
    assert!(bench.decide(1).is_empty(), "the batch is open");
    let actions = bench.decide(2);
    let [Action::CreateClaims(new)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((new.pool.as_str(), new.counter, new.claims.len()), ("pool-a", 1, 1));
    assert_eq!(new.claims[0].object["metadata"]["finalizers"], json!(["croft.dev/termination"]));
    bench.see(3, pod("b", None));
    assert!(bench.decide(5).is_empty(), "the next plan waits until the claims are known");
}

#[test]
fn a_pod_whose_claim_was_not_made_is_planned_again() {
    let mut bench = Bench::new();
    bench.see(1, pod("a", None));
    bench.decide(1);
    let actions = bench.decide(2);
    let [Action::CreateClaims(new)] = &actions[..] else { panic!("{actions:?}") };
    let news = vec![News::NotCreated(new.claims.iter().map(|c| c.name.clone()).collect())];
    bench.engine.complete(Report { news, rest: Rest::None, ..Report::done(actions[0].keys()) }, at(2));
    bench.decide(2);
    assert!(matches!(&bench.decide(4)[..], [Action::CreateClaims(_)]));
}

#[test]
fn a_new_claim_is_launched_and_a_refused_one_is_deleted() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, json!({}), false));
    let actions = bench.decide(1);
    let [Action::Launch(launch)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(launch.request.attempt, 1);
    assert!(launch.request.taints.iter().any(|t| t.key == "croft.dev/unregistered"));
    assert!(!launch.request.labels.contains_key("node-pool"), "a kubelet may not set the pool's key");
    bench.engine.complete(Report::done(actions[0].keys()), at(1));

    let refused = json!({"attempt": {"number": 1, "requestHash": "h"}, "conditions": [
        {"type": "Launched", "status": "False", "reason": "NoCapacity", "message": "m", "lastTransitionTime": time(1)}]});
    bench.see(2, claim(11, refused, false));
    let actions = bench.decide(2);
    assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Delete { uid, .. }) if uid == "claim-uid"));
}

#[test]
fn an_unanswered_launch_is_repeated_however_its_condition_reads() {
    let mut bench = Bench::new();
    let open = json!({"attempt": {"number": 1, "requestHash": "h", "request": "stored"}, "conditions": [
        {"type": "Launched", "status": "False", "reason": "R", "message": "", "lastTransitionTime": time(0)}]});
    bench.see(1, claim(10, open, false));
    assert!(matches!(&bench.decide(1)[..], [Action::Launch(_)]));
}

#[test]
fn only_the_machine_itself_is_registered() {
    let taints = json!([{"key": "croft.dev/unregistered", "effect": "NoExecute"},
        {"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"}]);
    for (provider_id, expected) in [("aws:///us-east-1a/i-1", true), ("aws:///us-east-1a/i-2", false)] {
        let mut bench = Bench::new();
        bench.see(1, claim(10, launched(&[]), false));
        bench.see(1, node(20, provider_id, json!({}), taints.clone(), false));
        let actions = bench.decide(1);
        match &actions[..] {
            [Action::Register(registration)] if expected => {
                assert_eq!(registration.patch["metadata"]["labels"]["node-pool"], "pool-a");
                let taints = registration.patch["spec"]["taints"].as_array().unwrap();
                let keys: Vec<_> = taints.iter().map(|t| t["key"].as_str().unwrap()).collect();
                assert_eq!(keys, ["node-pool"]);
            }
            [] if !expected => {}
            other => panic!("{provider_id}: {other:?}"),
        }
    }
}

#[test]
fn a_node_that_never_comes_gives_its_machine_back() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&[]), false));
    assert!(bench.decide(899).is_empty());
    let actions = bench.decide(900);
    assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Delete { .. })));
}

#[test]
fn labels_that_somebody_changed_are_put_back() {
    let mut bench = Bench::new();
    let mut labels = registered_labels();
    labels["node-pool"] = json!("pool-b");
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, pod("a", Some("node-1")));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", labels, json!([]), true));
    let actions = bench.decide(1);
    let (Target::Node(_), Verb::Patch(patch)) = verb(&actions) else { panic!("{actions:?}") };
    assert_eq!(patch["metadata"]["labels"], json!({"node-pool": "pool-a"}));
}

#[test]
fn a_claim_being_deleted_is_cordoned_drained_terminated_confirmed_and_released() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.see(1, pod("a", Some("node-1")));
    let actions = bench.decide(1);
    assert!(matches!(verb(&actions), (Target::Node(_), Verb::Patch(_))));
    bench.engine.complete(Report::done(actions[0].keys()), at(1));

    bench.see(2, node(21, "aws:///us-east-1a/i-1", registered_labels(), disrupted.clone(), true));
    let actions = bench.decide(2);
    assert!(matches!(verb(&actions), (Target::Pod(..), Verb::Evict { uid }) if uid == "a-uid"));
    bench.engine.complete(
        Report { rest: Rest::For(Duration::from_secs(2)), ..Report::done(actions[0].keys()) },
        at(2),
    );
    assert!(bench.decide(3).is_empty(), "the eviction rests, and the machine waits for it");

    bench.see(5, Change::PodGone(croft_scheduler::PodKey::new("tenant-a", "a")));
    let actions = bench.decide(5);
    assert!(matches!(&actions[..], [Action::Terminate { ids }] if ids == &["i-1"]));
    let news = |state| vec![News::Terminated(vec![Terminated { id: "i-1".to_owned(), state }])];
    let rest = Rest::For(Duration::from_secs(3));
    bench.engine.complete(
        Report { news: news(MachineState::ShuttingDown), rest, ..Report::done(actions[0].keys()) },
        at(5),
    );
    assert!(bench.decide(6).is_empty());
    let actions = bench.decide(8);
    assert!(matches!(&actions[..], [Action::Terminate { .. }]), "asked again until it is gone");
    bench.engine.complete(
        Report { news: news(MachineState::Terminated), rest, ..Report::done(actions[0].keys()) },
        at(8),
    );
    let actions = bench.decide(8);
    assert!(matches!(verb(&actions), (Target::Node(_), Verb::Delete { .. })));
    bench.see(9, Change::NodeGone("node-1".to_owned()));
    let actions = bench.decide(9);
    let (Target::Claim(_), Verb::Patch(patch)) = verb(&actions) else { panic!("{actions:?}") };
    assert_eq!(patch["metadata"]["finalizers"], json!([]));
}

#[test]
fn a_claim_that_was_never_sent_is_released_and_one_without_answer_is_looked_for() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, json!({}), true));
    let actions = bench.decide(1);
    assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Patch(_))));

    let mut bench = Bench::new();
    let open = json!({"attempt": {"number": 1, "requestHash": "h", "request": "stored"}});
    bench.see(1, claim(10, open, true));
    let actions = bench.decide(1);
    assert!(matches!(&actions[..], [Action::FindMachine(_)]));
    bench.engine.complete(
        Report { news: vec![News::NoMachine("pool-a-1".to_owned())], ..Report::done(actions[0].keys()) },
        at(1),
    );
    assert!(matches!(&bench.decide(60)[..], [Action::FindMachine(_)]), "absence needs patience");
    bench.engine.complete(Report::done(vec![Key::Claim("pool-a-1".to_owned())]), at(60));
    let actions = bench.decide(121);
    assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Patch(_))));
}
