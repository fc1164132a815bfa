//! Shrinks a scene that fails.

use anyhow::Result;
use serde_json::Value;

use super::{generate::Scene, opening::Opening, pods::Disk, run::Arena};

/// A scene that still fails takes as long as kube-scheduler's timeout; after this many attempts the rest is small
/// enough.
const TRIES: usize = 30;

/// Optional fields of a pod's spec.
const PARTS: [&str; 5] =
    ["topologySpreadConstraints", "affinity", "nodeSelector", "initContainers", "tolerations"];

/// Scenes without one element.
fn smaller(scene: &Scene) -> Vec<Scene> {
    let mut list = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Scene)| {
        let mut less = scene.clone();
        change(&mut less);
        list.push(less);
    };
    for at in 0..scene.waiting.len() {
        if scene.waiting.len() > 1 {
            offer(&|less| drop(less.waiting.remove(at)));
        }
    }
    for at in 0..scene.running.len() {
        offer(&|less| drop(less.running.remove(at)));
    }
    for node in &scene.nodes {
        let name = &node["metadata"]["name"];
        if scene.running.iter().all(|pod| pod["spec"]["nodeName"] != *name) {
            offer(&|less| less.nodes.retain(|n| n["metadata"]["name"] != *name));
        }
    }
    for (at, group) in scene.waiting.iter().enumerate() {
        if group.replicas > 1 {
            offer(&|less| less.waiting[at].replicas /= 2);
            offer(&|less| less.waiting[at].replicas -= 1);
        }
        if group.disk != Disk::None {
            offer(&|less| less.waiting[at].disk = Disk::None);
        }
        for part in PARTS.into_iter().filter(|part| !group.spec[*part].is_null()) {
            offer(&|less| less.waiting[at].spec[part] = Value::Null);
        }
    }
    for (at, pool) in scene.pools.iter().enumerate() {
        if scene.pools.iter().filter(|other| other.name == pool.name).count() > 1 {
            offer(&|less| drop(less.pools.remove(at)));
        }
    }
    if !scene.coming.is_empty() {
        offer(&|less| drop(less.coming.pop()));
    }
    if scene.daemon {
        offer(&|less| less.daemon = false);
    }
    if !scene.attach.is_empty() {
        offer(&|less| less.attach.clear());
    }
    list
}

impl Arena {
    /// Removes everything that isn't needed for the failure.
    pub async fn shrink(
        &self,
        mut scene: Scene,
        opening: Opening,
        mut problem: String,
    ) -> Result<(Scene, String)> {
        let mut tries = 0;
        'again: loop {
            for less in smaller(&scene) {
                tries += 1;
                if tries > TRIES {
                    break;
                }
                if let Some(still) = self.run(&less, opening).await?.problem {
                    (scene, problem) = (less, still);
                    continue 'again;
                }
            }
            return Ok((scene, problem));
        }
    }
}
