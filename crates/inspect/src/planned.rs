//! Admission of each workload's pods.

use croft_manifest::Input;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::Value;

use crate::{
    admission::{Admission, Outcome, Verdict},
    simulation::is_stored,
    workload::{prototype, workloads},
};

/// The outcome of admission for one workload's pods.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// Kind of the workload, or Pod.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Number of pods; absent for DaemonSets, where it depends on the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<usize>,
    /// The tenant that the namespace belongs to.
    pub tenant: Option<String>,
    /// The pool that the pods will run in.
    pub pool: Option<String>,
    /// `unchanged`, `changed` or `denied`.
    pub outcome: &'static str,
    /// Why the pods are denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The changes as JSON Patch on the pod or the DaemonSet.
    pub patch: Value,
    /// Warnings of admission.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The object before Croft's admission.
    #[serde(skip)]
    pub before: Value,
    /// The object after it.
    #[serde(skip)]
    pub after: Value,
}

/// Admits every pod and workload of `input` that doesn't exist in a cluster yet.
#[must_use]
pub fn plan(input: &Input, admission: &Admission) -> Vec<Planned> {
    let mut planned = Vec::new();
    for pod in input.pods.iter().filter(|p| !is_stored(&p.object)) {
        let (before, verdict) = admission.create(&pod.object, input);
        planned.push(entry("Pod", &pod.object, Some(1), &to_json(&before), verdict));
    }
    for workload in workloads(input) {
        let prototype = prototype(&workload);
        if let Some(set) = workload.daemon_set {
            let verdict = admission.daemon_set(set);
            planned.push(entry("DaemonSet", &prototype, None, &to_json(set), verdict));
            continue;
        }
        let (before, verdict) = admission.create(&prototype, input);
        let missing = Some(workload.missing);
        planned.push(entry(workload.kind.as_str(), &prototype, missing, &to_json(&before), verdict));
    }
    planned
}

fn entry<T: Serialize>(
    kind: &str,
    pod: &Pod,
    pods: Option<usize>,
    before: &Value,
    verdict: Verdict<T>,
) -> Planned {
    let Verdict { outcome, tenant, pool, warnings, patch } = verdict;
    let (name, message, after) = match outcome {
        Outcome::Unchanged => ("unchanged", None, before.clone()),
        Outcome::Changed(after) => ("changed", None, to_json(&after)),
        Outcome::Denied(message) => ("denied", Some(message), before.clone()),
    };
    Planned {
        kind: kind.to_owned(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        pods,
        tenant,
        pool,
        outcome: name,
        message,
        patch,
        warnings,
        before: before.clone(),
        after,
    }
}

fn to_json<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
