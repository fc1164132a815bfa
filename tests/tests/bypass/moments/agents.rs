//! Agents of the cluster start on new nodes while the webhook hangs, and on none of a pool.

use croft_testkit::{
    Part,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{daemon_set, joined},
    stack::{EVENTUALLY, Stack, label, node_of, nodes, pods},
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::PostParams};
use serde_json::json;

const NAMESPACE: &str = "agents";
const NEW: &str = "plain-1";

pub async fn start_while_the_webhook_hangs(stack: &Stack, admin: &Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let agent = daemon_set(NAMESPACE, "agent", json!({"tolerations": [{"operator": "Exists"}]}));
    stack.plane.apply(&joined(&[namespace, agent])).await.unwrap();
    let webhook = stack.croft.process(Part::Webhook).unwrap();
    webhook.freeze();
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": NEW, "labels": {
            "lab.croft.dev/kubelet": "kwok", "kubernetes.io/hostname": NEW, "kubernetes.io/os": "linux",
        }},
        "status": {"capacity": {"cpu": "1", "memory": "1Gi", "pods": "10"},
            "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
    }))
    .unwrap();
    let api: Api<Node> = Api::all(admin.clone());
    api.create(&PostParams::default(), &node).await.unwrap();
    until("an agent on the new node", EVENTUALLY, async || {
        let there: Vec<_> = pods(admin, NAMESPACE).await?.iter().map(node_of).collect();
        let done = there.iter().any(|node| node == NEW);
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), format!("{there:?}")))
    })
    .await
    .unwrap();
    webhook.thaw();
    let nodes = nodes(admin).await.unwrap();
    for pod in pods(admin, NAMESPACE).await.unwrap() {
        let pool = nodes.get(&node_of(&pod)).map(|node| label(node, "node-restriction.kubernetes.io/pool"));
        assert_eq!(pool.unwrap_or_default(), "", "an agent runs on a node of a pool");
    }
    stack.plane.kubectl(["delete", "namespace", NAMESPACE, "--wait"]).await.unwrap();
    stack.plane.kubectl(["delete", "node", NEW, "--wait"]).await.unwrap();
}
