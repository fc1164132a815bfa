//! Evidence on which claims, Nodes and instances end: what the cloud says of an id, what the API server has.

use croft_cloud::{CloudInstance, InstanceState, Terminated};
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, ObjectId, Response, Target, Verb},
    result::{ActionReport, ActionResult, Backoff},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, launched, node, pod, registered_labels, time, verb};

fn instance(state: InstanceState, cluster: &str) -> CloudInstance {
    CloudInstance {
        id: "i-1".to_owned(),
        provider_id: "aws:///us-east-1a/i-1".to_owned(),
        node_name: "node-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        state,
        pool: Some("pool-a".to_owned()),
        tags: [("croft.dev/cluster".to_owned(), cluster.to_owned())].into(),
        ..CloudInstance::default()
    }
}

fn list(bench: &mut Bench, seconds: u64, instances: Vec<CloudInstance>) {
    let news = vec![ActionResult::Instances(at(seconds), instances)];
    bench.engine.complete(
        ActionReport { results: news, ..ActionReport::done(vec![Key::ListInstances]) },
        at(seconds),
    );
}

/// A registered claim with a node and a pod.
fn working(ready: bool) -> Bench {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), ready));
    bench.see(1, pod("a", Some("node-1")));
    assert!(decide(&mut bench, 1).is_empty());
    bench
}

/// The decisions, with the claim's record of what it was launched with written.
fn decide(bench: &mut Bench, seconds: u64) -> Vec<Action> {
    let records = |action: &mut Action| {
        matches!(action, Action::Write { call, .. } if matches!(&call.verb, Verb::Patch(patch)
            if !patch["metadata"]["annotations"]["croft.dev/launched-with"].is_null()))
    };
    let mut actions = bench.decide(seconds);
    let written: Vec<Action> = actions.extract_if(.., records).collect();
    for action in &written {
        bench.done(seconds, action, vec![]);
        actions.extend(bench.decide(seconds).extract_if(.., |action| !records(action)));
    }
    actions
}

/// The decisions after the cloud has answered a question about the instance with `found`.
fn described(bench: &mut Bench, seconds: u64, found: &[CloudInstance]) -> Vec<Action> {
    let mut actions = decide(bench, seconds);
    let asked: Vec<Action> = actions.extract_if(.., |a| matches!(a, Action::DescribeInstances(_))).collect();
    for action in &asked {
        let Action::DescribeInstances(ids) = action else { continue };
        let news = ActionResult::InstancesDescribed(at(seconds).mono, ids.clone(), found.to_vec());
        bench.done(seconds, action, vec![news]);
    }
    if !asked.is_empty() {
        actions.extend(decide(bench, seconds));
    }
    actions
}

fn deletes_claim(actions: &[Action]) -> bool {
    actions.iter().any(|action| {
        matches!(action, Action::Write { call, .. }
            if matches!(call.target, Target::Claim(_)) && matches!(call.verb, Verb::Delete { .. }))
    })
}

#[test]
fn an_instance_whose_tag_was_overwritten_keeps_its_claim_and_gets_its_tag_again() {
    let mut bench = working(true);
    for seconds in [200, 260, 320] {
        list(&mut bench, seconds, Vec::new());
    }
    let actions = described(&mut bench, 321, &[instance(InstanceState::Running, "another")]);
    assert!(!deletes_claim(&actions), "{actions:?}");
    let tags = actions.iter().find_map(|a| match a {
        Action::Tag { id, tags } => Some((id.as_str(), tags["croft.dev/claim-uid"].as_str())),
        _ => None,
    });
    assert_eq!(tags, Some(("i-1", "claim-uid")));
    let written = actions.iter().find_map(|a| match a {
        Action::Write { call, .. } => match &call.verb {
            Verb::PatchStatus(patch) => Some(patch["status"]["conditions"].clone()),
            _ => None,
        },
        _ => None,
    });
    let conditions = written.unwrap();
    let tagged = |c: &&Value| c["type"] == "InstanceTagged";
    let said = conditions.as_array().unwrap().iter().find(tagged).unwrap();
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("TagOverwritten")));
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("aws ec2 create-tags --resources i-1"), "{message}");
    assert!(bench.told.iter().any(|(reason, _)| reason == "TagOverwritten"), "{:?}", bench.told);
    let ended: Vec<Key> = actions.iter().flat_map(Action::keys).collect();
    bench.engine.complete(ActionReport::done(ended), at(321));

    let mut status = launched(&["Registered", "Initialized"]);
    status["conditions"] = conditions;
    bench.see(322, claim(30, status, false));
    list(&mut bench, 380, vec![instance(InstanceState::Running, "cluster")]);
    let actions = decide(&mut bench, 380);
    let (Target::Claim(_), Verb::PatchStatus(patch)) = verb(&actions) else { panic!("{actions:?}") };
    let said = patch["status"]["conditions"].as_array().unwrap().iter().find(tagged).unwrap().clone();
    assert_eq!(said["status"], "True", "the list shows it again");
}

#[test]
fn an_account_without_the_instance_ends_nothing_while_its_node_is_ready() {
    let mut bench = working(true);
    for minute in 3..30 {
        list(&mut bench, minute * 60, Vec::new());
        let actions = described(&mut bench, minute * 60 + 1, &[]);
        assert!(!deletes_claim(&actions), "minute {minute}: {actions:?}");
    }
    // The same evidence, and the node says nothing either.
    bench.see(1_810, node(21, "aws:///us-east-1a/i-1", registered_labels(), json!([]), false));
    assert!(deletes_claim(&described(&mut bench, 1_811, &[])));
}

#[test]
fn an_account_without_the_instances_that_boot_ends_no_more_of_them_than_the_breaker_lets() {
    let mut bench = Bench::new();
    for n in 1..=4 {
        let mut one = claim(10, launched(&[]), false);
        one.metadata.name = Some(format!("pool-a-{n}"));
        one.metadata.uid = Some(format!("uid-{n}"));
        let status = one.status.as_mut().unwrap();
        status.provider_id = Some(format!("aws:///us-east-1a/i-{n}"));
        status.node_name = Some(format!("node-{n}"));
        bench.see(1, one);
    }
    for minute in 3..8 {
        list(&mut bench, minute * 60, Vec::new());
        let actions = described(&mut bench, minute * 60 + 1, &[]);
        assert!(!deletes_claim(&actions), "minute {minute}: {actions:?}");
        actions.iter().for_each(|action| bench.done(minute * 60 + 1, action, vec![]));
    }
    assert!(bench.told.iter().any(|(reason, _)| reason == "TooManyMissingInstances"), "{:?}", bench.told);
}

#[test]
fn one_answer_that_an_id_is_unknown_is_no_proof() {
    let mut bench = working(false);
    list(&mut bench, 200, Vec::new());
    assert!(!deletes_claim(&described(&mut bench, 200, &[])));
    assert!(!deletes_claim(&described(&mut bench, 261, &[])));
    let known = instance(InstanceState::Running, "cluster");
    let actions = described(&mut bench, 322, &[known]);
    assert!(!deletes_claim(&actions), "known after all: {actions:?}");
    let ended: Vec<Key> = actions.iter().flat_map(Action::keys).collect();
    bench.engine.complete(ActionReport::done(ended), at(322));
    assert!(!deletes_claim(&described(&mut bench, 383, &[])), "unknown again since a moment ago");
}

#[test]
fn an_id_that_is_unknown_within_an_hour_after_it_was_shown_is_one_of_another_account() {
    let mut bench = working(false);
    list(&mut bench, 100, vec![instance(InstanceState::Running, "cluster")]);
    list(&mut bench, 200, Vec::new());
    let mut deletes = |seconds| deletes_claim(&described(&mut bench, seconds, &[]));
    let first = (200..5_000).step_by(61).find(|seconds| deletes(*seconds));
    // EC2 would show a terminated instance for about an hour.
    assert!(first.is_some_and(|seconds| (3_700..3_800).contains(&seconds)), "{first:?}");
}

#[test]
fn an_id_that_is_unknown_within_an_hour_after_its_launch_is_one_of_another_account() {
    // This process has never seen the instance. Its clock is an hour and a half or ten minutes ahead of the launch.
    for (begins, expected) in [(600, 3_600..3_700), (5_400, 5_500..5_700)] {
        let mut bench = working(false);
        let mut status = launched(&["Registered", "Initialized"]);
        status["launchTime"] = json!(time(0));
        bench.see(begins, claim(11, status, false));
        list(&mut bench, begins, Vec::new());
        let mut deletes = |seconds| deletes_claim(&described(&mut bench, seconds, &[]));
        let first = (begins..9_000).step_by(61).find(|seconds| deletes(*seconds));
        assert!(first.is_some_and(|seconds| expected.contains(&seconds)), "{begins}: {first:?}");
    }
}

#[test]
fn an_instance_that_is_shutting_down_loses_its_claim_at_once() {
    for state in [InstanceState::ShuttingDown, InstanceState::Terminated, InstanceState::Stopped] {
        let mut bench = working(true);
        list(&mut bench, 10, vec![instance(state, "cluster")]);
        assert!(deletes_claim(&described(&mut bench, 11, &[instance(state, "cluster")])), "{state:?}");
    }
}

#[test]
fn the_leader_before_had_another_clock_and_its_stamps_make_nothing_old() {
    // The claim says that it was launched long ago, and this process has only just come to know it.
    let mut bench = Bench::new();
    bench.see(1_000, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1_000, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.see(1_000, pod("a", Some("node-1")));
    assert!(decide(&mut bench, 1_000).is_empty());
    for seconds in [1_001, 1_060, 1_119] {
        list(&mut bench, seconds, Vec::new());
        assert!(
            decide(&mut bench, seconds).is_empty(),
            "not even asked for yet: a list may lag behind a launch"
        );
    }
    list(&mut bench, 1_121, Vec::new());
    assert!(matches!(&decide(&mut bench, 1_121)[..], [Action::DescribeInstances(_)]));
}

#[test]
fn an_unknown_id_is_not_terminated_while_its_node_is_ready() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    for (ready, seconds, released) in [(true, 600, false), (false, 600, true)] {
        let mut bench = Bench::new();
        bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
        bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), disrupted.clone(), ready));
        decide(&mut bench, 1);
        let terminate = decide(&mut bench, 2);
        assert!(matches!(&terminate[..], [Action::Terminate { .. }]), "{terminate:?}");
        let unknown = Terminated { id: "i-1".to_owned(), state: InstanceState::Unknown };
        bench.done(2, &terminate[0], vec![ActionResult::Terminated(vec![unknown])]);
        for at in (3..seconds).step_by(61) {
            let actions = described(&mut bench, at, &[]);
            for action in actions.iter().filter(|a| matches!(a, Action::Terminate { .. })) {
                let unknown = Terminated { id: "i-1".to_owned(), state: InstanceState::Unknown };
                bench.done(at, action, vec![ActionResult::Terminated(vec![unknown])]);
            }
            let lets_go = actions.iter().any(|a| matches!(a, Action::Write { key: Key::Node(_), .. }));
            assert!(!(lets_go && (ready || at < 120)), "{at}: {actions:?}");
            if lets_go {
                assert!(released);
                break;
            }
            assert!(!released || at < 500, "never let go");
        }
    }
}

#[test]
fn deleting_a_node_drains_it_like_deleting_its_claim() {
    let mut bench = working(true);
    let mut deleted = node(21, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true);
    deleted.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(2).wall));
    bench.see(2, deleted);
    assert!(deletes_claim(&decide(&mut bench, 2)));
    bench.engine.complete(ActionReport::done(vec![Key::Claim("pool-a-1".to_owned())]), at(2));
    bench.see(3, claim(11, launched(&["Registered", "Initialized"]), true));
    let cordon = decide(&mut bench, 3);
    assert!(matches!(verb(&cordon), (Target::Node(_), Verb::JsonPatch(_))), "{cordon:?}");
}

#[test]
fn pods_of_a_node_that_was_removed_by_force_leave_before_the_instance_goes() {
    let mut bench = working(true);
    let gone = Change::Gone(ObjectId::new(Kind::Node, "", "node-1").with_uid("node-uid"));
    bench.see(2, gone);
    assert!(deletes_claim(&decide(&mut bench, 2)));
    bench.engine.complete(ActionReport::done(vec![Key::Claim("pool-a-1".to_owned())]), at(2));
    bench.see(3, claim(11, launched(&["Registered", "Initialized"]), true));
    let evict = decide(&mut bench, 3);
    assert!(matches!(verb(&evict), (Target::Pod(..), Verb::Evict { uid }) if uid == "a-uid"), "{evict:?}");
}

#[test]
fn a_registered_claim_whose_node_the_api_server_has_is_kept() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    let actions = bench.engine.step(at(1)).actions;
    let asked = actions.iter().find(|a| matches!(a, Action::VerifyNoNode(_))).unwrap();
    assert!(!deletes_claim(&actions));
    let there = node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true);
    bench.engine.complete(
        ActionReport { responses: vec![Response::Node(there)], ..ActionReport::done(asked.keys()) },
        at(1),
    );
    assert!(!deletes_claim(&decide(&mut bench, 2)));
}

#[test]
fn a_node_is_empty_only_if_the_api_server_has_no_pod_there() {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    decide(&mut bench, 1);
    let cordon = decide(&mut bench, 31);
    assert!(matches!(verb(&cordon), (Target::Node(_), Verb::JsonPatch(_))), "{cordon:?}");
    bench.done(31, &cordon[0], vec![]);
    bench.see(31, node(21, "aws:///us-east-1a/i-1", registered_labels(), disrupted, true));
    decide(&mut bench, 31);
    // The watch of pods has stalled.
    let hidden = pod("a", Some("node-1"));
    bench.found = vec![Response::Pod(hidden)];
    let actions = decide(&mut bench, 33);
    assert!(!deletes_claim(&actions));
    let (Target::Node(_), Verb::JsonPatch(patch)) = verb(&actions) else { panic!("{actions:?}") };
    let opens = json!({"op": "add", "path": "/spec/unschedulable", "value": false});
    assert!(patch.as_array().unwrap().contains(&opens), "{patch}");
}

#[test]
fn an_instance_without_a_claim_is_adopted_if_it_has_a_node_and_looked_at_if_it_has_none() {
    let orphan = || instance(InstanceState::Running, "cluster");
    let lists = |bench: &mut Bench| {
        for seconds in [10, 100, 200] {
            list(bench, seconds, vec![orphan()]);
        }
    };
    for ready in [true, false] {
        let mut bench = Bench::new();
        bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), ready));
        lists(&mut bench);
        let actions = decide(&mut bench, 201);
        assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Create(_))), "ready {ready}: {actions:?}");
    }
    let mut bench = Bench::new();
    lists(&mut bench);
    let hidden = pod("a", Some("node-1"));
    bench.found = vec![Response::Pod(hidden)];
    assert!(decide(&mut bench, 201).is_empty(), "a pod is bound to its name");
    bench.found.clear();
    let actions = decide(&mut bench, 203);
    assert!(matches!(&actions[..], [Action::Terminate { ids }] if ids == &["i-1"]), "{actions:?}");
}

#[test]
fn an_instance_that_lost_claim_and_tag_is_found_by_its_ready_node_and_gets_its_tag_again() {
    let own = || CloudInstance {
        claim: Some("pool-a-1".to_owned()),
        ..instance(InstanceState::Running, "another")
    };
    let of_another_claim = CloudInstance { claim: Some("pool-a-2".to_owned()), ..own() };
    let of_another_node = CloudInstance { node_name: "node-2".to_owned(), ..own() };
    for (ready, is_deleted, found, expected) in [
        (true, false, own(), true),
        (true, true, own(), true),
        (false, false, own(), false),
        (true, false, of_another_claim, false),
        (true, false, of_another_node, false),
        (true, false, instance(InstanceState::ShuttingDown, "cluster"), false),
    ] {
        let mut bench = Bench::new();
        let mut node = node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), ready);
        node.metadata.deletion_timestamp = is_deleted.then(|| Time(at(1).wall));
        bench.see(1, node);
        list(&mut bench, 200, Vec::new());
        described(&mut bench, 201, std::slice::from_ref(&found));
        list(&mut bench, 260, Vec::new());
        let actions = decide(&mut bench, 260);
        let tagged = actions.iter().any(|a| matches!(a, Action::Tag { id, .. } if id == "i-1"));
        assert_eq!(tagged, expected, "ready {ready}, {found:?}: {actions:?}");
        let told = bench.told.iter().any(|(reason, _)| reason == "TagOverwritten");
        assert_eq!(told, expected, "{:?}", bench.told);
        assert!(!frees_node(&actions), "{actions:?}");
    }
}

#[test]
fn an_instance_that_lost_claim_and_tag_before_it_had_a_node_is_known_by_its_last_claim_and_gets_its_tag_again()
 {
    let of =
        |uid: &str, state| CloudInstance { claim_uid: Some(uid.to_owned()), ..instance(state, "another") };
    for (found, expected) in [
        (vec![of("claim-uid", InstanceState::Running)], true),
        (vec![of("another-uid", InstanceState::Running)], false),
        (vec![of("claim-uid", InstanceState::ShuttingDown)], false),
        (vec![], false),
    ] {
        let mut bench = Bench::new();
        bench.see(1, claim(10, launched(&[]), false));
        bench.see(2, Change::Gone(ObjectId::new(Kind::NodeClaim, "", "pool-a-1").with_uid("claim-uid")));
        // A list that was asked for before the instance must be visible shows nothing.
        list(&mut bench, 20, Vec::new());
        assert!(!decide(&mut bench, 20).iter().any(|a| matches!(a, Action::DescribeInstances(_))));
        list(&mut bench, 200, Vec::new());
        described(&mut bench, 201, &found);
        list(&mut bench, 260, Vec::new());
        let actions = decide(&mut bench, 260);
        let tags = actions.iter().find_map(|a| match a {
            Action::Tag { id, tags } => Some((id.as_str(), tags["croft.dev/claim-uid"].as_str())),
            _ => None,
        });
        assert_eq!(tags, expected.then_some(("i-1", "claim-uid")), "{found:?}: {actions:?}");
    }
}

fn frees_node(actions: &[Action]) -> bool {
    actions.iter().any(|a| {
        matches!(a, Action::Write { call, .. } if matches!(&call.verb, Verb::JsonPatch(patch)
            if patch[2]["path"] == "/metadata/finalizers/0"))
    })
}

/// A node without a claim that is being deleted.
fn deleted_without_claim() -> Bench {
    let mut bench = Bench::new();
    let mut alone = node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true);
    alone.metadata.deletion_timestamp = Some(Time(at(1).wall));
    bench.see(1, alone);
    decide(&mut bench, 1);
    bench
}

#[test]
fn a_node_that_is_deleted_without_a_claim_is_not_kept_by_the_finalizer() {
    let mut bench = deleted_without_claim();
    for (seconds, instances, freed) in
        [(60, vec![instance(InstanceState::Running, "cluster")], false), (180, Vec::new(), true)]
    {
        list(&mut bench, seconds, instances);
        let actions = described(&mut bench, seconds, &[]);
        assert_eq!(frees_node(&actions), freed, "{actions:?}");
    }
}

#[test]
fn a_node_that_is_deleted_without_a_claim_is_kept_only_if_its_pool_can_adopt_its_instance() {
    for (pool, freed) in [("pool-a", false), ("another", true)] {
        let mut bench = deleted_without_claim();
        let works =
            CloudInstance { pool: Some(pool.to_owned()), ..instance(InstanceState::Running, "cluster") };
        list(&mut bench, 60, vec![works]);
        let actions = decide(&mut bench, 60);
        assert_eq!(frees_node(&actions), freed, "{pool}: {actions:?}");
    }
}

/// The policy on the controller's identity refuses every write of a node that has nothing of a pool: its claim waited for
/// the cordon for ever, and the instance was paid.
#[test]
fn node_that_the_controller_may_not_write_is_drained_without_a_cordon_and_its_instance_terminated() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&[]), false));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", json!({}), json!([]), true));
    bench.see(1, pod("other", Some("node-1")));
    let refused = |bench: &mut Bench, seconds: u64, action: &Action| {
        let refusal = ActionResult::NodeRefused("node-1".to_owned(), "not of a pool".to_owned());
        let report = ActionReport {
            results: vec![refusal],
            backoff: Backoff::Exponential,
            ..ActionReport::done(action.keys())
        };
        bench.engine.complete(report, at(seconds));
    };
    let actions = bench.decide(1);
    let [register @ Action::Register(_)] = &actions[..] else { panic!("{actions:?}") };
    refused(&mut bench, 1, register);
    let again = bench.decide(2);
    refused(&mut bench, 2, &again[0]);
    let (_, note) = bench.told.iter().find(|(reason, _)| reason == "RegistrationRefused").expect("an event");
    assert!(note.contains("not of a pool") && note.contains("croft.dev/unregistered"), "{note}");

    bench.see(1_000, claim(30, launched(&[]), true));
    let actions = bench.decide(1_000);
    assert!(matches!(verb(&actions), (Target::Pod(_, name), Verb::Evict { .. }) if name == "other"));
    bench.see(1_001, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "other")));
    let actions = bench.decide(1_002);
    assert!(matches!(&actions[..], [Action::Terminate { ids }] if *ids == ["i-1"]), "{actions:?}");
}
