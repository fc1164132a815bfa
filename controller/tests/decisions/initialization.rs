//! Nodes that register and aren't initialized in time are counted, replaced, and not launched again without end.

use croft_api::{EC2NodeClass, NodeClaim, TenantPool};
use croft_controller::{
    action::Action,
    kube_api::{Call, Target, Verb},
    nodeclaim::launch_backoff::edit_hash,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, launched, node, pod, pool, read, registered_labels, time};

/// After the initialization timeout.
const LATE: u64 = 901;
const PROVIDER_ID: &str = "aws:///us-east-1a/i-1";

/// The claim, registered at second 0, with an image.
fn registered(version: u64) -> Box<NodeClaim> {
    let mut status = launched(&["Registered"]);
    status["imageId"] = json!("ami-1");
    claim(version, status, false)
}

/// The node with its pool's taint and `taints`.
fn joined(version: u64, taints: Value, ready: bool) -> Box<Node> {
    node(version, PROVIDER_ID, registered_labels(), taints, ready)
}

/// The pool whose status has `backoff`, and `more` in its spec.
fn pool_with(version: u64, more: &Value, mut backoff: Value) -> Box<TenantPool> {
    let pool = pool(version, more);
    if backoff.is_object() {
        backoff["poolGeneration"] = json!(edit_hash(&pool));
    }
    let mut object = serde_json::to_value(*pool).unwrap();
    object["status"]["launchBackoff"] = backoff;
    read(object)
}

/// A backoff of the pool's only template, of `rounds` rounds, that ends at second `until`.
fn backoff(rounds: i32, until: u64, counted: &[&str]) -> Value {
    json!({
        "counted": counted, "classGeneration": 1,
        "templates": [{"template": "", "image": "ami-1", "rounds": rounds, "ended": [time(0)], "until": time(until),
            "since": time(0), "last": "the node is not Ready yet"}],
    })
}

/// The launch backoff that is written into the pool's status, if one is.
fn written(actions: &[Action]) -> Option<Value> {
    actions.iter().find_map(|action| match action {
        Action::Write { call: Call { target: Target::Pool(_), verb: Verb::PatchStatus(patch) }, .. } => {
            patch["status"].get("launchBackoff").cloned()
        }
        _ => None,
    })
}

fn deletes(actions: &[Action]) -> bool {
    let is = |a: &Action| matches!(a, Action::Write { call, .. } if matches!(call.verb, Verb::Delete { .. }));
    actions.iter().any(is)
}

fn notes(actions: &[Action], reason: &str) -> Vec<String> {
    let said = actions.iter().filter_map(|action| match action {
        Action::RecordEvent(event) if event.reason == reason => Some(event.note.clone()),
        _ => None,
    });
    said.collect()
}

/// Two passes: the first finds that a node is overdue, the second counts it. Everything but that is answered.
fn two_passes(bench: &mut Bench, seconds: u64) -> Vec<Action> {
    let mut all = Vec::new();
    for _ in 0..2 {
        let step = bench.engine.step(at(seconds));
        for action in &step.actions {
            bench.done(seconds, action, Vec::new());
        }
        all.extend(step.actions);
    }
    all
}

#[test]
fn a_node_that_is_not_initialized_in_time_is_counted_and_then_replaced_with_what_it_lacks() {
    let taint = json!([{"key": "example.com/cni", "effect": "NoSchedule"}]);
    let cases = [
        (json!([]), false, "the node is not Ready yet"),
        (taint, true, "the node still has taint example.com/cni:NoSchedule"),
    ];
    for (taints, ready, missing) in cases {
        let mut bench = Bench::new();
        let mut claim = registered(10);
        claim.spec.startup_taints = vec![*read(json!({"key": "example.com/cni", "effect": "NoSchedule"}))];
        bench.see(1, claim);
        bench.see(1, joined(11, taints, ready));
        let early = two_passes(&mut bench, LATE - 10);
        assert!(written(&early).is_none() && !deletes(&early), "not before its time");
        let actions = two_passes(&mut bench, LATE);
        assert!(!deletes(&actions), "not before it is counted");
        let backoff = written(&actions).expect("it is counted");
        assert_eq!(backoff["counted"], json!(["pool-a-1"]));
        let template = &backoff["templates"][0];
        assert_eq!(template["rounds"], json!(1));
        assert_eq!(template["image"], json!("ami-1"));
        assert_eq!(template["last"], json!(missing));
        assert_eq!(template["until"], json!(time(LATE + 30)));
        assert_eq!(bench.metric("croft_controller_launches_uninitialized_total"), 1.0);
        bench.see(LATE, pool_with(20, &json!({}), backoff));
        let actions = two_passes(&mut bench, LATE + 1);
        assert!(deletes(&actions), "{actions:?}");
        let said = notes(&actions, "InitializationTimeout");
        assert!(said.iter().all(|note| note.contains(missing)) && !said.is_empty(), "{said:?}");
    }
}

#[test]
fn a_pool_says_how_long_its_nodes_may_take() {
    for (timeout, seconds, replaced) in
        [("1h", LATE, false), ("1h", 3_601, true), ("2m", 121, true), ("Never", 1_000_000, false)]
    {
        let mut bench = Bench::new();
        let more = json!({"disruption": {"initializationTimeout": timeout}});
        bench.see(1, pool_with(20, &more, backoff(1, 0, &["pool-a-1"])));
        bench.see(1, registered(10));
        bench.see(1, joined(11, json!([]), false));
        let actions = two_passes(&mut bench, seconds);
        assert_eq!(deletes(&actions), replaced, "{timeout} after {seconds} s");
    }
}

#[test]
fn a_node_that_another_provisioner_launches_for_is_left_alone() {
    let mut bench = Bench::new();
    let more = json!({"provisioner": "Karpenter"});
    bench.see(1, pool_with(20, &more, backoff(1, 0, &["pool-a-1"])));
    bench.see(1, registered(10));
    bench.see(1, joined(11, json!([]), false));
    assert!(!deletes(&two_passes(&mut bench, LATE)));
}

/// How many claims are created for pods that come at `seconds`.
fn launches(bench: &mut Bench, seconds: u64, pods: &[&str]) -> usize {
    for name in pods {
        bench.see(seconds, pod(name, None));
    }
    let mut actions = bench.decide(seconds);
    actions.extend(bench.decide(seconds + 2));
    let created = actions.iter().map(|action| match action {
        Action::CreateClaims(new) => new.claims.len(),
        _ => 0,
    });
    created.sum()
}

#[test]
fn a_template_whose_nodes_are_not_initialized_launches_nothing_and_then_one_instance() {
    let mut bench = Bench::new();
    bench.see(1, pool_with(20, &json!({}), backoff(3, 100, &[])));
    assert_eq!(launches(&mut bench, 1, &["a", "b", "c", "d", "e", "f", "g", "h"]), 0);
    let (reason, note) =
        bench.told.iter().find(|(reason, _)| reason == "LaunchBackoff").expect("the pods are told");
    assert!(note.contains("was initialized in time (last: the node is not Ready yet)"), "{reason}: {note}");
    assert_eq!(launches(&mut bench, 101, &[]), 1);
    // And no second one while the first isn't initialized, though it is registered.
    let mut bench = Bench::new();
    bench.see(1, pool_with(20, &json!({}), backoff(3, 100, &[])));
    bench.see(1, registered(10));
    bench.see(1, joined(11, json!([]), false));
    assert_eq!(launches(&mut bench, 101, &["a", "b", "c", "d", "e"]), 0);
    // Unless it is counted: the breaker may keep it for long.
    let mut bench = Bench::new();
    bench.see(1, pool_with(20, &json!({}), backoff(3, 100, &["pool-a-1"])));
    bench.see(1, registered(10));
    bench.see(1, joined(11, json!([]), false));
    assert_eq!(launches(&mut bench, 101, &["a", "b", "c", "d", "e", "f", "g", "h"]), 1);
}

#[test]
fn a_failure_without_an_image_id_holds_the_template_whatever_the_images_of_the_class() {
    for (image, held) in [("", true), ("ami-1", true), ("ami-2", false)] {
        let mut bench = Bench::new();
        bench.see(
            1,
            read::<EC2NodeClass>(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass",
                "metadata": {"name": "class", "uid": "class-uid", "resourceVersion": "5", "generation": 1},
                "spec": {"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
                "status": {"amis": [{"id": "ami-1", "arch": "amd64"}]},
            })),
        );
        let mut before = backoff(3, 100, &[]);
        before["templates"][0]["image"] = json!(image);
        bench.see(1, pool_with(20, &json!({}), before));
        assert_eq!(launches(&mut bench, 1, &["a"]) == 0, held, "{image}");
    }
}

#[test]
fn declared_resources_are_awaited_no_longer_than_the_initialization_timeout() {
    for (timeout, seconds, ready) in [("2m", 119, false), ("2m", 121, true), ("Never", 599, false)] {
        let mut bench = Bench::new();
        let fuse = json!([{"amounts": {"example.com/fuse": "1"}}]);
        let more = json!({"disruption": {"initializationTimeout": timeout},
            "template": {"spec": {"resources": fuse}}});
        bench.see(1, pool_with(20, &more, Value::Null));
        let mut status = launched(&["Registered"]);
        status["allocatable"] = json!({"example.com/fuse": "1"});
        let mut claim = claim(10, status, false);
        claim.spec.resources = *read(fuse);
        bench.see(1, claim);
        bench.see(1, joined(11, json!([]), true));
        let actions = two_passes(&mut bench, seconds);
        let says = actions.iter().any(|action| {
            let Action::Write {
                call: Call { target: Target::Claim(_), verb: Verb::PatchStatus(patch) }, ..
            } = action
            else {
                return false;
            };
            patch["status"]["conditions"].as_array().into_iter().flatten().any(|condition| {
                condition["type"] == json!("Initialized") && condition["status"] == json!("True")
            })
        });
        assert_eq!(says, ready, "{timeout} after {seconds} s: {actions:?}");
        assert!(!deletes(&actions), "{timeout} after {seconds} s");
    }
}

#[test]
fn an_initialized_node_of_the_same_image_ends_the_backoff_and_one_of_another_image_does_not() {
    for (image, ends) in [("ami-1", true), ("ami-2", false)] {
        let mut bench = Bench::new();
        bench.see(1, pool_with(20, &json!({}), backoff(3, 5_000, &[])));
        let mut status = launched(&["Registered", "Initialized"]);
        status["imageId"] = json!(image);
        bench.see(1, claim(10, status, false));
        let new = written(&bench.engine.step(at(2)).actions);
        assert_eq!(new == Some(Value::Null), ends, "{image}: {new:?}");
    }
}

#[test]
fn each_round_waits_longer_and_launches_in_flight_together_are_one() {
    // The claim was created at second 0. A round that ended before is another one; one that ended later is its own.
    for (ended, rounds, wait) in [("2026-01-01T00:00:00Z".to_owned(), 3, 600), (time(500), 2, 0)] {
        let mut bench = Bench::new();
        let mut before = backoff(2, 600, &[]);
        before["templates"][0]["ended"] = json!([ended]);
        bench.see(1, pool_with(20, &json!({}), before));
        bench.see(1, registered(10));
        bench.see(1, joined(11, json!([]), false));
        let backoff = written(&two_passes(&mut bench, LATE)).expect("it is counted");
        let expected = if wait > 0 { LATE + wait } else { 600 };
        let template = backoff.get("templates").map_or(Value::Null, |t| t[0].clone());
        if rounds == 3 {
            assert_eq!((&template["rounds"], &template["until"]), (&json!(rounds), &json!(time(expected))));
        } else {
            assert!(template.is_null() || template["rounds"] == json!(rounds), "{template}");
        }
        assert_eq!(backoff["counted"], json!(["pool-a-1"]));
    }
}

#[test]
fn the_condition_of_the_pool_names_what_nodes_lack() {
    let mut bench = Bench::new();
    bench.see(1, pool_with(20, &json!({}), backoff(3, 5_000, &[])));
    let step = bench.engine.step(at(10));
    let conditions = step.actions.iter().find_map(|action| match action {
        Action::Write { call: Call { target: Target::Pool(_), verb: Verb::PatchStatus(patch) }, .. } => {
            patch["status"].get("conditions").cloned()
        }
        _ => None,
    });
    let conditions = conditions.expect("the pool's status is written");
    let said = conditions.as_array().unwrap().iter().find(|c| c["type"] == json!("NodeRegistrationHealthy"));
    let said = said.expect("the condition is written");
    assert_eq!(said["reason"], json!("NodesNotInitializing"));
    assert!(said["message"].as_str().unwrap().contains("the node is not Ready yet"), "{said}");
}
