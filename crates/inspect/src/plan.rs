//! Admission of each workload's pods, and the limits that keep some of them without a node.

use std::sync::Arc;

use croft_api::convert::static_capacity;
use croft_manifest::{Input, InputError};
use croft_scheduler::{InstanceType, Options};

use crate::{
    admission::Admission,
    custom_workloads,
    inputs::merge,
    planned::{Planned, entry, to_json},
    shortfall::{WorkloadShortfall, shortfalls},
    simulation::{Simulation, is_stored, simulate},
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

/// Adds to `planned` how many pods get no node once `added` is in `cluster`, which may be the same objects.
///
/// Nothing is simulated if no limit is declared.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn add_shortfalls(
    planned: &mut [Planned],
    cluster: &Input,
    added: &Input,
    types: Arc<[InstanceType]>,
) -> Result<(), InputError> {
    let mut all = cluster.clone();
    merge(&mut all, added);
    if has_limits(&all) && !planned.is_empty() {
        let simulation = simulate(&all, types, &Options::default())?;
        attach(planned, &all, &simulation);
    }
    Ok(())
}

fn has_limits(input: &Input) -> bool {
    input.tenants.iter().any(|tenant| !tenant.spec.limits.is_empty())
        || input.pools.iter().any(|pool| {
            let mut limits =
                pool.spec.templates.iter().map(|template| &template.limits).chain([&pool.spec.limits]);
            limits.any(|limits| !limits.is_empty()) || static_capacity::sizes(pool).next().is_some()
        })
        || input.configs.iter().any(|config| !config.spec.limits.is_empty())
}

/// Adds the shortfalls of `simulation`, a plan for `input`.
pub(crate) fn attach(planned: &mut [Planned], input: &Input, simulation: &Simulation) {
    for WorkloadShortfall { kind, namespace, name, shortfall } in shortfalls(input, simulation) {
        // Another controller's kind may have the same name: Volcano has a Job, too.
        let is_it = |one: &&mut Planned| {
            one.api_version.is_none() && one.kind == kind && one.namespace == namespace && one.name == name
        };
        if let Some(one) = planned.iter_mut().find(is_it) {
            one.shortfall = Some(shortfall);
        }
    }
}
