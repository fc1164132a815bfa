//! Drains and replacements with failures.

use std::collections::BTreeSet;

use croft_api::NodeClaim;
use croft_testkit::{
    CroftOptions, Options, Part,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{budget, class, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, event_about, is_ready, node_of, nodes, pods, running},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// Three pods, each of which fills an instance.
fn platform() -> String {
    let pool = on_demand(&["m5.large"], json!({"consolidateAfter": "1s"}));
    let [namespace, pool, tenant] = tenant("tenant-a", "pool-a", &pool);
    joined(&[class("default"), namespace, pool, tenant, deployment("tenant-a", "web", 3, "1500m", "256Mi")])
}

/// Allows no eviction.
fn guard() -> String {
    budget("tenant-a", "web", 3).to_string()
}

fn name_of_instance(claim: &NodeClaim) -> String {
    let id = claim.status.as_ref().and_then(|s| s.provider_id.clone()).unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

fn on<'a>(pods: &'a [Pod], claim: &NodeClaim) -> &'a Pod {
    let node = claim.status.as_ref().and_then(|s| s.node_name.clone()).unwrap();
    pods.iter().find(|pod| node_of(pod) == node).unwrap()
}

/// Deletes a claim, and waits until its node is cordoned and the budget blocks its pod.
async fn begin_drain(stack: &Stack, client: &Client, claim: &NodeClaim) {
    let name = claim.name_any();
    stack.plane.kubectl(["delete", "nodeclaim", &name, "--wait=false"]).await.unwrap();
    let node = claim.status.as_ref().and_then(|s| s.node_name.clone()).unwrap();
    until("the node to be cordoned", EVENTUALLY, async || {
        let all = nodes(client).await?;
        let closed = all[&node].spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
        Ok::<_, kube::Error>(Seen::from_option(closed.then_some(()), "it is open".to_owned()))
    })
    .await
    .unwrap();
    let said = event_about(client, "NodeClaim", &name, "FailedDraining").await.unwrap();
    assert!(said.contains("web"), "{said}");
}

/// Waits until three pods run on three instances without `gone`, and the cloud has no other instance.
async fn settled(stack: &mut Stack, client: &Client, gone: &NodeClaim) {
    let name = gone.name_any();
    until("three pods on three instances", EVENTUALLY, async || {
        let (claims, pods) = (claims(client, "pool-a").await?, pods(client, "tenant-a").await?);
        let homes: BTreeSet<String> = pods.iter().map(node_of).collect();
        let run =
            pods.iter().filter(|p| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"));
        let done = run.count() == 3
            && pods.len() == 3
            && homes.len() == 3
            && claims.len() == 3
            && claims.iter().all(|c| is_ready(c) && c.name_any() != name);
        let seen = format!("{:?} on {homes:?}", claims.iter().map(|c| c.name_any()).collect::<Vec<_>>());
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), seen))
    })
    .await
    .unwrap();
    let held: BTreeSet<String> =
        claims(client, "pool-a").await.unwrap().iter().map(name_of_instance).collect();
    let instances = stack.instances().await.unwrap();
    let there: BTreeSet<String> = instances.iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(there, held);
}

#[tokio::test]
async fn drain_continues_after_loss_of_controller_pod_or_instance() {
    // Intervals of minutes are shortened to seconds.
    let croft = CroftOptions::find()
        .unwrap()
        .flag(Part::Controller, "--orphans-every=2s")
        .flag(Part::Controller, "--orphan-grace=3s");
    let mut stack = Stack::start_with(Options::default(), croft).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    let all = running(&client, "tenant-a", 3).await.unwrap();
    stack.plane.apply(&guard()).await.unwrap();
    let mut first = claims(&client, "pool-a").await.unwrap();
    assert_eq!(first.len(), 3);

    // The controller is killed during a drain, and the next one continues it, within the budget.
    let drained = first.remove(0);
    let held = on(&all, &drained).clone();
    begin_drain(&stack, &client, &drained).await;
    stack.croft.kill(Part::Controller).unwrap();
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
    let still = pods(&client, "tenant-a").await.unwrap();
    assert!(still.iter().any(|p| p.uid() == held.uid()), "the pod was evicted against its budget");
    stack.plane.kubectl(["delete", "poddisruptionbudget", "-n", "tenant-a", "web"]).await.unwrap();
    settled(&mut stack, &client, &drained).await;

    // A user deletes the pod that blocks a drain; its successor runs elsewhere.
    stack.plane.apply(&guard()).await.unwrap();
    let all = pods(&client, "tenant-a").await.unwrap();
    let drained = claims(&client, "pool-a").await.unwrap().remove(0);
    begin_drain(&stack, &client, &drained).await;
    let name = on(&all, &drained).name_any();
    stack.plane.kubectl(["delete", "pod", "-n", "tenant-a", &name, "--wait=false"]).await.unwrap();
    settled(&mut stack, &client, &drained).await;

    // The instance terminates during a drain: the budget doesn't hold for ended pods.
    let drained = claims(&client, "pool-a").await.unwrap().remove(0);
    begin_drain(&stack, &client, &drained).await;
    stack.control(&json!({"do": "end", "instance": name_of_instance(&drained)})).await.unwrap();
    settled(&mut stack, &client, &drained).await;
    stack.check().unwrap();
}

#[tokio::test]
async fn failed_replacement_is_rolled_back() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    let before = running(&client, "tenant-a", 3).await.unwrap();
    let old = claims(&client, "pool-a").await.unwrap();
    let none: Value = json!({"do": "capacity", "rules": [{"count": 0}]});
    stack.control(&none).await.unwrap();
    let patch = r#"{"spec":{"disruption":{"budgets":[{"nodes":"1"}]},
        "template":{"metadata":{"labels":{"team":"blue"}}}}}"#;
    stack.plane.kubectl(["patch", "tenantpool", "pool-a", "--type=merge", "-p", patch]).await.unwrap();
    let failed = until("a disruption that is rolled back", EVENTUALLY, async || {
        let said = croft_tests::stack::events(&client).await?;
        let failed = said.iter().find(|(_, reason, _)| reason == "DisruptionFailed").cloned();
        Ok::<_, kube::Error>(Seen::from_option(failed, format!("{said:?}")))
    })
    .await
    .unwrap();
    let (claim, _, note) = &failed;
    assert!(old.iter().any(|c| c.name_any() == *claim) && note.contains("wasn't launched"), "{failed:?}");
    // The replacement is removed, and the former state is restored.
    until("the old claims alone", EVENTUALLY, async || {
        let now: BTreeSet<_> = claims(&client, "pool-a").await?.iter().map(|c| c.uid()).collect();
        let done = now == old.iter().map(|c| c.uid()).collect();
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), format!("{now:?}")))
    })
    .await
    .unwrap();
    let closed =
        |n: &k8s_openapi::api::core::v1::Node| n.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
    assert!(!nodes(&client).await.unwrap().values().any(closed));
    let ids = |pods: &[Pod]| pods.iter().map(|p| (p.uid(), node_of(p))).collect::<BTreeSet<_>>();
    assert_eq!(ids(&pods(&client, "tenant-a").await.unwrap()), ids(&before));
    stack.check().unwrap();
}
