//! The measured cluster, written to the API server.

use anyhow::Context as _;
use croft_policy::definitions::POOL_NAME_LABEL;
use croft_tests::manifests::{class, on_demand};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use kube::Client;
use serde_json::{Value, json};

pub(crate) const TENANTS: usize = 50;
pub(crate) const NODES: usize = 1_000;
const PODS: usize = 10_000;
/// Of these, the first tenant has every fourth.
const LARGE: usize = 4;
/// Requests in flight at once.
const IN_FLIGHT: usize = 24;

/// The tenant of the `at`th node, and of its pods.
fn tenant_of(at: usize) -> usize {
    if at.is_multiple_of(LARGE) { 0 } else { 1 + at % (TENANTS - 1) }
}

pub(crate) fn node_name(at: usize) -> String {
    format!("node-{at:04}")
}

fn node(at: usize) -> Value {
    let pool = format!("pool-{:02}", tenant_of(at));
    let (kind, cpu, memory, zone) = match at % 3 {
        0 => ("m5.xlarge", "4", "15Gi", "us-east-1a"),
        1 => ("m5.2xlarge", "8", "31Gi", "us-east-1b"),
        _ => ("c5.4xlarge", "16", "29Gi", "us-east-1c"),
    };
    let resources = json!({"cpu": cpu, "memory": memory, "pods": "58"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(at), "labels": {
            POOL_NAME_LABEL: pool, "kubernetes.io/hostname": node_name(at), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": kind, "karpenter.sh/capacity-type": "on-demand",
            "topology.kubernetes.io/zone": zone,
        }},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(at: usize) -> Value {
    let node = at % NODES;
    let namespace = format!("tenant-{:02}", tenant_of(node));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{at:05}"), "namespace": namespace, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{}", at % 7), "uid": "0", "controller": true}]},
        "spec": {"nodeName": node_name(node), "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "registry.example/app:1",
                "resources": {"requests": {"cpu": "300m", "memory": "1Gi"}}}]},
    })
}

async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let request = http::Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())?;
    client.request::<Value>(request).await.with_context(|| format!("failed to create {object}"))?;
    Ok(())
}

async fn create_all(client: &Client, objects: Vec<(String, Value)>) -> anyhow::Result<()> {
    let creating = stream::iter(objects).map(async |(path, object)| create(client, &path, &object).await);
    creating.buffer_unordered(IN_FLIGHT).try_collect().await
}

/// Writes everything, and the decision log of its launches into `namespace`.
pub(crate) async fn fill(client: &Client, namespace: &str) -> anyhow::Result<()> {
    const OWN: &str = "/apis/croft.dev/v1alpha1";
    let mut objects = vec![(format!("{OWN}/ec2nodeclasses"), class("default"))];
    objects.extend((0..TENANTS).map(|at| {
        let name = format!("tenant-{at:02}");
        (
            "/api/v1/namespaces".to_owned(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        )
    }));
    create_all(client, objects).await?;
    let mut objects = Vec::new();
    for at in 0..TENANTS {
        let (tenant, pool) = (format!("tenant-{at:02}"), format!("pool-{at:02}"));
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        objects.push((format!("/api/v1/namespaces/{tenant}/serviceaccounts"), account));
        let spec = on_demand(&[], json!({}));
        objects.push((
            format!("{OWN}/tenantpools"),
            json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": pool}, "spec": spec}),
        ));
        objects.push((
            format!("{OWN}/tenants"),
            json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": tenant},
                "spec": {"namespaces": [tenant], "pools": [pool]}}),
        ));
    }
    create_all(client, objects).await?;
    create_all(client, (0..NODES).map(|at| ("/api/v1/nodes".to_owned(), node(at))).collect()).await?;
    let pods = (0..PODS).map(pod).map(|pod| {
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        (format!("/api/v1/namespaces/{namespace}/pods"), pod)
    });
    create_all(client, pods.collect()).await?;
    crate::record::write_log(client, namespace).await
}
