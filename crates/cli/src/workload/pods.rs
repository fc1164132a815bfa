//! The pods that a template makes: names, labels, owners and volumes as the controllers give them.

use std::{
    collections::HashSet,
    hash::{Hash as _, Hasher as _},
};

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use rustc_hash::FxHasher;

use super::{Kind, Workload};
use crate::input::Input;

/// The names that pods have, so that those to be made get others.
pub(crate) struct Names(HashSet<(String, String)>);

impl Names {
    pub(crate) fn new(input: &Input) -> Self {
        let key = |p: &crate::input::Sourced<Pod>| {
            (p.metadata.namespace.clone().unwrap_or_default(), p.metadata.name.clone().unwrap_or_default())
        };
        Self(input.pods.iter().map(key).collect())
    }

    fn take(&mut self, namespace: &str, name: &str) -> bool {
        self.0.insert((namespace.to_owned(), name.to_owned()))
    }
}

/// A pod with the template's metadata and spec, and what the controller adds to every one of them.
pub(super) fn prototype(workload: &Workload<'_>) -> Pod {
    let template = workload.template;
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    let owner_name = match workload.kind {
        Kind::Deployment => format!("{}-{}", workload.name, hash(template)),
        _ => workload.name.clone(),
    };
    match workload.kind {
        Kind::Deployment => {
            labels.insert("pod-template-hash".to_owned(), hash(template));
        }
        Kind::StatefulSet | Kind::DaemonSet => {
            labels.insert("controller-revision-hash".to_owned(), hash(template));
        }
        Kind::Job | Kind::CronJob => {
            for key in ["batch.kubernetes.io/job-name", "job-name"] {
                labels.insert(key.to_owned(), workload.name.clone());
            }
        }
        Kind::ReplicaSet | Kind::ReplicationController => {}
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

/// Makes the workload's missing pods of `admitted`, its prototype after admission, and the claims that come
/// with them.
pub(crate) fn make(
    workload: &Workload<'_>,
    admitted: &Pod,
    names: &mut Names,
    input: &Input,
) -> (Vec<Pod>, Vec<PersistentVolumeClaim>) {
    let mut pods = Vec::with_capacity(workload.missing);
    let mut claims = Vec::new();
    let mut number = i64::from(workload.first);
    // A name can be taken by a pod that exists (that ordinal is there), or by another workload of that name.
    let mut stem = workload.name.clone();
    if workload.kind != Kind::StatefulSet && !names.take(&workload.namespace, &format!("{stem}/workload")) {
        stem = format!("{}-{}", workload.name, workload.kind.as_str().to_lowercase());
    }
    while pods.len() < workload.missing {
        let name = format!("{stem}-{number}");
        let index = number;
        number += 1;
        if !names.take(&workload.namespace, &name) {
            continue;
        }
        let mut pod = admitted.clone();
        pod.metadata.name = Some(name.clone());
        let labels = pod.metadata.labels.get_or_insert_default();
        match workload.kind {
            Kind::StatefulSet => {
                labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), name.clone());
                labels.insert("apps.kubernetes.io/pod-index".to_owned(), index.to_string());
                for template in workload.claim_templates {
                    claims.extend(stateful_claim(template, workload, &name, &mut pod, input));
                }
            }
            Kind::Job | Kind::CronJob if workload.indexed => {
                labels.insert("batch.kubernetes.io/job-completion-index".to_owned(), index.to_string());
            }
            _ => {}
        }
        pods.push(pod);
    }
    (pods, claims)
}

/// Adds the claim's volume to the pod; answers the claim where the input doesn't hold it.
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

/// A hash of the template that stays the same between runs, in the alphabet of Kubernetes' own.
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
