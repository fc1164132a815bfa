//! The cluster before the upgrade: two tenants, a fixed number of nodes, node agents, and a launch in flight.

use croft_api::{NodeClaim, condition::READY};
use croft_testkit::{
    Part,
    wait::{Seen, until},
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    manifests::{budget, class, daemon_set, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, condition_of, instances_of, is_ready, running},
};

/// Pools whose nodes run.
pub const POOLS: [&str; 3] = ["pool-a", "pool-b", "pool-fixed"];
/// The pool whose only instance is launched while Croft is upgraded.
pub const IN_FLIGHT_POOL: &str = "pool-late";
/// Longer than any test: the answer to a launch that never comes.
const NEVER_MS: u64 = 3_600_000;

fn pool(class: &str, more: &Value) -> Value {
    // Whatever drifts is replaced at once, and nothing is replaced for another reason.
    let mut spec =
        on_demand(&["m5.large"], json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}));
    spec["template"]["spec"]["expireAfter"] = json!("Never");
    spec["template"]["spec"]["nodeClassRef"]["name"] = json!(class);
    merge(&mut spec, more);
    spec
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A class that says something in every field that nodes are compared by.
fn full_class() -> Value {
    let mut class = class("full");
    let spec = json!({
        "amiFamily": "AL2023", "userData": "#!/bin/sh\necho ready\n", "detailedMonitoring": true,
        "associatePublicIPAddress": false, "instanceStorePolicy": "RAID0", "tags": {"cost-center": "1"},
        "metadataOptions": {"httpPutResponseHopLimit": 2},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": true,
            "ebs": {"volumeSize": "30Gi", "volumeType": "gp3", "encrypted": true}}],
        "kubelet": {"maxPods": 30, "systemReserved": {"cpu": "50m"}, "evictionHard": {"memory.available": "5%"}},
    });
    merge(&mut class, &json!({"spec": spec}));
    class
}

fn platform() -> Vec<Value> {
    let of_a = json!({
        "limits": {"cpu": "100", "nodes": "20"},
        "template": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"example.com/owner": "a"}},
            "spec": {"taints": [{"key": "example.com/slow", "effect": "PreferNoSchedule"}],
                "terminationGracePeriod": "1h"},
        },
    });
    let of_b = json!({"key": "example.com/team", "value": "b", "effects": ["NoSchedule", "NoExecute"], "weight": 10});
    let [namespace_a, pool_a, mut tenant_a] = tenant("a", "pool-a", &pool("full", &of_a));
    merge(&mut tenant_a, &json!({"spec": {"namespaces": ["a", "a-agents"], "limits": {"nodes": "20"}}}));
    let [mut namespace_b, pool_b, mut tenant_b] = tenant("b", "pool-b", &pool("plain", &of_b));
    namespace_b["metadata"]["labels"] = json!({"team": "b"});
    tenant_b["spec"] = json!({"namespaceSelector": {"matchLabels": {"team": "b"}}, "pools": ["pool-b", "pool-fixed"],
        "onConflict": "Override"});
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    vec![
        class("plain"),
        full_class(),
        namespace_a,
        namespace("a-agents"),
        namespace("agents"),
        namespace("outside"),
        namespace_b,
        pool_a,
        pool_b,
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "pool-fixed"},
            "spec": pool("plain", &json!({"key": "example.com/team", "value": "fixed", "replicas": 1}))}),
        tenant_a,
        tenant_b,
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
            "spec": {"sharedWith": ["agents"], "exemptNamespaces": ["kube-infra"]}}),
    ]
}

fn workloads() -> Vec<Value> {
    let everywhere = json!({"tolerations": [{"operator": "Exists"}]});
    let mut outside = deployment("outside", "web", 1, "100m", "64Mi");
    merge(&mut outside, &json!({"spec": {"template": {"spec": everywhere}}}));
    vec![
        deployment("a", "web", 2, "1100m", "256Mi"),
        budget("a", "web", 1),
        deployment("b", "api", 1, "500m", "256Mi"),
        daemon_set("agents", "agent", everywhere),
        daemon_set("a-agents", "helper", json!({})),
        outside,
    ]
}

/// Makes the scene with the running version of Croft: nodes that are ready, and one launch whose answer never comes. Then
/// its processes are killed.
///
/// # Errors
/// If a pod doesn't run in time.
pub async fn make_scene(stack: &mut Stack) -> anyhow::Result<()> {
    let client = stack.plane.admin().await?;
    stack.plane.apply(&joined(&platform())).await?;
    for name in ["a", "b"] {
        condition_of::<croft_api::Tenant>(&client, name, READY, "True").await?;
    }
    stack.plane.apply(&joined(&workloads())).await?;
    running(&client, "a", 2).await?;
    running(&client, "a-agents", 2).await?;
    running(&client, "b", 1).await?;
    running(&client, "agents", 4).await?;
    until("the ready NodeClaims", EVENTUALLY, async || {
        let mut ready = 0;
        for pool in POOLS {
            ready += claims(&client, pool).await?.iter().filter(|claim| is_ready(claim)).count();
        }
        Ok::<_, kube::Error>(Seen::from_option((ready == 4).then_some(()), ready))
    })
    .await?;
    launch_without_answer(stack, &client).await?;
    stack.croft.kill(Part::Controller)?;
    stack.croft.kill(Part::Webhook)?;
    Ok(())
}

/// Starts a launch that the cloud carries out, and whose answer the controller never gets.
async fn launch_without_answer(stack: &mut Stack, client: &Client) -> anyhow::Result<()> {
    let [namespace, pool, tenant] = tenant("late", IN_FLIGHT_POOL, &pool("plain", &json!({})));
    stack.plane.apply(&joined(&[namespace, pool, tenant])).await?;
    condition_of::<croft_api::Tenant>(client, "late", READY, "True").await?;
    condition_of::<croft_api::TenantPool>(client, IN_FLIGHT_POOL, READY, "True").await?;
    let rules = json!([{"action": "CreateFleet", "latencyMs": NEVER_MS}]);
    stack.control(&json!({"do": "faults", "rules": rules})).await?;
    let cloud = stack.croft.address(Part::Cloud)?;
    let before = instances_of(cloud).await?.len();
    stack.plane.apply(&deployment("late", "web", 1, "500m", "256Mi").to_string()).await?;
    until("an instance without an answer", EVENTUALLY, async || {
        let launched = instances_of(cloud).await?.len().saturating_sub(before);
        let claims = claims(client, IN_FLIGHT_POOL).await?;
        let status = claims.first().and_then(|claim| claim.status.clone());
        let seen = format!("{launched} instances, {status:?}");
        let sent = status.is_some_and(|s| s.attempt.is_some() && s.provider_id.is_none());
        anyhow::Ok(Seen::from_option((sent && launched == 1).then_some(()), seen))
    })
    .await?;
    stack.control(&json!({"do": "faults", "rules": []})).await
}

/// Sets the replicas of the tenant's Deployment, and waits until its pods run.
///
/// # Errors
/// If they don't in time.
pub async fn scale(client: &Client, replicas: usize) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), "a");
    let patch = json!({"spec": {"replicas": replicas}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
    running(client, "a", replicas).await?;
    let all: Vec<NodeClaim> = claims(client, "pool-a").await?;
    anyhow::ensure!(all.len() == replicas, "{} NodeClaims for {replicas} pods", all.len());
    Ok(())
}
