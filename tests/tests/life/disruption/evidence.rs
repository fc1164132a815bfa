//! Apparent reasons to end pods and nodes that are none: a look-up that finds nothing for a while, a Tenant that is
//! deleted and created again, a label removed by hand, a Job whose namespace joins a tenant.

use std::{collections::BTreeSet, time::Duration};

use croft_api::{EC2NodeClass, Tenant};
use croft_testkit::{
    Part,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{class, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, condition_of, event_about, label, node_of, nodes, pods, running},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// Time in which nothing may happen: drift is evaluated every 5 seconds, and pods are evicted within one.
const QUIET: Duration = Duration::from_secs(12);
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const RECREATE: &str = "{apiVersion: croft.dev/v1alpha1, kind: CroftConfig, metadata: {name: default}, spec: {misplaced: Recreate}}";

/// Three pods, each of which fills an instance, and a second tenant, so that one exists while the first is missing.
fn platform() -> String {
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
    let pool = on_demand(&["m5.large"], disruption);
    let mut documents = vec![class("default")];
    documents.extend(tenant("tenant-a", "pool-a", &pool));
    documents.extend(tenant("tenant-z", "pool-z", &pool));
    documents.push(deployment("tenant-a", "web", 3, "1500m", "256Mi"));
    joined(&documents)
}

/// Uids of the pods and claims that must be kept.
#[derive(Debug, PartialEq, Eq)]
struct Working {
    pods: BTreeSet<String>,
    claims: BTreeSet<String>,
}

impl Working {
    async fn of(client: &Client) -> kube::Result<Self> {
        let pods = pods(client, "tenant-a").await?.iter().filter_map(|pod| pod.uid()).collect();
        let claims = claims(client, "pool-a").await?.iter().filter_map(|claim| claim.uid()).collect();
        Ok(Self { pods, claims })
    }

    /// Watches for a while: none of them ends, and no replacement is launched.
    async fn stay(&self, client: &Client, case: &str) {
        let until = tokio::time::Instant::now() + QUIET;
        while tokio::time::Instant::now() < until {
            assert_eq!(Self::of(client).await.unwrap(), *self, "{case}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

#[tokio::test]
async fn no_running_pod_or_node_ends_on_wrong_evidence() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    running(&client, "tenant-a", 3).await.unwrap();
    let working = Working::of(&client).await.unwrap();
    assert_eq!((working.pods.len(), working.claims.len()), (3, 3));

    a_label_removed_by_hand_is_put_back(&stack, &client, &working).await;
    a_tenant_that_is_created_again_keeps_its_pods(&stack, &client, &working).await;
    a_job_is_left_to_its_owner(&stack, &client).await;
    a_look_up_that_finds_nothing_replaces_nothing(&mut stack, &client, &working).await;
    stack.check().unwrap();
}

async fn a_label_removed_by_hand_is_put_back(stack: &Stack, client: &Client, working: &Working) {
    let claim = claims(client, "pool-a").await.unwrap().remove(0);
    let node = claim.status.as_ref().and_then(|status| status.node_name.clone()).unwrap();
    stack.plane.kubectl(["label", "node", &node, &format!("{CAPACITY_TYPE}-")]).await.unwrap();
    event_about(client, "NodeClaim", &claim.name_any(), "LabelsRestored").await.unwrap();
    until("the label to be back", EVENTUALLY, async || {
        let value = label(&nodes(client).await?[&node], CAPACITY_TYPE);
        Ok::<_, kube::Error>(Seen::from_option((value == "on-demand").then_some(()), value))
    })
    .await
    .unwrap();
    working.stay(client, "a label was removed by hand").await;
}

/// The pools in the namespace's annotation.
async fn until_marked(client: &Client, namespace: &str, pool: Option<&str>) {
    let api: Api<Namespace> = Api::all(client.clone());
    until("the namespace's mark", EVENTUALLY, async || {
        let annotations = api.get(namespace).await?.metadata.annotations.unwrap_or_default();
        let mark = annotations.get("policy.croft.dev/pools").cloned().unwrap_or_default();
        let right = pool.map_or(!mark.contains("pool-a"), |pool| mark.contains(pool));
        Ok::<_, kube::Error>(Seen::from_option(right.then_some(()), mark))
    })
    .await
    .unwrap();
}

async fn a_tenant_that_is_created_again_keeps_its_pods(stack: &Stack, client: &Client, working: &Working) {
    stack.plane.apply(RECREATE).await.unwrap();
    let tenant = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "tenant-a"},
        "spec": {"namespaces": ["tenant-a"], "pools": ["pool-a"]},
    });
    let text = tenant.to_string();
    stack.plane.kubectl_with(["replace", "--force", "-f", "-"], &text).await.unwrap();
    condition_of::<Tenant>(client, "tenant-a", "Ready", "True").await.unwrap();
    working.stay(client, "the Tenant was replaced by force").await;
    // Deleted, so that the controller sees it, and only then created again.
    stack.plane.kubectl(["delete", "tenant", "tenant-a"]).await.unwrap();
    until_marked(client, "tenant-a", None).await;
    working.stay(client, "the Tenant is missing").await;
    stack.plane.apply(&text).await.unwrap();
    until_marked(client, "tenant-a", Some("pool-a")).await;
    condition_of::<Tenant>(client, "tenant-a", "Isolated", "True").await.unwrap();
    working.stay(client, "the Tenant is back").await;
}

async fn a_job_is_left_to_its_owner(stack: &Stack, client: &Client) {
    // Pending pods: no node accepts pods of a namespace without a tenant.
    let template = |restart: &str| {
        json!({"metadata": {"labels": {"app": "w"}}, "spec": {"restartPolicy": restart, "containers": [{
            "name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "100m"}}}]}})
    };
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate", "namespace": "joins"},
        "spec": {"backoffLimit": 0, "template": template("Never")}});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "joins"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": template("Always")}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "joins"}});
    stack.plane.apply(&joined(&[namespace, job, web])).await.unwrap();
    until("two waiting pods", EVENTUALLY, async || {
        let count = pods(client, "joins").await?.len();
        Ok::<_, kube::Error>(Seen::from_option((count == 2).then_some(()), count.to_string()))
    })
    .await
    .unwrap();
    let patch = r#"{"spec":{"namespaces":["tenant-a","joins"]}}"#;
    stack.plane.kubectl(["patch", "tenant", "tenant-a", "--type=merge", "-p", patch]).await.unwrap();
    // The Deployment's pod is recreated for the pool; the Job's pod is reported, and the Job continues.
    until("the Deployment's pod to run in the pool", EVENTUALLY, async || {
        let pods = pods(client, "joins").await?;
        let placed = pods.iter().find(|pod| pod.name_any().starts_with("web-") && !node_of(pod).is_empty());
        let names: Vec<String> =
            pods.iter().map(|pod| format!("{} on {}", pod.name_any(), node_of(pod))).collect();
        Ok::<_, kube::Error>(Seen::from_option(placed.map(|_| ()), names.join(", ")))
    })
    .await
    .unwrap();
    let said = until("the Tenant to name the Job", EVENTUALLY, async || {
        let said = condition_of::<Tenant>(client, "tenant-a", "Isolated", "False").await?.message;
        anyhow::Ok(Seen::from_option(said.contains("of Job migrate").then_some(said.clone()), said))
    })
    .await
    .unwrap();
    assert!(said.contains("are not deleted by Croft"), "{said}");
    let job = Api::<Job>::namespaced(client.clone(), "joins").get("migrate").await.unwrap();
    let status = job.status.unwrap_or_default();
    assert_eq!((status.active, status.failed.unwrap_or(0)), (Some(1), 0), "{status:?}");
    stack.plane.kubectl(["delete", "namespace", "joins", "--wait=false"]).await.unwrap();
}

async fn tag_groups(stack: &mut Stack, client: &Client, tags: Value, status: &str) {
    stack.control(&json!({"do": "groupTags", "group": "sg-0c0ffee000000001", "tags": tags})).await.unwrap();
    // A new process calls the cloud itself; a running one keeps its findings for minutes.
    stack.croft.kill(Part::Controller).unwrap();
    stack.croft.resume(&stack.plane, Part::Controller).await.unwrap();
    condition_of::<EC2NodeClass>(client, "default", "SecurityGroupsReady", status).await.unwrap();
}

async fn a_look_up_that_finds_nothing_replaces_nothing(
    stack: &mut Stack,
    client: &Client,
    working: &Working,
) {
    let groups = async || {
        let class = Api::<EC2NodeClass>::all(client.clone()).get("default").await.unwrap();
        class.status.unwrap_or_default().security_groups
    };
    let before = groups().await;
    assert!(!before.is_empty());
    tag_groups(stack, client, json!({}), "False").await;
    let said = event_about(client, "EC2NodeClass", "default", "FindingsMissing").await.unwrap();
    assert!(said.contains(&before[0]), "{said}");
    assert_eq!(groups().await, before, "the last good findings hold");
    working.stay(client, "no security group is found").await;
    tag_groups(stack, client, json!({"croft.dev/discovery": "croft"}), "True").await;
    assert_eq!(groups().await, before);
    working.stay(client, "the security groups are found again").await;
}
