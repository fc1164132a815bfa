//! Admission of each workload's pods.

use croft_manifest::Input;

use crate::{
    admission::Admission,
    custom_workloads,
    planned::{Planned, entry, to_json},
    simulation::is_stored,
    workload::{prototype, workloads},
};

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
    planned.extend(custom_workloads::plan(input, admission));
    planned
}
