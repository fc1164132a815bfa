//! Interruptions: instances that the cloud is about to take.

use croft_api::NodeClaim;
use croft_cloud::{
    CloudInstance, InstanceHealth, InstanceState, Interruption, InterruptionKind, ScheduledChange,
};
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, ObjectId, Target, Verb},
    result::{ActionReport, ActionResult},
    state::InstanceList,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, condition, launched, node, pod, pool, registered_labels, verb};

fn news(kind: InterruptionKind, deadline: Option<u64>) -> Interruption {
    Interruption {
        kind,
        instances: vec!["i-1".to_owned()],
        at: at(1).wall.as_second(),
        deadline: deadline.map(|s| at(s).wall.as_second()),
        over_at: None,
        receipt: "receipt-1".to_owned(),
    }
}

fn disrupted() -> Value {
    json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}])
}

/// An instance with a pod, about which `news` came at second 1.
fn told(news: Interruption) -> Bench {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, pod("a", Some("node-1")));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    hear(&mut bench, 1, news);
    bench
}

fn hear(bench: &mut Bench, seconds: u64, news: Interruption) {
    let news = vec![ActionResult::Interruptions(vec![news])];
    bench.engine.complete(
        ActionReport { results: news, ..ActionReport::done(vec![Key::Interruptions]) },
        at(seconds),
    );
}

/// Lets the claim's status be written, and shows the claim with it.
fn written(bench: &mut Bench, seconds: u64) -> Value {
    let mut actions = bench.decide(seconds);
    actions.retain(|action| !matches!(action, Action::DescribeInstances(_)));
    let (Target::Claim(_), Verb::PatchStatus(patch)) = verb(&actions) else { panic!("{actions:?}") };
    let mut status = launched(&["Registered", "Initialized"]);
    for (key, value) in patch["status"].as_object().unwrap() {
        status[key] = value.clone();
    }
    bench.done(seconds, &actions[0], vec![]);
    bench.see(seconds, claim(11, status.clone(), false));
    status
}

#[test]
fn news_is_acknowledged_once_the_claim_says_it() {
    let mut bench = told(news(InterruptionKind::SpotWarning, Some(121)));
    let status = written(&mut bench, 1);
    let said = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Interrupted").unwrap();
    assert_eq!((&said["status"], &said["reason"]), (&json!("True"), &json!("SpotWarning")));
    assert_eq!(status["leaveBy"], json!(at(121).wall.to_string()));
    let actions = bench.decide(1);
    let acknowledged = actions.iter().find_map(|a| match a {
        Action::AcknowledgeInterruptions(news) => Some(news[0].receipt.as_str()),
        _ => None,
    });
    assert_eq!(acknowledged, Some("receipt-1"));
}

#[test]
fn a_spot_instance_is_cordoned_and_replaced_first_and_left_in_time() {
    let mut bench = told(news(InterruptionKind::SpotWarning, Some(121)));
    written(&mut bench, 1);
    let actions = bench.decide(1);
    let cordon = actions.iter().find(|a| a.keys() == [Key::Node("node-1".to_owned())]);
    assert!(cordon.is_some(), "{actions:?}");
    let made = actions.iter().find_map(|a| match a {
        Action::CreateClaims(new) => Some(new),
        _ => None,
    });
    let annotations =
        &made.expect("its replacement is launched at once").claims[0].object["metadata"]["annotations"];
    assert_eq!(annotations["croft.dev/replaces"], "pool-a-1");
    assert_eq!(annotations["croft.dev/disruption-reason"], "Interrupted");
    // The replacement is late: half of the two minutes are the pods'.
    bench.see(2, node(21, "aws:///us-east-1a/i-1", registered_labels(), disrupted(), true));
    let keys: Vec<Key> = actions.iter().flat_map(Action::keys).collect();
    let read = vec![ActionResult::Acknowledged(vec![news(InterruptionKind::SpotWarning, Some(121))])];
    bench.engine.complete(ActionReport { results: read, ..ActionReport::done(keys) }, at(2));
    let mut replacement = made.unwrap().claims[0].object.clone();
    replacement["metadata"]["uid"] = json!("replacement-uid");
    replacement["metadata"]["resourceVersion"] = json!("30");
    replacement["metadata"]["creationTimestamp"] = json!(at(2).wall.to_string());
    bench.see(2, serde_json::from_value::<NodeClaim>(replacement).unwrap());
    let launch = bench.decide(2);
    assert!(matches!(&launch[..], [Action::Launch(_)]), "{launch:?}");
    let deletes = |action: &Action| matches!(action, Action::Write { call, .. } if matches!(call.verb, Verb::Delete { .. }));
    let actions = bench.decide(60);
    assert!(!actions.iter().any(deletes), "{actions:?}");
    actions.iter().for_each(|action| bench.done(60, action, vec![]));
    let actions = bench.decide(61);
    assert!(
        matches!(verb(&actions), (Target::Claim(name), Verb::Delete { .. }) if name == "pool-a-1"),
        "{actions:?}"
    );
}

/// The claim of a second instance of the pool.
fn second_claim(mut claim: Box<NodeClaim>) -> Box<NodeClaim> {
    claim.metadata.name = Some("pool-a-2".to_owned());
    claim.metadata.uid = Some("claim-uid-2".to_owned());
    let status = claim.status.as_mut().unwrap();
    status.provider_id = Some("aws:///us-east-1a/i-2".to_owned());
    status.node_name = Some("node-2".to_owned());
    claim
}

/// Its node.
fn second_node(mut node: Box<Node>) -> Box<Node> {
    node.metadata.name = Some("node-2".to_owned());
    node.metadata.uid = Some("node-uid-2".to_owned());
    node.metadata.annotations = Some([("croft.dev/claim".to_owned(), "pool-a-2".to_owned())].into());
    node
}

fn made(actions: &[Action]) -> Vec<(Value, Value)> {
    let made =
        actions.iter().filter_map(|a| if let Action::CreateClaims(new) = a { Some(new) } else { None });
    let claims = made.flat_map(|new| &new.claims);
    claims
        .map(|c| (c.object["metadata"]["annotations"]["croft.dev/replaces"].clone(), c.object.clone()))
        .collect()
}

#[test]
fn a_second_instance_of_the_pool_does_not_wait_until_the_first_is_replaced() {
    let ready = || launched(&["Registered", "Initialized"]);
    let mut bench = told(news(InterruptionKind::SpotWarning, Some(121)));
    bench.see(1, second_claim(claim(12, ready(), false)));
    bench.see(1, pod("b", Some("node-2")));
    bench.see(1, second_node(node(22, "aws:///us-east-1a/i-2", registered_labels(), json!([]), true)));
    written(&mut bench, 1);
    let actions = bench.decide(1);
    let first = made(&actions);
    assert_eq!(first.iter().map(|(replaces, _)| replaces).collect::<Vec<_>>(), ["pool-a-1"]);
    actions.iter().for_each(|action| bench.done(1, action, vec![]));
    let mut replacement = first[0].1.clone();
    replacement["metadata"]["uid"] = json!("replacement-uid");
    replacement["metadata"]["resourceVersion"] = json!("30");
    replacement["metadata"]["creationTimestamp"] = json!(at(1).wall.to_string());
    bench.see(2, serde_json::from_value::<NodeClaim>(replacement).unwrap());
    let mut reserved = pool(31, &json!({}));
    let status = json!({"claimCounter": 1, "conditions": [condition("Accepted", 0)]});
    reserved.status = Some(serde_json::from_value(status).unwrap());
    bench.see(2, reserved);

    let warning = Interruption {
        instances: vec!["i-2".to_owned()],
        receipt: "receipt-2".to_owned(),
        ..news(InterruptionKind::SpotWarning, Some(122))
    };
    hear(&mut bench, 2, warning);
    let actions = bench.decide(2);
    let said = actions.iter().find_map(|action| match action {
        Action::Write { key, call, .. } if *key == Key::Claim("pool-a-2".to_owned()) => Some(&call.verb),
        _ => None,
    });
    let Some(Verb::PatchStatus(patch)) = said else { panic!("{actions:?}") };
    let mut status = ready();
    for (key, value) in patch["status"].as_object().unwrap() {
        status[key] = value.clone();
    }
    actions.iter().for_each(|action| bench.done(2, action, vec![]));
    bench.see(2, second_claim(claim(32, status, false)));
    let next = made(&bench.decide(2));
    assert_eq!(
        next.iter().map(|(replaces, _)| replaces).collect::<Vec<_>>(),
        ["pool-a-2"],
        "the first's replacement has room for one of the two pods"
    );
}

/// The status of a ready instance that is interrupted.
fn interrupted(kind: InterruptionKind) -> Value {
    let mut status = launched(&["Registered", "Initialized"]);
    let mut said = condition("Interrupted", 1);
    said["reason"] = json!(kind.as_str());
    status["conditions"].as_array_mut().unwrap().push(said);
    status
}

#[test]
fn a_node_whose_pod_has_no_other_place_does_not_keep_another_from_being_replaced() {
    use InterruptionKind::{Rebalance, ScheduledChange, SpotWarning};
    for (kind, drained) in [(SpotWarning, true), (ScheduledChange, false), (Rebalance, false)] {
        let mut bench = Bench::new();
        bench.see(1, claim(10, interrupted(kind), false));
        let mut bound = pod("a", Some("node-1"));
        let selector = bound.spec.as_mut().unwrap().node_selector.as_mut().unwrap();
        selector.insert("topology.kubernetes.io/zone".to_owned(), "us-east-1z".to_owned());
        bench.see(1, bound);
        bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
        bench.see(1, second_claim(claim(12, interrupted(kind), false)));
        bench.see(1, pod("b", Some("node-2")));
        bench.see(1, second_node(node(22, "aws:///us-east-1a/i-2", registered_labels(), json!([]), true)));
        let mut actions = bench.decide(1);
        if kind == Rebalance {
            assert!(actions.is_empty(), "the breaker lets one go at a time: {actions:?}");
            actions = bench.decide(1);
        }
        let made = made(&actions);
        assert_eq!(made.iter().map(|(replaces, _)| replaces).collect::<Vec<_>>(), ["pool-a-2"], "{kind:?}");
        let deleted = actions.iter().filter_map(|action| match action {
            Action::Write { call, .. } if matches!(call.verb, Verb::Delete { .. }) => Some(&call.target),
            _ => None,
        });
        let deleted: Vec<&Target> = deleted.collect();
        let first = Target::Claim("pool-a-1".to_owned());
        assert_eq!(deleted, if drained { vec![&first] } else { vec![] }, "{kind:?}: {actions:?}");
        let blocked = bench.told.iter().filter(|(reason, _)| reason == "DisruptionBlocked").count();
        assert_eq!(blocked, usize::from(!drained), "{kind:?}: {:?}", bench.told);
    }
}

#[test]
fn pods_without_another_place_leave_at_once() {
    let mut bench = told(news(InterruptionKind::SpotWarning, Some(121)));
    bench.see(1, Change::Gone(ObjectId::new(Kind::TenantPool, "", "pool-a")));
    written(&mut bench, 1);
    let actions = bench.decide(1);
    assert!(
        actions
            .iter()
            .any(|a| matches!(a, Action::Write { call, .. } if matches!(call.verb, Verb::Delete { .. }))),
        "{actions:?}"
    );
}

/// The instance as a list shows it that was asked for at `seconds`.
fn listed(bench: &mut Bench, seconds: u64, launched: u64, state: InstanceState) {
    let instance = CloudInstance {
        id: "i-1".to_owned(),
        provider_id: "aws:///us-east-1a/i-1".to_owned(),
        state,
        launched_at: at(launched).wall.as_second(),
        ..CloudInstance::default()
    };
    let instances = [("i-1".to_owned(), instance)].into();
    bench.engine.snapshot_mut().set_instances(InstanceList { asked: at(seconds), instances });
}

#[test]
fn a_message_from_before_the_instance_started_or_about_what_is_over_is_acknowledged_and_ignored() {
    use InterruptionKind::{Rebalance, ScheduledChange, SpotWarning};
    let over = |kind| Interruption { over_at: Some(at(0).wall.as_second()), ..news(kind, None) };
    let cases = [
        (20, news(SpotWarning, Some(121))),
        (20, news(Rebalance, None)),
        (0, over(ScheduledChange)),
        (0, over(SpotWarning)),
    ];
    for (launched, news) in cases {
        let mut bench = told(news.clone());
        listed(&mut bench, 30, launched, InstanceState::Running);
        let actions = bench.decide(30);
        assert!(
            actions.iter().any(|a| matches!(a, Action::AcknowledgeInterruptions(_))),
            "{news:?}: {actions:?}"
        );
        let acts = |a: &Action| match a {
            Action::Write { call, .. } => !matches!(call.verb, Verb::Patch(_)),
            other => !matches!(other, Action::AcknowledgeInterruptions(_)),
        };
        assert!(!actions.iter().any(acts), "{news:?}: {actions:?}");
        assert_eq!(bench.told.iter().filter(|(reason, _)| reason == "InterruptionIgnored").count(), 1);
    }
}

/// The instance as a list shows it, with a change that is scheduled at each of these seconds.
fn scheduled(bench: &mut Bench, seconds: u64, at_seconds: &[u64]) {
    listed(bench, seconds, 0, InstanceState::Running);
    let mut list = bench.engine.snapshot().instances().unwrap().clone();
    let change = |s: &u64| ScheduledChange {
        code: "instance-retirement".to_owned(),
        not_before: Some(at(*s).wall.as_second()),
    };
    let scheduled = at_seconds.iter().map(change).collect();
    list.instances.get_mut("i-1").unwrap().health = Some(InstanceHealth { failed: Vec::new(), scheduled });
    bench.engine.snapshot_mut().set_instances(list);
}

#[test]
fn a_change_that_the_list_of_instances_shows_is_replaced_before_its_time_without_any_message() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, pod("a", Some("node-1")));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    scheduled(&mut bench, 1, &[90_000, 80_000]);
    let status = written(&mut bench, 1);
    let said = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Interrupted").unwrap();
    assert_eq!((&said["status"], &said["reason"]), (&json!("True"), &json!("ScheduledChange")));
    assert_eq!(status["leaveBy"], json!(at(80_000).wall.to_string()), "the first of them");
    let actions = bench.decide(1);
    assert_eq!(made(&actions).len(), 1, "its replacement is launched: {actions:?}");
    assert!(!actions.iter().any(|a| matches!(a, Action::AcknowledgeInterruptions(_))), "{actions:?}");
}

#[test]
fn a_scheduled_change_that_is_brought_forward_counts_with_its_new_time() {
    let mut bench = told(news(InterruptionKind::ScheduledChange, Some(90_000)));
    written(&mut bench, 1);
    let writes = |actions: &[Action]| {
        actions
            .iter()
            .any(|a| matches!(a, Action::Write { call, .. } if matches!(call.verb, Verb::PatchStatus(_))))
    };
    scheduled(&mut bench, 2, &[90_000]);
    let actions = bench.decide(2);
    assert!(!writes(&actions), "the claim says it already: {actions:?}");
    scheduled(&mut bench, 3, &[70_000]);
    let actions = bench.decide(3);
    assert!(writes(&actions), "{actions:?}");
}

#[test]
fn a_scheduled_change_that_is_postponed_counts_with_its_new_time() {
    let new = json!(at(95_000).wall.to_string());
    // An early list may be older than the message.
    for (seconds, expected) in [(60, vec![]), (200, vec![new])] {
        let mut bench = told(news(InterruptionKind::ScheduledChange, Some(90_000)));
        written(&mut bench, 1);
        scheduled(&mut bench, seconds, &[95_000]);
        let actions = bench.decide(seconds);
        let leave_by = actions.iter().filter_map(|action| match action {
            Action::Write { call, .. } => match &call.verb {
                Verb::PatchStatus(patch) => patch["status"].get("leaveBy").cloned(),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(leave_by.collect::<Vec<Value>>(), expected, "{seconds} s: {actions:?}");
    }
}

#[test]
fn a_message_that_an_instance_stops_counts_once_the_cloud_says_so() {
    let acts = |actions: &[Action]| {
        let of = |a: &Action| matches!(a, Action::Write { call, .. } if !matches!(call.verb, Verb::Patch(_)));
        actions.iter().any(|a| of(a) || matches!(a, Action::Terminate { .. }))
    };
    let read = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::AcknowledgeInterruptions(_)));
    let mut bench = told(news(InterruptionKind::StateChange, None));
    // A list from before the message says nothing about it, nor does a list that may lag behind it.
    let actions = bench.decide(1);
    assert!(!acts(&actions) && !read(&actions), "{actions:?}");
    listed(&mut bench, 2, 0, InstanceState::Running);
    let actions = bench.decide(2);
    assert!(!acts(&actions) && !read(&actions), "{actions:?}");
    // It works: the message was about an earlier life of it.
    listed(&mut bench, 12, 0, InstanceState::Running);
    let actions = bench.decide(12);
    assert!(!acts(&actions) && read(&actions), "{actions:?}");
}

#[test]
fn a_node_whose_time_is_long_past_and_that_works_is_replaced_first() {
    for kind in [InterruptionKind::ScheduledChange, InterruptionKind::SpotWarning] {
        let mut bench = told(news(kind, Some(121)));
        written(&mut bench, 1);
        // The controller was away meanwhile, and the instance still works.
        let actions = bench.decide(600);
        assert_eq!(made(&actions).len(), 1, "{kind:?}: {actions:?}");
        let ends = |a: &Action| matches!(a, Action::Write { call, .. } if matches!(call.verb, Verb::Delete { .. } | Verb::JsonPatch(_)));
        assert!(!actions.iter().any(ends), "neither deleted nor cordoned: {actions:?}");
    }
}

#[test]
fn an_instance_that_the_cloud_says_is_going_is_not_drained() {
    let mut bench = told(news(InterruptionKind::StateChange, None));
    listed(&mut bench, 2, 0, InstanceState::Stopping);
    let status = written(&mut bench, 1);
    let actions: Vec<Action> =
        bench.decide(1).into_iter().filter(|a| !matches!(a, Action::AcknowledgeInterruptions(_))).collect();
    assert!(matches!(verb(&actions), (Target::Claim(_), Verb::Delete { .. })));
    bench.done(1, &actions[0], vec![]);
    let instance =
        CloudInstance { id: "i-1".to_owned(), state: InstanceState::ShuttingDown, ..Default::default() };
    let ids = vec!["i-1".to_owned()];
    let described = Action::DescribeInstances(ids.clone());
    bench.done(1, &described, vec![ActionResult::InstancesDescribed(at(1).mono, ids, vec![instance])]);
    bench.see(4, claim(12, status, true));
    let actions = bench.decide(4);
    assert!(matches!(&actions[..], [Action::Terminate { .. }]), "its pod isn't asked to leave: {actions:?}");
}

#[test]
fn a_recommendation_waits_for_the_replacement_and_heeds_pods_that_may_not_go() {
    for (keep, replaced) in [(false, true), (true, false)] {
        let mut bench = told(news(InterruptionKind::Rebalance, None));
        if keep {
            let mut kept = pod("a", Some("node-1"));
            kept.metadata.annotations =
                Some([("croft.dev/do-not-disrupt".to_owned(), "true".to_owned())].into());
            kept.metadata.resource_version = Some("501".to_owned());
            bench.see(1, kept);
        }
        written(&mut bench, 1);
        let actions = bench.decide(1);
        assert_eq!(actions.iter().any(|a| matches!(a, Action::CreateClaims(_))), replaced, "{actions:?}");
        let touched = actions.iter().flat_map(Action::keys).any(|k| k == Key::Node("node-1".to_owned()));
        assert!(!touched, "the node stays open until its replacement is ready");
        let keys: Vec<Key> = actions.iter().flat_map(Action::keys).collect();
        bench.engine.complete(ActionReport::done(keys), at(1));
        let deleted = |actions: &[Action]| {
            actions.iter().any(|a| {
                matches!(a, Action::Write { call, .. } if call.target == Target::Claim("pool-a-1".to_owned())
                    && matches!(call.verb, Verb::Delete { .. }))
            })
        };
        assert!(!deleted(&bench.decide(600)), "nothing comes in its place, so it stays");
    }
}

#[test]
fn a_pool_may_ignore_recommendations_before_and_after_they_came() {
    let ignores = json!({"disruption": {"rebalanceRecommendations": "Ignore"}});
    let mut bench = told(news(InterruptionKind::Rebalance, None));
    bench.see(1, pool(3, &ignores));
    let actions = bench.decide(1);
    assert!(actions.iter().any(|a| matches!(a, Action::AcknowledgeInterruptions(_))), "{actions:?}");
    let says =
        |a: &Action| matches!(a, Action::Write { call, .. } if matches!(call.verb, Verb::PatchStatus(_)));
    assert!(!actions.iter().any(says), "{actions:?}");
    assert!(bench.told.iter().any(|(reason, _)| reason == "InterruptionIgnored"), "{:?}", bench.told);
    // Other messages count.
    let mut bench = told(news(InterruptionKind::SpotWarning, Some(121)));
    bench.see(1, pool(3, &ignores));
    written(&mut bench, 1);
    assert_eq!(made(&bench.decide(1)).len(), 1);
    // The claim says it already when the pool is edited.
    let mut bench = told(news(InterruptionKind::Rebalance, None));
    written(&mut bench, 1);
    bench.see(1, pool(3, &ignores));
    assert!(made(&bench.decide(1)).is_empty());
}

#[test]
fn messages_about_instances_of_no_claim_are_left_on_the_queue_and_acknowledged_when_they_are_old() {
    for (kind, at_once) in [
        (InterruptionKind::SpotWarning, false),
        (InterruptionKind::StateChange, true),
        (InterruptionKind::Other, true),
    ] {
        let mut bench = Bench::new();
        let instances = if kind == InterruptionKind::Other { vec![] } else { vec!["i-9".to_owned()] };
        hear(&mut bench, 1, Interruption { instances, ..news(kind, None) });
        let first = bench.decide(1);
        assert_eq!(
            matches!(&first[..], [Action::AcknowledgeInterruptions(_)]),
            at_once,
            "{kind:?}: {first:?}"
        );
        if !at_once {
            assert!(bench.decide(61).is_empty(), "another cluster may read the same queue");
            hear(&mut bench, 602, Interruption { instances: vec!["i-9".to_owned()], ..news(kind, None) });
            assert!(bench.decide(602).is_empty(), "its launch may not have been answered yet");
            assert!(matches!(&bench.decide(662)[..], [Action::AcknowledgeInterruptions(_)]));
        }
    }
}
