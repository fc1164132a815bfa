//! Drifted nodes are replaced within the budget, each replacement before its node.

use std::collections::BTreeSet;

use croft_api::condition::{DRIFTED, is_true};
use croft_testkit::wait::{Seen, until};
use croft_tests::manifests::{class, deployment, joined, on_demand, tenant};
use croft_tests::stack::{
    EVENTUALLY, Stack, claims, event_about, events, is_ready, label, nodes, pods, running,
};
use kube::ResourceExt as _;
use serde_json::json;

fn platform() -> String {
    let pool = on_demand(&["m5.large"], json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}));
    let [namespace, pool, tenant] = tenant("tenant-a", "pool-a", &pool);
    joined(&[class("default"), namespace, pool, tenant, deployment("tenant-a", "web", 2, "1500m", "256Mi")])
}

#[tokio::test]
async fn changed_template_replaces_nodes_one_by_one() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    running(&client, "tenant-a", 2).await.unwrap();
    let old: BTreeSet<_> = claims(&client, "pool-a").await.unwrap().iter().map(|c| c.uid()).collect();
    assert_eq!(old.len(), 2);
    // A change that gives equal instances replaces nothing.
    let harmless = r#"{"spec":{"limits":{"cpu":100},"template":{"spec":{"terminationGracePeriod":"1h"}}}}"#;
    stack.plane.kubectl(["patch", "tenantpool", "pool-a", "--type=merge", "-p", harmless]).await.unwrap();

    let patch = r#"{"spec":{"template":{"metadata":{"labels":{"team":"blue"}}}}}"#;
    stack.plane.kubectl(["patch", "tenantpool", "pool-a", "--type=merge", "-p", patch]).await.unwrap();
    let first_drifted = std::cell::RefCell::new(None);
    until("two new nodes", EVENTUALLY, async || {
        let claims = claims(&client, "pool-a").await?;
        let drifted =
            |c: &&croft_api::NodeClaim| c.status.as_ref().is_some_and(|s| is_true(&s.conditions, DRIFTED));
        if first_drifted.borrow().is_none() {
            *first_drifted.borrow_mut() = claims.iter().find(drifted).map(|c| c.name_any());
        }
        let going = claims.iter().filter(|c| c.metadata.deletion_timestamp.is_some()).count();
        let fresh = claims.iter().filter(|c| !old.contains(&c.uid())).collect::<Vec<_>>();
        let left = claims.len() - fresh.len();
        assert!(going <= 1, "{going} nodes go at once, and the budget is one");
        // For every old node that is removed or being removed, a new one is Ready.
        let ready = fresh.iter().filter(|c| is_ready(c)).count();
        assert!(ready + left >= 2 + going, "{ready} ready for {left} left, {going} of them going");
        let pods = pods(&client, "tenant-a").await?;
        let running =
            pods.iter().filter(|p| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"));
        let done = left == 0 && fresh.len() == 2 && running.count() == 2;
        Ok::<_, kube::Error>(Seen::from_option(
            done.then_some(()),
            format!("{left} old, {} new", fresh.len()),
        ))
    })
    .await
    .unwrap();
    let all = nodes(&client).await.unwrap();
    assert!(all.len() == 2 && all.values().all(|n| label(n, "team") == "blue"), "{:?}", all.keys());
    let note = event_about(&client, "NodeClaim", &first_drifted.into_inner().unwrap(), "DisruptionStarted")
        .await
        .unwrap();
    assert!(note.contains("Drifted: pool.labels changed since its launch"), "{note}");
    stack.check().unwrap();
}

#[tokio::test]
async fn drifted_nodes_are_kept_while_a_budget_window_is_open() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    running(&client, "tenant-a", 2).await.unwrap();
    let old: BTreeSet<_> = claims(&client, "pool-a").await.unwrap().iter().map(|c| c.uid()).collect();
    let patch = r#"{"spec":{"disruption":{"budgets":[{"nodes":"1"},
        {"nodes":"0","schedule":"* * * * *","duration":"1h","reasons":["Drifted"]}]},
        "template":{"metadata":{"labels":{"team":"blue"}}}}}"#;
    stack.plane.kubectl(["patch", "tenantpool", "pool-a", "--type=merge", "-p", patch]).await.unwrap();
    until("two drifted claims", EVENTUALLY, async || {
        let claims = claims(&client, "pool-a").await?;
        let drifted =
            claims.iter().filter(|c| c.status.as_ref().is_some_and(|s| is_true(&s.conditions, DRIFTED)));
        let count = drifted.count();
        Ok::<_, kube::Error>(Seen::from_option((count == 2).then_some(()), format!("{count} drifted")))
    })
    .await
    .unwrap();
    let held = claims(&client, "pool-a").await.unwrap();
    assert!(
        held.iter().all(|claim| old.contains(&claim.uid()) && claim.metadata.deletion_timestamp.is_none())
    );
    let patch = r#"{"spec":{"disruption":{"budgets":[{"nodes":"1"}]}}}"#;
    stack.plane.kubectl(["patch", "tenantpool", "pool-a", "--type=merge", "-p", patch]).await.unwrap();
    until("the end of an old node", EVENTUALLY, async || {
        let left: Vec<_> = claims(&client, "pool-a")
            .await?
            .iter()
            .filter(|c| old.contains(&c.uid()))
            .map(|c| c.name_any())
            .collect();
        Ok::<_, kube::Error>(Seen::from_option((left.len() < 2).then_some(()), format!("{left:?}")))
    })
    .await
    .unwrap();
    let said = events(&client).await.unwrap();
    let moves: Vec<_> =
        said.iter().filter(|(_, reason, _)| reason == "DisruptionStarted").map(|(_, _, note)| note).collect();
    assert!(!moves.is_empty() && moves.iter().all(|note| note.starts_with("Drifted: ")), "{moves:?}");
    running(&client, "tenant-a", 2).await.unwrap();
    stack.check().unwrap();
}
