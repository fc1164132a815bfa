//! Whose the pods are that exist already.

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use rustc_hash::FxHashMap;

use crate::input::Input;

/// How many pods each controller has that are neither finished nor going.
pub(crate) struct Owners {
    pods: FxHashMap<(String, String, String), usize>,
    deployments: FxHashMap<(String, String), usize>,
}

impl Owners {
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

    /// Pods of the controller of that kind and name.
    pub(crate) fn of(&self, kind: &str, namespace: &str, name: &str) -> usize {
        self.pods.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned())).copied().unwrap_or(0)
    }

    /// Pods of any ReplicaSet of the Deployment.
    pub(crate) fn of_deployment(&self, namespace: &str, name: &str) -> usize {
        self.deployments.get(&(namespace.to_owned(), name.to_owned())).copied().unwrap_or(0)
    }
}

/// The owner that controls an object.
pub(crate) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

/// A pod that its controller counts as one of its replicas.
pub(crate) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The ReplicaSet says whose it is; where it isn't in the input, its name does: the Deployment's, a dash, and
/// the hash that its pods carry as a label.
fn deployment_of(namespace: &str, set: &OwnerReference, pod: &Pod, input: &Input) -> Option<String> {
    if let Some(set) = input.replica_sets.get(namespace, &set.name) {
        return controller(&set.metadata).filter(|o| o.kind == "Deployment").map(|o| o.name.clone());
    }
    let hash = pod.metadata.labels.as_ref()?.get("pod-template-hash")?;
    Some(set.name.strip_suffix(hash.as_str())?.strip_suffix('-')?.to_owned())
}
