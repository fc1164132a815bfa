//! Pods that wait since before what they could enter was declared: the pool takes no node until they are gone.

use croft_api::TenantPool;
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::{daemon_set, deployment, joined},
    stack::{EVENTUALLY, Stack, log_tail, pods, running},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use super::{OUTSIDE, bare, tried_and_unbound, with_pool};

fn job(name: &str, tolerations: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": OUTSIDE},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "tolerations": tolerations,
            "containers": [{"name": "c", "image": "registry.example/app:1"}],
        }}},
    })
}

/// A Deployment of one pod with these tolerations.
fn tolerant(namespace: &str, name: &str, tolerations: &Value) -> Value {
    let mut deployment = deployment(namespace, name, 1, "10m", "16Mi");
    deployment["spec"]["template"]["spec"]["tolerations"] = tolerations.clone();
    deployment
}

/// Waits until `pool` says that these objects keep it from taking nodes. It launches none.
async fn held(stack: &mut Stack, admin: &Client, pool: &str, named: &[&str]) {
    let before = stack.instances().await.unwrap().len();
    let pools: Api<TenantPool> = Api::all(admin.clone());
    until(&format!("pool {pool} held by {named:?}"), EVENTUALLY, async || {
        let conditions = pools.get(pool).await?.status.map(|status| status.conditions).unwrap_or_default();
        let accepted = conditions.into_iter().find(|c| c.type_ == "Accepted");
        let names = |message: &str| named.iter().all(|name| message.contains(&format!("{OUTSIDE}/{name}")));
        let done = accepted.as_ref().is_some_and(|c| c.reason == "OpenToWaitingPods" && names(&c.message));
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), format!("{accepted:?}")))
    })
    .await
    .unwrap();
    assert_eq!(stack.instances().await.unwrap().len(), before, "a node was launched into the open pool");
}

async fn delete(stack: &Stack, objects: &[(&str, &str)]) {
    for (kind, name) in objects {
        stack.plane.kubectl(["delete", kind, name, "-n", OUTSIDE, "--wait"]).await.unwrap();
    }
}

/// Pods that tolerate everything, from a time when Croft evaluated no pod.
pub async fn since_before_the_first_tenant(stack: &mut Stack, admin: &Client, jane: &Client) {
    let all = json!([{"operator": "Exists"}]);
    let pods: Api<Pod> = Api::namespaced(jane.clone(), OUTSIDE);
    pods.create(&PostParams::default(), &bare(OUTSIDE, "early", &json!({"tolerations": all}))).await.unwrap();
    stack
        .plane
        .apply(&joined(&[job("early-job", &all), tolerant(OUTSIDE, "early-web", &all)]))
        .await
        .unwrap();
    running_controllers(stack, admin).await;
    stack.plane.apply(&with_pool("shop", "node-restriction.kubernetes.io/pool", &json!({}))).await.unwrap();
    stack.plane.apply(&deployment("shop", "web", 1, "100m", "64Mi").to_string()).await.unwrap();
    held(stack, admin, "shop", &["early", "early-job"]).await;
    delete(stack, &[("pod", "early"), ("job", "early-job")]).await;
    // The Deployment's pod was replaced by one with the affinity of today.
    running(admin, "shop", 1).await.unwrap();
    tried_and_unbound(&mut stack.plane, admin).await;
}

/// Waits until the Job and the Deployment have made their pods.
async fn running_controllers(stack: &Stack, admin: &Client) {
    until("three pods that wait", EVENTUALLY, async || {
        let there = pods(admin, OUTSIDE).await?.len();
        Ok::<_, kube::Error>(Seen::from_option((there == 3).then_some(()), format!("{there}")))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", log_tail(&stack.plane, "kube-controller-manager")));
}

/// A pod that says of itself that a DaemonSet made it. It isn't tied to a node, as the pods are that the DaemonSet controller makes.
async fn as_if_of_a_daemonset(stack: &Stack, pods: &Api<Pod>, tolerations: &Value) {
    let nowhere = daemon_set(OUTSIDE, "nowhere", json!({"nodeSelector": {"none": "none"}}));
    stack.plane.apply(&nowhere.to_string()).await.unwrap();
    let found =
        stack.plane.kubectl(["get", "daemonset", "nowhere", "-n", OUTSIDE, "-o", "jsonpath={.metadata.uid}"]);
    let mut pod = bare(OUTSIDE, "owned", &json!({"tolerations": tolerations}));
    pod.metadata.labels = Some([("app".to_owned(), "nowhere".to_owned())].into());
    pod.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nowhere", "controller": true,
        "uid": found.await.unwrap().trim(),
    }]))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// Pods that tolerate a key which no pool has yet.
pub async fn since_before_a_key(stack: &mut Stack, admin: &Client, jane: &Client) {
    let pods: Api<Pod> = Api::namespaced(jane.clone(), OUTSIDE);
    let of_key = json!([{"key": "dedicated", "operator": "Exists"}]);
    let by_value = json!([{"key": "dedicated", "operator": "Equal", "value": "lab", "effect": "NoSchedule"}]);
    for (name, tolerations) in [("of-key", &of_key), ("by-value", &by_value)] {
        let pod = bare(OUTSIDE, name, &json!({"tolerations": tolerations}));
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    stack.plane.apply(&joined(&[job("later-job", &of_key)])).await.unwrap();
    as_if_of_a_daemonset(stack, &pods, &of_key).await;
    stack.plane.apply(&with_pool("lab", "dedicated", &json!({}))).await.unwrap();
    stack.plane.apply(&deployment("lab", "web", 1, "100m", "64Mi").to_string()).await.unwrap();
    held(stack, admin, "lab", &["of-key", "by-value", "later-job", "owned"]).await;
    let made = [("pod", "of-key"), ("pod", "by-value"), ("job", "later-job"), ("daemonset", "nowhere")];
    delete(stack, &made).await;
    stack
        .plane
        .kubectl(["delete", "pod", "owned", "-n", OUTSIDE, "--wait", "--ignore-not-found"])
        .await
        .unwrap();
    running(admin, "lab", 1).await.unwrap();
    let again =
        pods.create(&PostParams::default(), &bare(OUTSIDE, "again", &json!({"tolerations": of_key}))).await;
    let text = json!(again.unwrap()).to_string();
    for key in ["dedicated", "node-restriction.kubernetes.io/pool", super::STARTING] {
        assert!(text.contains(&format!(r#"{{"key":"{key}","operator":"DoesNotExist"}}"#)), "{key}: {text}");
    }
    tried_and_unbound(&mut stack.plane, admin).await;
}
