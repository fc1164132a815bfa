//! Nodes that Croft doesn't launch register with their pool's own label and taint. The pool-name label is the controller's to
//! write, and here no controller runs.

use std::time::Duration;

use croft_api::TenantPool;
use croft_testkit::{
    Part,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{deployment, joined, tenant},
    stack::{EVENTUALLY, Stack, condition_of, running},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use super::{OUTSIDE, STARTING, bare, tried_and_unbound};

const KEY: &str = "byhand";

fn node(name: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {
            "lab.croft.dev/kubelet": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", KEY: "hand",
        }},
        "spec": {"taints": [{"key": KEY, "value": "hand", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "64", "memory": "256Gi", "pods": "500"},
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"}},
    }))
    .unwrap()
}

/// The keep-out that the webhook needs not add, but for the pool's own key.
fn kept_out_by_itself(tolerations: &Value) -> Value {
    let expressions = ["node-restriction.kubernetes.io/pool", STARTING]
        .map(|key| json!({"key": key, "operator": "DoesNotExist"}));
    json!({
        "tolerations": tolerations,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}},
    })
}

pub async fn nodes_are_closed_from_their_registration(stack: &mut Stack, admin: &Client, jane: &Client) {
    let pods: Api<Pod> = Api::namespaced(jane.clone(), OUTSIDE);
    let all = json!([{"operator": "Exists"}]);
    // Kept off every pool that there was.
    pods.create(&PostParams::default(), &bare(OUTSIDE, "before-the-key", &json!({"tolerations": all})))
        .await
        .unwrap();
    let spec = json!({"key": KEY, "value": "hand", "provisioner": "None"});
    stack.plane.apply(&joined(&tenant("hand", "hand", &spec))).await.unwrap();
    condition_of::<TenantPool>(admin, "hand", "Accepted", "True").await.unwrap();
    until("the key in force in the webhook", EVENTUALLY, async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let pod = bare(OUTSIDE, "probe", &json!({"tolerations": [{"key": KEY, "operator": "Exists"}]}));
        let said = pods.create(&dry, &pod).await.map(|pod| json!(pod).to_string());
        let done = said
            .as_ref()
            .is_ok_and(|text| text.contains(&format!(r#""key":"{KEY}","operator":"DoesNotExist""#)));
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), format!("{said:?}")))
    })
    .await
    .unwrap();
    for (name, tolerations) in [("of-the-key", json!([{"key": KEY, "operator": "Exists"}])), ("of-all", all)]
    {
        let pod = bare(OUTSIDE, name, &kept_out_by_itself(&tolerations));
        // Refused, or with the pool's own key besides: it may not run there either way.
        if let Ok(pod) = pods.create(&PostParams::default(), &pod).await {
            let text = json!(pod).to_string();
            assert!(text.contains(&format!(r#""key":"{KEY}","operator":"DoesNotExist""#)), "{name}: {text}");
        }
    }
    stack.croft.stop(Part::Controller, Duration::from_secs(15)).await.unwrap();
    for name in ["hand-1", "hand-2", "hand-3"] {
        let kubelet =
            stack.plane.client_for(&format!("system:node:{name}"), &["system:nodes"]).await.unwrap();
        Api::<Node>::all(kubelet).create(&PostParams::default(), &node(name)).await.unwrap();
    }
    tried_and_unbound(&mut stack.plane, admin).await;
    stack.plane.apply(&deployment("hand", "web", 1, "100m", "64Mi").to_string()).await.unwrap();
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
    running(admin, "hand", 1).await.unwrap();
    tried_and_unbound(&mut stack.plane, admin).await;
}
