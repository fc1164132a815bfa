//! Gated pods of a namespace with which one pool is shared: their gates were there before another pool was declared.

use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::deployment,
    stack::{EVENTUALLY, Stack, running},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{FRIENDS, bare, with_pool};

const KEY: &str = "later";

fn gated(name: &str, spec: Value) -> Pod {
    let mut spec = spec;
    spec["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    bare(FRIENDS, name, &spec)
}

async fn lift(pods: &Api<Pod>, name: &str) -> kube::Result<Pod> {
    let without = json!({"spec": {"schedulingGates": null}});
    pods.patch(name, &PatchParams::default(), &Patch::Merge(without)).await
}

/// A pod of a tenant that no pool of its annotation's name can take: it waits, tolerates everything, and would be refused today.
/// It is pinned to its own pool, and so keeps no other from taking nodes.
async fn refused_today(admin: &Client) {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "shop");
    let mut pod = bare("shop", "hostage", &json!({"tolerations": [{"operator": "Exists"}]}));
    let containers = &mut pod.spec.as_mut().unwrap().containers;
    containers[0].resources = serde_json::from_value(json!({"requests": {"cpu": "10000"}})).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let annotated = json!({"metadata": {"annotations": {"croft.dev/pool": "nosuch"}}});
    pods.patch("hostage", &PatchParams::default(), &Patch::Merge(annotated)).await.unwrap();
}

pub async fn lift_where_a_pod_is_kept_off_other_pools(stack: &Stack, admin: &Client, jane: &Client) {
    let pods: Api<Pod> = Api::namespaced(jane.clone(), FRIENDS);
    let all = json!({"tolerations": [{"operator": "Exists"}]});
    let of_key = json!({"tolerations": [{"key": KEY, "operator": "Exists"}]});
    let guest = json!({"nodeSelector": {"common": "common"},
        "tolerations": [{"key": "common", "operator": "Equal", "value": "common"}]});
    for (name, spec) in [("gated-all", all), ("gated-key", of_key), ("gated-guest", guest)] {
        pods.create(&PostParams::default(), &gated(name, spec)).await.unwrap();
    }
    refused_today(admin).await;
    stack.plane.apply(&with_pool(KEY, KEY, &json!({}))).await.unwrap();
    stack.plane.apply(&deployment(KEY, "web", 1, "100m", "64Mi").to_string()).await.unwrap();
    running(admin, KEY, 1).await.unwrap();
    for name in ["gated-all", "gated-key"] {
        let why = lift(&pods, name).await.expect_err("the pod could enter the new pool").to_string();
        assert!(why.contains("lifts the last scheduling gate"), "{name}: {why}");
    }
    lift(&pods, "gated-guest").await.unwrap();
    until("the guest on a node of the shared pool", EVENTUALLY, async || {
        let pod = pods.get("gated-guest").await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        Ok::<_, kube::Error>(Seen::from_option(node, format!("{:?}", pod.status)))
    })
    .await
    .unwrap();
    for pod in pods.list(&Default::default()).await.unwrap() {
        if pod.name_any().starts_with("gated") {
            pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
        }
    }
    stack.plane.kubectl(["delete", "pod", "hostage", "-n", "shop", "--wait"]).await.unwrap();
}
