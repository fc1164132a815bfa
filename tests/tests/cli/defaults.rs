//! Every object of the fixtures is created on the real API server and read back, and must equal the result of the
//! manifest loader for the same text.

use std::{fs, path::Path};

use anyhow::Context as _;
use croft_manifest::{Input, LoadOptions, apply_admission_plugins, load};
use croft_scheduler::Quantity;
use croft_testkit::{Component, ControlPlane, Options};
use serde_json::Value;

/// Without the controller manager a namespace has no default service account, and no pod is created without one.
const BASE: &str = "\
{apiVersion: v1, kind: Namespace, metadata: {name: base}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: base}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000, preemptionPolicy: Never}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 250m, memory: 120Mi}}, scheduling: {nodeSelector: {vm: 'yes'}, tolerations: [{key: vm, operator: Exists}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ranged}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: ranged}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: r, namespace: ranged}, spec: {limits: [{type: Container, default: {memory: 1Gi}, defaultRequest: {cpu: 100m}, max: {memory: 4Gi, cpu: 4}}]}}
";

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cli").join(name)
}

fn files(name: &str) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder(name))? {
        files.push(entry?.path());
    }
    files.sort();
    anyhow::ensure!(!files.is_empty(), "no fixtures in {name}");
    Ok(files)
}

async fn api_server() -> anyhow::Result<ControlPlane> {
    let options = Options::default()
        .without(Component::ControllerManager)
        .without(Component::Scheduler)
        .without(Component::Kubelets);
    let plane = ControlPlane::start(options).await?;
    for crd in croft_api::crds() {
        plane.apply(&serde_json::to_string(&crd)?).await?;
    }
    plane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]).await?;
    plane.apply(BASE).await?;
    Ok(plane)
}

#[tokio::test]
async fn defaults_equal_those_of_the_api_server() -> anyhow::Result<()> {
    let plane = api_server().await?;
    let base = plane.write("cluster.yaml", BASE)?;
    let mut wrong = Vec::new();
    let mut compared = 0;
    for file in files("defaults")? {
        let name = file.display().to_string();
        let text = fs::read_to_string(&file)?;
        let answer = plane
            .kubectl_with(["create", "-o", "json", "-f", "-"], &text)
            .await
            .with_context(|| name.clone())?;
        let options = LoadOptions::default();
        let input = load(&[base.clone(), file], &options)?;
        let offline = objects(&input)?;
        // kubectl prints several objects one after the other, without a List.
        for online in serde_json::Deserializer::from_str(&answer).into_iter::<Value>() {
            let online = online?;
            let key = key(&online);
            let ours = offline
                .iter()
                .find(|o| self::key(o) == key)
                .with_context(|| format!("{key:?} was not loaded"))?;
            compared += 1;
            differ(&format!("{key:?}"), &clean(ours), &clean(&online), &mut wrong);
        }
    }
    assert!(compared > 20, "only {compared} objects were compared");
    assert!(wrong.is_empty(), "offline and online differ:\n{}", wrong.join("\n"));
    plane.stop()?;
    Ok(())
}

/// The loader refuses exactly what the API server refuses. An unknown field of Kubernetes's kinds isn't among it: a newer
/// cluster may have it, so the loader warns (case `plan-unknown-field` of the command line).
#[tokio::test]
async fn refused_manifests_equal_those_of_the_api_server() -> anyhow::Result<()> {
    let plane = api_server().await?;
    let base = plane.write("cluster.yaml", BASE)?;
    let mut wrong = Vec::new();
    for file in files("refused")? {
        let text = fs::read_to_string(&file)?;
        for (i, document) in text.split("\n---\n").enumerate() {
            let path = plane.write("one.yaml", document)?;
            let ours = load(&[base.clone(), path.clone()], &LoadOptions::default());
            let arguments = ["create", "--dry-run=server", "-f"].map(str::to_owned);
            let theirs = plane.kubectl(arguments.into_iter().chain([path.display().to_string()])).await;
            if let Ok(answer) = theirs {
                wrong.push(format!("{} document {i}: the API server takes it: {answer}", file.display()));
            }
            if ours.is_ok() {
                wrong.push(format!("{} document {i}: the loader takes it:\n{document}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    plane.stop()?;
    Ok(())
}

/// Every object of the fixtures, with pods as they are stored.
fn objects(input: &Input) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for pod in &input.pods {
        let mut created = pod.object.clone();
        apply_admission_plugins(&mut created, input).map_err(anyhow::Error::msg)?;
        all.push(serde_json::to_value(&created)?);
    }
    macro_rules! take {
        ($($list:ident),*) => { $(for object in &input.$list { all.push(serde_json::to_value(&object.object)?); })* };
    }
    take!(
        tenants,
        pools,
        classes,
        configs,
        deployments,
        replica_sets,
        stateful_sets,
        daemon_sets,
        replication_controllers,
        jobs,
        cron_jobs
    );
    Ok(all)
}

fn key(object: &Value) -> (String, String) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/name"))
}

/// Removes fields that only a server sets.
fn clean(object: &Value) -> Value {
    let mut object = object.clone();
    let remove = |object: &mut Value, pointer: &str| {
        let Some((parent, name)) = pointer.rsplit_once('/') else { return };
        if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
            fields.remove(&name.replace("~1", "/"));
        }
    };
    for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"] {
        remove(&mut object, &format!("/metadata/{name}"));
    }
    remove(&mut object, "/metadata/annotations/deprecated.daemonset.template.generation");
    // LimitRanger's annotation.
    remove(&mut object, "/metadata/annotations/kubernetes.io~1limit-ranger");
    remove(&mut object, "/status");
    // The service account plugin mounts a token under a random name.
    let is_token =
        |v: &Value| v.get("name").and_then(Value::as_str).is_some_and(|n| n.starts_with("kube-api-access-"));
    if let Some(Value::Array(volumes)) = object.pointer_mut("/spec/volumes") {
        volumes.retain(|v| !is_token(v));
    }
    for list in ["containers", "initContainers"] {
        for container in
            object.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut).into_iter().flatten()
        {
            if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
                mounts.retain(|v| !is_token(v));
            }
        }
    }
    for name in ["serviceAccount", "serviceAccountName"] {
        if object.pointer(&format!("/spec/{name}")) == Some(&Value::from("default")) {
            remove(&mut object, &format!("/spec/{name}"));
        }
    }
    if object["kind"] == "Job" {
        remove(&mut object, "/spec/selector");
        for label in [
            "controller-uid",
            "job-name",
            "batch.kubernetes.io~1controller-uid",
            "batch.kubernetes.io~1job-name",
        ] {
            remove(&mut object, &format!("/spec/template/metadata/labels/{label}"));
            remove(&mut object, &format!("/metadata/labels/{label}"));
        }
    }
    prune(&mut object);
    object
}

/// Null, and lists and maps that are empty after cleaning, are equal to absent.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|name, v| {
                let empty = matches!(
                    name.as_str(),
                    "annotations" | "labels" | "volumes" | "volumeMounts" | "metadata"
                ) && (v.as_object().is_some_and(|o| o.is_empty())
                    || v.as_array().is_some_and(Vec::is_empty));
                !v.is_null() && !empty
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn differ(path: &str, ours: &Value, theirs: &Value, wrong: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let (a, b) = (a.get(name), b.get(name));
                match (a, b) {
                    (Some(a), Some(b)) => differ(&format!("{path}.{name}"), a, b, wrong),
                    (a, b) => wrong.push(format!("{path}.{name}: offline {a:?}, online {b:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                differ(&format!("{path}[{i}]"), a, b, wrong);
            }
        }
        _ if ours == theirs || same_quantity(ours, theirs) => {}
        _ => wrong.push(format!("{path}: offline {ours}, online {theirs}")),
    }
}

/// The API server canonicalises quantities of built-in kinds, `0.5` to `500m`, and keeps numbers in custom resources.
fn same_quantity(a: &Value, b: &Value) -> bool {
    let read = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned).parse::<Quantity>().ok();
    read(a).is_some() && read(a) == read(b)
}
