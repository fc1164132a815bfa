//! Limits also count instances without a claim.

use std::collections::BTreeMap;

use croft_api::CroftConfig;
use croft_cloud::{CloudInstance, InstanceState};
use croft_controller::{
    action::{Action, Key},
    config::settings::Settings,
    engine::Engine,
    kube_api::{Call, Change, Kind, ObjectId, Response, Target, Verb},
    result::{ActionReport, ActionResult},
};
use croft_scheduler::CapacityType;
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, launched, node, pod, read, registered_labels};

/// A pool that one m5.large fills.
fn full_pool() -> Bench {
    Bench::with_pool(&json!({"limits": {"cpu": "2"}}))
}

/// The instance of the first claim.
fn instance() -> CloudInstance {
    CloudInstance {
        id: "i-1".to_owned(),
        provider_id: "aws:///us-east-1a/i-1".to_owned(),
        node_name: "node-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        image_id: String::new(),
        state: InstanceState::Running,
        launched_at: at(0).wall.as_second(),
        health: None,
        ended_at: None,
        claim: Some("pool-a-1".to_owned()),
        claim_uid: Some("claim-uid".to_owned()),
        pool: Some("pool-a".to_owned()),
        tags: BTreeMap::new(),
    }
}

fn running() -> Value {
    let mut status = launched(&[]);
    status["capacity"] = json!({"cpu": "2", "memory": "8Gi", "pods": "29"});
    status
}

fn list(bench: &mut Bench, seconds: u64, instances: Vec<CloudInstance>) {
    let news = vec![ActionResult::Instances(at(seconds), instances)];
    bench.engine.complete(
        ActionReport { results: news, ..ActionReport::done(vec![Key::ListInstances]) },
        at(seconds),
    );
}

fn lose_the_claim(bench: &mut Bench, seconds: u64) {
    let gone = ObjectId::new(Kind::NodeClaim, "", "pool-a-1").with_uid("claim-uid");
    bench.see(seconds, Change::Gone(gone));
}

fn makes_claims(bench: &mut Bench, seconds: u64) -> bool {
    // The first look opens the batch, the second one plans it.
    let mut actions = bench.decide(seconds);
    actions.extend(bench.decide(seconds + 2));
    let made = actions.iter().any(|action| matches!(action, Action::CreateClaims(_)));
    let ended: Vec<Key> = actions.iter().flat_map(Action::keys).collect();
    bench.engine.complete(ActionReport::done(ended), at(seconds + 2));
    made
}

#[test]
fn an_instance_whose_claim_was_taken_away_counts_until_it_is_gone() {
    for status in
        [running(), json!({"attempt": {"number": 1, "requestHash": "h", "request": "r"}}), json!({})]
    {
        let mut bench = full_pool();
        bench.see(1, claim(10, status.clone(), false));
        bench.decide(1);
        lose_the_claim(&mut bench, 2);
        bench.see(2, pod("a", None));
        assert!(!makes_claims(&mut bench, 2), "{status}");
        // A list of so soon after doesn't show every instance yet.
        list(&mut bench, 10, Vec::new());
        assert!(!makes_claims(&mut bench, 10), "{status}");
        list(&mut bench, 60, vec![instance()]);
        assert!(!makes_claims(&mut bench, 60), "{status}");
        list(&mut bench, 130, Vec::new());
        let has_id = status == running();
        assert_eq!(makes_claims(&mut bench, 130), !has_id, "{status}");
        if has_id {
            // An instance that lists lack may have lost its tag: the cloud is asked about its id.
            let ended = CloudInstance { state: InstanceState::Terminated, ..instance() };
            let said = ActionResult::InstancesDescribed(at(133).mono, vec![ended.id.clone()], vec![ended]);
            bench
                .engine
                .complete(ActionReport { results: vec![said], ..ActionReport::done(Vec::new()) }, at(133));
            assert!(makes_claims(&mut bench, 134), "{status}");
        }
    }
}

#[test]
fn an_instance_that_the_cloud_shows_as_ended_counts_no_longer() {
    let mut bench = full_pool();
    bench.see(1, claim(10, running(), false));
    lose_the_claim(&mut bench, 2);
    list(&mut bench, 3, vec![CloudInstance { state: InstanceState::ShuttingDown, ..instance() }]);
    bench.see(3, pod("a", None));
    assert!(makes_claims(&mut bench, 3));
}

#[test]
fn a_claim_that_was_released_leaves_its_place_at_once() {
    let mut bench = full_pool();
    bench.see(1, claim(10, running(), true));
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    let mut released = claim(11, running(), true);
    released.metadata.finalizers = None;
    bench.engine.snapshot_mut().observe_response(Response::Claim(released), at(5));
    assert!(makes_claims(&mut bench, 5));
}

#[test]
fn an_instance_that_is_found_without_a_claim_counts_once() {
    let mut bench = full_pool();
    list(&mut bench, 1, vec![instance()]);
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    // Twice the instance would fit now: its node counts, and not the instance as well.
    bench.see(5, crate::bench::pool(5, &json!({"limits": {"cpu": "4"}})));
    let mut labels = registered_labels();
    labels["node-restriction.kubernetes.io/pool"] = json!("pool-a");
    let closed = json!([{"key": "other", "effect": "NoSchedule"}]);
    bench.see(5, node(20, "aws:///us-east-1a/i-1", labels, closed, true));
    assert!(makes_claims(&mut bench, 5));
}

fn config(version: u64, limits: &Value) -> Box<CroftConfig> {
    read(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
        "metadata": {"name": "default", "uid": "config-uid", "resourceVersion": version.to_string(), "generation": 1},
        "spec": {"limits": limits},
    }))
}

/// The status of the CroftConfig as the controller writes it, by condition: status, reason, message.
fn said(bench: &mut Bench, seconds: u64) -> BTreeMap<String, (String, String, String)> {
    conditions(&bench.engine.step(at(seconds)).actions)
}

fn conditions(actions: &[Action]) -> BTreeMap<String, (String, String, String)> {
    let written = actions.iter().find_map(|action| match action {
        Action::Write {
            call: Call { target: Target::Config(_), verb: Verb::PatchStatus(patch) }, ..
        } => Some(patch["status"]["conditions"].clone()),
        _ => None,
    });
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    written
        .iter()
        .flat_map(|conditions| conditions.as_array().unwrap())
        .map(|c| (text(&c["type"]), (text(&c["status"]), text(&c["reason"]), text(&c["message"]))))
        .collect()
}

#[test]
fn cluster_limits_hold_beside_those_of_pools() {
    for (limits, launches) in [
        (json!({"nodes": 0}), false),
        (json!({"cpu": 1}), false),
        (json!({"costPerHour": "0.05"}), false),
        (json!({"nodes": 1, "cpu": "2", "costPerHour": "0.1"}), true),
        // A limit that can't be read must not count as no limit.
        (json!({"nodes": "many"}), false),
        (json!({}), true),
    ] {
        let mut bench = Bench::new();
        bench.see(1, config(10, &limits));
        bench.see(1, pod("a", None));
        assert_eq!(makes_claims(&mut bench, 1), launches, "{limits}");
        // A CroftConfig that is absent for a moment is no evidence: its limits end after a minute without it.
        bench.see(10, Change::Gone(ObjectId::new(Kind::CroftConfig, "", "default").with_uid("config-uid")));
        bench.see(10, pod("b", None));
        assert!(launches || !makes_claims(&mut bench, 10), "{limits}");
        assert!(launches || !makes_claims(&mut bench, 60), "{limits}");
        assert!(launches || makes_claims(&mut bench, 70), "{limits}");
    }
}

#[test]
fn a_response_that_arrives_after_the_deletion_restores_no_config() {
    let mut bench = Bench::new();
    let none = json!({"nodes": 0});
    bench.see(1, config(10, &none));
    bench.see(2, Change::Gone(ObjectId::new(Kind::CroftConfig, "", "default").with_uid("config-uid")));
    bench.engine.snapshot_mut().observe_response(Response::Config(config(11, &none)), at(3));
    bench.see(4, pod("a", None));
    assert!(!makes_claims(&mut bench, 4));
    assert!(makes_claims(&mut bench, 70));
}

#[test]
fn event_of_a_jobs_pod_says_how_many_of_its_siblings_have_room() {
    let mut bench = full_pool();
    for name in ["a", "b", "c", "d"] {
        let mut of_job = pod(name, None);
        of_job.metadata.owner_references = Some(*read(json!([
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train-uid", "controller": true}
        ])));
        bench.see(1, of_job);
    }
    assert!(makes_claims(&mut bench, 1));
    bench.decide(4);
    let expected = "there is room for 1 of 4 pods of Job train within limit cpu of TenantPool pool-a";
    let limited: Vec<&String> =
        bench.told.iter().filter(|(reason, _)| reason == "PoolLimit").map(|(_, note)| note).collect();
    assert!(limited.len() >= 3, "{:?}", bench.told);
    assert!(limited.iter().all(|note| note.starts_with(expected)), "{limited:?}");
}

#[test]
fn a_claim_under_a_cluster_limit_names_no_larger_type() {
    for (limits, types) in [(json!({}), 2), (json!({"cpu": "100"}), 1)] {
        let mut bench = Bench::new();
        bench.see(1, config(10, &limits));
        bench.see(1, pod("a", None));
        bench.decide(1);
        let actions = bench.decide(3);
        let Some(Action::CreateClaims(new)) = actions.first() else { panic!("{actions:?}") };
        let allowed = &new.claims[0].spec.instance_types;
        assert!(allowed.len() <= types && allowed[0] == "m5.large", "{limits}: {allowed:?}");
    }
}

#[test]
fn the_config_says_how_much_of_its_limits_is_used_and_what_waits() {
    let mut bench = Bench::new();
    bench.see(1, config(10, &json!({"nodes": 1, "costPerHour": "10"})));
    let conditions = said(&mut bench, 1);
    assert_eq!(conditions["Ready"].0, "True");
    let (status, reason, message) = &conditions["LimitsReached"];
    assert_eq!((status.as_str(), reason.as_str()), ("False", "WithinLimits"));
    assert_eq!(message, "the nodes of all pools have costPerHour 0.00 of 10, nodes 0 of 1");
    assert_eq!(bench.metric("croft_controller_pods_held_by_cluster_limits"), 0.0);

    let mut bench = Bench::new();
    bench.see(1, config(10, &json!({"nodes": 0})));
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    let (status, reason, message) = &said(&mut bench, 20)["LimitsReached"];
    assert_eq!((status.as_str(), reason.as_str()), ("True", "LaunchesHeld"));
    assert!(message.contains("1 pods or headroom pods are unschedulable"), "{message}");
    assert_eq!(bench.metric("croft_controller_pods_held_by_cluster_limits"), 1.0);

    let mut bench = Bench::new();
    bench.see(1, config(10, &json!({"nodes": "many"})));
    let conditions = said(&mut bench, 1);
    assert_eq!((conditions["Ready"].0.as_str(), conditions["Ready"].1.as_str()), ("False", "Unreadable"));
    assert!(conditions["Ready"].2.starts_with("spec.limits.nodes: "), "{conditions:?}");
}

#[test]
fn pools_of_a_fixed_size_share_the_cluster_limit_with_pods() {
    let mut bench = Bench::with_pool(&json!({"replicas": 3}));
    bench.see(1, config(10, &json!({"nodes": 2})));
    let actions = bench.engine.step(at(1)).actions;
    let made: usize = actions
        .iter()
        .map(|action| if let Action::CreateClaims(new) = action { new.claims.len() } else { 0 })
        .sum();
    assert_eq!(made, 2, "{actions:?}");
    assert_eq!(conditions(&actions)["LimitsReached"].1, "LaunchesHeld");
}

#[test]
fn nothing_is_planned_before_the_instances_were_listed_once() {
    let mut engine = Engine::new(Settings::default());
    for kind in Kind::awaited_by_capacity() {
        engine.observe(Change::Synced(kind), at(0));
    }
    let actions = engine.step(at(0)).actions;
    assert!(actions.iter().any(|action| matches!(action, Action::ListInstances)), "{actions:?}");
    let mut bench = full_pool();
    bench.engine.snapshot_mut().clear_instances();
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    list(&mut bench, 5, Vec::new());
    assert!(makes_claims(&mut bench, 5));
}

/// The claim's condition Initialized arrived before the labels of its node: the node counted towards no limit.
#[test]
fn node_whose_labels_no_watch_has_shown_counts() {
    let mut bench = full_pool();
    let mut status = launched(&["Registered", "Initialized"]);
    status["capacity"] = running()["capacity"].clone();
    bench.see(1, claim(10, status, false));
    let closed = json!([{"key": "other", "effect": "NoSchedule"}]);
    bench.see(1, node(20, "aws:///us-east-1a/i-1", json!({}), closed.clone(), true));
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    bench.see(5, node(21, "aws:///us-east-1a/i-1", registered_labels(), closed, true));
    assert!(!makes_claims(&mut bench, 5));
}

/// An instance without a claim counts as its Node. Once that was deleted by hand, it counted towards no limit until the next list.
#[test]
fn instance_whose_node_was_deleted_counts() {
    let mut bench = full_pool();
    let mut labels = registered_labels();
    labels["node-restriction.kubernetes.io/pool"] = json!("pool-a");
    bench.see(1, node(20, "aws:///us-east-1a/i-1", labels, json!([]), true));
    list(&mut bench, 1, vec![instance()]);
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    let gone = ObjectId::new(Kind::Node, "", "node-1").with_uid("node-uid");
    bench.see(5, Change::Gone(gone));
    assert!(!makes_claims(&mut bench, 5));
}
