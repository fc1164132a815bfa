//! DaemonSets: a pod of each on every node, whatever its taints.

use serde_json::{Value, json};

use super::{index::ClusterIndex, model::Tick, store::Id};

/// True for a pod that a DaemonSet keeps on its node: it doesn't count as work, and goes with the node.
#[must_use]
pub fn is_of_daemonset(pod: &Value) -> bool {
    pod["metadata"]["ownerReferences"][0]["kind"] == json!("DaemonSet")
}

/// Creates the missing pods, bound: kube-scheduler places each by its node affinity. Those of nodes that are gone are left to
/// the pod collector.
pub(crate) fn place(index: &ClusterIndex, tick: &mut Tick<'_>) {
    let sets: Vec<(Id, Value)> =
        tick.store.of_kind("DaemonSet").map(|(id, set)| (id.clone(), Value::clone(set))).collect();
    for (id, set) in sets {
        for node in index.nodes().keys() {
            let pod: Id = ("Pod", id.1.clone(), format!("{}-{node}", id.2));
            if !index.pods().contains_key(&pod) {
                tick.store.create(pod, pod_of(&set, node), tick.now);
            }
        }
    }
}

fn pod_of(set: &Value, node: &str) -> Value {
    let template = &set["spec"]["template"];
    let mut spec = template["spec"].clone();
    spec["nodeName"] = json!(node);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": template["metadata"]["labels"], "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": set["metadata"]["name"],
            "uid": set["metadata"]["uid"], "controller": true,
        }]},
        "spec": spec,
        "status": {"phase": "Pending"},
    })
}
