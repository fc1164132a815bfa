//! A tenant with pools of several kinds of nodes: each pod, written as people write them, runs in the pool that can hold it.

use croft_api::TenantPool;
use croft_policy::definitions::POOLS_ANNOTATION;
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::{class, joined, tenant_of},
    stack::{EVENTUALLY, Stack, created, label, node_of, nodes, running},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

const NAMESPACE: &str = "kinds";

fn pool(name: &str, requirements: Value, labels: Value, taints: Value) -> Value {
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": name}, "spec": {
        "template": {"metadata": {"labels": labels}, "spec": {"nodeClassRef": {"name": "kinds"},
            "requirements": requirements, "taints": taints}}}})
}

fn requires(key: &str, value: &str) -> Value {
    json!({"key": key, "operator": "In", "values": [value]})
}

/// The pool, and the spec of a pod that only this pool can hold, or the default where none is asked for.
fn pods() -> Vec<(&'static str, Value)> {
    let mut pods = vec![
        ("x86", json!({})),
        ("arm", json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}})),
        ("spot", json!({"nodeSelector": {"karpenter.sh/capacity-type": "spot"}})),
        (
            "runners",
            json!({"nodeSelector": {"team": "ci"}, "tolerations": [{"key": "ci", "operator": "Exists"}]}),
        ),
        ("gpu", json!({})),
    ];
    for (pool, spec) in &mut pods {
        let mut amounts = json!({"cpu": "100m", "memory": "64Mi"});
        if *pool == "gpu" {
            amounts["nvidia.com/gpu"] = json!("1");
        }
        spec["containers"] =
            json!([{"name": "c", "image": "c", "resources": {"requests": amounts, "limits": amounts}}]);
    }
    pods
}

/// Waits until the controller has said what instances of the pools have, and written it for the policies.
async fn known(client: &Client) {
    let api: Api<TenantPool> = Api::all(client.clone());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    until("what nodes of the pools can have", EVENTUALLY, async || {
        let of = async |name: &str| {
            let status = api.get(name).await?.status.unwrap_or_default();
            let resources = status.extended_resources;
            Ok::<_, kube::Error>(resources.map(|all| all.into_iter().map(|one| one.name).collect::<Vec<_>>()))
        };
        let (x86, gpu) = (of("x86").await?, of("gpu").await?);
        let written = namespaces.get(NAMESPACE).await?.annotations().get(POOLS_ANNOTATION).cloned();
        let is_known = x86.is_some()
            && gpu.as_ref().is_some_and(|names| names.iter().any(|name| name == "nvidia.com/gpu"))
            && written.as_ref().is_some_and(|pools| pools.contains("nvidia.com/gpu"));
        Ok::<_, kube::Error>(Seen::from_option(
            is_known.then_some(()),
            format!("{x86:?} {gpu:?} {written:?}"),
        ))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn pods_run_in_the_pool_that_can_hold_them() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let family = |families: &[&str]| json!({"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": families});
    let arch = "kubernetes.io/arch";
    // The first pool is the default; the others differ by one requirement or label each.
    let pools = [
        pool("x86", json!([requires(arch, "amd64")]), json!({}), json!([])),
        pool("arm", json!([requires(arch, "arm64")]), json!({}), json!([])),
        pool("gpu", json!([family(&["g4dn"])]), json!({}), json!([])),
        pool("spot", json!([requires("karpenter.sh/capacity-type", "spot")]), json!({}), json!([])),
        pool(
            "runners",
            json!([family(&["m5"])]),
            json!({"team": "ci"}),
            json!([{"key": "ci", "value": "yes", "effect": "NoSchedule"}]),
        ),
    ];
    let mut platform = vec![class(NAMESPACE)];
    platform.extend(tenant_of(NAMESPACE, &["x86", "arm", "gpu", "spot", "runners"]));
    platform.extend(pools);
    stack.plane.apply(&joined(&platform)).await.unwrap();
    known(&client).await;

    let pods = pods();
    for (pool, spec) in &pods {
        let pod = json!({"metadata": {"name": pool, "namespace": NAMESPACE}, "spec": spec});
        created(&client, &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let running = running(&client, NAMESPACE, pods.len()).await.unwrap();
    let homes = nodes(&client).await.unwrap();
    for pod in &running {
        let node = &homes[&node_of(pod)];
        let at = label(node, "node-restriction.kubernetes.io/pool");
        assert_eq!(at, pod.name_any(), "{:?}", pod.spec.as_ref().unwrap().node_selector);
    }
    stack.check().unwrap();
}
