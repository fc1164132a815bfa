//! Consolidation of underutilised nodes on the lab, with real budgets and real evictions.

use std::collections::BTreeSet;

use croft_api::NodeClaim;
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::{budget, class, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, is_ready, label, node_of, nodes, pods, running},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};
use serde_json::json;

const TYPE: &str = "node.kubernetes.io/instance-type";

fn platform() -> String {
    let disruption = json!({"consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]});
    let tenant = tenant("tenant-a", "pool-a", &on_demand(&["m5.large", "m5.xlarge"], disruption));
    joined([class("default")].iter().chain(&tenant))
}

/// `large` keeps four nodes of four processors; `small` has one pod on each of them.
fn workloads() -> String {
    let mut large = deployment("tenant-a", "large", 4, "2500m", "256Mi");
    large["spec"]["template"]["spec"]["affinity"] = json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector": {"matchLabels": {"app": "large"}}, "topologyKey": "kubernetes.io/hostname"}]
    }});
    let mut small = deployment("tenant-a", "small", 4, "400m", "256Mi");
    small["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "small"}},
    }]);
    joined(&[large, small, budget("tenant-a", "small", 3)])
}

fn is_up(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

async fn smalls(client: &Client) -> kube::Result<Vec<Pod>> {
    Ok(pods(client, "tenant-a").await?.into_iter().filter(|p| label(p, "app") == "small").collect())
}

/// The budget holds at every check.
async fn look(client: &Client) -> kube::Result<(Vec<NodeClaim>, Vec<Pod>)> {
    let (claims, pods) = (claims(client, "pool-a").await?, smalls(client).await?);
    let up = pods.iter().filter(|p| is_up(p)).count();
    assert!(up >= 3, "{up} pods are up, and the budget asks for 3");
    Ok((claims, pods))
}

fn type_of(claim: &NodeClaim) -> String {
    claim.status.as_ref().and_then(|s| s.instance_type.clone()).unwrap_or_default()
}

#[tokio::test]
async fn consolidation_respects_budgets_and_do_not_disrupt() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    stack.plane.apply(&workloads()).await.unwrap();
    let all = running(&client, "tenant-a", 8).await.unwrap();
    let homes: BTreeSet<String> = all.iter().map(node_of).collect();
    assert!(homes.len() >= 4, "{homes:?}");
    let kept = all.iter().find(|p| label(*p, "app") == "small").unwrap().clone();
    let mark = format!("pod/{}", kept.name_any());
    stack
        .plane
        .kubectl(["annotate", "-n", "tenant-a", &mark, "croft.dev/do-not-disrupt=true"])
        .await
        .unwrap();

    stack.plane.kubectl(["scale", "-n", "tenant-a", "deployment/large", "--replicas=0"]).await.unwrap();
    until("one node, the marked pod's", EVENTUALLY, async || {
        let (claims, pods) = look(&client).await?;
        let seen = format!("{:?}", claims.iter().map(|c| (c.name_any(), type_of(c))).collect::<Vec<_>>());
        let done = claims.len() == 1
            && pods.len() == 4
            && pods.iter().all(|p| is_up(p) && node_of(p) == node_of(&kept));
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), seen))
    })
    .await
    .unwrap();
    let stayed = smalls(&client).await.unwrap().into_iter().any(|p| p.uid() == kept.uid());
    assert!(stayed, "the marked pod was moved");

    // Without the annotation it moves to a smaller instance, but only once that is Ready.
    let old = claims(&client, "pool-a").await.unwrap().remove(0);
    stack.plane.kubectl(["annotate", "-n", "tenant-a", &mark, "croft.dev/do-not-disrupt-"]).await.unwrap();
    until("a smaller instance", EVENTUALLY, async || {
        let (claims, pods) = look(&client).await?;
        let seen = format!("{:?}", claims.iter().map(|c| (c.name_any(), type_of(c))).collect::<Vec<_>>());
        let there = claims.iter().find(|c| c.uid() == old.uid());
        if there.is_none_or(|c| c.metadata.deletion_timestamp.is_some()) {
            let ready = claims.iter().any(|c| c.uid() != old.uid() && is_ready(c));
            assert!(ready, "the old node goes, and nothing is ready in its place: {seen}");
        }
        let done = claims.len() == 1
            && there.is_none()
            && type_of(&claims[0]) == "m5.large"
            && pods.len() == 4
            && pods.iter().all(is_up);
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), seen))
    })
    .await
    .unwrap();
    let left = nodes(&client).await.unwrap();
    let types: Vec<String> = left.values().map(|node| label(node, TYPE)).collect();
    assert_eq!(types, ["m5.large"]);
    stack.check().unwrap();
}
