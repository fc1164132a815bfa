//! Objects that may not change: nodes, instances, pods, and the objects that Croft wrote.

use std::collections::BTreeMap;

use croft_testkit::{ControlPlane, StoredObject};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// Kinds that are compared, and their fields. Of an object every stored field must still be there with its value; a later
/// version may add fields.
const COMPARED: [(&str, &[&str]); 11] = [
    (
        "NodeClaim",
        &[
            "metadata/uid",
            "metadata/annotations",
            "metadata/labels",
            "metadata/finalizers",
            "spec",
            "status/providerID",
            "status/nodeName",
            "status/imageID",
            "status/instanceType",
            "status/attempt/number",
            "status/attempt/requestHash",
        ],
    ),
    ("Node", &["metadata/uid", "metadata/labels", "spec/taints", "spec/providerID"]),
    ("Pod", &["metadata/uid", "spec/nodeName", "spec/nodeSelector", "spec/tolerations", "spec/affinity"]),
    ("Tenant", &["metadata/uid", "metadata/generation", "spec"]),
    ("TenantPool", &["metadata/uid", "metadata/generation", "spec", "status/claimCounter"]),
    (
        "EC2NodeClass",
        &["metadata/uid", "metadata/generation", "spec", "status/amis", "status/securityGroups"],
    ),
    ("CroftConfig", &["metadata/uid", "metadata/generation", "spec"]),
    ("Namespace", &["metadata/uid", "metadata/labels", "metadata/annotations"]),
    ("Deployment", &["metadata/uid", "metadata/generation"]),
    ("ReplicaSet", &["metadata/uid", "spec/template"]),
    ("DaemonSet", &["metadata/uid", "metadata/generation", "spec/template"]),
];
/// The same kinds for kubectl.
const RESOURCES: &str = "nodeclaims.croft.dev,nodes,pods,tenants.croft.dev,tenantpools.croft.dev,ec2nodeclasses.croft.dev,\
                         croftconfigs.croft.dev,namespaces,deployments,replicasets,daemonsets";
/// Fields that change with the number of replicas.
const SCALED: [(&str, &str); 2] =
    [("Deployment", "metadata/generation"), ("TenantPool", "status/claimCounter")];
/// Conditions of a NodeClaim that say that its node will be replaced.
const REPLACED_FOR: [&str; 2] = ["Drifted", "Expired"];

/// Objects by kind, namespace and name.
#[derive(Clone, Debug)]
pub struct Observed(BTreeMap<String, Value>);

fn entry(object: &Value) -> Option<(String, Value)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind");
    COMPARED.iter().find(|(compared, _)| *compared == kind)?;
    // Objects of the control plane itself are left out of a record.
    if matches!(text("/metadata/namespace"), "kube-system" | "croft-system") {
        return None;
    }
    Some((format!("{kind} {}/{}", text("/metadata/namespace"), text("/metadata/name")), object.clone()))
}

impl Observed {
    /// The stored objects.
    #[must_use]
    pub fn stored(objects: &[StoredObject]) -> Self {
        Self(objects.iter().filter_map(|object| entry(&object.value)).collect())
    }

    /// The present objects.
    ///
    /// # Errors
    /// If the API server doesn't answer.
    pub async fn now(plane: &ControlPlane) -> anyhow::Result<Self> {
        let text = plane.kubectl(["get", RESOURCES, "--all-namespaces", "--output=json"]).await?;
        let list: Value = serde_json::from_str(&text)?;
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        Ok(Self(items.filter_map(entry).collect()))
    }

    /// The objects of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let prefix = format!("{kind} ");
        self.0.iter().filter(move |(name, _)| name.starts_with(&prefix)).map(|(_, object)| object)
    }

    /// The changes since `before`, and each node that will be replaced. `scaled` is true once the test has scaled a
    /// Deployment: that alone raises its generation and the count of NodeClaims.
    #[must_use]
    pub fn changes_since(&self, before: &Self, scaled: bool) -> Vec<String> {
        let mut changes = Vec::new();
        for (name, then) in &before.0 {
            let Some(now) = self.0.get(name) else {
                changes.push(format!("{name} is gone"));
                continue;
            };
            if now.pointer("/metadata/deletionTimestamp").is_some() {
                changes.push(format!("{name} is being deleted"));
            }
            let kind = then.get("kind").and_then(Value::as_str).unwrap_or_default();
            let fields = COMPARED.iter().find(|(compared, _)| *compared == kind);
            for field in fields.into_iter().flat_map(|(_, fields)| *fields) {
                if scaled && SCALED.contains(&(kind, *field)) {
                    continue;
                }
                let pointer = format!("/{field}");
                let (was, is) = (then.pointer(&pointer), now.pointer(&pointer).unwrap_or(&Value::Null));
                if let Some(was) = was
                    && let Some(at) = difference(was, is)
                {
                    changes.push(format!("{name}: {field}{at}"));
                }
            }
        }
        for claim in self.of_kind("NodeClaim") {
            let conditions = claim.pointer("/status/conditions").and_then(Value::as_array);
            for condition in conditions.into_iter().flatten() {
                let is = |field: &str, of: &[&str]| {
                    condition.get(field).and_then(Value::as_str).is_some_and(|text| of.contains(&text))
                };
                if is("type", &REPLACED_FOR) && is("status", &["True"]) {
                    changes.push(format!("NodeClaim {}: {condition}", claim["metadata"]["name"]));
                }
            }
        }
        changes
    }
}

/// Where `is` lacks or changes a part of `was`.
fn difference(was: &Value, is: &Value) -> Option<String> {
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => was.iter().find_map(|(key, was)| {
            let is = is.get(key).unwrap_or(&Value::Null);
            difference(was, is).map(|rest| format!("/{key}{rest}"))
        }),
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => was
            .iter()
            .zip(is)
            .enumerate()
            .find_map(|(at, (was, is))| difference(was, is).map(|rest| format!("/{at}{rest}"))),
        _ if was == is => None,
        _ => Some(format!(": {is} instead of {was}")),
    }
}

/// Asks for each pod again that `before` has, in a dry run: a new one from the template of its ReplicaSet, and a change of
/// the one that is there. Returns what is refused, or placed in another way.
///
/// # Errors
/// If the API server doesn't answer.
pub async fn readmitted(client: &Client, before: &Observed) -> anyhow::Result<Vec<String>> {
    let mut refused = Vec::new();
    for pod in before.of_kind("Pod") {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = json!({"metadata": {"annotations": {"example.com/touched": "true"}}});
        if let Err(error) = api.patch(name, &dry, &Patch::Merge(patch)).await {
            refused.push(format!("a change of the pod {namespace}/{name}: {error}"));
        }
        let owner = pod.pointer("/metadata/ownerReferences/0/uid");
        let of = before.of_kind("ReplicaSet").find(|set| set.pointer("/metadata/uid") == owner);
        let Some(template) = of.and_then(|set| set.pointer("/spec/template")) else { continue };
        let mut new = template.clone();
        new["metadata"]["generateName"] = json!("again-");
        let new: Pod = serde_json::from_value(new)?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        match api.create(&dry, &new).await {
            Ok(created) => {
                let created = serde_json::to_value(created)?;
                for field in ["/spec/nodeSelector", "/spec/tolerations", "/spec/affinity"] {
                    if created.pointer(field) != pod.pointer(field) {
                        let (is, was) = (created.pointer(field), pod.pointer(field));
                        refused.push(format!("{namespace}/{name}: {field}: {is:?} instead of {was:?}"));
                    }
                }
            }
            Err(error) => refused.push(format!("a pod like {namespace}/{name}: {error}")),
        }
    }
    Ok(refused)
}
