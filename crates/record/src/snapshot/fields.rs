//! Which fields of an object are kept: a list of what is written, so that a field of a later Kubernetes is left out until it is
//! known to hold no secret. `croft debug dump` writes them, and the snapshots of the record hold those of them that decide a place or a
//! cost.
//!
//! Left out are environment variables, commands, arguments, probes, hooks, contents of volumes, parameters of storage,
//! user data, recorded launch requests, and annotations but for those that decide something here.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Croft's API group.
const GROUP: &str = "croft.dev";
/// Fields of every object's metadata in the snapshots of the record: what changes without an effect is left out.
const RECORDED_METADATA: &[&str] = &[
    "name",
    "namespace",
    "labels",
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "ownerReferences",
];
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
/// Fields of a PersistentVolume.
pub const VOLUME: &[&str] = &[
    "spec.accessModes",
    "spec.capacity",
    "spec.claimRef",
    "spec.csi.driver",
    "spec.csi.volumeHandle",
    "spec.nodeAffinity",
    "spec.persistentVolumeReclaimPolicy",
    "spec.storageClassName",
    "spec.volumeMode",
    "status.phase",
];
/// Fields of a StorageClass.
pub const STORAGE_CLASS: &[&str] =
    &["provisioner", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion", "allowedTopologies"];
/// Fields of a container's status. Its states hold messages of programs.
const CONTAINER_STATUS: &[&str] =
    &["name", "image", "imageID", "ready", "restartCount", "started", "resources", "allocatedResources"];
/// Annotations that decide something in Croft, besides those of its own domain.
const ANNOTATIONS: &[&str] = &[
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "controller.kubernetes.io/pod-deletion-cost",
    "karpenter.sh/do-not-disrupt",
    "kubernetes.io/config.mirror",
    "storageclass.kubernetes.io/is-default-class",
    "volume.kubernetes.io/selected-node",
];

/// The fields of one kind that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
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
        domain == GROUP || domain.strip_suffix(GROUP).is_some_and(|above| above.ends_with('.'))
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
    #[must_use]
    pub fn new(paths: &[&str]) -> Self {
        Self::identity().with("metadata", METADATA).with("", paths)
    }

    fn identity() -> Self {
        Self::default().with("", &["apiVersion", "kind"])
    }

    /// Identity, metadata without uid, generation and finalizers, and these paths.
    fn recorded(paths: &[&str]) -> Self {
        Self::identity().with("metadata", RECORDED_METADATA).with("", paths)
    }

    /// The fields of `kind` in the snapshots of the record; `None` for a kind that they don't hold.
    #[must_use]
    pub fn of_record(kind: &str) -> Option<Self> {
        let fields = match kind {
            "CroftConfig" | "Tenant" | "TenantPool" | "CSINode" => Self::recorded(&["spec"]),
            "EC2NodeClass" => {
                let fields = Self::recorded(&["spec", "status"]);
                Self { dropped: &["spec.userData", "status.conditions"], ..fields }
            }
            "NodeClaim" => {
                let fields = Self::recorded(&["spec", "status"]);
                Self { dropped: &["status.attempt", "status.conditions"], ..fields }
            }
            "LimitRange" => Self::recorded(&["spec"]),
            "RuntimeClass" => Self::recorded(&["handler", "overhead", "scheduling"]),
            "Namespace" => Self::recorded(&[]),
            "Node" => Self::recorded(&[
                "spec.providerID",
                "spec.taints",
                "spec.unschedulable",
                "status.allocatable",
                "status.capacity",
                "status.conditions.type",
                "status.conditions.status",
            ]),
            "Pod" => Self::recorded(&["status.phase", "status.startTime", "status.nominatedNodeName"])
                .with_pod_spec("spec"),
            "DaemonSet" => Self::recorded(&["spec.selector"]).with_template("spec.template"),
            "PodDisruptionBudget" => Self::recorded(&["spec", "status.disruptionsAllowed"]),
            "PersistentVolumeClaim" => Self::recorded(&["status.phase"]).with("spec", CLAIM_SPEC),
            "PersistentVolume" => Self::recorded(VOLUME),
            "StorageClass" => Self::recorded(STORAGE_CLASS),
            _ => return None,
        };
        Some(fields)
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
    #[must_use]
    pub fn of_croft(dropped: &'static [&'static str]) -> Self {
        Self { dropped, ..Self::new(&["spec", "status"]) }
    }

    /// A pod.
    #[must_use]
    pub fn of_pod() -> Self {
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
    #[must_use]
    pub fn of_workload() -> Self {
        Self::new(&["spec.replicas", "spec.selector"]).with_template("spec.template")
    }

    /// A StatefulSet.
    #[must_use]
    pub fn of_stateful_set() -> Self {
        let claims = "spec.volumeClaimTemplates";
        Self::of_workload()
            .with("spec", &["serviceName", "ordinals"])
            .with(&format!("{claims}.metadata"), &["name", "labels"])
            .with(&format!("{claims}.spec"), CLAIM_SPEC)
    }

    /// A Job.
    #[must_use]
    pub fn of_job() -> Self {
        Self::new(&[
            "status.succeeded",
            "status.active",
            "status.conditions.type",
            "status.conditions.status",
            "status.conditions.reason",
        ])
        .with_job_spec("spec")
    }

    /// A CronJob.
    #[must_use]
    pub fn of_cron_job() -> Self {
        Self::new(&["spec.schedule", "spec.suspend"])
            .with("spec.jobTemplate.metadata", &["labels", "annotations"])
            .with_job_spec("spec.jobTemplate.spec")
    }

    fn with_job_spec(self, path: &str) -> Self {
        self.with(path, &["parallelism", "completions", "completionMode", "suspend"])
            .with_template(&format!("{path}.template"))
    }

    /// A PersistentVolumeClaim.
    #[must_use]
    pub fn of_volume_claim() -> Self {
        Self::new(&["status.phase", "status.capacity"]).with("spec", CLAIM_SPEC)
    }

    /// The kept part of `object`.
    #[must_use]
    pub fn cut(&self, object: &Value) -> Value {
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
    fn planted_secret_is_in_no_recorded_field() {
        for secret in ["s3cret", "registry/b"] {
            let pod = objects(secret).swap_remove(0).1;
            let mut set = objects(secret).swap_remove(1).1;
            set["kind"] = json!("DaemonSet");
            for (kind, object) in [("Pod", pod), ("DaemonSet", set)] {
                let kept = Fields::of_record(kind).unwrap().cut(&object).to_string();
                assert!(!kept.contains(secret) && kept.contains("nodeSelector"), "{kept}");
            }
            let class = json!({"kind": "EC2NodeClass", "metadata": metadata(secret), "spec": {"userData": secret, "role": "r"}});
            let kept = Fields::of_record("EC2NodeClass").unwrap().cut(&class).to_string();
            assert!(!kept.contains(secret) && kept.contains("\"role\":\"r\""), "{kept}");
        }
        assert_eq!(Fields::of_record("Secret"), None);
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
