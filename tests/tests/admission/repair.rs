//! The controller keeps annotations, policy parameters, statuses and pods in line with tenants, and repairs what users
//! change.

use croft_api::Tenant;
use croft_testkit::{
    ControlPlane, Croft, Options,
    wait::{Seen, until},
};
use croft_tests::arena::{self, POOLS_OF_A, SOON, create, kept_arena, misplaced_pods, pod, pods};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

async fn start() -> (ControlPlane, Croft, Client) {
    let (plane, croft) = kept_arena(Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    (plane, croft, admin)
}

async fn condition(admin: &Client, tenant: &str, kind: &str, status: &str, says: &str) {
    let api: Api<Tenant> = Api::all(admin.clone());
    until(&format!("{tenant} with {kind}={status}"), SOON, async || {
        let object = api.get(tenant).await?;
        let conditions = object.status.map(|s| s.conditions).unwrap_or_default();
        let found =
            conditions.iter().any(|c| c.type_ == kind && c.status == status && c.message.contains(says));
        Ok::<_, kube::Error>(Seen::from_option(found.then_some(()), format!("{conditions:?}")))
    })
    .await
    .unwrap();
}

async fn install(plane: &ControlPlane, croft: &Croft) {
    let file = croft.manifests().join("install/policies.yaml");
    let arguments = ["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()];
    plane.kubectl(arguments).await.unwrap();
}

async fn marks(admin: &Client, namespace: &str, tenancy: Option<&str>, pools: Option<&str>) {
    let api: Api<Namespace> = Api::all(admin.clone());
    until(&format!("marks of {namespace}"), SOON, async || {
        let metadata = api.get(namespace).await?.metadata;
        let label = metadata.labels.unwrap_or_default().remove("croft.dev/tenancy");
        let annotation = metadata.annotations.unwrap_or_default().remove("policy.croft.dev/pools");
        let right = label.as_deref() == tenancy && annotation.as_deref() == pools;
        Ok::<_, kube::Error>(Seen::from_option(right.then_some(()), format!("{label:?} {annotation:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn annotations_policies_and_statuses_are_maintained() {
    let (plane, croft, admin) = start().await;
    marks(&admin, "tenant-a", None, Some(POOLS_OF_A)).await;
    marks(&admin, "no-tenant", Some("none"), None).await;
    marks(&admin, "kube-system", None, None).await;
    condition(&admin, "a", "Ready", "True", "").await;
    condition(&admin, "a", "Isolated", "True", "").await;

    // Only Croft writes the policies' parameters, whatever permissions others have.
    let namespaces: Api<Namespace> = Api::all(plane.client_for("root", &["system:masters"]).await.unwrap());
    let own = namespaces.get("croft-system").await.unwrap();
    let read = |name: &str| own.metadata.annotations.as_ref().and_then(|a| a.get(name)).cloned();
    assert_eq!(read("policy.croft.dev/keys").as_deref(), Some("node-pool,other-key"));
    for value in [json!("node-pool"), json!(null)] {
        let forged = json!({"metadata": {"annotations": {"policy.croft.dev/keys": value}}});
        let kept = namespaces.patch("croft-system", &PatchParams::default(), &Patch::Merge(forged)).await;
        let keys = kept.unwrap().metadata.annotations.unwrap_or_default().remove("policy.croft.dev/keys");
        assert_eq!(keys.as_deref(), Some("node-pool,other-key"));
    }

    // A policy that is missing or weakened is reported; installing it again clears the report.
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    policies.delete("croft-reserved-metadata", &DeleteParams::default()).await.unwrap();
    condition(&admin, "a", "Ready", "False", "croft-reserved-metadata is missing").await;
    install(&plane, &croft).await;
    condition(&admin, "a", "Ready", "True", "").await;
    let loosened = json!({"spec": {"failurePolicy": "Ignore"}});
    policies
        .patch("croft-pod-placement-keys", &PatchParams::default(), &Patch::Merge(loosened))
        .await
        .unwrap();
    condition(&admin, "a", "Ready", "False", "croft-pod-placement-keys is missing or not of this version")
        .await;
    install(&plane, &croft).await;
    condition(&admin, "a", "Ready", "True", "").await;

    // Tenants that can't be accepted report it, and affect no other.
    plane
        .apply(
            r"
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: young}
spec: {namespaces: [tenant-a, young], pools: [pool-a]}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: lost}
spec: {namespaces: [lost], pools: [pool-gone]}
---
apiVersion: v1
kind: Namespace
metadata: {name: lost}
",
        )
        .await
        .unwrap();
    condition(&admin, "young", "Accepted", "False", "belongs to the older Tenant a").await;
    condition(&admin, "lost", "Accepted", "False", "TenantPool pool-gone not found").await;
    marks(&admin, "lost", None, Some("-:-:-:pool-gone")).await;
    until("refused for want of a pool", SOON, async || {
        let said = create(&admin, &pod("lost", "x", json!({})), true).await?.sentence();
        anyhow::Ok(Seen::from_option(said.contains("no TenantPool of that name").then_some(()), said))
    })
    .await
    .unwrap();
    condition(&admin, "a", "Ready", "True", "").await;

    // A node that another provisioner made for a pool gets its pool-name label.
    plane
        .apply("{apiVersion: v1, kind: Node, metadata: {name: a-9, labels: {node-pool: pool-a}}, spec: {taints: [{key: node-pool, value: pool-a, effect: NoSchedule}]}}")
        .await
        .unwrap();
    let nodes: Api<Node> = Api::all(admin.clone());
    until("the pool-name label", SOON, async || {
        let labels = nodes.get("a-9").await?.metadata.labels.unwrap_or_default();
        let mark = labels.get("node-restriction.kubernetes.io/pool").cloned();
        Ok::<_, kube::Error>(Seen::from_option(
            (mark.as_deref() == Some("pool-a")).then_some(()),
            format!("{mark:?}"),
        ))
    })
    .await
    .unwrap();
}

fn workload(kind: &str, namespace: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": {"metadata": {"labels": {"app": "w"}},
            "spec": {"containers": [{"name": "c", "image": "c"}]}}},
    });
    object["spec"]["template"]["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn pods_from_before_their_tenant_are_corrected() {
    let (plane, _croft, admin) = start().await;
    // Pending pods of a non-tenant namespace, a running one, and an agent on every node where it may run.
    let stuck = json!({"nodeSelector": {"zone": "none"}});
    let mut waits = workload("Deployment", "no-tenant", stuck.clone());
    waits["metadata"]["name"] = json!("waits");
    waits["spec"]["selector"]["matchLabels"] = json!({"app": "waits"});
    waits["spec"]["template"]["metadata"]["labels"] = json!({"app": "waits"});
    for object in [
        waits,
        workload("Deployment", "no-tenant", json!({})),
        workload("DaemonSet", "no-tenant", json!({"tolerations": [{"operator": "Exists"}]})),
    ] {
        let answer = create(&admin, &object, false).await.unwrap();
        assert!(answer.is_done(), "{}", answer.sentence());
    }
    until("non-tenant pods", SOON, async || {
        let list = pods(&admin).await?;
        let phases: Vec<_> = list.iter().filter_map(|p| p.status.as_ref()?.phase.clone()).collect();
        let done =
            phases.iter().filter(|p| *p == "Running").count() >= 3 && phases.iter().any(|p| p == "Pending");
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{phases:?}")))
    })
    .await
    .unwrap();
    assert_eq!(misplaced_pods(&admin).await.unwrap(), Vec::<String>::new());

    // Now it belongs to tenant b.
    let spec = json!({"spec": {"namespaces": ["tenant-b", "no-tenant"]}});
    let tenants: Api<Tenant> = Api::all(admin.clone());
    tenants.patch("b", &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    marks(&admin, "no-tenant", None, Some("node-pool=pool-b:NoSchedule:pool-b")).await;
    let daemonsets: Api<DaemonSet> = Api::namespaced(admin.clone(), "no-tenant");
    until("the DaemonSet planned anew", SOON, async || {
        let spec = daemonsets.get("w").await?.spec.and_then(|s| s.template.spec).unwrap_or_default();
        let selector = spec.node_selector.clone().unwrap_or_default();
        let right = selector.get("node-pool").map(String::as_str) == Some("pool-b");
        // The old keep-out affinity was removed as well.
        let open = !serde_json::to_string(&spec.affinity).unwrap_or_default().contains("DoesNotExist");
        Ok::<_, kube::Error>(Seen::from_option((right && open).then_some(()), format!("{spec:?}")))
    })
    .await
    .unwrap();
    until("the waiting pod is created again in its pool", SOON, async || {
        let list = pods(&admin).await?;
        let waiting: Vec<_> = list
            .iter()
            .filter(|p| {
                p.metadata.name.as_deref().is_some_and(|n| n.starts_with("waits-"))
                    && p.metadata.deletion_timestamp.is_none()
            })
            .filter_map(|p| p.spec.as_ref()?.node_selector.clone())
            .collect();
        let right = waiting.len() == 1 && waiting[0].get("node-pool").map(String::as_str) == Some("pool-b");
        anyhow::Ok(Seen::from_option(right.then_some(()), format!("{waiting:?}")))
    })
    .await
    .unwrap();
    // The running pod is reported, and recreated only if configured.
    condition(&admin, "b", "Isolated", "False", "outside its pools").await;
    plane.apply("{apiVersion: croft.dev/v1alpha1, kind: CroftConfig, metadata: {name: default}, spec: {misplaced: Recreate}}").await.unwrap();
    until("every pod of b in its pool", SOON, async || {
        let list = pods(&admin).await?;
        let misplaced_pods: Vec<_> = list
            .iter()
            .filter(|p| p.metadata.namespace.as_deref() == Some("no-tenant"))
            .filter_map(|p| p.spec.as_ref()?.node_name.clone())
            .filter(|node| !arena::may_be_on("tenant-b", node))
            .collect();
        anyhow::Ok(Seen::from_option(misplaced_pods.is_empty().then_some(()), format!("{misplaced_pods:?}")))
    })
    .await
    .unwrap();
    condition(&admin, "b", "Isolated", "True", "").await;
}
