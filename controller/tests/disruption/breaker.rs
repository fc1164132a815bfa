//! Actions that the breaker holds back, and the pool's condition then.

use croft_cloud::{FailedCheck, InstanceHealth, StatusCheck};
use croft_controller::{
    action::Action,
    kube_api::{Target, Verb},
    state::InstanceList,
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::world::World;

/// Ten nodes of two processors, each with a pod.
fn ten() -> World {
    let mut world = World::new(json!({"consolidateAfter": "Never"}));
    for n in 0..10 {
        node(&mut world, n);
    }
    world.list();
    world
}

fn node(world: &mut World, n: usize) {
    let name = format!("n{n}");
    world.node(&name, "m.2", json!({}));
    world.pod(&format!("pod{n}"), &name, 1500, json!({}));
}

#[test]
fn instances_that_no_list_shows_are_out() {
    let mut world = ten();
    // The lists that this process asked for must have shown every instance by now.
    world.step(130);
    not_ready(&mut world, 0, 3_600);
    // The credentials are another account's: the list is empty.
    let asked = world.now();
    world.engine.snapshot_mut().set_instances(InstanceList { asked, instances: Default::default() });
    world.step(5);
    assert_eq!(world.deleted(), Vec::<String>::new());
    assert_eq!(world.told("TooManyUnhealthyNodes").len(), 1);
    world.list();
    world.step(5);
    assert_eq!(world.deleted(), ["n0"]);
}

/// Shows that a node has not been Ready for so many seconds.
fn not_ready(world: &mut World, n: usize, seconds: i64) {
    let since = world.now().wall.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
    let mut node = json!({"metadata": world.meta(&format!("n{n}")),
        "spec": {"providerID": format!("aws:///zone-a/n{n}")}});
    node["metadata"]["labels"] = json!({"node-pool": "p"});
    node["status"]["conditions"] =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since.to_string()}]);
    world.observe(serde_json::from_value::<Node>(node).unwrap());
}

fn deleting(world: &mut World, n: usize) {
    let at = world.now().wall.to_string();
    world.node(&format!("n{n}"), "m.2", json!({"metadata": {"deletionTimestamp": at}}));
}

/// The condition that the pool gets, if its status is written.
fn said(world: &World) -> Option<Value> {
    world.actions.iter().find_map(|action| {
        let Action::Write { call, .. } = action else { return None };
        let (Target::Pool(_), Verb::PatchStatus(patch)) = (&call.target, &call.verb) else { return None };
        let conditions = patch["status"]["conditions"].as_array()?;
        conditions.iter().find(|c| c["type"] == json!("DisruptionStopped")).cloned()
    })
}

/// Shows a node that is Ready, and whose monitoring agent has reported `kind` as `status` for so many seconds.
fn reported(world: &mut World, n: usize, kind: &str, status: &str, seconds: i64) {
    let (since, begun) =
        (world.now().wall.checked_sub(SignedDuration::from_secs(seconds)).unwrap(), world.begun.to_string());
    let mut node = json!({"metadata": world.meta(&format!("n{n}")),
        "spec": {"providerID": format!("aws:///zone-a/n{n}")}});
    node["metadata"]["labels"] = json!({"node-pool": "p"});
    node["status"]["conditions"] = json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": begun},
        {"type": kind, "status": status, "lastTransitionTime": since.to_string(), "message": "XID 79"}]);
    world.observe(serde_json::from_value::<Node>(node).unwrap());
}

#[test]
fn nodes_that_their_monitoring_agent_reports_are_replaced_after_a_tolerated_time() {
    let cases = [
        ("AcceleratedHardwareReady", "False", 599, false),
        ("AcceleratedHardwareReady", "False", 601, true),
        ("StorageReady", "False", 1_700, false),
        ("StorageReady", "False", 1_801, true),
        ("KernelReady", "Unknown", 9_999, false),
        ("DiskPressure", "False", 9_999, false),
    ];
    for (kind, status, seconds, replaced) in cases {
        let mut world = ten();
        reported(&mut world, 0, kind, status, seconds);
        world.step(0);
        assert_eq!(world.deleted() == ["n0"], replaced, "{kind}={status} for {seconds} s");
        assert_eq!(world.told("Unhealthy").iter().any(|note| note.contains("XID 79")), replaced);
    }
    // Many at once are evidence against the agent.
    let mut world = ten();
    (0..3).for_each(|n| reported(&mut world, n, "NetworkingReady", "False", 3_600));
    world.step(0);
    assert_eq!(world.deleted(), Vec::<String>::new());
    assert_eq!(world.told("TooManyUnhealthyNodes").len(), 1);
}

#[test]
fn defect_that_came_with_its_node_is_tolerated_for_an_hour() {
    let cases = [(2_000, 1_000, false), (2_500, 650, true), (5_000, 3_599, false), (5_000, 3_601, true)];
    for (initialized, seconds, replaced) in cases {
        let mut world = ten();
        let at = world.now().wall.checked_sub(SignedDuration::from_secs(initialized)).unwrap().to_string();
        let conditions = ["Launched", "Registered", "Initialized", "Ready"].map(|kind| {
            json!({"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": at})
        });
        world.node("n0", "m.2", json!({"status": {"conditions": conditions}}));
        reported(&mut world, 0, "AcceleratedHardwareReady", "False", seconds);
        world.step(0);
        assert_eq!(world.deleted() == ["n0"], replaced, "{seconds} s of {initialized} s");
    }
}

/// Lists the instances anew, with a check that has failed for so many seconds on the first `count`.
fn failing(world: &mut World, count: usize, check: StatusCheck, seconds: i64) {
    world.list();
    let mut list = world.engine.snapshot().instances().unwrap().clone();
    let since = world.now().wall.as_second() - seconds;
    for (n, instance) in list.instances.values_mut().enumerate() {
        let failed = if n < count { vec![FailedCheck { check, since }] } else { Vec::new() };
        instance.health = Some(InstanceHealth { failed, scheduled: Vec::new() });
    }
    world.engine.snapshot_mut().set_instances(list);
}

/// The status and the message of the condition `InstanceHealthy` that a claim gets.
fn health_of(world: &World, claim: &str) -> Option<(Value, Value)> {
    world.actions.iter().find_map(|action| {
        let Action::Write { call, .. } = action else { return None };
        let (Target::Claim(name), Verb::PatchStatus(patch)) = (&call.target, &call.verb) else { return None };
        let conditions = patch["status"]["conditions"].as_array().filter(|_| name == claim)?;
        let one = conditions.iter().find(|c| c["type"] == json!("InstanceHealthy"))?;
        Some((one["status"].clone(), one["message"].clone()))
    })
}

#[test]
fn nodes_whose_instance_fails_a_status_check_are_replaced_after_a_tolerated_time() {
    use StatusCheck::{Ebs, Instance, System};
    for (check, seconds, replaced) in [
        (System, 599, false),
        (System, 601, true),
        (Instance, 599, false),
        (Instance, 601, true),
        (Ebs, 1_799, false),
        (Ebs, 1_801, true),
    ] {
        let mut world = ten();
        failing(&mut world, 1, check, seconds);
        world.step(0);
        assert_eq!(world.deleted() == ["n0"], replaced, "{check:?} for {seconds} s");
        let told = world.told("Unhealthy").iter().any(|note| note.contains(check.as_str()));
        assert_eq!(told, replaced, "{check:?} for {seconds} s");
        if !replaced {
            let (status, message) = health_of(&world, "n0").unwrap();
            assert_eq!(status, json!("False"));
            assert!(message.as_str().unwrap().starts_with(check.as_str()), "{message}");
            // It is replaced in time although nothing changes.
            assert!(world.wake.is_some_and(|at| at <= world.now().mono + std::time::Duration::from_secs(1)));
        }
        assert_eq!(health_of(&world, "n1"), None, "a check that never failed needs no condition");
    }
}

/// Shows a defect of the first node that began so many seconds ago.
fn defect(world: &mut World, kind: &str, seconds: i64) {
    match (kind, StatusCheck::ALL.into_iter().find(|check| check.as_str() == kind)) {
        ("Ready", _) => not_ready(world, 0, seconds),
        (_, Some(check)) => failing(world, 1, check, seconds),
        (_, None) => reported(world, 0, kind, "False", seconds),
    }
}

#[test]
fn a_pool_says_how_long_each_defect_is_tolerated() {
    for kind in croft_api::definitions::DEFECTS {
        let is_replaced = |tolerated: Option<&str>, seconds: i64| {
            let mut world = ten();
            let times = tolerated.map_or(json!({}), |time| json!({kind: time}));
            world.pool(json!({"consolidateAfter": "Never", "repairAfter": times}), json!({}));
            defect(&mut world, kind, seconds);
            world.step(0);
            world.deleted() == ["n0"]
        };
        assert!(is_replaced(Some("2m"), 121) && !is_replaced(Some("2m"), 119), "{kind}");
        assert!(is_replaced(Some("2h"), 7_201) && !is_replaced(Some("2h"), 7_199), "{kind}");
        assert!(!is_replaced(Some("Never"), 900_000), "{kind}");
        assert!(is_replaced(None, 1_801), "{kind}");
    }
}

#[test]
fn status_checks_that_fail_on_many_instances_or_in_an_old_list_remove_no_node() {
    let mut world = ten();
    failing(&mut world, 3, StatusCheck::System, 3_600);
    world.step(0);
    assert_eq!(world.deleted(), Vec::<String>::new());
    assert_eq!(world.told("TooManyUnhealthyNodes").len(), 1);
    // No list since then: the check may pass again.
    let mut world = ten();
    failing(&mut world, 1, StatusCheck::System, 300);
    world.step(600);
    assert_eq!(world.deleted(), Vec::<String>::new());
}

#[test]
fn unhealthy_nodes_are_replaced_unless_too_many_are_out() {
    for (broken, expected) in [(1, 1), (2, 2), (3, 0)] {
        let mut world = ten();
        (0..broken).for_each(|n| not_ready(&mut world, n, 3_600));
        world.step(5);
        assert_eq!(world.deleted().len(), expected, "{broken} of 10");
        let told = world.told("TooManyUnhealthyNodes").len();
        assert_eq!(told > 0, expected == 0, "{broken} of 10");
        assert_eq!(said(&world).map(|c| c["status"].clone()), (expected == 0).then(|| json!("True")));
    }
}

#[test]
fn nodes_that_became_unready_lately_count_before_they_are_due() {
    let mut world = ten();
    not_ready(&mut world, 0, 3_600);
    not_ready(&mut world, 1, 60);
    not_ready(&mut world, 2, 30);
    world.step(5);
    assert_eq!(world.deleted(), Vec::<String>::new());
    assert_eq!(said(&world).unwrap()["reason"], json!("TooManyUnhealthyNodes"));
    // The youngest was only starting anew: the condition goes, and the oldest is replaced.
    world.node("n2", "m.2", json!({}));
    world.step(5);
    assert_eq!((world.deleted(), said(&world)), (vec!["n0".to_owned()], None));
}

#[test]
fn a_pool_is_not_used_up_by_nodes_that_fail_one_after_another() {
    let mut world = ten();
    let mut removed = Vec::new();
    for n in 0..10 {
        not_ready(&mut world, n, 3_600);
        world.step(60);
        for name in world.deleted() {
            removed.push(name.clone());
            deleting(&mut world, name[1..].parse().unwrap());
            not_ready(&mut world, name[1..].parse().unwrap(), 3_600);
        }
    }
    assert_eq!(removed, ["n0", "n1"], "a fifth, while none of them is back");
}

/// Conditions of a claim whose instance the cloud recommends to leave.
fn recommended(world: &World) -> Value {
    let since = world.begun.to_string();
    let conditions = ["Launched", "Registered", "Initialized", "Ready", "Interrupted"].map(|kind| {
        let reason = if kind == "Interrupted" { "RebalanceRecommendation" } else { "x" };
        json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": since})
    });
    json!({"status": {"conditions": conditions}})
}

#[test]
fn an_empty_node_is_removed_although_a_recommendation_to_leave_it_must_wait() {
    let mut world = World::new(json!({"consolidateAfter": "5s"}));
    let conditions = recommended(&world);
    for n in 0..5 {
        let name = format!("n{n}");
        world.node(&name, "m.2", conditions.clone());
        if n < 4 {
            world.pod(&format!("pod{n}"), &name, 1500, json!({}));
        }
    }
    world.list();
    world.step(5);
    assert_eq!(world.told("TooManyRebalanceRecommendations").len(), 1);
    world.step(10);
    assert_eq!(world.cordoned(), 1, "{:?}", world.actions);
}

#[test]
fn a_recommendation_to_leave_replaces_a_fifth_of_a_pool_at_a_time() {
    let mut world = ten();
    let conditions = recommended(&world);
    for n in 0..10 {
        world.node(&format!("n{n}"), "m.2", conditions.clone());
    }
    world.step(5);
    let replaced: Vec<String> = world
        .created()
        .iter()
        .flat_map(|claim| {
            let replaces =
                claim["metadata"]["annotations"]["croft.dev/replaces"].as_str().unwrap().to_owned();
            replaces.split(',').map(str::to_owned).collect::<Vec<_>>()
        })
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!(replaced, ["n0", "n1"], "{:?}", world.actions);
    assert_eq!(world.deleted(), Vec::<String>::new());
    assert_eq!(world.told("TooManyRebalanceRecommendations").len(), 1);
}
