//! Two tenants with unchanged manifests get their own instances: the example from end to end.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{EC2NodeClass, NodeClaim, Tenant, TenantPool};
use croft_runtime::kubernetes::{self, Concern};
use croft_testkit::{
    Part, http,
    wait::{Seen, until},
};
use croft_tests::stack::{
    EVENTUALLY, Stack, claims, condition_of, is_ready, label, node_of, nodes, pods, running,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

const TYPE: &str = "node.kubernetes.io/instance-type";
const ZONE: &str = "topology.kubernetes.io/zone";
const ARCH: &str = "kubernetes.io/arch";
const CAPACITY: &str = "karpenter.sh/capacity-type";

fn of_app<'a>(pods: &'a [Pod], app: &str) -> Vec<&'a Pod> {
    pods.iter().filter(|pod| label(*pod, "app") == app).collect()
}

/// The nodes of the pods, each of which must belong to the pool.
fn homes<'a>(pods: &[&Pod], nodes: &'a BTreeMap<String, Node>, pool: &str) -> Vec<&'a Node> {
    pods.iter()
        .map(|pod| {
            let node = &nodes[&node_of(pod)];
            assert_eq!(label(node, "node-pool"), pool, "{} is on {}", pod.name_any(), node.name_any());
            node
        })
        .collect()
}

async fn running_instances(stack: &mut Stack) -> Vec<Value> {
    let state = http::get(stack.croft.address(Part::Cloud).unwrap(), "/_control/state").await.unwrap();
    let state: Value = serde_json::from_str(&state.body).unwrap();
    let instances = state["instances"].as_array().cloned().unwrap_or_default();
    instances.into_iter().filter(|instance| instance["state"] == "running").collect()
}

async fn waiting(client: &Client, namespace: &str, count: usize) {
    until(&format!("{count} pods of {namespace}"), EVENTUALLY, async || {
        let there = pods(client, namespace).await?.len();
        Ok::<_, kube::Error>(Seen::from_option((there == count).then_some(()), format!("{there} pods")))
    })
    .await
    .unwrap();
}

/// The claims of both pools. A pod may run before the status of its node's claim says that the node is ready.
async fn ready_claims(client: &Client) -> Vec<NodeClaim> {
    until("every claim Ready", EVENTUALLY, async || {
        let mut all = claims(client, "pool-a").await?;
        all.extend(claims(client, "pool-b").await?);
        let waits: Vec<_> =
            all.iter().filter(|claim| !is_ready(claim)).map(|claim| claim.name_any()).collect();
        Ok::<_, kube::Error>(Seen::from_option(waits.is_empty().then_some(all), format!("{waits:?}")))
    })
    .await
    .unwrap()
}

async fn gone(client: &Client, pool: &str) {
    until(&format!("the end of {pool}'s claims"), EVENTUALLY, async || {
        let left: Vec<_> = claims(client, pool).await?.iter().map(|claim| claim.name_any()).collect();
        Ok::<_, kube::Error>(Seen::from_option(left.is_empty().then_some(()), format!("{left:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn two_tenants_get_their_own_instances_and_scale_down() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let [platform, workloads] = ["platform.yaml", "workloads.yaml"]
        .map(|file| stack.manifest(&format!("examples/two-tenants/{file}")).unwrap());
    // Pods that arrive while instances are starting may use their free resources: the plan covers all of them.
    let (base, class) = platform.rsplit_once("---").unwrap();
    assert!(class.contains("kind: EC2NodeClass"), "without a class nothing is launched: {class}");
    stack.plane.apply(base).await.unwrap();
    stack.plane.apply(&workloads).await.unwrap();
    waiting(&client, "tenant-a", 6).await;
    waiting(&client, "tenant-b", 3).await;
    stack.plane.apply(class).await.unwrap();
    let a = running(&client, "tenant-a", 6).await.unwrap();
    let b = running(&client, "tenant-b", 3).await.unwrap();
    let all = nodes(&client).await.unwrap();

    let web = homes(&of_app(&a, "web"), &all, "pool-a");
    assert!(web.iter().all(|node| label(*node, TYPE) == "m5.large"), "{web:?}");
    let api = homes(&of_app(&a, "api"), &all, "pool-a");
    let zones: BTreeSet<_> = api.iter().map(|node| label(*node, ZONE)).collect();
    assert_eq!(zones.len(), 3, "{zones:?}");
    let workers = homes(&of_app(&b, "workers"), &all, "pool-b");
    assert!(
        workers.iter().all(|node| label(*node, ARCH) == "arm64" && label(*node, CAPACITY) == "spot"),
        "{workers:?}"
    );
    for node in all.values() {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let own = taints.iter().any(|t| t.key == "node-pool" && t.value == Some(label(node, "node-pool")));
        assert!(own, "{}: {taints:?}", node.name_any());
    }

    // The API server and EC2 agree about every instance.
    let running = running_instances(&mut stack).await;
    let every = ready_claims(&client).await;
    assert_eq!((running.len(), every.len()), (all.len(), all.len()));
    for claim in &every {
        let status = claim.status.clone().unwrap();
        assert!(all.contains_key(&status.node_name.unwrap()), "{}", claim.name_any());
        let price: f64 = status.price_per_hour.unwrap().parse().unwrap();
        assert!(price > 0.0, "{}", claim.name_any());
    }
    let release = kubernetes::release(&client).await.unwrap();
    for name in ["tenant-a", "tenant-b"] {
        condition_of::<Tenant>(&client, name, "Ready", "True").await.unwrap();
    }
    for name in ["pool-a", "pool-b"] {
        condition_of::<TenantPool>(&client, name, "Ready", "True").await.unwrap();
        // A feature that the control plane lacks is said on the pool, and nothing is if it lacks none.
        match release.shortcomings(&[Concern::Pools]) {
            Some(missing) => {
                let said =
                    condition_of::<TenantPool>(&client, name, "KubernetesFeatures", "False").await.unwrap();
                assert!(said.message.contains(&missing), "{}", said.message);
            }
            None => {
                let pool = Api::<TenantPool>::all(client.clone()).get(name).await.unwrap();
                let conditions = pool.status.unwrap().conditions;
                assert!(conditions.iter().all(|c| c.type_ != "KubernetesFeatures"), "{conditions:?}");
            }
        }
    }
    condition_of::<EC2NodeClass>(&client, "default", "Ready", "True").await.unwrap();

    // One tenant scales to zero; the other is unaffected.
    let kept: BTreeSet<_> = b.iter().map(|pod| (pod.uid(), node_of(pod))).collect();
    stack.plane.kubectl(["scale", "deployment", "--all", "--replicas=0", "-n", "tenant-a"]).await.unwrap();
    gone(&client, "pool-a").await;
    let left = nodes(&client).await.unwrap();
    assert!(left.values().all(|node| label(node, "node-pool") == "pool-b"), "{:?}", left.keys());
    let now: BTreeSet<_> =
        pods(&client, "tenant-b").await.unwrap().iter().map(|pod| (pod.uid(), node_of(pod))).collect();
    assert_eq!(now, kept);
    stack.check().unwrap();
}
