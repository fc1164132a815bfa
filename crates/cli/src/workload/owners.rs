//! Which controllers own the pods that exist.

use croft_manifest::Input;
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use rustc_hash::FxHashMap;

/// Active pods by owner.
pub(crate) struct Owners {
    pods: FxHashMap<(String, String, String), usize>,
    deployments: FxHashMap<(String, String), usize>,
}

impl Owners {
    /// Counts the active pods of the input.
    pub(crate) fn new(input: &Input) -> Self {
        let mut pods: FxHashMap<(String, String, String), usize> = FxHashMap::default();
        let mut deployments: FxHashMap<(String, String), usize> = FxHashMap::default();
        for pod in input.pods.iter().filter(|p| is_active(p)) {
            let Some(owner) = controller(&pod.metadata) else { continue };
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            if owner.kind == "ReplicaSet"
                && let Some(deployment) = deployment_of(&namespace, owner, pod, input)
            {
                *deployments.entry((namespace.clone(), deployment)).or_default() += 1;
            }
            *pods.entry((owner.kind.clone(), namespace, owner.name.clone())).or_default() += 1;
        }
        Self { pods, deployments }
    }

    /// Number of active pods of the controller of that kind and name.
    pub(crate) fn count(&self, kind: &str, namespace: &str, name: &str) -> usize {
        self.pods.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned())).copied().unwrap_or(0)
    }

    /// Number of active pods of all ReplicaSets of the Deployment.
    pub(crate) fn count_of_deployment(&self, namespace: &str, name: &str) -> usize {
        self.deployments.get(&(namespace.to_owned(), name.to_owned())).copied().unwrap_or(0)
    }
}

/// The owner reference of an object's controller.
pub(crate) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

/// True if a controller counts the pod as a replica: neither finished nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The Deployment that owns the ReplicaSet `set`. If the input lacks the ReplicaSet, its name is taken apart: the
/// Deployment's name, a dash, and the hash in the label of its pods.
fn deployment_of(namespace: &str, set: &OwnerReference, pod: &Pod, input: &Input) -> Option<String> {
    if let Some(set) = input.replica_sets.get(namespace, &set.name) {
        return controller(&set.metadata).filter(|o| o.kind == "Deployment").map(|o| o.name.clone());
    }
    let hash = pod.metadata.labels.as_ref()?.get("pod-template-hash")?;
    Some(set.name.strip_suffix(hash.as_str())?.strip_suffix('-')?.to_owned())
}
