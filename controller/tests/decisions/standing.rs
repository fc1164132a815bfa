//! Pools of a fixed size, spare places, and places that kube-scheduler doesn't give.

use std::collections::BTreeSet;

use croft_api::{NodeClaim, Tenant};
use croft_controller::{
    action::{Action, Key, NewClaims},
    kube_api::{Change, Kind, ObjectId, Target, Verb},
    result::{ActionReport, ActionResult},
    time::Now,
};
use croft_scheduler::PodKey;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, condition, launched, node, pod, pool, registered_labels};

fn made(actions: &[Action]) -> &NewClaims {
    match actions {
        [Action::CreateClaims(new)] => new,
        other => panic!("claims expected, not {other:?}"),
    }
}

/// Shows the claims that were asked for, ready and with their nodes, and ends the action.
fn come(bench: &mut Bench, seconds: u64, action: &Action) -> Vec<String> {
    let new = made(std::slice::from_ref(action)).clone();
    for (n, one) in new.claims.iter().enumerate() {
        let id = format!("i-{seconds}{n}");
        let mut object = one.object.clone();
        object["metadata"]["uid"] = json!(format!("uid-{}", one.name));
        object["metadata"]["resourceVersion"] = json!((1000 * seconds + n as u64).to_string());
        object["metadata"]["creationTimestamp"] = json!(at(seconds).wall.to_string());
        let ready: Vec<Value> =
            ["Launched", "Registered", "Initialized"].iter().map(|kind| condition(kind, seconds)).collect();
        object["status"] = json!({"providerId": format!("aws:///us-east-1a/{id}"), "nodeName": one.name,
            "instanceType": one.spec.instance_types[0], "zone": "us-east-1a", "capacityType": "on-demand",
            "conditions": ready});
        bench.see(seconds, serde_json::from_value::<NodeClaim>(object).unwrap());
        let mut there =
            node(1000 * seconds, &format!("aws:///us-east-1a/{id}"), registered_labels(), json!([]), true);
        there.metadata.name = Some(one.name.clone());
        there.metadata.uid = Some(format!("node-{}", one.name));
        there.metadata.annotations = Some([("croft.dev/claim".to_owned(), one.name.clone())].into());
        let mark = ("node-restriction.kubernetes.io/pool".to_owned(), "pool-a".to_owned());
        let template =
            one.spec.labels.get_key_value("croft.dev/template").map(|(k, v)| (k.clone(), v.clone()));
        there.metadata.labels.as_mut().unwrap().extend([mark].into_iter().chain(template));
        bench.see(seconds, there);
    }
    bench.done(seconds, action, vec![]);
    let mut counted = pool(4000 * seconds, &json!({}));
    counted.spec = bench.engine.snapshot().pools()["pool-a"].spec.clone();
    let status = json!({"claimCounter": new.counter, "conditions": [condition("Accepted", 0)]});
    counted.status = Some(serde_json::from_value(status).unwrap());
    bench.see(seconds, counted);
    new.claims.into_iter().map(|one| one.name).collect()
}

fn deleted(actions: &[Action]) -> Vec<&str> {
    let mut names = Vec::new();
    for action in actions {
        if let Action::Write { call, .. } = action
            && let (Target::Claim(name), Verb::Delete { .. }) = (&call.target, &call.verb)
        {
            names.push(name.as_str());
        }
    }
    names
}

#[test]
fn a_pool_launches_nothing_before_it_is_accepted() {
    let said = |version: u64, key: &str, conditions: Value| {
        let mut object = pool(version, &json!({"replicas": 3, "key": key}));
        object.status = Some(serde_json::from_value(json!({"conditions": conditions})).unwrap());
        Change::from(object)
    };
    for key in ["node-pool", "node-restriction.kubernetes.io/pool"] {
        let mut bench = Bench::new();
        bench.see(0, said(3, key, json!([])));
        for seconds in [1, 600] {
            let actions = bench.decide(seconds);
            assert!(!actions.iter().any(|action| matches!(action, Action::CreateClaims(_))), "{actions:?}");
        }
        bench.see(601, said(4, key, json!([condition("Accepted", 601)])));
        assert_eq!(made(&bench.decide(602)).claims.len(), 3);
    }
}

#[test]
fn a_pool_of_a_fixed_size_has_its_nodes_without_any_pod() {
    let mut bench = Bench::with_pool(&json!({"replicas": 3}));
    let actions = bench.decide(1);
    assert_eq!(made(&actions).claims.len(), 3);
    for one in &made(&actions).claims {
        assert_eq!(one.spec.instance_types[0], "m5.large", "the cheapest");
        assert!(one.spec.labels.keys().all(|key| !key.contains("slot")), "{:?}", one.spec.labels);
        assert!(one.spec.requirements.iter().all(|r| !r.key.contains("slot")));
    }
    let names = come(&mut bench, 2, &actions[0]);
    assert!(bench.decide(2).is_empty());
    assert!(deleted(&bench.decide(600)).is_empty(), "empty nodes of such a pool stay");
    // Its pods wait for its nodes; none is launched for them.
    for n in 0..20 {
        bench.see(601, pod(&format!("p{n}"), None));
    }
    assert!(bench.decide(601).iter().all(|a| !matches!(a, Action::CreateClaims(_))));
    assert!(bench.decide(603).iter().all(|a| !matches!(a, Action::CreateClaims(_))));
    let why = bench.told.iter().find(|(_, note)| note.contains("fixed size"));
    assert!(why.is_some(), "{:?}", bench.told);
    // Fewer are wanted: those with the fewest pods go.
    bench.see(604, {
        let mut bound = pod("p0", None);
        bound.spec.as_mut().unwrap().node_name = Some(names[0].clone());
        bound.metadata.resource_version = Some("7000".to_owned());
        Change::from(bound)
    });
    bench.see(604, pool(9_000_000, &json!({"replicas": 1})));
    let actions = bench.decide(604);
    let gone: BTreeSet<&str> = deleted(&actions).into_iter().collect();
    assert_eq!(gone, [names[1].as_str(), names[2].as_str()].into());
}

/// A pool with template `steady` of so many nodes, and the heavier template `extra`, which follows the demand.
fn with_steady(replicas: u32) -> Value {
    let template = |name: &str| json!({"name": name, "spec": {"nodeClassRef": {"name": "class"}}});
    let (mut steady, mut extra) = (template("steady"), template("extra"));
    steady["replicas"] = json!(replicas);
    extra["weight"] = json!(10);
    json!({"template": null, "templates": [steady, extra]})
}

fn templates_of(new: &NewClaims) -> Vec<&str> {
    new.claims.iter().map(|one| one.spec.labels["croft.dev/template"].as_str()).collect()
}

#[test]
fn a_template_of_a_fixed_size_stands_beside_one_that_follows_the_demand() {
    let mut bench = Bench::with_pool(&with_steady(2));
    let actions = bench.decide(1);
    assert_eq!(templates_of(made(&actions)), ["steady", "steady"]);
    let names = come(&mut bench, 2, &actions[0]);
    let next = bench.decide(2);
    assert!(next.is_empty(), "{next:?}");
    assert!(deleted(&bench.decide(600)).is_empty(), "empty nodes of such a template stay");
    // The pods use its nodes, and what doesn't fit there gets a node of the other template.
    for name in ["a", "b", "c"] {
        bench.see(601, pod(name, None));
    }
    let mut actions = bench.decide(601);
    actions.extend(bench.decide(603));
    actions.retain(|action| matches!(action, Action::CreateClaims(_)));
    assert_eq!(templates_of(made(&actions)), ["extra"]);
    come(&mut bench, 604, &actions[0]);
    // Fewer are wanted of that template. Nodes of the other don't count for it.
    bench.see(605, pool(9_000_000, &with_steady(1)));
    let actions = bench.decide(606);
    let gone = deleted(&actions);
    assert!(gone.len() == 1 && names.iter().any(|name| name == gone[0]), "{gone:?} of {names:?}");
}

#[test]
fn a_schedule_gives_a_pool_another_size_until_it_ends() {
    // The bench begins at 20:26:40.
    let night = json!({"schedule": "30 20 * * *", "duration": "1h", "timeZone": "UTC", "replicas": 0});
    let mut bench = Bench::with_pool(&json!({"replicas": 2, "schedules": [night]}));
    let actions = bench.decide(1);
    let names = come(&mut bench, 2, &actions[0]);
    assert_eq!(names.len(), 2);
    assert!(deleted(&bench.decide(198)).is_empty());
    let step = bench.engine.step(at(199));
    assert!(
        step.requeue_at.is_some_and(|due| due <= at(200).mono),
        "it wakes for the schedule: {:?}",
        step.requeue_at
    );
    let gone: BTreeSet<String> = deleted(&bench.decide(200)).into_iter().map(str::to_owned).collect();
    assert_eq!(gone, names.iter().cloned().collect());
    for name in &names {
        bench.see(201, Change::Gone(ObjectId::new(Kind::NodeClaim, "", name)));
        bench.see(201, Change::Gone(ObjectId::new(Kind::Node, "", name)));
    }
    assert!(bench.decide(900).iter().all(|action| !matches!(action, Action::CreateClaims(_))));
    assert_eq!(made(&bench.decide(200 + 3600)).claims.len(), 2, "the pool has its own size again");
}

#[test]
fn a_schedule_ends_where_the_clock_is_set_back_to_before_it() {
    let night = json!({"schedule": "30 20 * * *", "duration": "1h", "limits": {"nodes": 0}});
    let mut bench = Bench::with_pool(&json!({"limits": {"nodes": 5}, "schedules": [night]}));
    let in_force =
        |bench: &Bench| bench.engine.snapshot().schedules_of("pool-a").and_then(|pool| pool.in_force);
    drop(bench.engine.step(at(300)));
    assert_eq!(in_force(&bench), Some(0));
    let set_back = Now { wall: at(100).wall, ..at(301) };
    drop(bench.engine.step(set_back));
    assert_eq!(in_force(&bench), None);
}

#[test]
fn limits_of_a_schedule_hold_in_its_time_alone() {
    let evening = json!({"schedule": "30 20 * * *", "duration": "1h", "limits": {"nodes": 0}});
    let mut bench = Bench::with_pool(&json!({"limits": {"nodes": 5}, "schedules": [evening]}));
    let launches =
        |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::CreateClaims(_)));
    bench.see(201, pod("a", None));
    for seconds in [201, 205, 900] {
        assert!(!launches(&bench.decide(seconds)), "{seconds}");
    }
    let later = [3800, 3805, 3810].into_iter().any(|seconds| launches(&bench.decide(seconds)));
    assert!(later, "the pod gets its node once the schedule has ended");
}

#[test]
fn a_fixed_size_keeps_within_limits_and_says_what_is_missing() {
    let mut bench = Bench::with_pool(&json!({"replicas": 3, "limits": {"nodes": "2"}}));
    let actions = bench.decide(1);
    assert_eq!(made(&actions).claims.len(), 2);
    come(&mut bench, 2, &actions[0]);
    assert!(bench.decide(2).is_empty(), "nothing is asked for again at once");
    assert!(bench.decide(5).is_empty());
    let said = bench
        .told
        .iter()
        .any(|(reason, note)| reason == "Insufficient" && note.starts_with("2 of 3 nodes are ready"));
    assert!(said, "{:?}", bench.told);
}

#[test]
fn a_node_of_a_fixed_size_that_is_lost_is_replaced() {
    let mut bench = Bench::with_pool(&json!({"replicas": 1}));
    let actions = bench.decide(1);
    let names = come(&mut bench, 2, &actions[0]);
    bench.see(3, Change::Gone(ObjectId::new(Kind::NodeClaim, "", &names[0])));
    bench.see(3, Change::Gone(ObjectId::new(Kind::Node, "", &names[0])));
    let actions = bench.decide(4);
    let again = &made(&actions).claims;
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].name, names[0]);
}

#[test]
fn a_node_of_a_fixed_size_that_is_too_old_is_replaced_first_and_counted_once() {
    let old = json!({"replicas": 1, "template": {"spec": {"expireAfter": "1h"}},
        "disruption": {"budgets": [{"nodes": "100%"}]}});
    let mut bench = Bench::with_pool(&old);
    let actions = bench.decide(1);
    let first = come(&mut bench, 2, &actions[0]);
    let (actions, others): (Vec<Action>, Vec<Action>) =
        bench.decide(3700).into_iter().partition(|a| matches!(a, Action::CreateClaims(_)));
    others.iter().for_each(|action| bench.done(3700, action, vec![]));
    let object = &made(&actions).claims[0].object;
    assert_eq!(object["metadata"]["annotations"]["croft.dev/replaces"], json!(first[0]));
    come(&mut bench, 3701, &actions[0]);
    let actions = bench.decide(3702);
    assert_eq!(deleted(&actions), [first[0].as_str()]);
    // While the old one is drained it isn't one too few, and before that it wasn't one too many.
    let mut going = (*bench.engine.snapshot().claims()[&first[0]]).clone();
    going.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(3702).wall));
    going.metadata.resource_version = Some("8000000".to_owned());
    bench.see(3702, going);
    for seconds in 3703..3740 {
        let actions = bench.decide(seconds);
        assert!(actions.iter().all(|a| !matches!(a, Action::CreateClaims(_))), "{actions:?}");
    }
}

fn spare(pods: i64) -> Value {
    json!({"headroom": {"pods": pods, "requests": {"cpu": "500m", "memory": "256Mi"}}})
}

#[test]
fn spare_places_are_kept_and_give_way_and_are_made_again() {
    let mut bench = Bench::with_pool(&spare(3));
    let actions = bench.decide(1);
    // Three times half a cpu fit onto one instance of two.
    assert_eq!(made(&actions).claims.len(), 1);
    let first = come(&mut bench, 2, &actions[0]);
    assert!(bench.decide(4).is_empty());
    assert!(deleted(&bench.decide(600)).is_empty(), "a node that is kept for the next pods isn't empty");
    assert!(bench.told.iter().all(|(reason, _)| reason != "Insufficient"), "{:?}", bench.told);
    // A pod takes the room, and new room is made.
    let mut bound = pod("a", None);
    bound.spec.as_mut().unwrap().node_name = Some(first[0].clone());
    bench.see(601, bound);
    let actions = bench.decide(602);
    assert_eq!(made(&actions).claims.len(), 1, "two of three places are gone");
    assert!(made(&actions).claims[0].spec.requests.contains_key("cpu"));
    come(&mut bench, 603, &actions[0]);
    assert!(bench.decide(605).is_empty());
    // Headroom is no longer requested.
    bench.see(610, pool(9_000_000, &json!({})));
    bench.decide(611);
    let cordoned = bench.decide(700);
    assert!(
        cordoned
            .iter()
            .any(|a| matches!(a, Action::Write { call, .. } if matches!(call.target, Target::Node(_))))
    );
}

#[test]
fn a_pod_that_comes_takes_a_spare_place_at_once() {
    let mut bench = Bench::with_pool(&spare(3));
    let actions = bench.decide(1);
    come(&mut bench, 2, &actions[0]);
    bench.decide(4);
    bench.see(10, pod("a", None));
    bench.decide(10);
    let actions = bench.decide(11);
    let pods: usize = made(&actions).claims.len();
    assert_eq!(pods, 1, "what the pod takes of the spare places is made again");
    let key = PodKey::new("tenant-a", "a");
    assert!(
        bench.engine.snapshot().unnominated_demand().any(|k| *k == key),
        "the pod itself waits for no instance"
    );
}

#[test]
fn spare_places_overrun_no_limit() {
    let mut bench = Bench::with_pool(
        &json!({"headroom": {"pods": 9, "requests": {"cpu": "1"}}, "limits": {"nodes": "2"}}),
    );
    let actions = bench.decide(1);
    assert_eq!(made(&actions).claims.len(), 2);
    come(&mut bench, 2, &actions[0]);
    for seconds in [4, 9] {
        let actions = bench.decide(seconds);
        assert!(makes_nothing(&actions), "{actions:?}");
    }
    let said =
        bench.told.iter().any(|(reason, note)| reason == "Insufficient" && note.contains("headroom pods"));
    assert!(said, "{:?}", bench.told);
}

/// A pod that fits onto a node which is there, as kube-scheduler leaves it behind: its version, the message of its
/// condition, and the node that it is nominated for.
fn waiting(version: u64, message: &str, nominated: Option<&str>, more: &Value) -> Box<Pod> {
    let pod = pod("a", None);
    let mut object = serde_json::to_value(&*pod).unwrap();
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object["status"]["nominatedNodeName"] = json!(nominated);
    object["status"]["conditions"] = json!([
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
    object["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Box::new(serde_json::from_value(object).unwrap())
}

fn bench_with_a_free_node() -> Bench {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    let mut labels = registered_labels();
    labels["node-restriction.kubernetes.io/pool"] = json!("pool-a");
    bench.see(1, node(20, "aws:///us-east-1a/i-1", labels, json!([]), true));
    bench
}

/// The nominations and the launches of the steps at `seconds`. Each nomination is answered, without a change of the pod.
fn asked_for(bench: &mut Bench, seconds: impl IntoIterator<Item = u64>) -> (usize, usize) {
    let (mut nominations, mut launches) = (0, 0);
    for at in seconds {
        for action in bench.decide(at) {
            match &action {
                Action::CreateClaims(_) => launches += 1,
                Action::Write { key: Key::Pod(_), .. } => {
                    nominations += 1;
                    bench.done(at, &action, Vec::new());
                }
                _ => {}
            }
        }
    }
    (nominations, launches)
}

#[test]
fn busy_scheduler_takes_minutes_and_the_free_node_stays_planned() {
    let mut bench = bench_with_a_free_node();
    bench.see(1, waiting(100, "0/2 nodes", None, &json!({})));
    assert_eq!(asked_for(&mut bench, [1, 2, 8]), (0, 0), "it fits onto the node");
    assert_eq!(asked_for(&mut bench, [12]), (1, 0), "kube-scheduler is told where to try first");
    bench.see(13, waiting(101, "0/2 nodes", Some("node-1"), &json!({})));
    assert_eq!(asked_for(&mut bench, (13..1_800).step_by(7)), (0, 0), "no attempt, so no rejection");
}

#[test]
fn node_is_ruled_out_after_two_nominations_that_kube_scheduler_took_back() {
    let mut bench = bench_with_a_free_node();
    bench.see(1, waiting(100, "0/2 nodes", None, &json!({})));
    assert_eq!(asked_for(&mut bench, [1, 2, 12]), (1, 0));
    bench.see(13, waiting(101, "0/2 nodes", Some("node-1"), &json!({})));
    bench.decide(13);
    bench.see(20, waiting(102, "0/2 nodes", None, &json!({})));
    assert_eq!(asked_for(&mut bench, [20]), (1, 0), "one attempt failed: it is asked for another");
    bench.see(22, waiting(103, "0/2 nodes", Some("node-1"), &json!({})));
    bench.decide(22);
    bench.see(23, waiting(104, "0/2 nodes", None, &json!({})));
    assert_eq!(asked_for(&mut bench, [23, 24, 25]).1, 1, "ruled out");
}

#[test]
fn node_is_ruled_out_after_two_messages_of_kube_scheduler() {
    let mut bench = bench_with_a_free_node();
    bench.see(1, waiting(100, "0/1 nodes", None, &json!({})));
    bench.decide(1);
    bench.decide(2);
    bench.see(3, waiting(101, "0/2 nodes", None, &json!({})));
    assert_eq!(asked_for(&mut bench, [3, 4]).1, 0);
    bench.see(5, waiting(102, "0/2 nodes: 1 Insufficient memory", None, &json!({})));
    assert_eq!(asked_for(&mut bench, [5, 6, 7]).1, 1);
}

#[test]
fn pod_that_never_preempts_shows_no_attempt_and_is_given_two_flushes_of_the_queue() {
    let mut bench = bench_with_a_free_node();
    let more = json!({"preemptionPolicy": "Never"});
    bench.see(1, waiting(100, "0/2 nodes", None, &more));
    assert_eq!(asked_for(&mut bench, [1, 2, 12]), (1, 0));
    bench.see(13, waiting(101, "0/2 nodes", Some("node-1"), &more));
    assert_eq!(asked_for(&mut bench, [13, 100, 400, 600]), (0, 0));
    assert_eq!(asked_for(&mut bench, [603, 604, 605]).1, 1);
}

#[test]
fn pod_that_kube_scheduler_has_not_tried_yet_waits_in_its_queue() {
    let mut bench = bench_with_a_free_node();
    bench.see(1, pod("a", None));
    assert_eq!(asked_for(&mut bench, (1..300).step_by(5)), (0, 0));
}

#[test]
fn what_a_class_lacks_is_an_event_in_the_conditions_own_words() {
    let mut bench = Bench::new();
    let mut class = (*bench.engine.snapshot().classes()["class"].object).clone();
    class.metadata.resource_version = Some("5".to_owned());
    class.status = Some(
        serde_json::from_value(json!({"conditions": [{
            "type": "SubnetsReady", "status": "False", "reason": "NoInstanceTypeMatches", "observedGeneration": 1,
            "message": "no subnet matches", "lastTransitionTime": at(1).wall.to_string()}]}))
        .unwrap(),
    );
    bench.see(1, class);
    bench.decide(1);
    assert!(
        bench.told.contains(&("NoInstanceTypeMatches".to_owned(), "no subnet matches".to_owned())),
        "{:?}",
        bench.told
    );
}

#[test]
fn a_shortage_is_said_on_the_pool_with_what_is_used_instead() {
    use croft_cloud::{Fault, FaultClass, OfferingKey, Shortage};
    let mut bench = Bench::new();
    let types = bench.engine.snapshot().classes()["class"].types.clone().unwrap();
    let shortages: Vec<Shortage> = types
        .iter()
        .flat_map(|t| t.offerings.iter().map(move |o| (t, o)))
        .map(|(t, o)| Shortage {
            offering: OfferingKey {
                instance_type: t.name.clone(),
                zone: o.zone.clone(),
                capacity_type: o.capacity_type,
            },
            fault: Fault {
                action: "CreateFleet",
                code: "InsufficientInstanceCapacity".to_owned(),
                class: FaultClass::NoCapacity,
                message: String::new(),
                meaning: "no instance",
                remedy: "",
            },
            strikes: 1,
            next_try: std::time::Duration::from_secs(30),
        })
        .collect();
    bench.see(1, pool(4, &json!({"weight": 50})));
    let mut lighter = pool(5, &json!({"weight": 5}));
    lighter.metadata.name = Some("pool-b".to_owned());
    lighter.metadata.uid = Some("pool-b-uid".to_owned());
    bench.see(1, lighter);
    bench.see(
        1,
        serde_json::from_value::<Tenant>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
                "metadata": {"name": "t", "uid": "t"}, "spec": {"namespaces": ["tenant-a"], "pools": ["pool-a", "pool-b"]}}))
            .unwrap(),
    );
    bench.engine.complete(
        ActionReport {
            results: vec![ActionResult::UnavailableOfferings(shortages)],
            ..ActionReport::done(vec![])
        },
        at(1),
    );
    bench.decide(3);
    let told: Vec<&String> =
        bench.told.iter().filter(|(reason, _)| reason == "NoCapacity").map(|(_, note)| note).collect();
    assert!(told.iter().any(|note| note.contains("go to pool-b (weight 5) meanwhile")), "{:?}", bench.told);
    assert!(told.iter().any(|note| note.contains("InsufficientInstanceCapacity")));
    assert!(makes_nothing(&bench.decide(4)));
}

fn makes_nothing(actions: &[Action]) -> bool {
    actions.iter().all(|a| !matches!(a, Action::CreateClaims(_)))
}

#[test]
fn nothing_is_written_twice_for_what_has_not_changed() {
    let mut bench = Bench::with_pool(&spare(1));
    let actions = bench.decide(1);
    come(&mut bench, 2, &actions[0]);
    for seconds in 3..30 {
        assert!(bench.decide(seconds).is_empty());
    }
    let plans = bench.engine.planning().runs;
    bench.decide(60);
    bench.decide(90);
    assert_eq!(bench.engine.planning().runs, plans, "an idle cluster isn't planned again");
}

#[test]
fn a_fixed_size_holds_where_the_pool_name_label_is_the_pools_own() {
    let own = json!({"key": "node-restriction.kubernetes.io/pool", "value": "blue", "replicas": 2});
    let mut bench = Bench::with_pool(&own);
    let actions = bench.decide(1);
    let claims = &made(&actions).claims;
    assert_eq!(claims.len(), 2);
    for one in claims {
        assert_eq!(one.spec.labels["node-restriction.kubernetes.io/pool"], "blue");
    }
}
