//! Attacks on moments: pods that were created before a Tenant, a key or a node was there, and updates of pods that wait for a
//! node to register. Each ran on a tenant's node once, with ordinary rights.

mod agents;
mod gates;
mod last_tenant;
mod launched_elsewhere;
mod updates;
mod waiting;

use croft_policy::Mutation;
use croft_testkit::{
    Component, ControlPlane, CroftOptions, Options,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{in_mode, settings},
    manifests::{class, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// A namespace of no tenant, whose admin attacks.
pub const OUTSIDE: &str = "outside";
/// A namespace of no tenant with which one pool is shared.
pub const FRIENDS: &str = "friends";
/// The admin of both.
pub const JANE: &str = "jane";
/// The label and taint of a node that has just registered.
pub const STARTING: &str = "croft.dev/unregistered";

#[tokio::test]
async fn no_pod_enters_by_a_moment_in_webhook_mode() {
    attack(Mutation::Webhook).await;
}

#[tokio::test]
async fn no_pod_enters_by_a_moment_in_policy_mode() {
    attack(Mutation::Policy).await;
}

async fn attack(mode: Mutation) {
    let mut stack = Stack::start_with(Options::default(), CroftOptions::find().unwrap()).await.unwrap();
    let admin = stack.plane.admin().await.unwrap();
    let jane = stack.plane.client_for(JANE, &[]).await.unwrap();
    stack.plane.apply(&namespaces()).await.unwrap();
    stack.plane.apply(&settings(mode)).await.unwrap();
    waiting::since_before_the_first_tenant(&mut stack, &admin, &jane).await;
    in_mode(&admin, mode).await.unwrap();
    waiting::since_before_a_key(&mut stack, &admin, &jane).await;
    updates::widen_no_pod_that_waits_for_a_registering_node(&mut stack, &admin, &jane).await;
    gates::lift_where_a_pod_is_kept_off_other_pools(&stack, &admin, &jane).await;
    launched_elsewhere::nodes_are_closed_from_their_registration(&mut stack, &admin, &jane).await;
    agents::start_while_the_webhook_hangs(&stack, &admin).await;
    last_tenant::keeps_its_nodes_closed_when_it_goes(&mut stack, &admin, &jane).await;
    stack.check().unwrap();
}

fn namespaces() -> String {
    let mut documents = vec![class("default")];
    for namespace in [OUTSIDE, FRIENDS] {
        documents.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        documents.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": JANE, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": JANE}],
        }));
    }
    joined(&documents)
}

/// A tenant with a pool of Croft's nodes and this key, as manifests.
pub fn with_pool(name: &str, key: &str, more: &Value) -> String {
    let mut spec = on_demand(&["m5.large"], json!({"consolidateAfter": "Never"}));
    let fields = spec.as_object_mut().unwrap();
    fields.insert("key".to_owned(), json!(key));
    fields.extend(more.as_object().unwrap().clone());
    joined(&tenant(name, name, &spec))
}

/// A pod of one container that asks for little.
pub fn bare(namespace: &str, name: &str, spec: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "registry.example/app:1"}]},
    });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(pod).unwrap()
}

/// Waits until kube-scheduler has tried every pod of the namespaces of no tenant on all nodes that there are. None is bound. It is
/// started anew: a pod that a new node can't help isn't tried again.
pub async fn tried_and_unbound(plane: &mut ControlPlane, admin: &Client) {
    plane.kill(Component::Scheduler).unwrap();
    plane.resume(Component::Scheduler).await.unwrap();
    let nodes = Api::<Node>::all(admin.clone()).list(&Default::default()).await.unwrap().items.len();
    let counted = format!("0/{nodes} nodes are available");
    for namespace in [OUTSIDE, FRIENDS] {
        let api: Api<Pod> = Api::namespaced(admin.clone(), namespace);
        until(&format!("every pod of {namespace} tried on {nodes} nodes"), EVENTUALLY, async || {
            let mut waits = Vec::new();
            for pod in api.list(&Default::default()).await? {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
                assert_eq!(node, None, "{namespace}/{} is bound: {:?}", pod.name_any(), pod.spec);
                let said = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let said =
                    said.filter(|c| c.type_ == "PodScheduled").filter_map(|c| c.message.clone()).next();
                let said = said.unwrap_or_default();
                if pod.metadata.deletion_timestamp.is_none() && !said.starts_with(&counted) {
                    waits.push(format!("{}: {said}", pod.name_any()));
                }
            }
            Ok::<_, kube::Error>(Seen::from_option(waits.is_empty().then_some(()), format!("{waits:?}")))
        })
        .await
        .unwrap();
    }
}
