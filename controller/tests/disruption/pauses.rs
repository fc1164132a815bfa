//! Pauses: no voluntary disruption starts, what began ends, and broken nodes are still replaced. And pods that forbid their
//! disruption for a time.

use croft_api::CroftConfig;
use croft_controller::{
    action::Action,
    kube_api::{Target, Verb},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::world::World;

/// A pause that ends in so many seconds, or doesn't.
fn pause(world: &World, seconds: Option<i64>) -> Value {
    let end =
        seconds.map(|seconds| world.now().wall.checked_add(SignedDuration::from_secs(seconds)).unwrap());
    json!({"until": end.map(|end| end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()), "reason": "a release"})
}

/// Shows the CroftConfig with this pause.
fn config(world: &mut World, paused: Value) {
    let meta = world.meta("default");
    let object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": meta,
        "spec": {"disruption": {"paused": paused}}});
    world.observe(serde_json::from_value::<CroftConfig>(object).unwrap());
}

/// What some steps of a second did: nodes cordoned, claims created and deleted, and the pool's condition that was written.
#[derive(Debug, Default)]
struct Did {
    cordoned: usize,
    created: usize,
    deleted: Vec<String>,
    paused: Option<Value>,
}

fn run(world: &mut World, seconds: u64) -> Did {
    let mut did = Did::default();
    for _ in 0..seconds {
        if let Some(search) = world.step(1) {
            world.answer(&search);
        }
        did.cordoned += world.cordoned();
        did.created += world.created().len();
        did.deleted.extend(world.deleted());
        // Nothing has an effect in this world, so that a deletion is repeated.
        did.deleted.dedup();
        let conditions = world.actions.iter().find_map(|action| {
            let Action::Write { call, .. } = action else { return None };
            let (Target::Pool(_), Verb::PatchStatus(patch)) = (&call.target, &call.verb) else { return None };
            patch["status"]["conditions"].as_array().cloned()
        });
        let of_pause = |c: &Value| c["type"] == json!("DisruptionPaused");
        did.paused = conditions.and_then(|all| all.into_iter().find(of_pause)).or(did.paused);
    }
    did
}

/// An empty node, and two large nodes whose pods fit onto a small one.
fn disruptable(disruption: Value) -> World {
    let mut world = World::new(disruption);
    world.node("empty", "m.2", json!({}));
    for node in ["n1", "n2"] {
        world.node(node, "m.8", json!({}));
        world.pod(&format!("pod-{node}"), node, 500, json!({}));
    }
    world
}

#[test]
fn nothing_voluntary_starts_while_the_pool_or_the_cluster_is_paused() {
    for of_cluster in [false, true] {
        let mut world = disruptable(json!({}));
        let paused = pause(&world, Some(120));
        if of_cluster {
            config(&mut world, paused);
        } else {
            world.pool(json!({"paused": paused}), json!({}));
        }
        let did = run(&mut world, 100);
        assert_eq!((did.cordoned, did.created, did.deleted.len()), (0, 0, 0), "{did:?}");
        let condition = did.paused.expect("the pool says so");
        let (reason, resume) = if of_cluster {
            ("PausedByConfig", "croft resume --all")
        } else {
            ("PausedByPool", "croft resume p")
        };
        assert_eq!(condition["reason"], json!(reason));
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains("a release") && message.contains(resume), "{message}");
        // And after its end it starts by itself: an empty node is cordoned before it goes.
        let did = run(&mut world, 60);
        assert!(did.cordoned > 0, "{did:?}");
    }
}

#[test]
fn expired_nodes_stay_while_paused_and_go_once_resumed() {
    let mut world = World::new(json!({}));
    world.node("n1", "m.2", json!({}));
    world.pod("pod", "n1", 1500, json!({}));
    let template = json!({"spec": {"expireAfter": "240h"}});
    let paused = pause(&world, None);
    world.pool(json!({"consolidateAfter": "Never", "paused": paused}), template.clone());
    assert_eq!(run(&mut world, 60).created, 0);
    world.pool(json!({"consolidateAfter": "Never"}), template);
    assert!(run(&mut world, 30).created > 0);
}

#[test]
fn an_empty_node_that_was_cordoned_before_the_pause_is_still_removed() {
    let mut world = World::new(json!({}));
    world.node("empty", "m.2", json!({}));
    assert!(run(&mut world, 20).cordoned > 0);
    world.cordon("empty", true);
    let paused = pause(&world, None);
    config(&mut world, paused);
    assert_eq!(run(&mut world, 10).deleted, ["empty"]);
}

#[test]
fn broken_nodes_are_replaced_while_paused() {
    let mut world = World::new(json!({"consolidateAfter": "Never"}));
    for n in 0..10 {
        let name = format!("n{n}");
        world.node(&name, "m.2", json!({}));
        world.pod(&format!("pod{n}"), &name, 1500, json!({}));
    }
    world.list();
    let paused = pause(&world, None);
    config(&mut world, paused);
    run(&mut world, 5);
    let since = world.now().wall.checked_sub(SignedDuration::from_secs(3_600)).unwrap();
    let mut node = json!({"metadata": world.meta("n0"), "spec": {"providerID": "aws:///zone-a/n0"}});
    node["metadata"]["labels"] = json!({"node-pool": "p"});
    node["status"]["conditions"] =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since.to_string()}]);
    world.observe(serde_json::from_value::<Node>(node).unwrap());
    assert_eq!(run(&mut world, 5).deleted, ["n0"]);
}

#[test]
fn a_pod_forbids_its_disruption_for_a_time_from_its_start() {
    // Pods of this world started a million seconds ago; 278 hours are 800 seconds more.
    let cases = [
        ("croft.dev/do-not-disrupt", "278h", true),
        ("karpenter.sh/do-not-disrupt", "278h", true),
        ("croft.dev/do-not-disrupt", "1h", false),
        ("croft.dev/do-not-disrupt", "false", false),
    ];
    for (key, value, waits) in cases {
        let mut world = World::new(json!({}));
        world.node("n1", "m.8", json!({}));
        world.pod("pod", "n1", 500, json!({"metadata": {"annotations": {key: value}}}));
        let early = run(&mut world, 60);
        assert_eq!(early.created == 0, waits, "{key}={value}: {early:?}");
        if waits {
            if let Some(search) = world.step(700) {
                world.answer(&search);
            }
            let did = run(&mut world, 120);
            assert!(did.created > 0, "{key}={value} is over: {did:?}");
        }
    }
}

#[test]
fn values_that_say_nothing_and_safe_to_evict_keep_a_pod_for_ever() {
    let cases = [
        ("croft.dev/do-not-disrupt", "1d", "counts as \"true\""),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false", "safe-to-evict: \"false\""),
    ];
    for (key, value, expected) in cases {
        let mut world = World::new(json!({}));
        world.node("n1", "m.8", json!({}));
        world.pod("pod", "n1", 500, json!({"metadata": {"annotations": {key: value}}}));
        let did = run(&mut world, 60);
        assert_eq!(did.created, 0, "{did:?}");
        let statuses = world.engine.disruption().statuses();
        let status = statuses.status("n1").expect("the node has a status");
        assert_eq!(status.reason, "PodDoNotDisrupt");
        assert!(status.message.contains(expected), "{}", status.message);
    }
}
