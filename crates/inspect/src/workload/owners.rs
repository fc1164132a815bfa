//! Which controllers own the pods that exist.

use std::fmt;

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

/// The object whose template a pod comes from; the pod itself if it has no controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkloadName {
    /// As Kubernetes spells it.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The workload that a pod belongs to: a Deployment rather than its ReplicaSet, a CronJob rather than its Job.
pub(crate) fn workload_of(input: &Input, pod: &Pod) -> WorkloadName {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let of = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    let (kind, name) = match controller(&pod.metadata) {
        None => of("Pod", pod.metadata.name.as_deref().unwrap_or_default()),
        Some(owner) if owner.kind == "ReplicaSet" => match deployment_of(&namespace, owner, pod, input) {
            Some(deployment) => of("Deployment", &deployment),
            None => of("ReplicaSet", &owner.name),
        },
        Some(owner) if owner.kind == "Job" => {
            let job = input.jobs.get(&namespace, &owner.name);
            let cron = job.and_then(|job| controller(&job.metadata)).filter(|o| o.kind == "CronJob");
            cron.map_or_else(|| of("Job", &owner.name), |cron| of("CronJob", &cron.name))
        }
        Some(owner) => of(&owner.kind, &owner.name),
    };
    WorkloadName { kind, namespace, name }
}

/// The owner reference of an object's controller.
#[must_use]
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

/// True if a controller counts the pod as a replica: neither finished nor being deleted.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
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
