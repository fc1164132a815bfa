//! Pods from templates: names, labels, owners and volumes as the controllers set them.

use std::{
    collections::HashSet,
    hash::{Hash as _, Hasher as _},
};

use croft_manifest::{Input, Sourced};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use rustc_hash::{FxHashMap, FxHasher};

use super::{
    owners::WorkloadName,
    workloads::{Workload, WorkloadKind, workloads},
};

/// Namespace and name of every pod, so that created pods get others.
pub(crate) struct PodNames(HashSet<(String, String)>);

impl PodNames {
    pub(crate) fn new(input: &Input) -> Self {
        let key = |p: &Sourced<Pod>| {
            (p.metadata.namespace.clone().unwrap_or_default(), p.metadata.name.clone().unwrap_or_default())
        };
        Self(input.pods.iter().map(key).collect())
    }

    /// Reserves a name; false if it is taken.
    fn reserve(&mut self, namespace: &str, name: &str) -> bool {
        self.0.insert((namespace.to_owned(), name.to_owned()))
    }
}

/// The pod that the template defines, before admission, named after the workload: the template's metadata and spec, and
/// the labels and owner that the controller adds to every pod.
#[must_use]
pub fn prototype(workload: &Workload<'_>) -> Pod {
    let template = workload.template;
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    let owner_name = match workload.kind {
        WorkloadKind::Deployment => format!("{}-{}", workload.name, hash(template)),
        _ => workload.name.clone(),
    };
    match workload.kind {
        WorkloadKind::Deployment => {
            labels.insert("pod-template-hash".to_owned(), hash(template));
        }
        WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => {
            labels.insert("controller-revision-hash".to_owned(), hash(template));
        }
        WorkloadKind::Job | WorkloadKind::CronJob => {
            for key in ["batch.kubernetes.io/job-name", "job-name"] {
                labels.insert(key.to_owned(), workload.name.clone());
            }
        }
        WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController => {}
    }
    let (api_version, kind) = workload.kind.owner();
    Pod {
        metadata: ObjectMeta {
            name: Some(workload.name.clone()),
            namespace: Some(workload.namespace.clone()),
            labels: Some(labels).filter(|l| !l.is_empty()),
            annotations: meta.annotations,
            owner_references: Some(vec![OwnerReference {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                name: owner_name,
                uid: workload.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The names of the workload's missing pods, each with its number.
fn missing_names(workload: &Workload<'_>, names: &mut PodNames) -> Vec<(String, i64)> {
    let mut missing = Vec::with_capacity(workload.missing);
    let mut number = i64::from(workload.first);
    // A name can be taken by an existing pod of that ordinal, or by a pod of another workload of that name.
    let mut stem = workload.name.clone();
    if workload.kind != WorkloadKind::StatefulSet
        && !names.reserve(&workload.namespace, &format!("{stem}/workload"))
    {
        stem = format!("{}-{}", workload.name, workload.kind.as_str().to_lowercase());
    }
    while missing.len() < workload.missing {
        let name = format!("{stem}-{number}");
        if names.reserve(&workload.namespace, &name) {
            missing.push((name, number));
        }
        number += 1;
    }
    missing
}

/// The workload of each pod that a simulation of `input` creates, by the pod's namespace and name.
pub(crate) fn workloads_of_created_pods(input: &Input) -> FxHashMap<(String, String), WorkloadName> {
    let mut names = PodNames::new(input);
    let mut owners = FxHashMap::default();
    // In the order of the simulation, and without workloads that it creates no pods for: a name depends on those before it.
    for workload in workloads(input) {
        if workload.daemon_set.is_some() || workload.missing == 0 {
            continue;
        }
        let owner = WorkloadName {
            kind: workload.kind.as_str().to_owned(),
            namespace: workload.namespace.clone(),
            name: workload.name.clone(),
        };
        for (name, _) in missing_names(&workload, &mut names) {
            owners.insert((workload.namespace.clone(), name), owner.clone());
        }
    }
    owners
}

/// Creates the workload's missing pods from `admitted`, its prototype after admission, and their volume claims.
pub(crate) fn create_pods(
    workload: &Workload<'_>,
    admitted: &Pod,
    names: &mut PodNames,
    input: &Input,
) -> (Vec<Pod>, Vec<PersistentVolumeClaim>) {
    let mut pods = Vec::with_capacity(workload.missing);
    let mut claims = Vec::new();
    for (name, index) in missing_names(workload, names) {
        let mut pod = admitted.clone();
        pod.metadata.name = Some(name.clone());
        let labels = pod.metadata.labels.get_or_insert_default();
        match workload.kind {
            WorkloadKind::StatefulSet => {
                labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), name.clone());
                labels.insert("apps.kubernetes.io/pod-index".to_owned(), index.to_string());
                for template in workload.claim_templates {
                    claims.extend(stateful_claim(template, workload, &name, &mut pod, input));
                }
            }
            WorkloadKind::Job | WorkloadKind::CronJob if workload.indexed => {
                labels.insert("batch.kubernetes.io/job-completion-index".to_owned(), index.to_string());
            }
            _ => {}
        }
        pods.push(pod);
    }
    (pods, claims)
}

/// Adds the claim's volume to the pod. Returns the claim if the input doesn't hold it.
fn stateful_claim(
    template: &PersistentVolumeClaim,
    workload: &Workload<'_>,
    pod_name: &str,
    pod: &mut Pod,
    input: &Input,
) -> Option<PersistentVolumeClaim> {
    let template_name = template.metadata.name.clone().unwrap_or_default();
    let claim_name = format!("{template_name}-{pod_name}");
    let volume = Volume {
        name: template_name.clone(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name.clone(),
            read_only: None,
        }),
        ..Volume::default()
    };
    let volumes = pod.spec.get_or_insert_default().volumes.get_or_insert_default();
    // The controller replaces a volume of that name in the template.
    volumes.retain(|v| v.name != template_name);
    volumes.push(volume);
    if input.volume_claims.get(&workload.namespace, &claim_name).is_some() {
        return None;
    }
    let mut claim = template.clone();
    claim.metadata.name = Some(claim_name);
    claim.metadata.namespace = Some(workload.namespace.clone());
    Some(claim)
}

/// A hash of the template, equal on every run, in the alphabet of Kubernetes.
fn hash(template: &PodTemplateSpec) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hasher = FxHasher::default();
    serde_json::to_string(template).unwrap_or_default().hash(&mut hasher);
    let mut rest = hasher.finish();
    let mut text = String::new();
    for _ in 0..10 {
        let place = usize::try_from(rest % ALPHABET.len() as u64).unwrap_or(0);
        text.push(char::from(ALPHABET.get(place).copied().unwrap_or(b'b')));
        rest /= ALPHABET.len() as u64;
    }
    text
}
