//! Which fields of an object a snapshot holds: a list of what is written, so that a field of a later Kubernetes is left out
//! until it is known to hold no secret.
//!
//! Left out are environment variables, commands, arguments, probes, hooks, contents of volumes, parameters of storage,
//! user data, recorded launch requests, and annotations but for those that decide something here.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields of every object's metadata.
const METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "generation",
    "labels",
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "ownerReferences",
];
/// Fields of a pod's spec.
const POD_SPEC: &[&str] = &[
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "schedulerName",
    "schedulingGates",
    "runtimeClassName",
    "overhead",
    "resources",
    "resourceClaims",
    "hostNetwork",
    "os",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "serviceAccountName",
    "containers.name",
    "containers.image",
    "containers.resources",
    "containers.restartPolicy",
    "containers.ports",
    "initContainers.name",
    "initContainers.image",
    "initContainers.resources",
    "initContainers.restartPolicy",
    "initContainers.ports",
    "volumes.name",
    "volumes.csi.driver",
    "volumes.persistentVolumeClaim",
];
/// Fields of a PersistentVolumeClaim's spec.
const CLAIM_SPEC: &[&str] = &[
    "accessModes",
    "resources",
    "storageClassName",
    "volumeMode",
    "volumeName",
    "volumeAttributesClassName",
];
/// Fields of a container's status. Its states hold messages of programs.
const CONTAINER_STATUS: &[&str] =
    &["name", "image", "imageID", "ready", "restartCount", "started", "resources", "allocatedResources"];
/// Annotations that decide something in Croft, besides those of its own domain.
const ANNOTATIONS: &[&str] = &[
    "controller.kubernetes.io/pod-deletion-cost",
    "karpenter.sh/do-not-disrupt",
    "kubernetes.io/config.mirror",
    "storageclass.kubernetes.io/is-default-class",
    "volume.kubernetes.io/selected-node",
];

/// The fields of one kind that a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    tree: Tree,
    /// Paths below what is kept.
    dropped: &'static [&'static str],
}

/// Kept fields by name. A tree without fields keeps everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tree(BTreeMap<String, Tree>);

impl Tree {
    fn insert(&mut self, path: &str) {
        let mut at = self;
        for name in path.split('.') {
            at = at.0.entry(name.to_owned()).or_default();
        }
    }

    /// The kept part of `value`. A list is cut element by element.
    fn cut(&self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.cut(item)).collect(),
            Value::Object(fields) => {
                let mut kept = Map::new();
                for (name, inner) in fields {
                    let below = self.0.get(name);
                    if name == "annotations" && inner.is_object() {
                        if self.0.is_empty() || below.is_some() {
                            kept.insert(name.clone(), own_annotations(inner));
                        }
                    } else if self.0.is_empty() {
                        kept.insert(name.clone(), self.cut(inner));
                    } else if let Some(below) = below {
                        kept.insert(name.clone(), below.cut(inner));
                    }
                }
                Value::Object(kept)
            }
            plain => plain.clone(),
        }
    }
}

/// The annotations that decide something.
fn own_annotations(annotations: &Value) -> Value {
    let of_croft = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain == croft_api::GROUP || domain.ends_with(&format!(".{}", croft_api::GROUP))
    };
    let kept = annotations.as_object().into_iter().flatten();
    let kept = kept.filter(|(key, _)| of_croft(key) || ANNOTATIONS.contains(&key.as_str()));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn remove(value: &mut Value, path: &str) {
    let Value::Object(fields) = value else { return };
    match path.split_once('.') {
        None => {
            fields.remove(path);
        }
        Some((name, rest)) => {
            if let Some(inner) = fields.get_mut(name) {
                remove(inner, rest);
            }
        }
    }
}

impl Fields {
    /// Identity, metadata, and these paths.
    pub(super) fn new(paths: &[&str]) -> Self {
        let mut fields = Self::default();
        for path in ["apiVersion", "kind"] {
            fields.tree.insert(path);
        }
        fields.with("metadata", METADATA).with("", paths)
    }

    /// The same with `names` below `prefix`.
    fn with(mut self, prefix: &str, names: &[&str]) -> Self {
        for name in names {
            let path = if prefix.is_empty() { (*name).to_owned() } else { format!("{prefix}.{name}") };
            self.tree.insert(&path);
        }
        self
    }

    /// The same with a pod's spec at `path`.
    fn with_pod_spec(self, path: &str) -> Self {
        let template = format!("{path}.volumes.ephemeral.volumeClaimTemplate");
        self.with(path, POD_SPEC)
            .with(&format!("{template}.metadata"), &["labels"])
            .with(&format!("{template}.spec"), CLAIM_SPEC)
    }

    /// The same with a pod template at `path`.
    fn with_template(self, path: &str) -> Self {
        self.with(&format!("{path}.metadata"), &["labels", "annotations"])
            .with_pod_spec(&format!("{path}.spec"))
    }

    /// Everything of one of Croft's own kinds but for these paths.
    pub(super) fn of_croft(dropped: &'static [&'static str]) -> Self {
        Self { dropped, ..Self::new(&["spec", "status"]) }
    }

    pub(super) fn of_pod() -> Self {
        Self::new(&[
            "status.phase",
            "status.startTime",
            "status.nominatedNodeName",
            "status.resources",
            "status.allocatedResources",
            "status.conditions.type",
            "status.conditions.status",
            "status.conditions.reason",
            "status.conditions.lastTransitionTime",
        ])
        .with_pod_spec("spec")
        .with("status.containerStatuses", CONTAINER_STATUS)
        .with("status.initContainerStatuses", CONTAINER_STATUS)
    }

    /// A workload with `replicas` and a selector.
    pub(super) fn of_workload() -> Self {
        Self::new(&["spec.replicas", "spec.selector"]).with_template("spec.template")
    }

    pub(super) fn of_stateful_set() -> Self {
        let claims = "spec.volumeClaimTemplates";
        Self::of_workload()
            .with("spec", &["serviceName", "ordinals"])
            .with(&format!("{claims}.metadata"), &["name", "labels"])
            .with(&format!("{claims}.spec"), CLAIM_SPEC)
    }

    pub(super) fn of_job() -> Self {
        Self::new(&[
            "status.succeeded",
            "status.active",
            "status.conditions.type",
            "status.conditions.status",
            "status.conditions.reason",
        ])
        .with_job_spec("spec")
    }

    pub(super) fn of_cron_job() -> Self {
        Self::new(&["spec.schedule", "spec.suspend"])
            .with("spec.jobTemplate.metadata", &["labels", "annotations"])
            .with_job_spec("spec.jobTemplate.spec")
    }

    fn with_job_spec(self, path: &str) -> Self {
        self.with(path, &["parallelism", "completions", "completionMode", "suspend"])
            .with_template(&format!("{path}.template"))
    }

    pub(super) fn of_volume_claim() -> Self {
        Self::new(&["status.phase", "status.capacity"]).with("spec", CLAIM_SPEC)
    }

    /// The kept part of `object`.
    pub(super) fn cut(&self, object: &Value) -> Value {
        let mut kept = self.tree.cut(object);
        for path in self.dropped {
            remove(&mut kept, path);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A container with `secret` wherever one can be.
    fn container(name: &str, secret: &str) -> Value {
        json!({
            "name": name, "image": "registry/a:1",
            "command": [secret], "args": ["--token", secret],
            "env": [{"name": "A", "value": secret}, {"name": secret, "value": "x"}],
            "envFrom": [{"secretRef": {"name": secret}}],
            "resources": {"requests": {"cpu": "1"}},
            "livenessProbe": {"exec": {"command": [secret]}},
            "readinessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "Authorization", "value": secret}]}},
            "lifecycle": {"preStop": {"exec": {"command": [secret]}}},
            "workingDir": secret, "terminationMessagePath": secret,
            "volumeMounts": [{"name": "v", "mountPath": secret}],
            "securityContext": {"seLinuxOptions": {"user": secret}},
        })
    }

    fn pod_spec(secret: &str) -> Value {
        json!({
            "nodeSelector": {"a": "b"},
            "containers": [container("c", secret)],
            "initContainers": [container("i", secret)],
            "ephemeralContainers": [container("e", secret)],
            "hostAliases": [{"ip": "1.1.1.1", "hostnames": [secret]}],
            "imagePullSecrets": [{"name": secret}],
            "volumes": [
                {"name": "v", "secret": {"secretName": secret}},
                {"name": "w", "configMap": {"name": secret, "items": [{"key": secret, "path": secret}]}},
                {"name": "x", "hostPath": {"path": secret}},
                {"name": "y", "csi": {"driver": "d", "volumeAttributes": {"password": secret}}},
                {"name": "z", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {
                    "metadata": {"annotations": {"note": secret}},
                    "spec": {"accessModes": ["ReadWriteOnce"], "dataSource": {"kind": "A", "name": secret}}}}},
            ],
        })
    }

    fn metadata(secret: &str) -> Value {
        json!({
            "name": "a", "namespace": "b", "labels": {"app": "a"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": secret,
                "example.com/croft.dev": secret, "fakecroft.dev/a": secret, "note": secret,
                "croft.dev/pool": "p", "policy.croft.dev/pools": "p",
            },
            "managedFields": [{"manager": secret}],
        })
    }

    /// Every kind that has pods, with a secret wherever one can be.
    fn objects(secret: &str) -> Vec<(Fields, Value)> {
        let template = json!({"metadata": metadata(secret), "spec": pod_spec(secret)});
        let job = json!({"parallelism": 1, "template": template});
        let claim = json!({"metadata": metadata(secret), "spec": {"dataSource": {"name": secret}}});
        let object = |spec: Value| json!({"apiVersion": "v1", "kind": "A", "metadata": metadata(secret), "spec": spec, "data": {"a": secret}});
        let mut pod = object(pod_spec(secret));
        pod["status"] = json!({
            "phase": "Running", "message": secret, "conditions": [{"type": "Ready", "status": "True", "message": secret}],
            "containerStatuses": [{"name": "c", "state": {"terminated": {"message": secret}}, "lastState": {"a": secret}}],
        });
        vec![
            (Fields::of_pod(), pod),
            (Fields::of_workload(), object(json!({"replicas": 1, "template": template}))),
            (
                Fields::of_stateful_set(),
                object(json!({"template": template, "volumeClaimTemplates": [claim]})),
            ),
            (Fields::of_job(), object(job.clone())),
            (
                Fields::of_cron_job(),
                object(json!({"jobTemplate": {"metadata": metadata(secret), "spec": job}})),
            ),
            (Fields::of_volume_claim(), object(json!({"dataSource": {"name": secret}}))),
            (
                Fields::of_croft(&["spec.userData"]),
                object(json!({"userData": secret, "template": {"metadata": {"annotations": {"a": secret}}}})),
            ),
        ]
    }

    #[test]
    fn planted_secret_is_in_no_kept_field() {
        // Also one that looks like what is kept.
        for secret in ["s3cret", "croft.dev", "registry/b"] {
            for (fields, object) in objects(secret) {
                let kept = fields.cut(&object).to_string().replace("croft.dev/po", "");
                assert!(!kept.contains(secret), "{kept}");
                assert!(kept.contains("ol\":\"p\"") && kept.contains("ols\":\"p\""), "{kept}");
            }
        }
    }

    #[test]
    fn what_decides_a_place_is_kept() {
        let (fields, pod) = objects("s").swap_remove(0);
        assert_eq!(
            fields.cut(&pod)["spec"],
            json!({
                "nodeSelector": {"a": "b"},
                "containers": [{"name": "c", "image": "registry/a:1", "resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [{"name": "i", "image": "registry/a:1", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [
                    {"name": "v"}, {"name": "w"}, {"name": "x"}, {"name": "y", "csi": {"driver": "d"}},
                    {"name": "z", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "e", "ephemeral": {"volumeClaimTemplate": {
                        "metadata": {}, "spec": {"accessModes": ["ReadWriteOnce"]}}}},
                ],
            })
        );
    }
}
