//! One tenant is created and removed during failures; another one is unaffected.

use std::collections::BTreeSet;

use croft_testkit::{
    Part,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{self, class, deployment, joined, on_demand},
    stack::{EVENTUALLY, Stack, claims, is_ready, node_of, nodes, pods, running},
};
use kube::{Client, ResourceExt as _};
use serde_json::json;

const TIMES: usize = 10;

/// A tenant whose nodes would be consolidated at once if anything were wrong with them.
fn tenant(name: &str, replicas: usize) -> String {
    let (name, pool) = (format!("tenant-{name}"), format!("pool-{name}"));
    let disruption = json!({"consolidateAfter": "1s", "minSavings": "0", "budgets": [{"nodes": "100%"}]});
    let spec = on_demand(&["m5.large", "c5.large", "m5.xlarge"], disruption);
    let tenant = manifests::tenant(&name, &pool, &spec);
    joined(tenant.iter().chain([&deployment(&name, "web", replicas, "700m", "512Mi")]))
}

/// State of tenant b that could be affected: pods with their nodes, nodes with labels and taints, claims.
async fn neighbour(client: &Client) -> kube::Result<BTreeSet<String>> {
    let mut seen = BTreeSet::new();
    for pod in pods(client, "tenant-b").await? {
        seen.insert(format!("pod {} {:?} on {}", pod.name_any(), pod.uid(), node_of(&pod)));
    }
    for (name, node) in nodes(client).await? {
        if node.labels().get("node-restriction.kubernetes.io/pool").is_some_and(|pool| pool == "pool-b") {
            let spec = node.spec.clone().unwrap_or_default();
            seen.insert(format!(
                "node {name} {:?} {:?} {:?} {:?}",
                node.uid(),
                node.labels(),
                spec.taints,
                spec.unschedulable
            ));
        }
    }
    for claim in claims(client, "pool-b").await? {
        let meta = &claim.metadata;
        seen.insert(format!(
            "claim {} {:?} {:?} {:?}",
            claim.name_any(),
            meta.uid,
            meta.deletion_timestamp,
            meta.annotations
        ));
    }
    Ok(seen)
}

#[tokio::test]
async fn ten_scale_cycles_do_not_affect_another_tenant() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&class("default").to_string()).await.unwrap();
    // An instance type without a cheaper alternative, so that nothing is consolidated.
    stack.plane.apply(&tenant("b", 2)).await.unwrap();
    running(&client, "tenant-b", 2).await.unwrap();
    until("its instance to be ready", EVENTUALLY, async || {
        let claims = claims(&client, "pool-b").await?;
        let ready = !claims.is_empty() && claims.iter().all(is_ready);
        Ok::<_, kube::Error>(Seen::from_option(ready.then_some(()), format!("{} claims", claims.len())))
    })
    .await
    .unwrap();
    stack.plane.apply(&tenant("a", 0)).await.unwrap();
    let before = neighbour(&client).await.unwrap();
    assert!(before.len() >= 4, "{before:?}");
    let faults = json!({"do": "faults", "rules": [
        {"action": "CreateFleet", "error": "InternalError", "permille": 100},
        {"action": "CreateFleet", "cut": "after", "permille": 100},
        {"action": "TerminateInstances", "error": "RequestLimitExceeded", "permille": 200},
        {"action": "DescribeInstances", "cut": "before", "permille": 100},
    ]});
    stack.control(&faults).await.unwrap();
    for round in 0..TIMES {
        stack.plane.kubectl(["scale", "-n", "tenant-a", "deployment/web", "--replicas=5"]).await.unwrap();
        if round == TIMES / 2 {
            stack.croft.kill(Part::Controller).unwrap();
            stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
        }
        running(&client, "tenant-a", 5).await.unwrap();
        assert_eq!(neighbour(&client).await.unwrap(), before, "round {round}, up");
        stack.plane.kubectl(["scale", "-n", "tenant-a", "deployment/web", "--replicas=0"]).await.unwrap();
        until("tenant a without pods", EVENTUALLY, async || {
            let left = pods(&client, "tenant-a").await?.len();
            Ok::<_, kube::Error>(Seen::from_option((left == 0).then_some(()), format!("{left} pods")))
        })
        .await
        .unwrap();
        assert_eq!(neighbour(&client).await.unwrap(), before, "round {round}, down");
    }
    stack.control(&json!({"do": "faults", "rules": []})).await.unwrap();
    until("tenant a without nodes", EVENTUALLY, async || {
        let left: Vec<String> = claims(&client, "pool-a").await?.iter().map(|c| c.name_any()).collect();
        Ok::<_, kube::Error>(Seen::from_option(left.is_empty().then_some(()), format!("{left:?}")))
    })
    .await
    .unwrap();
    assert_eq!(neighbour(&client).await.unwrap(), before);
    let own = claims(&client, "pool-b").await.unwrap().len();
    assert_eq!(stack.instances().await.unwrap().len(), own);
    stack.check().unwrap();
}
