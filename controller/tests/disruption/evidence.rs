//! Changes that look like a reason to replace nodes, and are none.

use croft_controller::{
    action::{Action, Key},
    kube_api::{Target, Verb},
};
use serde_json::{Value, json};

use crate::world::World;

fn puts_labels_back(world: &World, node: &str) -> bool {
    world.actions.iter().any(|action| {
        let Action::Write { key, call, .. } = action else { return false };
        let (Target::Node(_), Verb::JsonPatch(patch)) = (&call.target, &call.verb) else { return false };
        let is_label =
            |operation: &Value| operation["path"].as_str().unwrap().starts_with("/metadata/labels/");
        *key == Key::Node(node.to_owned()) && patch.as_array().unwrap().iter().any(is_label)
    })
}

#[test]
fn a_label_removed_by_hand_is_put_back_and_replaces_nothing() {
    let mut world = World::new(json!({"consolidateAfter": "Never"}));
    let requirement = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]});
    world.pool(json!({"consolidateAfter": "Never"}), json!({"spec": {"requirements": [requirement]}}));
    for n in 0..3 {
        world.node(&format!("n{n}"), "m.2", json!({}));
        world.pod(&format!("pod{n}"), &format!("n{n}"), 1500, json!({}));
    }
    world.step(10);
    for n in 0..3 {
        world.unlabel(&format!("n{n}"), "topology.kubernetes.io/zone");
    }
    // While it is put back, and where that fails for some time.
    for seconds in [1, 5, 5, 60, 500] {
        world.step(seconds);
        assert!((0..3).all(|n| puts_labels_back(&world, &format!("n{n}"))), "{:?}", world.actions);
        assert_eq!((world.created().len(), world.deleted().len()), (0, 0), "{:?}", world.actions);
    }
    // The API server refuses it for good: such a node is not what the pool asks for.
    world.step(60);
    assert!(!world.created().is_empty(), "{:?}", world.actions);
}
