//! The chart of a tenant: the values files of the examples become tenants that are Ready before their namespaces, whose pods
//! are pinned, and in which no comparison of Argo CD or Flux finds a difference. Wrong values are refused with what to write.

use std::fs;

use croft_api::Tenant;
use croft_testkit::{
    ControlPlane, CroftOptions, Options,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{Answer, SOON, create, kept_arena, pod},
    manifests::{daemon_set, joined},
    stack::condition_of,
};
use kube::Client;
use serde_json::{Value, json};

use super::render::{chart, helm, name, objects, text};

/// The team that Argo CD and Flux have in the examples.
const TEAM: &str = "shop";
const WAVE: &str = "/metadata/annotations/argocd.argoproj.io~1sync-wave";

/// A file of manifests/examples.
fn example(path: &str) -> String {
    let path = CroftOptions::find().unwrap().manifests.join("examples").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn values_of(team: &str) -> Value {
    serde_saphyr::from_str(&example(&format!("tenants-from-git/teams/{team}/values.yaml"))).unwrap()
}

/// A file with these values.
fn written(values: &Value) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, values.to_string().as_bytes()).unwrap();
    file
}

/// The objects of a tenant, with further arguments of `helm template`.
fn rendered(team: &str, values: &Value, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let (chart, file) = (chart("croft-tenant").display().to_string(), written(values));
    let values = format!("--values={}", file.path().display());
    helm(&[&["template", team, &chart, &values], arguments].concat()).map(|text| objects(&text))
}

/// The fields of `wanted` that `live` has otherwise, as by a comparison that looks into maps and takes lists as wholes: so Argo
/// CD compares custom resources, and lists without a merge key.
fn differing(path: &str, wanted: &Value, live: Option<&Value>) -> Vec<String> {
    match (wanted, live) {
        (Value::Object(wanted), Some(Value::Object(live))) => {
            let inner =
                wanted.iter().map(|(key, value)| differing(&format!("{path}/{key}"), value, live.get(key)));
            inner.flatten().collect()
        }
        (wanted, Some(live)) if wanted == live => Vec::new(),
        (wanted, live) => vec![format!("{path}: {live:?} instead of {wanted}")],
    }
}

/// The fields of an object that people and tools compare.
fn compared(object: &Value) -> Value {
    let field = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
    json!({
        "annotations": field("/metadata/annotations"), "finalizers": field("/metadata/finalizers"),
        "labels": field("/metadata/labels"), "spec": field("/spec"),
    })
}

/// Objects that kubectl prints for these manifests.
async fn printed(plane: &ControlPlane, arguments: &[&str], manifests: &str) -> Vec<Value> {
    let arguments = [arguments, &["--filename=-", "--output=json"]].concat();
    let answer: Value =
        serde_json::from_str(&plane.kubectl_with(arguments, manifests).await.unwrap()).unwrap();
    answer["items"].as_array().cloned().unwrap_or_else(|| vec![answer])
}

/// Waits until neither comparison of the cluster with these objects finds a difference. Without `by_lists`, only a server-side
/// dry run compares, as Flux does, and Argo CD where it is told to.
async fn equal(plane: &ControlPlane, all: &[Value], by_lists: bool) {
    let manifests = joined(all);
    let dry_run = ["apply", "--server-side", "--force-conflicts", "--dry-run=server"];
    until("no difference", SOON, async || {
        let live = printed(plane, &["get"], &manifests).await;
        let planned = printed(plane, &dry_run, &manifests).await;
        let find = |among: &[Value], wanted: &Value| {
            among.iter().find(|object| name(object) == name(wanted)).cloned().unwrap_or_default()
        };
        let mut found = Vec::new();
        for object in all {
            let (live, planned) = (find(&live, object), find(&planned, object));
            if by_lists {
                found.extend(differing(&name(object), object, Some(&live)));
            }
            let (planned, live) = (compared(&planned), compared(&live));
            if planned != live {
                found.push(format!("{}: a dry run gives {planned} instead of {live}", name(object)));
            }
        }
        anyhow::Ok(Seen::from_option(found.is_empty().then_some(()), found.join("\n")))
    })
    .await
    .unwrap();
}

/// Waits until a pod of a namespace would be pinned to a pool. The pod meets every level of Pod Security.
async fn pinned(admin: &Client, namespace: &str, pool: &str) {
    let container = json!({
        "name": "c", "image": "c",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    let spec = json!({
        "containers": [container],
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    });
    let probe = pod(namespace, "probe", spec);
    until(&format!("a pod of {namespace} in {pool}"), SOON, async || {
        let answer = create(admin, &probe, true).await?;
        let of_pool = match &answer {
            Answer::Done(object) => {
                text(&object.data, "/spec/nodeSelector/node-restriction.kubernetes.io~1pool")
            }
            Answer::Refused(_) => "",
        };
        anyhow::Ok(Seen::from_option((of_pool == pool).then_some(()), answer.sentence()))
    })
    .await
    .unwrap();
}

/// Each namespace of the values gets its pool: that of its annotation, else the first.
async fn all_pinned(admin: &Client, values: &Value) {
    for namespace in values["namespaces"].as_array().unwrap() {
        let chosen = text(namespace, "/annotations/croft.dev~1pool");
        let pool = if chosen.is_empty() { text(values, "/pools/0/name") } else { chosen };
        pinned(admin, text(namespace, "/name"), pool).await;
    }
}

async fn is_ready(admin: &Client, team: &str) {
    condition_of::<Tenant>(admin, team, "Ready", "True").await.unwrap();
}

#[tokio::test]
async fn tenants_of_the_examples_are_ready_before_their_namespaces_and_show_no_difference() {
    let (plane, mut croft) = kept_arena(Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    for file in ["nodeclass.yaml", "tenants-from-git/pools.yaml"] {
        plane.apply(&example(file)).await.unwrap();
    }
    by_argo_cd(&plane, &admin, "forge").await;
    checked_by_the_api_server(&plane).await;
    by_helm(&plane, &admin).await;
    daemon_sets(&plane).await;
    uninstalled(&plane).await;
    croft.check().unwrap();
}

/// Applied as Argo CD does: in the order of the sync waves, each of which waits for the Tenant's health.
async fn by_argo_cd(plane: &ControlPlane, admin: &Client, team: &str) {
    let values = values_of(team);
    let all = rendered(team, &values, &[]).unwrap();
    for (wave, kind) in [("-2", "TenantPool"), ("-1", "Tenant"), ("", "Namespace")] {
        let of_wave: Vec<&Value> = all.iter().filter(|object| text(object, WAVE) == wave).collect();
        assert!(!of_wave.is_empty() && of_wave.iter().all(|o| text(o, "/kind") == kind), "{of_wave:?}");
        plane.kubectl_with(["apply", "--filename=-"], &joined(of_wave)).await.unwrap();
        if kind == "Tenant" {
            is_ready(admin, team).await;
        }
    }
    all_pinned(admin, &values).await;
    until("every field as it was applied", SOON, async || {
        let live = printed(plane, &["get"], &joined(&all)).await;
        let of_live = |wanted: &Value| live.iter().find(|object| name(object) == name(wanted));
        let found: Vec<String> =
            all.iter().flat_map(|object| differing(&name(object), object, of_live(object))).collect();
        anyhow::Ok(Seen::from_option(found.is_empty().then_some(()), found.join("\n")))
    })
    .await
    .unwrap();
}

/// The dry run of the task page: it refuses values that the chart lets through, and takes those of the examples.
async fn checked_by_the_api_server(plane: &ControlPlane) {
    for (argument, said) in [
        ("limits.nodes=1.5", "nodes is a whole number: write for example 50"),
        ("quota.total.cpus=3", "write the names that a ResourceQuota has"),
        ("networkIsolation.allowTo[0].cidr=10.0.0.0/8", "write egress: Restricted beside it"),
        (
            "pools[0].spec.provisioner=None,pools[0].spec.replicas=2",
            "set provisioner: Croft, or leave them out",
        ),
    ] {
        let all = rendered(TEAM, &values_of(TEAM), &["--set", argument]).unwrap();
        let error = plane.kubectl_with(["apply", "--dry-run=server", "--filename=-"], &joined(&all)).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(said), "{argument}: {error}");
    }
    let strict = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-"];
    for values in [of_flux(), of_values_yaml()] {
        let all = rendered(TEAM, &values, &[]).unwrap();
        plane.kubectl_with(strict, &joined(&all)).await.unwrap();
    }
}

/// The values of the HelmRelease.
fn of_flux() -> Value {
    let release = example(&format!("tenants-from-git/flux/teams/{TEAM}/release.yaml"));
    let release: Value = serde_saphyr::from_str(&release).unwrap();
    assert_eq!(text(&release, "/metadata/name"), TEAM);
    release["spec"]["values"].clone()
}

/// The examples of values.yaml together, from the file that it is generated from.
fn of_values_yaml() -> Value {
    let path = CroftOptions::find().unwrap().manifests.join("../crates/xtask/data/tenant-chart-values.yaml");
    let data: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let examples = data["examples"].as_object().unwrap().iter().map(|(name, example)| {
        (name.clone(), serde_saphyr::from_str::<Value>(example.as_str().unwrap()).unwrap())
    });
    Value::Object(examples.collect())
}

/// Installed and upgraded by Helm, as Flux does.
async fn by_helm(plane: &ControlPlane, admin: &Client) {
    let chart = chart("croft-tenant").display().to_string();
    let mut values = values_of(TEAM);
    for action in ["install", "upgrade"] {
        let file = written(&values);
        let path = format!("--values={}", file.path().display());
        plane.helm([action, TEAM, &chart, "--namespace=default", &path]).await.unwrap();
        is_ready(admin, TEAM).await;
        condition_of::<Tenant>(admin, TEAM, "ObjectsKept", "True").await.unwrap();
        all_pinned(admin, &values).await;
        equal(plane, &rendered(TEAM, &values, &[]).unwrap(), true).await;
        values["namespaces"].as_array_mut().unwrap().push(json!({"name": "shop-more"}));
    }
}

/// Croft adds to the template of a DaemonSet. A comparison of lists finds that, a server-side dry run doesn't.
async fn daemon_sets(plane: &ControlPlane) {
    let own = json!([{"key": "example.com/dedicated", "operator": "Exists"}]);
    let agent = daemon_set(TEAM, "agent", json!({"tolerations": own}));
    plane.apply(&agent.to_string()).await.unwrap();
    let live = printed(plane, &["get"], &agent.to_string()).await;
    let found = differing("", &agent, live.first());
    assert!(found.iter().any(|one| one.starts_with("/spec/template/spec/tolerations:")), "{found:?}");
    equal(plane, &[agent], false).await;
}

/// The namespaces outlive the release, with what is in them.
async fn uninstalled(plane: &ControlPlane) {
    plane.helm(["uninstall", TEAM, "--namespace=default"]).await.unwrap();
    plane
        .kubectl(["wait", "--for=delete", "tenant/shop", "tenantpool/shop", "--timeout=180s"])
        .await
        .unwrap();
    let kept = ["get", "namespaces", "shop", "shop-test", "shop-more", "--output=name"];
    assert_eq!(plane.kubectl(kept).await.unwrap().lines().count(), 3);
    plane.kubectl(["get", "daemonset", "agent", "--namespace", TEAM]).await.unwrap();
}

#[test]
fn wrong_values_of_a_tenant_are_refused_with_what_to_write() {
    for (argument, said) in [
        ("pools=null", "pools is empty: write the TenantPools of the tenant"),
        ("namespaces=null", "the tenant has no namespaces: write namespaces"),
        (
            r"namespaces[0].labels.croft\.dev/tenancy=none",
            "the namespace shop has the label croft.dev/tenancy, which is kept by Croft alone: leave it out",
        ),
        (
            r"namespaces[0].annotations.policy\.croft\.dev/pools=x",
            "has the annotation policy.croft.dev/pools, which is kept by Croft alone: leave it out",
        ),
        (
            r"namespaces[1].labels.pod-security\.kubernetes\.io/enforce=privileged",
            "write that or a stricter level, or leave the label out",
        ),
        ("namespaces[0].name=Shop", "/namespaces/0/name"),
        ("namespace=shop", "'namespace' not allowed"),
        ("onConflict=Move", "must be one of 'Reject', 'Override'"),
        ("quota.totl.pods=1", "'totl' not allowed"),
        ("limits.nodes=true", "/limits/nodes"),
        ("owners[1].kind=User,owners[1].name=jane", "missing property 'clusterRoles'"),
        ("pools[0].spec.template.spec.nodeClassRef.class=x", "'class' not allowed"),
    ] {
        let error = rendered(TEAM, &values_of(TEAM), &["--set", argument]).unwrap_err();
        assert!(error.contains(said), "{argument}: {error}");
    }
    let mut values = values_of("forge");
    values.as_object_mut().unwrap().remove("owners");
    let error = rendered("forge", &values, &[]).unwrap_err();
    assert!(error.contains("write owners beside namespaceCreation"), "{error}");
}

#[test]
fn a_namespace_may_have_a_stricter_level_than_its_tenant() {
    let stricter = r"namespaces[0].labels.pod-security\.kubernetes\.io/enforce=restricted";
    let all = rendered(TEAM, &values_of(TEAM), &["--set", stricter]).unwrap();
    let labels = text(&all[0], "/metadata/labels/pod-security.kubernetes.io~1enforce");
    assert_eq!(labels, "restricted");
}

#[test]
fn examples_of_gitops_tools_name_charts_of_this_version() {
    let chart: Value =
        serde_saphyr::from_str(&fs::read_to_string(chart("croft-tenant").join("Chart.yaml")).unwrap())
            .unwrap();
    let version = text(&chart, "/version");
    let mut named = 0;
    for file in ["argo-cd/croft.yaml", "argo-cd/tenants.yaml", "flux/croft.yaml"] {
        for line in example(&format!("tenants-from-git/{file}")).lines() {
            let range = line.split_once("targetRevision: ").or_else(|| line.split_once("semver: "));
            let Some(range) = range.map(|(_, range)| range).filter(|range| !range.starts_with("main")) else {
                continue;
            };
            let beginning = range.split(['*', 'x', '}']).next().unwrap();
            assert!(version.starts_with(beginning), "{file}: {line}: the charts have the version {version}");
            named += 1;
        }
    }
    assert_eq!(named, 6);
}
