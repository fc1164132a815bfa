//! Bounds of the cost: limits over the whole cluster, and launches whose node never registers.

use std::cell::Cell;

use croft_api::{CroftConfig, Tenant, TenantPool};
use croft_testkit::{
    CroftOptions, Options, Part, http,
    wait::{Seen, until},
};
use croft_tests::{
    cli::croft,
    manifests::{class, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, condition_of, pods, running},
};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// Launches without a node that a pool may have in an hour.
const ROUNDS: usize = 4;

fn config(limits: &Value) -> String {
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
        "spec": {"limits": limits}})
    .to_string()
}

fn platform() -> String {
    let pool = || on_demand(&["m5.large"], json!({"consolidateAfter": "Never"}));
    let mut documents = vec![class("default")];
    for name in ["tenant-a", "tenant-b", "tenant-c"] {
        documents.extend(tenant(name, name, &pool()));
    }
    joined(&documents)
}

/// Number of instances ever launched for a pool.
async fn launched(stack: &mut Stack, pool: &str) -> usize {
    let state = http::get(stack.croft.address(Part::Cloud).unwrap(), "/_control/state").await.unwrap();
    let state: Value = serde_json::from_str(&state.body).unwrap();
    let instances = state["instances"].as_array().cloned().unwrap_or_default();
    instances.iter().filter(|instance| instance["tags"]["croft.dev/pool"] == json!(pool)).count()
}

#[tokio::test]
async fn limits_and_backoff_bound_the_cost() {
    let croft = CroftOptions::find()
        .unwrap()
        .flag(Part::Controller, "--registration-timeout=4s")
        .flag(Part::Controller, "--launch-backoff=1s")
        .flag(Part::Controller, format!("--unregistered-launches-per-hour={ROUNDS}"));
    let mut stack = Stack::start_with(Options::default(), croft).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    cluster_limits_hold_over_all_pools(&stack, &client).await;
    what_has_no_limit_says_so(&stack, &client).await;
    launches_without_a_node_are_bounded(&mut stack, &client).await;
    stack.check().unwrap();
}

async fn cluster_limits_hold_over_all_pools(stack: &Stack, client: &Client) {
    let refused = stack.plane.apply(&config(&json!({"nodes": -1}))).await.unwrap_err().to_string();
    assert!(refused.contains("write amounts that aren't negative"), "{refused}");
    stack.plane.apply(&config(&json!({"nodes": 1, "costPerHour": "25"}))).await.unwrap();
    condition_of::<CroftConfig>(client, "default", "LimitsReached", "False").await.unwrap();
    let both = [
        deployment("tenant-a", "web", 1, "1500m", "256Mi"),
        deployment("tenant-b", "web", 1, "1500m", "256Mi"),
    ];
    stack.plane.apply(&joined(&both)).await.unwrap();
    let reached = condition_of::<CroftConfig>(client, "default", "LimitsReached", "True").await.unwrap();
    assert!(reached.message.contains("nodes 1 of 1"), "{}", reached.message);
    until("one pod that runs and one that is told why it waits", EVENTUALLY, async || {
        let mut made = 0;
        for tenant in ["tenant-a", "tenant-b"] {
            made += claims(client, tenant).await?.len();
        }
        assert!(made <= 1, "{made} nodes under a limit of one");
        let said = croft_tests::stack::events(client).await?;
        let told = said.iter().any(|(_, reason, note)| {
            reason == "ClusterLimit" && note.contains("the limits of the cluster (nodes 1)")
        });
        Ok::<_, kube::Error>(Seen::from_option((told && made == 1).then_some(()), format!("{made} {said:?}")))
    })
    .await
    .unwrap();
    stack.plane.apply(&config(&json!({"nodes": 10, "costPerHour": "25"}))).await.unwrap();
    for tenant in ["tenant-a", "tenant-b"] {
        running(client, tenant, 1).await.unwrap();
    }
    condition_of::<CroftConfig>(client, "default", "LimitsReached", "False").await.unwrap();
    condition_of::<CroftConfig>(client, "default", "Ready", "True").await.unwrap();
}

async fn what_has_no_limit_says_so(stack: &Stack, client: &Client) {
    let said = condition_of::<TenantPool>(client, "tenant-a", "Unlimited", "True").await.unwrap();
    assert!(said.message.contains("set spec.limits"), "{}", said.message);
    condition_of::<Tenant>(client, "tenant-a", "Unlimited", "True").await.unwrap();
    condition_of::<Tenant>(client, "tenant-a", "Ready", "True").await.unwrap();
    until("a check that warns of the limits alone", EVENTUALLY, async || {
        let (code, text) = croft(&stack.plane, "check").await?;
        let warns = text.contains("warn  limits: no limit bounds the cost of the nodes of Tenant tenant-a");
        anyhow::Ok(Seen::from_option((code == 0 && warns).then_some(()), text))
    })
    .await
    .unwrap();
    for name in ["tenant-a", "tenant-b", "tenant-c"] {
        let patch = r#"{"spec":{"limits":{"nodes":10}}}"#;
        stack.plane.kubectl(["patch", "tenant", name, "--type=merge", "-p", patch]).await.unwrap();
        condition_of::<Tenant>(client, name, "Unlimited", "False").await.unwrap();
        condition_of::<TenantPool>(client, name, "Unlimited", "False").await.unwrap();
    }
    let (_, text) = croft(&stack.plane, "check").await.unwrap();
    assert!(text.contains("ok    limits"), "{text}");
}

/// The status that counts the launches of the pool.
async fn backoff(client: &Client, pool: &str) -> Value {
    let pool = Api::<TenantPool>::all(client.clone()).get(pool).await.unwrap();
    json!(pool.status.and_then(|status| status.launch_backoff))
}

async fn launches_without_a_node_are_bounded(stack: &mut Stack, client: &Client) {
    stack.control(&json!({"do": "boots", "works": false})).await.unwrap();
    stack.plane.apply(&deployment("tenant-c", "web", 1, "1500m", "256Mi").to_string()).await.unwrap();
    let said =
        condition_of::<TenantPool>(client, "tenant-c", "NodeRegistrationHealthy", "False").await.unwrap();
    assert!(said.message.contains("no node registered"), "{}", said.message);
    assert_eq!(said.reason, "NodesNotRegistering");
    let counted = Cell::new(0);
    until("as many rounds as an hour has", EVENTUALLY, async || {
        let backoff = backoff(client, "tenant-c").await;
        let rounds = backoff["templates"][0]["rounds"].as_u64().unwrap_or(0);
        // The count must survive the pods. In between they stay, since a node that no pod waits for isn't launched.
        if rounds > counted.replace(rounds) {
            let all: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "tenant-c");
            for pod in pods(client, "tenant-c").await? {
                let _ = all.delete(&pod.name_any(), &kube::api::DeleteParams::default()).await;
            }
        }
        Ok::<_, kube::Error>(Seen::from_option((rounds >= ROUNDS as u64).then_some(()), backoff.to_string()))
    })
    .await
    .unwrap();
    assert_eq!(launched(stack, "tenant-c").await, ROUNDS);
    // It must survive the process.
    stack.croft.kill(Part::Controller).unwrap();
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
    stack.control(&json!({"do": "boots", "works": true})).await.unwrap();
    let others = deployment("tenant-a", "more", 1, "1500m", "256Mi").to_string();
    stack.plane.apply(&others).await.unwrap();
    running(client, "tenant-a", 2).await.unwrap();
    assert_eq!(launched(stack, "tenant-c").await, ROUNDS, "the pool launches nothing before the next hour");
    println!("wallet: launches={ROUNDS} rounds_per_hour={ROUNDS}");
    // An edit ends the backoff.
    let patch = r#"{"spec":{"weight":1}}"#;
    stack.plane.kubectl(["patch", "tenantpool", "tenant-c", "--type=merge", "-p", patch]).await.unwrap();
    running(client, "tenant-c", 1).await.unwrap();
    until("nothing that is held back", EVENTUALLY, async || {
        let backoff = backoff(client, "tenant-c").await;
        Ok::<_, kube::Error>(Seen::from_option(backoff.is_null().then_some(()), backoff.to_string()))
    })
    .await
    .unwrap();
}
