//! Edits of a Tenant, a TenantPool or the CroftConfig take effect, on the real control plane.

use std::collections::BTreeSet;

use croft_api::{Tenant, TenantPool};
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    cli::croft,
    manifests::{class, daemon_set, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, condition_of, is_ready, nodes, pods, running},
};
use k8s_openapi::{
    api::apps::v1::DaemonSet,
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// Pools whose nodes another provisioner should make, but doesn't: their pods stay pending.
const SWAPPED: [&str; 2] = ["swap-a", "swap-b"];
/// A requirement with Croft's own name of a label.
const STEADY: &str = "steady";
/// A static pool whose own label is the pool-name label.
const FIXED: &str = "fixed";
/// Handed to another provisioner, and back.
const HANDED: &str = "handed";
/// Its taint gets another effect.
const TAINTED: &str = "tainted";

fn platform() -> String {
    let quiet = || json!({"consolidateAfter": "Never"});
    let mut steady = on_demand(&["m5.large"], quiet());
    steady["template"]["spec"]["requirements"][0]["key"] = json!("croft.dev/capacity-type");
    let mut fixed = on_demand(&["m5.large"], quiet());
    fixed["key"] = json!("node-restriction.kubernetes.io/pool");
    fixed["value"] = json!("blue");
    fixed["replicas"] = json!(1);
    let handed = on_demand(&["m5.large"], json!({"consolidateAfter": "5s"}));
    let tainted = on_demand(&["m5.large"], quiet());
    let mut documents = vec![class("default"), exempting(), agent()];
    documents.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "agents"}}));
    for name in SWAPPED {
        documents.extend(tenant(name, name, &json!({"key": "node-pool", "provisioner": "None"})));
    }
    for (name, spec) in [(STEADY, steady), (FIXED, fixed), (HANDED, handed), (TAINTED, tainted)] {
        documents.extend(tenant(name, name, &spec));
    }
    documents.push(deployment(SWAPPED[0], "waits", 2, "100m", "64Mi"));
    for name in [STEADY, HANDED, TAINTED] {
        documents.push(deployment(name, "web", 1, "1500m", "256Mi"));
    }
    documents.sort_by_key(|document| document["kind"] != "Namespace");
    joined(&documents)
}

/// The namespace `agents` becomes exempt.
fn exempting() -> Value {
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
        "spec": {"exemptNamespaces": ["kube-system", "kube-public", "kube-node-lease", "croft-system", "agents"]}})
}

/// A node agent that tolerates everything.
fn agent() -> Value {
    let spec = json!({"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 1});
    daemon_set("agents", "agent", spec)
}

async fn patch(stack: &Stack, kind: &str, name: &str, patch: Value) {
    let patch = patch.to_string();
    stack.plane.kubectl(["patch", kind, name, "--type=merge", "-p", &patch]).await.unwrap();
}

async fn uids(client: &Client, pool: &str) -> BTreeSet<String> {
    claims(client, pool).await.unwrap().iter().filter_map(kube::ResourceExt::uid).collect()
}

#[tokio::test]
async fn edits_take_effect() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    for name in [STEADY, HANDED, TAINTED] {
        running(&client, name, 1).await.unwrap();
    }
    until("the node of the pool of a fixed size", EVENTUALLY, async || {
        let claims = claims(&client, FIXED).await?;
        let seen = claims.iter().map(|claim| format!("{} {}", claim.name_any(), is_ready(claim)));
        let seen = seen.collect::<Vec<_>>().join(", ");
        let there = claims.len() == 1 && claims.iter().all(is_ready);
        Ok::<_, kube::Error>(Seen::from_option(there.then_some(()), seen))
    })
    .await
    .unwrap();
    let steady = (uids(&client, STEADY).await, uids(&client, FIXED).await);

    handed_over(&stack, &client).await;
    a_lost_pool(&stack, &client).await;
    a_deleted_pool(&stack, &client).await;
    a_lost_selector(&stack, &client).await;
    closed_networks(&stack, &[STEADY, "orphan"]).await;
    what_a_tenant_is_given(&stack, &client).await;
    changed_effects(&stack, &client).await;
    an_absent_config(&stack, &client).await;

    // Minutes later: no node that was handed over has been replaced, and the handed-over ones exist.
    assert_eq!((uids(&client, STEADY).await, uids(&client, FIXED).await), steady, "no instance was replaced");
    assert_eq!(
        claims(&client, HANDED).await.unwrap().len(),
        1,
        "an empty node of another provisioner's pool stays"
    );
    patch(&stack, "tenantpool", HANDED, json!({"spec": {"provisioner": "Croft"}})).await;
    until("the empty node terminated", EVENTUALLY, async || {
        let left = claims(&client, HANDED).await?.len();
        Ok::<_, kube::Error>(Seen::from_option((left == 0).then_some(()), left))
    })
    .await
    .unwrap();
    stack.check().unwrap();
}

async fn handed_over(stack: &Stack, client: &Client) {
    patch(stack, "tenantpool", HANDED, json!({"spec": {"provisioner": "None"}})).await;
    let said = condition_of::<TenantPool>(client, HANDED, "NodesManaged", "False").await.unwrap();
    assert!(said.message.starts_with("1 nodes that Croft launched stay"), "{}", said.message);
    stack.plane.kubectl(["delete", "deployment", "web", "-n", HANDED]).await.unwrap();
}

/// Two tenants swap their pools while pods of one are pending.
async fn a_lost_pool(stack: &Stack, client: &Client) {
    let waits = async |pool: &str| {
        until(&format!("pods that wait for {pool}"), EVENTUALLY, async || {
            let pods = pods(client, SWAPPED[0]).await?;
            let selector = |pod: &k8s_openapi::api::core::v1::Pod| {
                let spec = pod.spec.clone().unwrap_or_default();
                spec.node_selector.unwrap_or_default().remove("node-pool").unwrap_or_default()
            };
            let seen: Vec<String> = pods.iter().map(selector).collect();
            let all = seen.len() == 2 && seen.iter().all(|found| found == pool);
            Ok::<_, kube::Error>(Seen::from_option(all.then_some(()), format!("{seen:?}")))
        })
        .await
        .unwrap();
    };
    waits(SWAPPED[0]).await;
    let [_, _, mut first] = tenant(SWAPPED[0], SWAPPED[1], &json!({}));
    let [_, _, mut second] = tenant(SWAPPED[1], SWAPPED[0], &json!({}));
    first["spec"]["pools"] = json!([SWAPPED[1]]);
    second["spec"]["pools"] = json!([SWAPPED[0]]);
    let edit = joined(&[first, second]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("edit.yaml");
    std::fs::write(&file, &edit).unwrap();
    let (code, text) = croft(&stack.plane, &format!("plan -f {} --live", file.display())).await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("2 pending pods recreated"), "{text}");
    stack.plane.apply(&edit).await.unwrap();
    waits(SWAPPED[1]).await;
}

/// A pool that a Tenant names is deleted: it counts until the Tenant names another.
async fn a_deleted_pool(stack: &Stack, client: &Client) {
    let pool = SWAPPED[0];
    stack.plane.kubectl(["delete", "tenantpool", pool, "--wait=false"]).await.unwrap();
    let said = condition_of::<TenantPool>(client, pool, "DeletionBlocked", "True").await.unwrap();
    assert!(said.message.contains(&format!("spec.pools of {}", SWAPPED[1])), "{}", said.message);
    // Its key is still guarded, and its tenant's pods are still placed in it.
    let probe = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": SWAPPED[1]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    stack.plane.apply(&probe.to_string()).await.unwrap();
    let made = pods(client, SWAPPED[1]).await.unwrap().remove(0);
    assert_eq!(made.spec.unwrap().node_selector.unwrap()["node-pool"], pool);
    patch(stack, "tenant", SWAPPED[1], json!({"spec": {"pools": [SWAPPED[1]]}})).await;
    let api: Api<TenantPool> = Api::all(client.clone());
    until("the pool released", EVENTUALLY, async || {
        let there = api.get_opt(pool).await?;
        Ok::<_, kube::Error>(Seen::from_option(there.is_none().then_some(()), format!("{there:?}")))
    })
    .await
    .unwrap();
}

async fn a_lost_selector(stack: &Stack, client: &Client) {
    let younger = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "younger"},
        "spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": STEADY}}, "pools": [STEADY]}});
    stack.plane.apply(&younger.to_string()).await.unwrap();
    let said = condition_of::<Tenant>(client, "younger", "Accepted", "False").await.unwrap();
    assert_eq!(said.reason, "NamespaceConflict");
    assert!(
        said.message.contains("spec.namespaceSelector or spec.namespaceCreation matches"),
        "{}",
        said.message
    );
}

/// Namespaces with the NetworkPolicy of a closed network become exactly these.
async fn closed_networks(stack: &Stack, namespaces: &[&str]) {
    if namespaces.contains(&"orphan") {
        let closed = json!({"enabled": true});
        patch(stack, "tenant", STEADY, json!({"spec": {"networkIsolation": closed}})).await;
        let orphan = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "orphan"},
            "spec": {"namespaces": ["orphan"], "pools": [STEADY], "networkIsolation": closed}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "orphan"}});
        stack.plane.apply(&joined(&[namespace, orphan])).await.unwrap();
    }
    until("policies of closed networks", EVENTUALLY, async || {
        let words = [
            "get",
            "networkpolicies",
            "-A",
            "-l",
            "croft.dev/tenant",
            "-o",
            "jsonpath={.items[*].metadata.namespace}",
        ];
        let found = stack.plane.kubectl(words).await?;
        let there: BTreeSet<&str> = found.split_whitespace().collect();
        let right = there == namespaces.iter().copied().collect();
        anyhow::Ok(Seen::from_option(right.then_some(()), found.clone()))
    })
    .await
    .unwrap();
}

/// Quota, owners and namespace creation take effect on a running tenant, and end without its pods.
async fn what_a_tenant_is_given(stack: &Stack, client: &Client) {
    let given = json!({"quota": {"total": {"requests.cpu": 4}}, "owners": [{"kind": "User", "name": "edith"}],
        "namespaceCreation": {"prefix": "edits-", "maximum": 2}});
    patch(stack, "tenant", STEADY, json!({"spec": given})).await;
    until("the quota and its use in the status", EVENTUALLY, async || {
        let tenant = Api::<Tenant>::all(client.clone()).get(STEADY).await?;
        let quota = json!(tenant.status.unwrap_or_default().quota);
        let right = quota == json!([{"resource": "requests.cpu", "total": "4", "used": "1500m"}]);
        Ok::<_, kube::Error>(Seen::from_option(right.then_some(()), quota.to_string()))
    })
    .await
    .unwrap();
    let edith = ["create", "namespace", "edits-a", "--as", "edith"];
    until("a namespace of the owner", EVENTUALLY, async || {
        let done = stack.plane.kubectl(edith).await;
        anyhow::Ok(Seen::from_option(done.as_ref().ok().map(|_| ()), format!("{done:?}")))
    })
    .await
    .unwrap();
    until("the namespace in the status", EVENTUALLY, async || {
        let namespaces =
            Api::<Tenant>::all(client.clone()).get(STEADY).await?.status.unwrap_or_default().namespaces;
        let there = namespaces == ["edits-a", STEADY];
        Ok::<_, kube::Error>(Seen::from_option(there.then_some(()), namespaces.join(", ")))
    })
    .await
    .unwrap();
    let raised = json!({"quota": {"total": {"requests.cpu": 3}}, "namespaceCreation": {"maximum": 1}});
    patch(stack, "tenant", STEADY, json!({"spec": raised})).await;
    let said = until("the maximum reached", EVENTUALLY, async || {
        let said = condition_of::<Tenant>(client, STEADY, "NamespaceCreation", "True").await.unwrap();
        anyhow::Ok(Seen::from_option(
            (said.reason == "MaximumReached").then(|| said.message.clone()),
            said.message,
        ))
    })
    .await
    .unwrap();
    assert_eq!(said, "1 namespaces begin with edits-, and 1 may");
    let none = json!({"quota": null, "owners": null, "namespaceCreation": null});
    patch(stack, "tenant", STEADY, json!({"spec": none})).await;
    until("nothing given", EVENTUALLY, async || {
        let words = [
            "get",
            "resourcequotas,rolebindings,clusterrolebindings",
            "-A",
            "-l",
            "croft.dev/tenant",
            "-o",
            "name",
        ];
        let left = stack.plane.kubectl(words).await?;
        let status = Api::<Tenant>::all(client.clone()).get(STEADY).await?.status.unwrap_or_default();
        let done = left.is_empty() && status.quota.is_empty() && status.namespaces == [STEADY];
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{left} {status:?}")))
    })
    .await
    .unwrap();
    running(client, STEADY, 1).await.unwrap();
}

/// Pods of a pool move to nodes with a taint that they didn't tolerate when they were created.
async fn changed_effects(stack: &Stack, client: &Client) {
    let before = uids(client, TAINTED).await;
    patch(stack, "tenantpool", TAINTED, json!({"spec": {"effects": ["NoSchedule", "NoExecute"]}})).await;
    until("the node replaced by one with both taints", EVENTUALLY, async || {
        let claims = claims(client, TAINTED).await?;
        let fresh = claims.len() == 1 && claims.iter().all(|claim| !before.contains(&claim.uid().unwrap()));
        let seen = claims.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>().join(", ");
        Ok::<_, kube::Error>(Seen::from_option(fresh.then_some(()), seen))
    })
    .await
    .unwrap();
    let pod = running(client, TAINTED, 1).await.unwrap().remove(0).spec.unwrap();
    let all = nodes(client).await.unwrap();
    let taints = all[&pod.node_name.unwrap()].spec.clone().unwrap().taints.unwrap_or_default();
    let effects: BTreeSet<String> =
        taints.into_iter().filter(|t| t.value.as_deref() == Some(TAINTED)).map(|t| t.effect).collect();
    assert_eq!(effects, ["NoExecute", "NoSchedule"].map(str::to_owned).into());
}

/// The CroftConfig is deleted: its exemptions hold for a minute. Then it is created again without them, and what was
/// injected is removed.
async fn an_absent_config(stack: &Stack, client: &Client) {
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), "agents");
    let template = async || {
        let template = api.get("agent").await?.spec.unwrap().template;
        Ok::<_, kube::Error>(serde_json::to_string(&template).unwrap())
    };
    let before = template().await.unwrap();
    assert!(!before.contains("croft.dev/injected"), "{before}");
    let deleted = Timestamp::now();
    stack.plane.kubectl(["delete", "croftconfig", "default"]).await.unwrap();
    // A Tenant goes in the same moment, and the policy of its namespace as late.
    stack.plane.kubectl(["delete", "tenant", "orphan"]).await.unwrap();
    until("the agent planned like any non-tenant DaemonSet", EVENTUALLY, async || {
        let now = template().await?;
        Ok::<_, kube::Error>(Seen::from_option(now.contains("croft.dev/injected").then_some(()), now))
    })
    .await
    .unwrap();
    let lasted = Timestamp::now().duration_since(deleted);
    closed_networks(stack, &[STEADY]).await;
    assert!(lasted >= SignedDuration::from_secs(59), "the exemption ended after {lasted:#}");
    stack.plane.apply(&exempting().to_string()).await.unwrap();
    until("the agent as it was", EVENTUALLY, async || {
        let now = template().await?;
        let clean = !now.contains("croft.dev/injected") && !now.contains("matchExpressions");
        Ok::<_, kube::Error>(Seen::from_option(clean.then_some(()), now))
    })
    .await
    .unwrap();
}
