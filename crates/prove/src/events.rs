//! The events of a sequence, and the steps that they are.

use serde_json::Value;

use crate::{
    controller::Step,
    declared::Edit,
    world::{Seen, World},
};

/// An event. Numbers are those of the model's pods and of the steps that its controller may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An operator edits what is declared.
    Edit(Edit),
    /// The webhook sees what has changed.
    WebhookSees,
    /// The webhook writes its configurations.
    WebhookRegisters,
    /// The controller makes a write.
    Controller(u8),
    /// The controller writes the condition Accepted of the pool.
    Accept(bool),
    /// Croft launches a node for the pool: it registers.
    Launch,
    /// Another process launches a node for the pool: it joins.
    Join,
    /// A node of no pool joins.
    JoinPlain,
    /// The controller registers the node.
    RegisterNode,
    /// The controller writes what a node lacks that another process launched.
    RepairNode,
    /// A user creates a pod.
    CreatePod(u32),
    /// A user updates the pod: it becomes this one.
    UpdatePod(u32),
    /// kube-scheduler binds the pod to the node.
    Bind,
}

/// The world after a write of the controller.
#[must_use]
pub fn after_write(world: &World, step: &Step) -> World {
    let mut after = world.clone();
    match step {
        Step::Parameters(patch) => merge(&mut after.parameters, &patch["metadata"]["annotations"]),
        Step::Namespace(patch) => {
            merge(&mut after.written.labels, &patch["metadata"]["labels"]);
            merge(&mut after.written.annotations, &patch["metadata"]["annotations"]);
        }
    }
    after
}

fn merge(into: &mut std::collections::BTreeMap<String, String>, patch: &Value) {
    for (key, value) in patch.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(text) => into.insert(key.clone(), text.to_owned()),
            None => into.remove(key),
        };
    }
}

/// The world once the webhook has seen it.
#[must_use]
pub fn after_sight(world: &World) -> World {
    World { seen: world.current(), ..world.clone() }
}

/// The world once the webhook has written its configurations.
#[must_use]
pub fn after_registration(world: &World) -> World {
    let registered: Option<Seen> = Some(world.seen.clone());
    World { registered, ..world.clone() }
}
