//! Zones that are declared bad: nothing is launched there, no pod is moved there, and their nodes are replaced elsewhere.

use croft_api::{CroftConfig, drift};
use croft_controller::{
    action::Action,
    kube_api::{Target, Verb},
};
use croft_scheduler::{Offering, Price};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::{World, types};

/// A world whose instances cost twice as much in a second zone.
fn two_zones(disruption: Value) -> World {
    let mut world = World::new(disruption);
    let mut types = types().to_vec();
    for kind in &mut types {
        let first = kind.offerings[0].clone();
        let price = first.price.map(|price| Price::from_micros(price.micros() * 2));
        kind.offerings.push(Offering { zone: "zone-b".to_owned(), price, ..first });
    }
    world.engine.snapshot_mut().set_offerings("c", Ok(types.into()));
    world
}

/// Shows a CroftConfig that declares the first zone bad.
fn declare(world: &mut World, state: &str, seconds: Option<i64>) {
    let end =
        seconds.map(|seconds| world.now().wall.checked_add(SignedDuration::from_secs(seconds)).unwrap());
    let until = end.map(|end| end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": world.meta("default"),
        "spec": {"zones": [{"name": "zone-a", "state": state, "until": until, "reason": "an incident"}]}});
    world.observe(serde_json::from_value::<CroftConfig>(object).unwrap());
}

/// What some steps of a second did: the claims that were created, and those that were deleted.
fn run(world: &mut World, seconds: u64) -> (Vec<Value>, Vec<String>) {
    let (mut created, mut deleted) = (Vec::new(), Vec::new());
    for _ in 0..seconds {
        if let Some(search) = world.step(1) {
            world.answer(&search);
        }
        created.extend(world.created());
        deleted.extend(world.deleted());
    }
    (created, deleted)
}

/// The zones of claims, each once.
fn zones(claims: &[Value]) -> Vec<&str> {
    let zones = claims.iter().flat_map(|claim| claim["spec"]["zones"].as_array().unwrap());
    let mut zones: Vec<&str> = zones.filter_map(Value::as_str).collect();
    zones.sort_unstable();
    zones.dedup();
    zones
}

/// The reason and the message of a condition that the last step writes.
fn said(world: &World, kind: &str) -> Option<(Value, Value)> {
    world.actions.iter().find_map(|action| {
        let Action::Write { call, .. } = action else { return None };
        let (Target::Claim(_) | Target::Config(_), Verb::PatchStatus(patch)) = (&call.target, &call.verb)
        else {
            return None;
        };
        let conditions = patch["status"]["conditions"].as_array()?;
        let one = conditions.iter().find(|c| c["type"] == json!(kind))?;
        Some((one["reason"].clone(), one["message"].clone()))
    })
}

#[test]
fn nothing_is_launched_in_a_zone_that_is_declared_bad() {
    for (state, seconds, zone) in [
        (None, None, "zone-a"),
        (Some("NoLaunches"), None, "zone-b"),
        (Some("Evacuate"), None, "zone-b"),
        (Some("NoLaunches"), Some(-1), "zone-a"),
    ] {
        let mut world = two_zones(json!({}));
        if let Some(state) = state {
            declare(&mut world, state, seconds);
        }
        world.step(0);
        let closed = said(&world, "ZonesClosed");
        assert_eq!(closed.is_some(), zone == "zone-b", "{state:?}: {closed:?}");
        world.pod("pod", "", 1500, json!({}));
        let (created, _) = run(&mut world, 10);
        assert_eq!(zones(&created), [zone], "{state:?}");
    }
}

#[test]
fn a_zone_opens_at_its_time() {
    let mut world = two_zones(json!({}));
    declare(&mut world, "NoLaunches", Some(60));
    world.pod("pod", "", 1500, json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": "zone-a"}}}));
    assert!(run(&mut world, 50).0.is_empty());
    assert!(world.wake.is_some_and(|at| at <= world.now().mono + std::time::Duration::from_secs(60)));
    assert_eq!(zones(&run(&mut world, 30).0), ["zone-a"]);
}

#[test]
fn nodes_of_a_zone_that_is_evacuated_are_replaced_elsewhere_within_the_budgets() {
    for (state, replaced) in [("NoLaunches", false), ("Evacuate", true)] {
        let mut world = two_zones(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}));
        let snapshot = world.engine.snapshot();
        let stamp = drift::stamp(&snapshot.pools()["p"], &snapshot.classes()["c"].object);
        let current = json!({"metadata": {"annotations": {"croft.dev/launched-with": stamp}}});
        world.node("n1", "m.2", current.clone());
        world.pod("pod-1", "n1", 1500, json!({}));
        // It has room for the pod of the first, and is to be left as well.
        world.node("n2", "m.8", current);
        world.pod("pod-2", "n2", 500, json!({}));
        declare(&mut world, state, None);
        let mut drifted = None;
        let (mut created, mut deleted) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let (new, gone) = run(&mut world, 1);
            created.extend(new);
            deleted.extend(gone);
            drifted = drifted.or(said(&world, "Drifted"));
        }
        assert_eq!(deleted, Vec::<String>::new(), "no node goes before its replacement has come");
        assert_eq!(zones(&created), if replaced { vec!["zone-b"] } else { vec![] }, "{created:?}");
        let reasons: Vec<&Value> =
            created.iter().map(|c| &c["metadata"]["annotations"]["croft.dev/disruption-reason"]).collect();
        assert!(reasons.iter().all(|reason| **reason == json!("Drifted")), "{reasons:?}");
        let expected = replaced.then(|| json!("ZoneEvacuated"));
        assert_eq!(drifted.as_ref().map(|(reason, _)| reason.clone()), expected);
        assert!(drifted.is_none_or(|(_, message)| message.as_str().unwrap().contains("an incident")));
    }
}

#[test]
fn consolidation_moves_no_pod_into_a_zone_that_is_declared_bad() {
    for (closed, expected) in [(false, "zone-a"), (true, "zone-b")] {
        let mut world = two_zones(json!({"consolidateAfter": "5s"}));
        for node in ["n1", "n2"] {
            world.node(node, "m.8", json!({}));
            world.pod(&format!("pod-{node}"), node, 500, json!({}));
        }
        // It would take both pods.
        world.node("n3", "m.2", json!({}));
        world.pod("pod-n3", "n3", 500, json!({}));
        if closed {
            declare(&mut world, "NoLaunches", None);
        }
        let (created, deleted) = run(&mut world, 40);
        assert!(zones(&created).iter().all(|zone| *zone == expected), "{created:?}");
        assert!(!(created.is_empty() && deleted.is_empty()), "{closed}: something is worth it");
        assert!(!closed || deleted.is_empty(), "no pod fits elsewhere without a new node: {deleted:?}");
    }
}
