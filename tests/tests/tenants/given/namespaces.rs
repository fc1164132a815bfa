//! Owners create namespaces: under their prefix, up to a number that 20 creators at once don't exceed, and closed until they
//! have everything.

use croft_api::Tenant;
use croft_policy::definitions::POOLS_ANNOTATION;
use croft_testkit::{
    ControlPlane,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{self, SOON},
    manifests::joined,
    stack::{EVENTUALLY, condition_of},
};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::ClusterRoleBinding};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Child};

const TENANT: &str = "weavers";
const PREFIX: &str = "loom-";
const MAXIMUM: usize = 3;
const CREATORS: usize = 20;

fn tenants() -> String {
    let tenant = |name: &str, spec: Value| json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec});
    let owners = json!([
        {"kind": "User", "name": "carla"},
        {"kind": "Group", "name": "spinners", "clusterRoles": ["view"]},
        {"kind": "ServiceAccount", "name": "default", "namespace": "tenant-a"},
    ]);
    // Another tenant claims one of the names, and a label that owners may write.
    let other = json!({"namespaces": ["loom-taken"], "pools": ["pool-b"],
        "namespaceSelector": {"matchLabels": {"name": "loom-picked"}}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "self-service"},
        "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}]});
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "self-service"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "self-service"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "self-service-user"}]});
    // The other comes first: where both claim a name, it belongs to the older.
    joined(&[
        tenant("dyers", other),
        tenant(
            TENANT,
            json!({"pools": ["pool-a"], "owners": owners, "networkIsolation": {"enabled": true},
                "namespaceCreation": {"prefix": PREFIX, "maximum": MAXIMUM}}),
        ),
        role,
        bound,
    ])
}

fn namespace(name: &str, metadata: Value) -> Value {
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    namespace["metadata"]["name"] = json!(name);
    namespace
}

/// Marks of kustomize-controller on the objects of a Kustomization.
fn by_flux() -> Value {
    json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
        "annotations": {"kustomize.toolkit.fluxcd.io/prune": "disabled"}})
}

/// Marks of Argo CD on the objects of an Application, and what an owner writes for it.
fn by_argo_cd() -> Value {
    json!({"labels": {"argocd.argoproj.io/instance": "loom"},
        "annotations": {"argocd.argoproj.io/tracking-id": "loom:/Namespace:loom-1/loom-1",
            "argocd.argoproj.io/sync-wave": "-1"}})
}

/// Marks of Helm on the objects of a release.
fn by_helm() -> Value {
    json!({"labels": {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "loom-1.0.0"},
        "annotations": {"meta.helm.sh/release-name": "loom", "meta.helm.sh/release-namespace": "default"}})
}

/// The answer to a dry run.
async fn said(client: &Client, name: &str, metadata: Value) -> String {
    arena::create(client, &namespace(name, metadata), true).await.unwrap().sentence()
}

async fn until_said(client: &Client, name: &str, part: &str) {
    until(&format!("{part:?} for {name}"), SOON, async || {
        let said = said(client, name, json!({})).await;
        anyhow::Ok(Seen::from_option(said.contains(part).then_some(()), said))
    })
    .await
    .unwrap();
}

/// The namespaces with the prefix, and those of them that have pools.
async fn created(admin: &Client) -> (Vec<String>, Vec<String>) {
    let all = Api::<Namespace>::all(admin.clone()).list(&ListParams::default()).await.unwrap().items;
    let own = all.into_iter().filter(|namespace| namespace.name_any().starts_with(PREFIX));
    let (open, closed): (Vec<_>, Vec<_>) =
        own.partition(|namespace| namespace.annotations().contains_key(POOLS_ANNOTATION));
    let names = |list: Vec<Namespace>| list.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>();
    (names(open), names(closed))
}

pub(crate) async fn names_and_labels(plane: &ControlPlane, admin: &Client) {
    plane.apply(&tenants()).await.unwrap();
    condition_of::<Tenant>(admin, "dyers", "Ready", "True").await.unwrap();
    let carla = plane.client_for("carla", &[]).await.unwrap();
    until_said(&carla, "loom-0", "allowed").await;
    for (name, metadata, part) in [
        ("other", json!({}), "choose a name that begins with loom-"),
        ("loom", json!({}), "choose a name that begins with loom-"),
        ("kube-loom", json!({}), "choose a name that begins with loom-"),
        ("loom-taken", json!({}), "into or out of tenant dyers"),
        ("loom-picked", json!({"labels": {"name": "loom-picked"}}), "into or out of tenant dyers"),
        (
            "loom-1",
            json!({"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}),
            "may not give the label",
        ),
        ("loom-1", json!({"labels": {"name": "tenant-b"}}), "may not give the label name"),
        ("loom-1", json!({"labels": {"app.kubernetes.io/name": "ingress-nginx"}}), "may not give the label"),
        ("loom-1", json!({"annotations": {"croft.dev/pool": "pool-b"}}), "may not give the annotation"),
        // Croft's own is taken back.
        ("loom-1", json!({"labels": {"croft.dev/tenancy": "none"}}), "allowed"),
        (
            "loom-1",
            json!({"annotations": {POOLS_ANNOTATION: "node-pool=pool-b:NoSchedule:pool-b"}}),
            "allowed",
        ),
        ("loom-1", by_flux(), "allowed"),
        ("loom-1", by_argo_cd(), "allowed"),
        ("loom-1", by_helm(), "allowed"),
        (
            "loom-1",
            json!({"labels": {"app.kubernetes.io/instance": "loom"}}),
            "spec.ownerMetadata of the CroftConfig",
        ),
        ("loom-1", json!({"labels": {"argocd.argoproj.io/managed-by": "argocd"}}), "may not give the label"),
        (
            "loom-1",
            json!({"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "a=b"}}),
            "may not give the annotation",
        ),
        ("loom-1", json!({"finalizers": ["example.com/stay"]}), "may not give finalizers"),
        ("loom-1", json!({"labels": {"name": "loom-1"}}), "allowed"),
    ] {
        let said = said(&carla, name, metadata.clone()).await;
        assert!(said.contains(part), "{name} {metadata}: {said}");
    }
    let mut kept = namespace("loom-1", json!({}));
    kept["spec"] = json!({"finalizers": ["example.com/stay"]});
    let said_of_spec = arena::create(&carla, &kept, true).await.unwrap().sentence();
    assert!(said_of_spec.contains("may not give finalizers, also not in its spec"), "{said_of_spec}");
    kept["spec"] = json!({"finalizers": ["kubernetes"]});
    assert!(arena::create(&carla, &kept, true).await.unwrap().is_done(), "the API server's own");
    let member = plane.client_for("someone", &["spinners"]).await.unwrap();
    assert!(said(&member, "loom-1", json!({})).await.contains("allowed"));
    assert!(said(&member, "x", json!({})).await.contains("loom-"));
    let robot = plane.client_for_service_account("tenant-a", "default").await.unwrap();
    assert!(said(&robot, "loom-1", json!({})).await.contains("allowed"));
    assert!(said(&robot, "x", json!({})).await.contains("loom-"));
    let outsider = plane.client_for("outsider", &[]).await.unwrap();
    assert!(said(&outsider, "loom-1", json!({})).await.contains("cannot create resource \"namespaces\""));
    // A user who creates namespaces by another role, and owns nothing.
    let other = plane.client_for("self-service-user", &[]).await.unwrap();
    assert!(said(&other, "loom-1", json!({})).await.contains("into or out of tenant weavers"));
    assert!(said(&other, "x", json!({})).await.contains("allowed"));
}

/// The first namespace: closed until it has pools, then the tenant's, with the owner's role.
pub(crate) async fn first(plane: &ControlPlane, admin: &Client) {
    let carla = plane.client_for("carla", &[]).await.unwrap();
    let made = arena::create(&carla, &namespace("loom-0", json!({})), false).await.unwrap();
    assert!(made.is_done(), "{}", made.sentence());
    let pod = arena::pod("loom-0", "first", json!({}));
    until("the first pod of a new namespace", SOON, async || {
        let answer = arena::create(admin, &pod, true).await?;
        let said = answer.sentence();
        assert!(!answer.is_done() || said.contains("\"node-pool\":\"pool-a\""), "not pinned: {said}");
        anyhow::Ok(Seen::from_option(answer.is_done().then_some(()), said))
    })
    .await
    .unwrap();
    let map = |namespace: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": namespace}});
    assert!(arena::create(&carla, &map("loom-0"), true).await.unwrap().is_done(), "roles come before pods");
    assert!(!arena::create(&carla, &map("tenant-a"), true).await.unwrap().is_done());
    plane.kubectl(["get", "networkpolicy", "croft-tenant-network", "-n", "loom-0"]).await.unwrap();
}

/// Creators at the same moment: no more namespaces than the maximum ever have pools.
pub(crate) async fn concurrent(plane: &ControlPlane, admin: &Client) {
    let carla = plane.client_for("carla", &[]).await.unwrap();
    let names: Vec<String> = (0..CREATORS).map(|n| format!("loom-many-{n:02}")).collect();
    let create = async |name: &String| {
        arena::create(&carla, &namespace(name, json!({})), false).await.unwrap().is_done()
    };
    let made = join_all(names.iter().map(create)).await.into_iter().filter(|made| *made).count();
    assert!(made >= MAXIMUM, "{made} were created");
    until("the maximum", EVENTUALLY, async || {
        let (open, closed) = created(admin).await;
        assert!(open.len() <= MAXIMUM, "{open:?} have pools");
        anyhow::Ok(Seen::from_option((open.len() == MAXIMUM).then_some(()), format!("{open:?} {closed:?}")))
    })
    .await
    .unwrap();
    until_said(&carla, "loom-more", "tenant weavers has the 3 namespaces that its owners may create").await;
    let (open, closed) = created(admin).await;
    assert_eq!(open.len() + closed.len(), made + 1);
    let surplus = closed.first().expect("20 creators at once are more than the maximum").clone();
    let said = condition_of::<Tenant>(admin, TENANT, "NamespaceCreation", "False").await.unwrap();
    assert!(
        said.reason == "AboveMaximum" && said.message.contains("stay without pools and roles"),
        "{said:?}"
    );
    until("the name of each", EVENTUALLY, async || {
        let said = condition_of::<Tenant>(admin, TENANT, "NamespaceCreation", "False").await?;
        let all = closed.iter().all(|name| said.message.contains(name.as_str()));
        anyhow::Ok(Seen::from_option(all.then_some(()), format!("{said:?}")))
    })
    .await
    .unwrap();
    until("the refusal of a pod in a surplus namespace", EVENTUALLY, async || {
        // By kubectl: the library tries again for minutes what may be admitted later.
        let run = ["run", "x", "--image=c", "--dry-run=server", "--namespace", &surplus];
        let refused = plane.kubectl(run).await.unwrap_err().to_string();
        let names_all = open.iter().all(|name| refused.contains(name.as_str()));
        let done =
            refused.contains("is beyond spec.namespaceCreation.maximum of tenant \"weavers\"") && names_all;
        anyhow::Ok(Seen::from_option(done.then_some(()), refused))
    })
    .await
    .unwrap();
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": surplus}});
    assert!(!arena::create(&carla, &map, true).await.unwrap().is_done(), "no role there");
    // Another takes the place of one that is gone.
    let gone = open.iter().find(|name| *name != "loom-0").unwrap();
    plane.kubectl(["delete", "namespace", gone]).await.unwrap();
    until("the next namespace let in", EVENTUALLY, async || {
        let (open, closed) = created(admin).await;
        assert!(open.len() <= MAXIMUM, "{open:?} have pools");
        let done = open.len() == MAXIMUM && !open.contains(gone);
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{open:?} {closed:?}")))
    })
    .await
    .unwrap();
}

/// Requests of the user to create a namespace, which the API server has authorized by their headers, and which wait for their bodies.
async fn withhold<const N: usize>(
    plane: &ControlPlane,
    user: &str,
    names: [&'static str; N],
) -> [(&'static str, Child); N] {
    let kubeconfig = plane.kubeconfig_for(user, &[]).unwrap();
    let create = ["create", "--raw", "/api/v1/namespaces", "-f", "-"];
    let requests =
        names.map(|name| (name, plane.kubectl_process(&kubeconfig, create).unwrap().spawn().unwrap()));
    // The priority level of users who are neither administrators nor ServiceAccounts.
    let executing = "apiserver_flowcontrol_current_executing_requests{flow_schema=\"global-default\"";
    until("the requests to wait for their bodies", SOON, async || {
        let metrics = plane.kubectl(["get", "--raw", "/metrics"]).await?;
        let line = metrics.lines().find(|line| line.starts_with(executing)).unwrap_or_default();
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        anyhow::Ok(Seen::from_option((count >= N).then_some(()), line.to_owned()))
    })
    .await
    .unwrap();
    requests
}

/// Sends the body. Returns what kubectl prints.
async fn sent(mut request: Child, body: &Value) -> String {
    let mut stdin = request.stdin.take().unwrap();
    stdin.write_all(body.to_string().as_bytes()).await.unwrap();
    drop(stdin);
    let output = request.wait_with_output().await.unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).join("")
}

/// Without the field the owners create no namespace, also not by requests that were authorized before.
pub(crate) async fn end(plane: &ControlPlane, admin: &Client) {
    let bindings = Api::<ClusterRoleBinding>::all(admin.clone());
    let name = "croft-tenant-namespaces-weavers";
    plane
        .kubectl(["patch", "clusterrolebinding", name, "--type=merge", "-p", r#"{"subjects": []}"#])
        .await
        .unwrap();
    until("the owners restored", SOON, async || {
        let subjects = bindings.get(name).await?.subjects.unwrap_or_default().len();
        Ok::<_, kube::Error>(Seen::from_option((subjects == 3).then_some(()), subjects))
    })
    .await
    .unwrap();
    let withheld = withhold(plane, "carla", ["taken", "loom-late"]).await;
    let patch = r#"{"spec": {"namespaceCreation": null, "namespaces": ["loom-0"]}}"#;
    plane.kubectl(["patch", "tenant", TENANT, "--type=merge", "-p", patch]).await.unwrap();
    let carla = plane.client_for("carla", &[]).await.unwrap();
    until_said(&carla, "loom-more", "cannot create resource \"namespaces\"").await;
    for (name, request) in withheld {
        let answer = sent(request, &namespace(name, json!({}))).await;
        assert!(answer.contains("has no prefix under which carla may create namespaces"), "{name}: {answer}");
    }
    until("the binding removed", SOON, async || {
        let left = bindings.get_opt(name).await?;
        Ok::<_, kube::Error>(Seen::from_option(left.is_none().then_some(()), format!("{left:?}")))
    })
    .await
    .unwrap();
    until("only the named namespace keeps pools", EVENTUALLY, async || {
        let (open, _) = created(admin).await;
        anyhow::Ok(Seen::from_option((open == ["loom-0"]).then_some(()), format!("{open:?}")))
    })
    .await
    .unwrap();
    plane.kubectl(["delete", "tenant", TENANT, "dyers"]).await.unwrap();
}
