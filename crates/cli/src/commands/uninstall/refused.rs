//! Workloads whose pods admission has refused meanwhile: a pod of a deleted Tenant that isn't pinned any more. Their controllers
//! wait for longer after each refusal, up to 16 minutes. A change of the workload ends the wait.

use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::parts::{ObjectKind, api};

/// Workloads that create pods, and the fields that say how many there should be and are. A Job waits for a minute at most.
const WORKLOADS: [(ObjectKind, &str, &str); 4] = [
    (("apps/v1", "ReplicaSet", "replicasets"), "/spec/replicas", "/status/replicas"),
    (("apps/v1", "StatefulSet", "statefulsets"), "/spec/replicas", "/status/replicas"),
    (
        ("apps/v1", "DaemonSet", "daemonsets"),
        "/status/desiredNumberScheduled",
        "/status/currentNumberScheduled",
    ),
    (("v1", "ReplicationController", "replicationcontrollers"), "/spec/replicas", "/status/replicas"),
];
/// The annotation by which a workload is changed. It is removed at once.
const CHANGED: &str = "croft.dev/admission-removed";

/// Lets the controllers of a namespace's workloads create the pods that are missing now. A workload that can't be written waits
/// for its own next try.
///
/// # Errors
/// If workloads can't be listed.
pub(super) async fn retry(client: &Client, namespace: &str) -> kube::Result<()> {
    for (kind, wanted, there) in WORKLOADS {
        let workloads: Api<DynamicObject> = api(client, kind, Some(namespace));
        for workload in workloads.list(&ListParams::default()).await? {
            let count = |pointer: &str| workload.data.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
            if count(wanted) <= count(there) {
                continue;
            }
            for value in [json!("true"), Value::Null] {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {CHANGED: value}}}));
                // Without it the workload waits for its own next try.
                workloads.patch(&workload.name_any(), &PatchParams::default(), &patch).await.ok();
            }
        }
    }
    Ok(())
}
