//! One TenantPool for many tenants: each has its own nodes, nobody gets onto another's, in both modes; and a tenant that no longer
//! names the pool loses them.

use croft_api::{CroftConfig, Tenant, TenantPool, condition};
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::{class, deployment, joined, tenant_of},
    stack::{EVENTUALLY, Stack, condition_of, label, node_of, nodes, running},
};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const KEY: &str = "example.com/pool";
const TENANTS: [&str; 2] = ["blue", "green"];

fn platform() -> String {
    let mut documents = vec![class("default")];
    documents.push(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "dev"}, "spec": {
        "key": KEY, "perTenant": true, "limits": {"nodes": 2}, "disruption": {"consolidateAfter": "Never"},
        "template": {"spec": {"nodeClassRef": {"name": "default"}}}}}));
    documents.extend(TENANTS.iter().flat_map(|tenant| tenant_of(tenant, &["dev"])));
    documents.extend(TENANTS.iter().map(|tenant| deployment(tenant, "web", 1, "500m", "256Mi")));
    documents.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "outside"}}));
    joined(&documents)
}

/// The pod's spec, with a container.
fn pod(spec: Value) -> Pod {
    let mut pod = json!({"metadata": {"generateName": "intruder-"}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "c"}]);
    serde_json::from_value(pod).unwrap()
}

/// Ways onto the nodes of the tenant `green`.
fn intruders(node: &str) -> Vec<Value> {
    let anywhere = json!([{"operator": "Exists"}]);
    let green = json!([{"matchExpressions": [{"key": KEY, "operator": "In", "values": ["green"]}]}]);
    vec![
        json!({"nodeSelector": {KEY: "green"}, "tolerations": anywhere}),
        json!({"nodeSelector": {"node-restriction.kubernetes.io/pool": "dev-green"}, "tolerations": anywhere}),
        json!({"nodeSelector": {KEY: "dev"}, "tolerations": anywhere}),
        json!({"tolerations": anywhere, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": green}}}}),
        json!({"tolerations": anywhere}),
        json!({"nodeName": node}),
    ]
}

/// Nobody but `green` itself has a pod on its nodes, whatever `blue` and a namespace of no tenant try.
async fn attack(client: &Client) {
    let homes = nodes(client).await.unwrap();
    let of_green = |node: &Node| label(node, KEY) == "green";
    let target = homes.values().find(|node| of_green(node)).expect("green has a node").name_any();
    let mut created = Vec::new();
    for namespace in ["blue", "outside"] {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        for spec in intruders(&target) {
            match api.create(&PostParams::default(), &pod(spec)).await {
                Ok(pod) => created.push(pod),
                Err(kube::Error::Api(refusal)) => assert_eq!(refusal.code, 403, "{refusal:?}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(!created.is_empty(), "some are admitted, and go elsewhere");
    // One that may go there is bound after them: by then kube-scheduler has decided about all of them.
    let api: Api<Pod> = Api::namespaced(client.clone(), "green");
    let own = api.create(&PostParams::default(), &pod(json!({}))).await.unwrap().name_any();
    until("a pod of green bound", EVENTUALLY, async || {
        let bound = node_of(&api.get(&own).await?);
        Ok::<_, kube::Error>(Seen::from_option((!bound.is_empty()).then_some(()), bound))
    })
    .await
    .unwrap();
    let homes = nodes(client).await.unwrap();
    let all: Api<Pod> = Api::all(client.clone());
    for pod in all.list(&Default::default()).await.unwrap().items {
        let at = homes.get(&node_of(&pod)).map(|node| label(node, KEY)).unwrap_or_default();
        let namespace = pod.namespace().unwrap_or_default();
        assert!(
            at.is_empty() || at == namespace,
            "{namespace}/{} is on a node of {at}: {:?}",
            pod.name_any(),
            pod.spec
        );
    }
    for pod in created {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        drop(api.delete(&pod.name_any(), &now).await.unwrap());
    }
    drop(
        api.delete(&own, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
            .await
            .unwrap(),
    );
}

#[tokio::test]
async fn each_tenant_of_a_pool_for_many_has_its_own_nodes_and_limits() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    let pools: Api<TenantPool> = Api::all(client.clone());
    for tenant in TENANTS {
        condition_of::<Tenant>(&client, tenant, condition::READY, "True").await.unwrap();
        for pod in running(&client, tenant, 1).await.unwrap() {
            assert_eq!(label(&nodes(&client).await.unwrap()[&node_of(&pod)], KEY), tenant);
        }
        let own = pools.get(&format!("dev-{tenant}")).await.unwrap();
        assert_eq!((own.spec.value.as_deref(), own.spec.limits["nodes"].0.as_str()), (Some(tenant), "2"));
    }
    condition_of::<TenantPool>(&client, "dev", condition::READY, "True").await.unwrap();

    attack(&client).await;
    let config = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
        "spec": {"admission": {"mutation": "Policy"}}});
    stack.plane.apply(&config.to_string()).await.unwrap();
    let configs: Api<CroftConfig> = Api::all(client.clone());
    until("pods are mutated by policies", EVENTUALLY, async || {
        let status = configs.get("default").await?.status.unwrap_or_default();
        let said: Vec<String> =
            status.conditions.iter().map(|c| format!("{}={} {}", c.type_, c.status, c.message)).collect();
        let ready = status.conditions.iter().all(|c| c.type_ != condition::READY || c.status == "True");
        Ok::<_, kube::Error>(Seen::from_option((ready && !said.is_empty()).then_some(()), said.join("; ")))
    })
    .await
    .unwrap();
    attack(&client).await;

    // An edit reaches each of them, and a hand's edit of one is put back.
    let patch = Patch::Merge(json!({"spec": {"limits": {"nodes": 3}}}));
    pools.patch("dev", &PatchParams::default(), &patch).await.unwrap();
    let own = Patch::Merge(json!({"spec": {"sharedWith": ["outside"]}}));
    pools.patch("dev-green", &PatchParams::default(), &own).await.unwrap();
    until("the pools in line", EVENTUALLY, async || {
        let mut seen = Vec::new();
        for tenant in TENANTS {
            let own = pools.get(&format!("dev-{tenant}")).await?;
            seen.push((own.spec.limits["nodes"].0.clone(), own.spec.shared_with));
        }
        let is_done = seen.iter().all(|(nodes, shared)| nodes == "3" && shared.is_empty());
        Ok::<_, kube::Error>(Seen::from_option(is_done.then_some(()), format!("{seen:?}")))
    })
    .await
    .unwrap();

    // A tenant that goes takes its nodes with it, and no other's.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let tenants: Api<Tenant> = Api::all(client.clone());
    drop(tenants.delete("green", &DeleteParams::default()).await.unwrap());
    drop(namespaces.delete("green", &DeleteParams::default()).await.unwrap());
    until("green's pool and nodes gone", EVENTUALLY * 2, async || {
        let pool = pools.get_opt("dev-green").await?;
        let left: Vec<String> = nodes(&client)
            .await?
            .values()
            .filter(|n| label(*n, KEY) == "green")
            .map(|n| n.name_any())
            .collect();
        let is_gone = pool.is_none() && left.is_empty();
        Ok::<_, kube::Error>(Seen::from_option(is_gone.then_some(()), format!("{} {left:?}", pool.is_some())))
    })
    .await
    .unwrap();
    running(&client, "blue", 1).await.unwrap();
    stack.check().unwrap();
}
