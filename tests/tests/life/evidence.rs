//! Running instances aren't ended on wrong evidence: a lost tag, another account, a deleted Node.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use croft_api::NodeClaim;
use croft_testkit::{
    CroftOptions, Detour, Options, Part, Process, Recipe, http, ports,
    wait::{Seen, until},
};
use croft_tests::manifests::{budget, class, deployment, joined, on_demand, tenant};
use croft_tests::stack::{EVENTUALLY, Stack, claims, condition_of, event_about, node_of, nodes, running};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const TENANT: &str = "tenant-a";
const POOL: &str = "pool-a";
/// Number of calls after which a process that ends instances on an empty list would have done so.
const QUESTIONS: u64 = 40;

#[tokio::test]
async fn lost_tags_other_accounts_and_deleted_nodes_end_no_running_pod() {
    let croft = CroftOptions::find()
        .unwrap()
        .flag(Part::Controller, "--orphans-every=1s")
        .flag(Part::Controller, "--orphan-grace=3s");
    let mut stack = Stack::start_with(Options::default(), croft).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let pool = on_demand(&["m5.large"], json!({"consolidateAfter": "Never"}));
    let [namespace, pool, tenant] = tenant(TENANT, POOL, &pool);
    // Each pod fills an instance, and none may be evicted.
    let web = deployment(TENANT, "web", 2, "1500m", "256Mi");
    let documents = [class("default"), namespace, pool, tenant, web, budget(TENANT, "web", 2)];
    stack.plane.apply(&joined(&documents)).await.unwrap();
    running(&client, TENANT, 2).await.unwrap();

    tag_overwritten(&mut stack, &client).await;
    another_account(&mut stack, &client).await;
    node_deleted(&mut stack, &client).await;
    stack.check().unwrap();
}

fn instance_of(claim: &NodeClaim) -> String {
    let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Uids of everything that works: pods, claims, Nodes.
async fn working(client: &Client) -> BTreeSet<String> {
    let pods = running(client, TENANT, 2).await.unwrap().into_iter().filter_map(|pod| pod.uid());
    let claims = claims(client, POOL).await.unwrap();
    assert!(claims.iter().all(|claim| claim.metadata.deletion_timestamp.is_none()), "{claims:?}");
    let nodes = nodes(client).await.unwrap().into_values().filter_map(|node| node.uid());
    pods.chain(claims.iter().filter_map(kube::ResourceExt::uid)).chain(nodes).collect()
}

/// Another tool overwrites the cluster's tag: the claim reports it, and the tag is restored.
async fn tag_overwritten(stack: &mut Stack, client: &Client) {
    let before = working(client).await;
    let claim = claims(client, POOL).await.unwrap().remove(0);
    let tags = json!({"croft.dev/cluster": "another"});
    stack.control(&json!({"do": "tag", "instance": instance_of(&claim), "tags": tags})).await.unwrap();
    let said = event_about(client, "NodeClaim", &claim.name_any(), "TagOverwritten").await.unwrap();
    assert!(said.contains("has the tag croft.dev/cluster=another"), "{said}");
    condition_of::<NodeClaim>(client, &claim.name_any(), "InstanceTagged", "True").await.unwrap();
    let tagged = |m: &&Value| m["tags"]["croft.dev/cluster"] != json!("another");
    assert_eq!(stack.instances().await.unwrap().iter().filter(tagged).count(), 2);
    assert_eq!(working(client).await, before);
}

/// The controller starts with the credentials of another account, which has no instance.
async fn another_account(stack: &mut Stack, client: &Client) {
    let before = working(client).await;
    let (address, _elsewhere) = empty_account(stack);
    stack.croft.stop(Part::Controller, Duration::from_secs(20)).await.unwrap();
    stack.croft.detour(Part::Controller, Detour { cloud: Some(address), ..Detour::default() });
    stack.croft.launch(&stack.plane, Part::Controller).await.unwrap();
    until("the error that the account is another one", EVENTUALLY, async || {
        let log = stack.croft.process(Part::Controller).map(Process::output).transpose()?.unwrap_or_default();
        let told = log.contains("doesn't lead") && log.contains("identity.croft.dev/account-");
        anyhow::Ok(Seen::from_option(told.then_some(()), log))
    })
    .await
    .unwrap();
    assert_eq!(working(client).await, before);

    // An operator follows the last sentence alone: running pods are kept nevertheless.
    let annotations = ["identity.croft.dev/account-", "identity.croft.dev/region-"];
    let command = ["annotate", "namespace", "croft-system"].into_iter().chain(annotations);
    stack.plane.kubectl(command).await.unwrap();
    until("many questions to the other account", EVENTUALLY, async || {
        let state = state_of(address).await?;
        let asked = state["calls"]["ec2:DescribeInstances"].as_u64().unwrap_or(0);
        anyhow::Ok(Seen::from_option((asked >= QUESTIONS).then_some(()), state["calls"].to_string()))
    })
    .await
    .unwrap();
    assert_eq!(working(client).await, before);

    stack.croft.stop(Part::Controller, Duration::from_secs(20)).await.unwrap();
    stack.croft.detour(Part::Controller, Detour::default());
    let command = ["annotate", "namespace", "croft-system"].into_iter().chain(annotations);
    stack.plane.kubectl(command).await.unwrap();
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
    assert_eq!(working(client).await, before);
}

/// Instances of an ec2-sim, and its calls.
async fn state_of(cloud: SocketAddr) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&http::get(cloud, "/_control/state").await?.body)?)
}

/// A second ec2-sim: another account without an instance.
fn empty_account(stack: &Stack) -> (SocketAddr, Process) {
    let binaries = CroftOptions::find().unwrap().binaries;
    let port = ports::free().unwrap();
    let recipe =
        Recipe::new("ec2-sim-elsewhere", binaries.join("ec2-sim"), stack.plane.log("ec2-sim-elsewhere"))
            .arguments([format!("--listen=127.0.0.1:{port}"), "--account=111111111111".to_owned()]);
    (SocketAddr::from(([127, 0, 0, 1], port)), stack.plane.spawn(&recipe).unwrap())
}

/// `kubectl delete node` drains the node within the budgets of its pods, and then terminates its instance.
async fn node_deleted(stack: &mut Stack, client: &Client) {
    let pods = running(client, TENANT, 2).await.unwrap();
    let (pod, node) = (&pods[0], node_of(&pods[0]));
    let claim = claims(client, POOL).await.unwrap();
    let of_node = |c: &&NodeClaim| c.status.as_ref().and_then(|s| s.node_name.as_ref()) == Some(&node);
    let claim = claim.iter().find(of_node).unwrap().clone();
    stack.plane.kubectl(["delete", "node", node.as_str(), "--wait=false"]).await.unwrap();
    event_about(client, "NodeClaim", &claim.name_any(), "FailedDraining").await.unwrap();
    let still = running(client, TENANT, 2).await.unwrap();
    assert!(still.iter().any(|p| p.uid() == pod.uid() && node_of(p) == node), "the budget held the pod");
    let works = |m: &Value| m["id"] == json!(instance_of(&claim));
    assert!(stack.instances().await.unwrap().iter().any(works), "the instance works as long as the pod does");

    stack.plane.kubectl(["delete", "pdb", "--namespace", TENANT, "web"]).await.unwrap();
    let cloud = stack.croft.address(Part::Cloud).unwrap();
    until("the Node and its instance gone", EVENTUALLY, async || {
        let (nodes, state) = (nodes(client).await?, state_of(cloud).await?);
        let lives = |m: &Value| works(m) && matches!(m["state"].as_str(), Some("pending" | "running"));
        let gone = !nodes.contains_key(&node) && !state["instances"].as_array().unwrap().iter().any(lives);
        anyhow::Ok(Seen::from_option(gone.then_some(()), format!("{:?}", nodes.keys())))
    })
    .await
    .unwrap();
    let after = running(client, TENANT, 2).await.unwrap();
    assert!(after.iter().all(|p| p.uid() != pod.uid()));
}
