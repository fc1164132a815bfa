//! The life of a namespace's policy: there before the first pod, restored, never another's, and gone with its field.

use croft_api::Tenant;
use croft_testkit::{
    ControlPlane,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{self, SOON},
    stack::{condition_of, event_about},
};
use k8s_openapi::api::{core::v1::Namespace, networking::v1::NetworkPolicy};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

const POLICY: &str = "croft-tenant-network";
const POOLS: &str = "policy.croft.dev/pools";

/// Waits for the policy of a namespace that has another version than `before`, with one rule for ingress from one peer.
async fn policy(admin: &Client, namespace: &str, before: Option<&str>) -> NetworkPolicy {
    let api: Api<NetworkPolicy> = Api::namespaced(admin.clone(), namespace);
    until(&format!("the policy of {namespace}"), SOON, async || {
        let found = api.get_opt(POLICY).await?;
        let seen = format!("{found:?}");
        let closed = |policy: &NetworkPolicy| {
            let rules = policy.spec.as_ref().and_then(|spec| spec.ingress.clone()).unwrap_or_default();
            rules.len() == 1 && rules[0].from.as_ref().is_some_and(|from| from.len() == 1)
        };
        let right = found.filter(|policy| closed(policy) && policy.resource_version().as_deref() != before);
        Ok::<_, kube::Error>(Seen::from_option(right, seen))
    })
    .await
    .unwrap()
}

/// Waits until the namespace has its tenant's pools. Returns its version then.
async fn let_in(admin: &Client, namespace: &str) -> u64 {
    let api: Api<Namespace> = Api::all(admin.clone());
    until(&format!("{namespace} with its tenant's pools"), SOON, async || {
        let found = api.get(namespace).await?;
        let version = found.resource_version().and_then(|version| version.parse().ok());
        let done = found.annotations().contains_key(POOLS).then_some(version).flatten();
        Ok::<_, kube::Error>(Seen::from_option(done, format!("{:?}", found.metadata)))
    })
    .await
    .unwrap()
}

async fn patch_tenant(admin: &Client, name: &str, spec: serde_json::Value) {
    let api: Api<Tenant> = Api::all(admin.clone());
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.unwrap();
}

pub(crate) async fn lives(plane: &ControlPlane, admin: &Client) {
    let tenant = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "life"},
        "spec": {"namespaces": ["life-new", "life-taken"], "pools": ["pool-a"], "networkIsolation": {"enabled": true}},
    });

    // The namespace comes second. Versions are of one history: the policy is older than the annotation.
    plane.apply(&tenant.to_string()).await.unwrap();
    plane.kubectl(["create", "namespace", "life-new"]).await.unwrap();
    let annotated = let_in(admin, "life-new").await;
    let made = policy(admin, "life-new", None).await;
    let version: u64 = made.resource_version().unwrap().parse().unwrap();
    assert!(version < annotated, "the policy has version {version}, the annotation {annotated}");

    restored(plane, admin).await;
    name_taken(plane, admin).await;

    // It goes with the field.
    patch_tenant(admin, "life", json!({"networkIsolation": null})).await;
    let api: Api<NetworkPolicy> = Api::namespaced(admin.clone(), "life-new");
    until("no policy", SOON, async || {
        let left: Vec<String> =
            api.list(&Default::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        Ok::<_, kube::Error>(Seen::from_option((left == ["my-own"]).then_some(()), format!("{left:?}")))
    })
    .await
    .unwrap();
}

/// The tenant's own administrator changes and deletes it.
async fn restored(plane: &ControlPlane, admin: &Client) {
    plane
        .kubectl(["create", "rolebinding", "jane", "-n", "life-new", "--clusterrole=admin", "--user=jane"])
        .await
        .unwrap();
    let jane = plane.client_for("jane", &[]).await.unwrap();
    let own: Api<NetworkPolicy> = Api::namespaced(jane, "life-new");
    let open = json!({"spec": {"ingress": [{}], "policyTypes": ["Ingress", "Egress"], "egress": []}});
    let changed = own.patch(POLICY, &PatchParams::default(), &Patch::Merge(open)).await.unwrap();
    let back = policy(admin, "life-new", changed.resource_version().as_deref()).await;
    assert_eq!(back.spec.unwrap().policy_types.unwrap(), ["Ingress"]);
    let note = event_about(admin, "Tenant", "life", "ObjectRestored").await.unwrap();
    assert!(note.starts_with("NetworkPolicy life-new/croft-tenant-network was changed by hand"), "{note}");
    own.delete(POLICY, &DeleteParams::default()).await.unwrap();
    policy(admin, "life-new", None).await;
    // Her own, even with Croft's label.
    let mine = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "my-own", "namespace": "life-new", "labels": {"croft.dev/tenant": "life"}},
        "spec": {"podSelector": {}, "ingress": [{}]},
    });
    plane.apply(&mine.to_string()).await.unwrap();
}

/// A user's policy has the name that Croft would take. It stays, and no pod is let in until it is gone.
async fn name_taken(plane: &ControlPlane, admin: &Client) {
    patch_tenant(admin, "life", json!({"namespaces": ["life-new"]})).await;
    let mine = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": POLICY, "namespace": "life-taken"}, "spec": {"podSelector": {}, "ingress": [{}]},
    });
    plane.kubectl(["create", "namespace", "life-taken"]).await.unwrap();
    plane.apply(&mine.to_string()).await.unwrap();
    let api: Api<NetworkPolicy> = Api::namespaced(admin.clone(), "life-taken");
    let before = api.get(POLICY).await.unwrap();
    patch_tenant(admin, "life", json!({"namespaces": ["life-new", "life-taken"]})).await;
    let said = condition_of::<Tenant>(admin, "life", "ObjectsKept", "False").await.unwrap();
    assert!(said.reason == "NameTaken" || said.reason == "ObjectsBehind", "{said:?}");
    event_about(admin, "Tenant", "life", "NameTaken").await.unwrap();
    let early = ["run", "early", "-n", "life-taken", "--image=registry.example/app:1", "--dry-run=server"];
    let refused = plane.kubectl(early).await.unwrap_err().to_string();
    assert!(refused.contains(arena::refusal_without_pools().unwrap()), "{refused}");
    assert_eq!(api.get(POLICY).await.unwrap(), before);
    api.delete(POLICY, &DeleteParams::default()).await.unwrap();
    let_in(admin, "life-taken").await;
    condition_of::<Tenant>(admin, "life", "ObjectsKept", "True").await.unwrap();
}
