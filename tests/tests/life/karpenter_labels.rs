//! Pods that were written for Karpenter and select its pools' labels run on the pools whose templates give these labels.

use croft_policy::definitions::POOLS_ANNOTATION;
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::{class, joined, tenant_of},
    stack::{EVENTUALLY, Stack, claims, created, label, node_of, nodes, running},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

const NAMESPACE: &str = "migrated";
const NODE_POOL: &str = "karpenter.sh/nodepool";
const PROVISIONER: &str = "karpenter.sh/provisioner-name";

/// The first pool is the default; each of the others has one label.
fn platform() -> String {
    let pool = |(name, labels): (&str, Value)| {
        let template = json!({"metadata": {"labels": labels}, "spec": {"nodeClassRef": {"name": NAMESPACE}}});
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": name},
            "spec": {"template": template}})
    };
    let pools =
        [("plain", json!({})), ("new", json!({NODE_POOL: "x"})), ("old", json!({PROVISIONER: "team1"}))];
    let mut documents = vec![class(NAMESPACE)];
    documents.extend(tenant_of(NAMESPACE, &pools.each_ref().map(|(name, _)| *name)));
    documents.extend(pools.map(pool));
    joined(&documents)
}

/// The pool, and the spec of a pod for it.
fn pods() -> [(&'static str, Value); 3] {
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": NODE_POOL, "operator": "In", "values": ["x", "another"]}]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    let mut pods = [
        ("plain", json!({})),
        ("new", json!({"affinity": affinity})),
        ("old", json!({"nodeSelector": {PROVISIONER: "team1"}})),
    ];
    for (_, spec) in &mut pods {
        spec["containers"] = json!([{"name": "c", "image": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]);
    }
    pods
}

#[tokio::test]
async fn pods_that_select_karpenters_labels_run_in_the_pool_that_gives_them() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    until("the labels of the pools written for the policies", EVENTUALLY, async || {
        let written = namespaces.get(NAMESPACE).await?.annotations().get(POOLS_ANNOTATION).cloned();
        let is_known = written.as_ref().is_some_and(|pools| {
            pools.contains(&format!("{NODE_POOL}=in=x")) && pools.contains(&format!("{PROVISIONER}=in=team1"))
        });
        Ok::<_, kube::Error>(Seen::from_option(is_known.then_some(()), format!("{written:?}")))
    })
    .await
    .unwrap();

    for (pool, spec) in pods() {
        let pod = json!({"metadata": {"name": pool, "namespace": NAMESPACE}, "spec": spec});
        created(&client, &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let homes = running(&client, NAMESPACE, 3).await.unwrap();
    let all = nodes(&client).await.unwrap();
    for pod in &homes {
        let node = &all[&node_of(pod)];
        assert_eq!(label(node, "node-restriction.kubernetes.io/pool"), pod.name_any());
        let (of_new, of_old) = match pod.name_any().as_str() {
            "new" => ("x", ""),
            "old" => ("", "team1"),
            _ => ("", ""),
        };
        assert_eq!(
            (label(node, NODE_POOL), label(node, PROVISIONER)),
            (of_new.to_owned(), of_old.to_owned())
        );
    }
    for claim in claims(&client, "old").await.unwrap() {
        assert_eq!(claim.spec.labels.get(PROVISIONER).map(String::as_str), Some("team1"));
    }
    stack.check().unwrap();
}
