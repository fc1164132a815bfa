//! Claims from wanted to released.

use std::time::Duration;

use croft_api::{condition::Statement, convert::nodes::future_node, pool::LaunchBackoff};
use croft_cloud::{InstanceState, Terminated};
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, ObjectId, Response, Target, Verb, Version},
    nodeclaim::conditions::{find_condition, set_with_ready},
    result::{ActionReport, ActionResult, Backoff},
};
use croft_scheduler::{EPHEMERAL_TAINTS, PodKey};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{LimitRange, Pod},
    node::v1::RuntimeClass,
};
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, launched, node, pod, pool, read, registered_labels, time, verb};

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
fn while_pods_keep_coming_only_large_instances_are_launched() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.see(1, pod(name, None));
    }
    assert!(bench.decide(1).is_empty(), "the batch is open");
    // The batch has been open for as long as it may be, and pods still come.
    bench.see(2, pod("d", None));
    let actions = bench.decide(2);
    let [Action::CreateClaims(new)] = &actions[..] else { panic!("{actions:?}") };
    let first: Vec<_> = new.claims.iter().map(|claim| claim.spec.instance_types[0].as_str()).collect();
    assert_eq!(first, ["m5.xlarge"], "three pods fill it; a small one for the fourth may become a large one");
    bench.engine.complete(ActionReport::done(actions[0].keys()), at(2));
    let actions = bench.decide(3);
    let [Action::CreateClaims(new)] = &actions[..] else { panic!("{actions:?}") };
    let rest: Vec<_> = new.claims.iter().map(|claim| claim.spec.instance_types[0].as_str()).collect();
    assert_eq!(rest, ["m5.large"], "no more came");
}

#[test]
fn a_pod_whose_claim_was_not_made_is_planned_again() {
    let mut bench = Bench::new();
    bench.see(1, pod("a", None));
    bench.decide(1);
    let actions = bench.decide(2);
    let [Action::CreateClaims(new)] = &actions[..] else { panic!("{actions:?}") };
    let news = vec![ActionResult::ClaimsNotCreated(new.claims.iter().map(|c| c.name.clone()).collect())];
    bench.engine.complete(
        ActionReport { results: news, backoff: Backoff::None, ..ActionReport::done(actions[0].keys()) },
        at(2),
    );
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
    assert_eq!(launch.request.labels["croft.dev/unregistered"], "true");
    bench.engine.complete(ActionReport::done(actions[0].keys()), at(1));

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
fn only_the_instance_itself_is_registered() {
    let taints = json!([{"key": "croft.dev/unregistered", "effect": "NoExecute"},
        {"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"}]);
    for (provider_id, expected) in [("aws:///us-east-1a/i-1", true), ("aws:///us-east-1a/i-2", false)] {
        let mut bench = Bench::new();
        bench.see(1, claim(10, launched(&[]), false));
        bench.see(1, node(20, provider_id, json!({}), taints.clone(), false));
        let actions = bench.decide(1);
        match &actions[..] {
            [Action::Register(registration)] if expected => {
                let operations = registration.patch.as_array().unwrap();
                assert_eq!(
                    operations[0],
                    json!({"op": "test", "path": "/metadata/uid", "value": "node-uid"})
                );
                assert_eq!(operations[2]["path"], "/metadata/labels");
                assert_eq!(operations[2]["value"]["node-pool"], "pool-a");
                let off = [
                    json!({"op": "test", "path": "/spec/taints/0/key", "value": "croft.dev/unregistered"}),
                    json!({"op": "remove", "path": "/spec/taints/0"}),
                ];
                assert!(operations.ends_with(&off), "{operations:?}");
                let annotates = |o: &Value| o["path"].as_str().unwrap().starts_with("/metadata/annotations");
                assert!(
                    !operations.iter().any(annotates),
                    "it would race the writer of the first: {operations:?}"
                );
            }
            [] if !expected => {}
            other => panic!("{provider_id}: {other:?}"),
        }
    }
}

#[test]
fn registration_removes_the_label_of_unregistered_nodes_with_its_taint() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&[]), false));
    let taints = json!([{"key": "croft.dev/unregistered", "effect": "NoExecute"}]);
    let labels = json!({"croft.dev/unregistered": "true"});
    bench.see(1, node(20, "aws:///us-east-1a/i-1", labels, taints, false));
    let actions = bench.decide(1);
    let [Action::Register(registration)] = &actions[..] else { panic!("{actions:?}") };
    let operations = registration.patch.as_array().unwrap();
    let label = json!({"op": "remove", "path": "/metadata/labels/croft.dev~1unregistered"});
    assert!(operations.contains(&label), "{operations:?}");
}

#[test]
fn registration_adds_the_finalizer_unless_the_node_has_it() {
    let own = |o: &Value| o["path"].as_str().unwrap().starts_with("/metadata/finalizers");
    let taints = json!([{"key": "croft.dev/unregistered", "effect": "NoExecute"}]);
    for (finalizers, expected) in [
        (vec![], "/metadata/finalizers"),
        (vec!["example.com/own"], "/metadata/finalizers/-"),
        (vec!["croft.dev/termination"], ""),
    ] {
        let mut bench = Bench::new();
        bench.see(1, claim(10, launched(&[]), false));
        let mut there = node(20, "aws:///us-east-1a/i-1", json!({}), taints.clone(), false);
        there.metadata.finalizers = Some(finalizers.iter().map(|&one| one.to_owned()).collect());
        bench.see(1, there);
        let actions = bench.decide(1);
        let [Action::Register(registration)] = &actions[..] else { panic!("{actions:?}") };
        let operations = registration.patch.as_array().unwrap();
        let added = operations.iter().filter(|o| own(o)).find(|o| o["op"] == "add");
        assert_eq!(added.map_or("", |o| o["path"].as_str().unwrap()), expected, "{finalizers:?}");
    }
}

#[test]
fn registration_nominates_the_pods_that_are_not_nominated_yet() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&[]), false));
    let taints = json!([{"key": "croft.dev/unregistered", "effect": "NoExecute"}]);
    bench.see(1, node(20, "aws:///us-east-1a/i-1", json!({}), taints, false));
    // Of different sizes, so that neither stands in for the other.
    for (name, cpu, nominated) in [("a", "100m", None), ("b", "200m", Some("node-1"))] {
        let pod = pod(name, None);
        let mut object = serde_json::to_value(&*pod).unwrap();
        object["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        object["status"]["nominatedNodeName"] = json!(nominated);
        bench.see(1, read::<Pod>(object));
        bench.engine.snapshot_mut().nominate(&PodKey::new("tenant-a", name), "pool-a-1");
    }
    let actions = bench.decide(1);
    let [Action::Register(registration)] = &actions[..] else { panic!("{actions:?}") };
    let pods: Vec<&PodKey> = registration.pods.iter().map(|(key, _)| key).collect();
    assert_eq!(pods, [&PodKey::new("tenant-a", "a")]);
}

#[test]
fn a_node_that_was_taken_in_is_marked_as_its_claims() {
    for (annotations, marked) in [
        (json!({}), false),
        (json!({"node.alpha.kubernetes.io/ttl": "0"}), false),
        (json!({"croft.dev/claim": "pool-a-1"}), true),
    ] {
        let mut bench = Bench::new();
        bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
        bench.see(1, pod("a", Some("node-1")));
        let mut there = node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true);
        there.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
        bench.see(1, there);
        let actions = bench.decide(1);
        if marked {
            assert!(actions.is_empty(), "{actions:?}");
            continue;
        }
        let (Target::Node(_), Verb::Patch(patch)) = verb(&actions) else { panic!("{actions:?}") };
        assert_eq!(patch["metadata"]["annotations"], json!({"croft.dev/claim": "pool-a-1"}), "{annotations}");
        assert!(!bench.told.iter().any(|(reason, _)| reason == "LabelsRestored"), "{:?}", bench.told);
    }
}

#[test]
fn a_node_that_never_comes_gives_its_instance_back() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&[]), false));
    assert!(bench.decide(900).is_empty(), "its age is measured since this process first saw it");
    assert!(bench.decide(901).is_empty(), "not before the pool's status counts the launch");
    let mut pool = pool(20, &json!({}));
    let counted = LaunchBackoff { counted: vec!["pool-a-1".to_owned()], ..LaunchBackoff::default() };
    pool.status.get_or_insert_default().launch_backoff = Some(counted);
    bench.see(901, pool);
    let actions = bench.decide(902);
    assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Delete { .. })));
}

#[test]
fn changed_labels_of_a_node_are_restored() {
    let mut bench = Bench::new();
    let mut labels = registered_labels();
    labels["node-pool"] = json!("pool-b");
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, pod("a", Some("node-1")));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", labels, json!([]), true));
    let actions = bench.decide(1);
    let (Target::Node(_), Verb::JsonPatch(patch)) = verb(&actions) else { panic!("{actions:?}") };
    let wanted = json!([
        {"op": "test", "path": "/metadata/uid", "value": "node-uid"},
        {"op": "add", "path": "/metadata/labels/node-pool", "value": "pool-a"},
    ]);
    assert_eq!(*patch, wanted);
}

#[test]
fn taint_of_the_pool_that_was_removed_or_changed_is_restored_with_the_label() {
    let other = json!({"key": "example.com/other", "effect": "NoSchedule"});
    let of_pool = |value: &str| json!({"key": "node-pool", "value": value, "effect": "NoSchedule"});
    let uid = || json!({"op": "test", "path": "/metadata/uid", "value": "node-uid"});
    let restored =
        |at: &str| json!({"op": "add", "path": format!("/spec/taints{at}"), "value": of_pool("pool-a")});
    let mut relabelled = registered_labels();
    relabelled["node-pool"] = json!("pool-b");
    let cases = [
        (registered_labels(), json!([other]), json!([uid(), restored("/-")])),
        (
            registered_labels(),
            json!([other, of_pool("pool-b")]),
            json!([
                uid(),
                {"op": "test", "path": "/spec/taints/1/key", "value": "node-pool"},
                {"op": "test", "path": "/spec/taints/1/effect", "value": "NoSchedule"},
                {"op": "add", "path": "/spec/taints/1/value", "value": "pool-a"},
            ]),
        ),
        (
            relabelled,
            json!([other]),
            json!([uid(), {"op": "add", "path": "/metadata/labels/node-pool", "value": "pool-a"}, restored("/-")]),
        ),
    ];
    for (labels, taints, wanted) in cases {
        let mut bench = Bench::new();
        bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
        bench.see(1, pod("a", Some("node-1")));
        let mut there = node(20, "aws:///us-east-1a/i-1", labels, json!([]), true);
        there.spec.as_mut().unwrap().taints = serde_json::from_value(taints).unwrap();
        bench.see(1, there);
        let actions = bench.decide(1);
        let (Target::Node(_), Verb::JsonPatch(patch)) = verb(&actions) else { panic!("{actions:?}") };
        assert_eq!(*patch, wanted);
        assert!(bench.told.iter().any(|(reason, _)| reason == "TaintsRestored"), "{:?}", bench.told);
    }
}

#[test]
fn a_node_carries_its_capacity_type_under_croft_s_own_name_too() {
    let mut bench = Bench::new();
    let mut labels = registered_labels();
    labels.as_object_mut().unwrap().remove("croft.dev/capacity-type");
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, pod("a", Some("node-1")));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", labels, json!([]), true));
    let actions = bench.decide(1);
    let (Target::Node(_), Verb::JsonPatch(patch)) = verb(&actions) else { panic!("{actions:?}") };
    let put_back =
        json!({"op": "add", "path": "/metadata/labels/croft.dev~1capacity-type", "value": "on-demand"});
    assert!(patch.as_array().unwrap().contains(&put_back), "{patch}");
}

#[test]
fn a_claim_being_deleted_is_cordoned_drained_terminated_confirmed_and_released() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.see(1, pod("a", Some("node-1")));
    let actions = bench.decide(1);
    assert!(matches!(verb(&actions), (Target::Node(_), Verb::JsonPatch(_))));
    bench.engine.complete(ActionReport::done(actions[0].keys()), at(1));

    bench.see(2, node(21, "aws:///us-east-1a/i-1", registered_labels(), disrupted.clone(), true));
    let actions = bench.decide(2);
    assert!(matches!(verb(&actions), (Target::Pod(..), Verb::Evict { uid }) if uid == "a-uid"));
    bench.engine.complete(
        ActionReport {
            backoff: Backoff::After(Duration::from_secs(2)),
            ..ActionReport::done(actions[0].keys())
        },
        at(2),
    );
    assert!(bench.decide(3).is_empty(), "the eviction rests, and the instance waits for it");

    bench.see(5, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a")));
    let actions = bench.decide(5);
    assert!(matches!(&actions[..], [Action::Terminate { ids }] if ids == &["i-1"]));
    let news = |state| vec![ActionResult::Terminated(vec![Terminated { id: "i-1".to_owned(), state }])];
    let rest = Backoff::After(Duration::from_secs(3));
    bench.engine.complete(
        ActionReport {
            results: news(InstanceState::ShuttingDown),
            backoff: rest,
            ..ActionReport::done(actions[0].keys())
        },
        at(5),
    );
    assert!(bench.decide(6).is_empty());
    let actions = bench.decide(8);
    assert!(matches!(&actions[..], [Action::Terminate { .. }]), "asked again until it is gone");
    bench.engine.complete(
        ActionReport {
            results: news(InstanceState::Terminated),
            backoff: rest,
            ..ActionReport::done(actions[0].keys())
        },
        at(8),
    );
    let actions = bench.decide(8);
    let (Target::Node(_), Verb::JsonPatch(patch)) = verb(&actions) else { panic!("{actions:?}") };
    assert_eq!(patch[2], json!({"op": "remove", "path": "/metadata/finalizers/0"}));
    let mut free = node(22, "aws:///us-east-1a/i-1", registered_labels(), disrupted, true);
    free.metadata.finalizers = None;
    bench.engine.complete(
        ActionReport { responses: vec![Response::Node(free)], ..ActionReport::done(actions[0].keys()) },
        at(8),
    );
    let actions = bench.decide(8);
    assert!(matches!(verb(&actions), (Target::Node(_), Verb::Delete { .. })), "{actions:?}");
    bench.see(9, Change::Gone(ObjectId::new(Kind::Node, "", "node-1")));
    let actions = bench.decide(9);
    let (Target::Claim(_), Verb::Patch(patch)) = verb(&actions) else { panic!("{actions:?}") };
    assert_eq!(patch["metadata"]["finalizers"], json!([]));
}

#[test]
fn a_pod_that_no_watch_has_shown_leaves_before_its_instance_goes() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), disrupted, true));
    let hidden = pod("a", Some("node-1"));
    bench.found = vec![Response::Pod(hidden)];
    assert!(bench.decide(1).is_empty(), "kube-scheduler may not have seen the cordon yet");
    let actions = bench.decide(2);
    assert!(
        matches!(verb(&actions), (Target::Pod(..), Verb::Evict { uid }) if uid == "a-uid"),
        "{actions:?}"
    );
    bench.done(2, &actions[0], vec![]);

    bench.found.clear();
    bench.see(5, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a")));
    assert!(matches!(&bench.decide(5)[..], [Action::Terminate { .. }]));
}

#[test]
fn a_list_anew_makes_an_instance_be_looked_at_anew() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let closed = || node(21, "aws:///us-east-1a/i-1", registered_labels(), disrupted.clone(), true);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, closed());
    assert!(bench.decide(1).is_empty(), "a binding may be in flight");
    // The first attempt is answered with a failure; the answer about the instance's pods still holds.
    let actions = bench.decide(4);
    assert!(matches!(&actions[..], [Action::Terminate { .. }]), "{actions:?}");
    bench.engine.complete(ActionReport::done(actions[0].keys()), at(4));
    let bound = pod("a", Some("node-1"));
    bench.found = vec![Response::Pod(bound)];
    let actions = bench.decide(5);
    assert!(matches!(&actions[..], [Action::Terminate { .. }]), "{actions:?}");
    bench.engine.complete(ActionReport::done(actions[0].keys()), at(5));
    bench.see(6, Change::Version(Version::new(closed()).listed()));
    let actions = bench.decide(6);
    assert!(matches!(verb(&actions), (Target::Pod(..), Verb::Evict { .. })), "{actions:?}");
}

#[test]
fn an_instance_whose_node_no_watch_has_shown_is_drained() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    let hidden = node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true);
    bench.found = vec![Response::Node(hidden)];
    let actions = bench.decide(1);
    assert!(matches!(verb(&actions), (Target::Node(_), Verb::JsonPatch(_))), "cordoned first: {actions:?}");
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
    assert!(matches!(&actions[..], [Action::FindInstance(_)]));
    bench.engine.complete(
        ActionReport {
            results: vec![ActionResult::InstanceNotFound("pool-a-1".to_owned())],
            ..ActionReport::done(actions[0].keys())
        },
        at(1),
    );
    assert!(matches!(&bench.decide(60)[..], [Action::FindInstance(_)]), "absence needs patience");
    bench.engine.complete(ActionReport::done(vec![Key::Claim("pool-a-1".to_owned())]), at(60));
    let actions = bench.decide(121);
    assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Patch(_))));
}

#[test]
fn a_node_that_is_initialized_tells_what_its_type_has_once() {
    let mut bench = Bench::new();
    let mut status = launched(&["Registered", "Initialized"]);
    status["imageId"] = json!("ami-1");
    bench.see(1, claim(10, status, false));
    bench.see(1, pod("a", Some("node-1")));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.decide(1);
    bench.decide(2);
    assert_eq!(bench.observed.len(), 1);
    let seen = &bench.observed[0];
    assert_eq!(
        (seen.instance_type.as_str(), seen.image_id.as_str(), seen.class.as_str()),
        ("m5.large", "ami-1", "class")
    );
    assert_eq!(seen.capacity.get("cpu"), 2_000);
}

#[test]
fn ready_names_the_first_step_that_is_missing() {
    let mut status = croft_api::NodeClaimStatus::default();
    let mut reasons = Vec::new();
    for (step, holds) in [
        ("Launched", false),
        ("Launched", true),
        ("Registered", true),
        ("Initialized", true),
        ("Launched", false),
    ] {
        let message = format!("{step} {holds}");
        let statement = Statement { kind: step, status: Some(holds), reason: "Reason", message };
        set_with_ready(&mut status, statement, Some(1), at(1).wall);
        let ready = find_condition(&status, "Ready").unwrap();
        reasons.push((ready.status.clone(), ready.reason.clone(), ready.message.clone()));
    }
    let expected = [
        ("False", "NotLaunched", "Launched false"),
        ("False", "NotRegistered", ""),
        ("False", "NotInitialized", ""),
        ("True", "Ready", "the node takes pods"),
        ("False", "NotLaunched", "Launched false"),
    ];
    assert_eq!(reasons, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
}

/// The conditions that are written for a registered claim: by type, whether they hold, reason and message.
fn conditions_of_registered(seconds: u64, ready: bool, taints: Value, more: Value) -> Vec<[String; 4]> {
    let mut bench = Bench::new();
    let mut status = launched(&["Registered"]);
    croft_controller::merge_patch::apply(&mut status, &more);
    bench.see(1, claim(10, status, false));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), taints, ready));
    let actions = bench.decide(seconds);
    let Some(Action::Write { call, .. }) = actions.first() else { return Vec::new() };
    let (Target::Claim(_), Verb::PatchStatus(patch)) = (&call.target, &call.verb) else {
        panic!("{actions:?}")
    };
    let text = |condition: &Value| {
        ["type", "status", "reason", "message"].map(|field| condition[field].as_str().unwrap().to_owned())
    };
    patch["status"]["conditions"].as_array().unwrap().iter().skip(2).map(text).collect()
}

#[test]
fn a_node_is_initialized_once_it_is_ready_untainted_and_has_its_devices() {
    let without_device = json!({"allocatable": {"nvidia.com/gpu": "0"}});
    for more in [json!({}), without_device] {
        let [initialized, ready] = &conditions_of_registered(2, true, json!([]), more)[..] else { panic!() };
        let statement = "node node-1 is Ready and has the resources of its instance type";
        assert_eq!(*initialized, ["Initialized", "True", "Initialized", statement]);
        assert_eq!(*ready, ["Ready", "True", "Ready", "the node takes pods"]);
    }
    let starting = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
    let gpu = json!({"allocatable": {"nvidia.com/gpu": "1", "cpu": "2"}});
    for (is_ready, taints, more, blocker) in [
        (false, json!([]), json!({}), "the node is not Ready yet"),
        (
            true,
            starting,
            json!({}),
            "the node still has taint node.cloudprovider.kubernetes.io/uninitialized:NoSchedule",
        ),
        (true, json!([]), gpu, "the node hasn't reported nvidia.com/gpu yet"),
    ] {
        let written = conditions_of_registered(2, is_ready, taints.clone(), more.clone());
        assert!(written.is_empty(), "a node that starts isn't worth a write: {written:?}");
        let [initialized, ready] = &conditions_of_registered(60, is_ready, taints, more)[..] else {
            panic!()
        };
        assert_eq!(*initialized, ["Initialized", "False", "Waiting", blocker]);
        assert_eq!(*ready, ["Ready", "False", "NotInitialized", blocker]);
    }
}

#[test]
fn at_the_hard_end_the_instance_goes_with_whatever_is_left() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::with_pool(&json!({"template": {"spec": {"terminationGracePeriod": "60s"}}}));
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), disrupted, true));
    bench.see(1, pod("a", Some("node-1")));
    let evict = bench.decide(1);
    assert!(matches!(verb(&evict), (Target::Pod(..), Verb::Evict { .. })));
    bench.done(1, &evict[0], vec![]);
    // Its 30 seconds begin when they end with the deadline.
    let delete = bench.decide(31);
    assert!(
        matches!(verb(&delete), (Target::Pod(..), Verb::Delete { grace_seconds: Some(30), .. })),
        "{delete:?}"
    );
    bench.done(31, &delete[0], vec![]);
    assert_eq!(bench.engine.step(at(60)).requeue_at, Some(at(61).mono), "the deadline");
    let actions = bench.decide(61);
    let ended = actions.iter().any(|a| matches!(a, Action::Terminate { .. }));
    assert!(ended, "nothing holds it longer: {actions:?}");
}

#[test]
fn a_stuck_pod_does_not_block_the_termination() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), disrupted, false));
    let mut dying = pod("a", Some("node-1"));
    dying.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(30).wall));
    bench.see(1, dying);
    assert!(bench.decide(30).is_empty());
    assert!(bench.decide(90).is_empty(), "it may still be ending");
    assert!(matches!(&bench.decide(91)[..], [Action::Terminate { .. }]));
}

#[test]
fn pods_of_an_instance_that_is_gone_are_removed_with_its_node() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), false));
    bench.see(1, pod("a", Some("node-1")));
    let terminated = vec![Terminated { id: "i-1".to_owned(), state: InstanceState::Terminated }];
    bench.engine.complete(
        ActionReport {
            results: vec![ActionResult::Terminated(terminated)],
            ..ActionReport::done(vec![Key::Instance("i-1".to_owned())])
        },
        at(1),
    );
    let actions = bench.decide(1);
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert!(matches!(
        verb(&actions[..1]),
        (Target::Pod(..), Verb::Delete { grace_seconds: Some(0), uid }) if uid == "a-uid"
    ));
    assert!(matches!(verb(&actions[1..]), (Target::Node(_), Verb::JsonPatch(_))), "its finalizer goes first");
}

#[test]
fn a_claim_that_adopts_is_not_released_before_its_instance_is_known() {
    let mut bench = Bench::new();
    let mut adopting = claim(10, json!({}), true);
    adopting.metadata.annotations = Some([("croft.dev/adopts".to_owned(), "i-9".to_owned())].into());
    bench.see(1, adopting);
    let actions = bench.decide(1);
    assert!(matches!(&actions[..], [Action::FindInstance(_)]), "{actions:?}");
}

#[test]
fn who_takes_the_place_of_another_like_it_leaves_it_its_own() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, node(11, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    for name in ["a", "b", "c"] {
        bench.see(1, pod(name, None));
    }
    let key = |name: &str| PodKey::new("tenant-a", name);
    let meant_for = |bench: &Bench, claim: &str| -> Vec<PodKey> {
        bench.engine.snapshot().nominated_to(claim).map(|(key, _)| key.clone()).collect()
    };
    for (name, claim) in [("a", "pool-a-1"), ("b", "pool-a-2")] {
        bench.engine.snapshot_mut().nominate(&key(name), claim);
    }
    // kube-scheduler binds the other one first. Bound pods have labels of their node's zone (PodTopologyLabels).
    let bound = |name: &str| {
        let mut bound = pod(name, Some("node-1"));
        let zone = ("topology.kubernetes.io/zone".to_owned(), "us-east-1a".to_owned());
        bound.metadata.labels.get_or_insert_default().extend([zone]);
        Change::from(bound)
    };
    bench.see(2, bound("b"));
    assert_eq!(meant_for(&bench, "pool-a-1"), []);
    assert_eq!(meant_for(&bench, "pool-a-2"), [key("a")]);

    // And one that no plan has seen.
    bench.engine.snapshot_mut().nominate(&key("a"), "pool-a-1");
    bench.see(3, bound("c"));
    assert_eq!(
        bench.engine.snapshot().unnominated_demand().collect::<Vec<_>>(),
        [&key("a")],
        "it is demand again"
    );
}

/// Its pod waited for a node that was cordoned before it was initialized, and a PodDisruptionBudget for the pod.
#[test]
fn pods_nominated_to_a_deleted_claim_are_demand_again() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered"]), false));
    bench.see(1, node(11, "aws:///us-east-1a/i-1", registered_labels(), json!([]), false));
    bench.see(1, pod("a", None));
    let key = PodKey::new("tenant-a", "a");
    bench.engine.snapshot_mut().nominate(&key, "pool-a-1");
    assert_eq!(bench.engine.snapshot().unnominated_demand().count(), 0);
    bench.see(2, claim(12, launched(&["Registered"]), true));
    assert_eq!(bench.engine.snapshot().unnominated_demand().collect::<Vec<_>>(), [&key]);
}

#[test]
fn taints_that_go_while_a_node_starts_do_not_count_on_it() {
    let starting = EPHEMERAL_TAINTS.map(|key| json!({"key": key, "effect": "NoSchedule"}));
    let labels = registered_labels();
    let raw = node(11, "aws:///us-east-1a/i-1", labels, starting.to_vec().into(), false);
    let claim = claim(10, launched(&["Registered"]), false);
    let taints = future_node(&raw, &claim).spec.unwrap().taints.unwrap();
    let keys: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
    assert_eq!(keys, ["node-pool"]);
}

#[test]
fn nodes_have_room_for_what_admission_adds_to_their_agents() {
    let agent = |more: &Value| {
        let mut template = json!({"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c"}]});
        croft_controller::merge_patch::apply(&mut template, more);
        Change::from(read::<DaemonSet>(
            json!({"metadata": {"name": "agent", "namespace": "obs", "uid": "agent-uid"},
            "spec": {"selector": {}, "template": {"spec": template}}}),
        ))
    };
    let range = |namespace: &str| {
        Change::from(read::<LimitRange>(
            json!({"metadata": {"name": "r", "namespace": namespace, "uid": "range-uid"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}}),
        ))
    };
    let class = || {
        Change::from(read::<RuntimeClass>(
            json!({"metadata": {"name": "vm", "uid": "class-uid"}, "handler": "vm",
            "overhead": {"podFixed": {"cpu": "1"}}}),
        ))
    };
    let (plain, sandboxed) = (json!({}), json!({"runtimeClassName": "vm"}));
    let range_gone = || Change::Gone(ObjectId::new(Kind::LimitRange, "obs", "r"));
    let class_gone = || Change::Gone(ObjectId::new(Kind::RuntimeClass, "", "vm"));
    for (case, changes, expected) in [
        ("nothing", vec![agent(&plain)], "m5.large"),
        ("a LimitRange", vec![range("obs"), agent(&plain)], "m5.xlarge"),
        ("a later LimitRange", vec![agent(&plain), range("obs")], "m5.xlarge"),
        ("another namespace's", vec![agent(&plain), range("other")], "m5.large"),
        ("one that is gone", vec![agent(&plain), range("obs"), range_gone()], "m5.large"),
        ("a RuntimeClass", vec![agent(&sandboxed), class()], "m5.xlarge"),
        ("one that isn't named", vec![agent(&plain), class()], "m5.large"),
        ("one that is gone", vec![class(), agent(&sandboxed), class_gone()], "m5.large"),
    ] {
        let mut bench = Bench::new();
        for change in changes {
            bench.see(1, change);
        }
        bench.see(1, pod("a", None));
        assert!(bench.decide(1).is_empty(), "the batch is open");
        let actions = bench.decide(2);
        let [Action::CreateClaims(new)] = &actions[..] else { panic!("{case}: {actions:?}") };
        assert_eq!(new.claims[0].spec.instance_types[0], expected, "{case}");
    }
}
