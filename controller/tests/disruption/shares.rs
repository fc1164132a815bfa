//! A pool with shares: which nodes may go.

use croft_api::TenantPool;
use serde_json::{Value, json};

use crate::world::World;

/// A world whose pool `p` has the templates `steady` and `spot` of one type, and these shares.
fn world(shares: &Value) -> World {
    let mut world = World::new(json!({}));
    let template = |name: &str| {
        json!({"name": name, "spec": {"nodeClassRef": {"name": "c"}, "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m.2"]}]}})
    };
    let pool = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": world.meta("p"),
        "spec": {"key": "node-pool", "shares": shares, "templates": [template("steady"), template("spot")],
            "disruption": {"consolidateAfter": "5s", "preference": "Cheapest", "budgets": [{"nodes": "100%"}]}},
        "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": world.begun.to_string()}]},
    });
    world.observe(serde_json::from_value::<TenantPool>(pool).unwrap());
    world
}

fn node(world: &mut World, name: &str, template: &str, pod: u32) {
    world.node(name, "m.2", json!({"spec": {"labels": {"croft.dev/template": template}}}));
    if pod > 0 {
        world.pod(&format!("pod-{name}"), name, pod, json!({}));
    }
}

#[test]
fn empty_nodes_stay_that_a_share_needs() {
    let one_steady = json!([{"template": "steady", "minNodes": 1}]);
    let half_spot = json!([{"template": "spot", "max": "50%"}]);
    for (shares, cordoned) in [(json!([]), 3), (one_steady, 2), (half_spot, 1)] {
        let mut world = world(&shares);
        for name in ["a", "b", "c"] {
            node(&mut world, name, "steady", 0);
        }
        node(&mut world, "d", "spot", 1800);
        node(&mut world, "e", "spot", 1800);
        world.step(0);
        world.step(6);
        assert_eq!(world.cordoned(), cordoned, "{shares}");
        assert_eq!(world.kept_by("PoolShare"), 3 - cordoned, "{shares}");
    }
}

#[test]
fn consolidation_removes_what_leaves_the_pool_within_its_share() {
    for (shares, gone) in [(json!([]), "a"), (json!([{"template": "spot", "max": "50%"}]), "b")] {
        let mut world = world(&shares);
        node(&mut world, "a", "steady", 100);
        node(&mut world, "b", "spot", 1000);
        let search = world.search();
        world.answer(&search);
        world.step(1);
        assert_eq!(world.deleted(), [gone], "{shares}");
    }
}

#[test]
fn command_that_breaks_a_share_by_now_is_not_started() {
    for is_cordoned in [false, true] {
        let mut world = world(&json!([{"template": "steady", "minNodes": 1}]));
        node(&mut world, "a", "steady", 100);
        node(&mut world, "b", "steady", 1500);
        node(&mut world, "c", "spot", 1700);
        let search = world.search();
        if is_cordoned {
            world.cordon("b", true);
        }
        world.answer(&search);
        world.step(1);
        let gone: &[&str] = if is_cordoned { &[] } else { &["a"] };
        assert_eq!(world.deleted(), gone, "{:?}", world.actions);
    }
}
