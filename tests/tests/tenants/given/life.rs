//! The life of quota, defaults, Pod Security and owners: there before the first pod, restored, and gone with their fields.

use croft_api::Tenant;
use croft_policy::definitions::POOLS_ANNOTATION;
use croft_testkit::{
    ControlPlane,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{self, SOON},
    manifests::joined,
    stack::{EVENTUALLY, condition_of, event_about},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

const TENANT: &str = "given";
const NAMESPACES: [&str; 2] = ["given-a", "given-b"];
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const WARN: &str = "pod-security.kubernetes.io/warn";

fn spec() -> Value {
    json!({
        "namespaces": NAMESPACES, "pools": ["pool-a"],
        "quota": {"perNamespace": {"pods": 20, "requests.cpu": "1500m", "requests.memory": "4096Mi"}},
        "defaults": {"requests": {"cpu": "0.1"}, "limits": {"memory": "64Mi"}},
        "podSecurity": {"enforce": "baseline", "warn": "restricted"},
        "owners": [{"kind": "User", "name": "jane-of-given"}, {"kind": "Group", "name": "ops", "clusterRoles": ["view"]}],
    })
}

/// Objects of people: of the same kinds, one of them with Croft's label.
fn by_hand() -> Vec<Value> {
    let metadata = |name: &str| json!({"name": name, "namespace": "given-a", "labels": {"team": "x"}});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let mut labelled = metadata("mine");
    labelled["labels"]["croft.dev/tenant"] = json!(TENANT);
    vec![
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata("mine"), "spec": {"hard": {"pods": "50"}}}),
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata("mine"),
            "spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": labelled, "roleRef": role,
            "subjects": [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]}),
    ]
}

/// The objects of both namespaces as `kind namespace/name spec`, those of people apart.
async fn objects(plane: &ControlPlane) -> (Vec<String>, Vec<String>) {
    let kinds = "resourcequotas,limitranges,rolebindings";
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for namespace in NAMESPACES {
        let found = plane.kubectl(["get", kinds, "-n", namespace, "-o", "json"]).await.unwrap();
        let found: Value = serde_json::from_str(&found).unwrap();
        for item in found["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            let content = [&item["spec"], &item["roleRef"]["name"], &item["subjects"]].map(Value::to_string);
            let text = format!("{} {namespace}/{name} {}", item["kind"], content.join(" "));
            if name.starts_with("croft-tenant-") { own.push(text) } else { others.push(text) }
        }
    }
    (own, others)
}

/// Waits until Croft's objects are these.
async fn settled(plane: &ControlPlane, expected: &[String], what: &str) {
    until(what, SOON, async || {
        let (own, _) = objects(plane).await;
        anyhow::Ok(Seen::from_option((own == expected).then_some(()), format!("{own:#?}")))
    })
    .await
    .unwrap();
}

async fn labels(admin: &Client, namespace: &str) -> [Option<String>; 2] {
    let found = Api::<Namespace>::all(admin.clone()).get(namespace).await.unwrap();
    [ENFORCE, WARN].map(|label| found.labels().get(label).cloned())
}

async fn labelled(admin: &Client, namespace: &str, expected: [Option<&str>; 2]) {
    until(&format!("Pod Security of {namespace}"), SOON, async || {
        let found = labels(admin, namespace).await;
        let done = found.each_ref().map(Option::as_deref) == expected;
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{found:?}")))
    })
    .await
    .unwrap();
}

async fn patch(plane: &ControlPlane, words: &[&str], patch: Value) {
    let patch = patch.to_string();
    let all = [&["patch"][..], words, &["--type=merge", "-p", patch.as_str()]].concat();
    plane.kubectl(all).await.unwrap();
}

/// Everything is there before the annotation that lets the first pod in, and has its effect.
pub(crate) async fn begin(plane: &ControlPlane, admin: &Client) {
    let tenant = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": TENANT}, "spec": spec()});
    plane.apply(&tenant.to_string()).await.unwrap();
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    // In the second namespace people set a stricter level, and a laxer one.
    let both = [
        namespace("given-a", json!({})),
        namespace("given-b", json!({ENFORCE: "restricted", WARN: "baseline"})),
    ];
    plane.apply(&joined(&both)).await.unwrap();
    plane.apply(&joined(&by_hand())).await.unwrap();
    condition_of::<Tenant>(admin, TENANT, "ObjectsKept", "True").await.unwrap();
    labelled(admin, "given-a", [Some("baseline"), Some("restricted")]).await;
    labelled(admin, "given-b", [Some("restricted"), Some("restricted")]).await;
    // The condition was true before there was a namespace.
    for namespace in ["given-a", "given-b"] {
        until(&format!("{namespace} let in"), SOON, async || {
            let found = Api::<Namespace>::all(admin.clone()).get(namespace).await?;
            let annotated = found.annotations().contains_key(POOLS_ANNOTATION);
            anyhow::Ok(Seen::from_option(annotated.then_some(()), format!("{:?}", found.annotations())))
        })
        .await
        .unwrap();
    }
    let (own, others) = objects(plane).await;
    assert_eq!((own.len(), others.len()), (8, 3), "{own:#?} {others:#?}");

    // A pod without requests is admitted with the defaults, once the namespace is let in.
    let plain = arena::pod("given-a", "plain", json!({}));
    until("a pod with defaults", SOON, async || {
        let said = arena::create(admin, &plain, true).await?.sentence();
        let done = said.contains(r#""requests":{"cpu":"100m","memory":"64Mi"}"#);
        anyhow::Ok(Seen::from_option(done.then_some(()), said))
    })
    .await
    .unwrap();
    let mut large = plain.clone();
    large["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    let said = arena::create(admin, &large, true).await.unwrap().sentence();
    assert!(said.contains("exceeded quota: croft-tenant-quota"), "{said}");
    let privileged = arena::pod("given-a", "strong", json!({"hostNetwork": true}));
    let said = arena::create(admin, &privileged, true).await.unwrap().sentence();
    assert!(said.contains("violates PodSecurity \"baseline"), "{said}");

    // The owner has the role admin here, and nowhere else.
    let jane = plane.client_for("jane-of-given", &[]).await.unwrap();
    let map = |namespace: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": namespace}});
    for (namespace, allowed) in [("given-a", true), ("given-b", true), ("tenant-a", false)] {
        let answer = arena::create(&jane, &map(namespace), true).await.unwrap();
        assert_eq!(answer.is_done(), allowed, "{namespace}: {}", answer.sentence());
    }
    let ops = plane.client_for("someone", &["ops"]).await.unwrap();
    assert!(!arena::create(&ops, &map("given-a"), true).await.unwrap().is_done(), "view isn't admin");
}

pub(crate) async fn repaired(plane: &ControlPlane, admin: &Client) {
    let (before, _) = objects(plane).await;
    let quota = ["resourcequota", "croft-tenant-quota", "-n", "given-a"];
    patch(plane, &quota, json!({"spec": {"hard": {"pods": "1000", "secrets": "3"}}})).await;
    settled(plane, &before, "the quota restored").await;
    let note = event_about(admin, "Tenant", TENANT, "ObjectRestored").await.unwrap();
    assert!(note.starts_with("ResourceQuota given-a/croft-tenant-quota was changed by hand"), "{note}");
    plane.kubectl(["delete", "limitrange", "croft-tenant-defaults", "-n", "given-b"]).await.unwrap();
    settled(plane, &before, "the defaults created again").await;
    patch(plane, &["rolebinding", "croft-tenant-owners-admin", "-n", "given-a"], json!({"subjects": []}))
        .await;
    settled(plane, &before, "the subjects restored").await;
    // Another role under Croft's name: the API server lets no user change the role of a binding.
    let mut stronger: Value = by_hand().remove(2);
    stronger["metadata"]["name"] = json!("croft-tenant-owners-view");
    stronger["roleRef"]["name"] = json!("edit");
    until("the binding of another role", SOON, async || {
        // Croft may create its own between the deletion and the creation.
        let done = plane.kubectl_with(["replace", "--force", "-f", "-"], &stronger.to_string()).await;
        anyhow::Ok(Seen::from_option(done.as_ref().ok().map(|_| ()), format!("{done:?}")))
    })
    .await
    .unwrap();
    settled(plane, &before, "the binding of the declared role").await;
    // Levels: a lower one is raised, a higher one stays.
    patch(
        plane,
        &["namespace", "given-a"],
        json!({"metadata": {"labels": {ENFORCE: "privileged", WARN: null}}}),
    )
    .await;
    labelled(admin, "given-a", [Some("baseline"), Some("restricted")]).await;
    patch(plane, &["namespace", "given-a"], json!({"metadata": {"labels": {ENFORCE: "restricted"}}})).await;
    let noted = json!({"spec": {"podSecurity": {"enforce": "baseline", "warn": "baseline"}}});
    patch(plane, &["tenant", TENANT], noted).await;
    labelled(admin, "given-a", [Some("restricted"), Some("baseline")]).await;
}

/// A role that the controller may not bind.
pub(crate) async fn refused(plane: &ControlPlane, admin: &Client) {
    let owners = json!([{"kind": "User", "name": "jane-of-given", "clusterRoles": ["cluster-admin"]}]);
    patch(plane, &["tenant", TENANT], json!({"spec": {"owners": owners}})).await;
    let said = until("the refusal of the role", SOON, async || {
        let said = condition_of::<Tenant>(admin, TENANT, "ObjectsKept", "False").await.unwrap();
        let done = (said.reason == "ObjectsRefused").then(|| said.message.clone());
        anyhow::Ok(Seen::from_option(done, format!("{said:?}")))
    })
    .await
    .unwrap();
    assert!(said.contains("croft-tenant-owners-cluster-admin") && said.contains("forbidden"), "{said}");
    patch(plane, &["tenant", TENANT], json!({"spec": {"owners": spec()["owners"]}})).await;
    condition_of::<Tenant>(admin, TENANT, "ObjectsKept", "True").await.unwrap();
}

pub(crate) async fn end_of_fields(plane: &ControlPlane, admin: &Client) {
    let (before, others) = objects(plane).await;
    let none = json!({"spec": {"quota": null, "defaults": null, "podSecurity": null, "owners": null}});
    patch(plane, &["tenant", TENANT], none).await;
    settled(plane, &[], "no object of Croft's").await;
    labelled(admin, "given-a", [Some("restricted"), None]).await;
    labelled(admin, "given-b", [Some("restricted"), Some("baseline")]).await;
    assert_eq!(objects(plane).await.1, others, "objects of people are as they were");
    patch(plane, &["tenant", TENANT], json!({"spec": spec()})).await;
    settled(plane, &before, "everything again").await;
}

pub(crate) async fn delete_tenant(plane: &ControlPlane, admin: &Client) {
    labelled(admin, "given-b", [Some("restricted"), Some("restricted")]).await;
    plane.kubectl(["delete", "tenant", TENANT, "--wait=true"]).await.unwrap();
}

/// After a minute in which the Tenant could have come back.
pub(crate) async fn end_of_tenant(admin: &Client, begun: Instant) {
    use k8s_openapi::api::{
        core::v1::{LimitRange, ResourceQuota},
        rbac::v1::RoleBinding,
    };
    let end = until("the end of the objects of a deleted Tenant", EVENTUALLY, async || {
        let list = kube::api::ListParams::default();
        let mut left = Vec::new();
        for namespace in NAMESPACES {
            let quotas = Api::<ResourceQuota>::namespaced(admin.clone(), namespace).list(&list).await?;
            let ranges = Api::<LimitRange>::namespaced(admin.clone(), namespace).list(&list).await?;
            let bindings = Api::<RoleBinding>::namespaced(admin.clone(), namespace).list(&list).await?;
            left.extend(quotas.items.iter().map(kube::ResourceExt::name_any));
            left.extend(ranges.items.iter().map(kube::ResourceExt::name_any));
            left.extend(bindings.items.iter().map(kube::ResourceExt::name_any));
        }
        let done = left == ["mine", "mine", "mine"];
        Ok::<_, kube::Error>(Seen::from_option(done.then(Instant::now), format!("{left:?}")))
    })
    .await
    .unwrap();
    assert!(end.duration_since(begun).as_secs() >= 50, "the absence was confirmed first");
    labelled(admin, "given-b", [Some("restricted"), Some("baseline")]).await;
}
