//! What several answers have in common: an object that is asked about by its name, its conditions, and its pods' violations.

use std::io::Write as _;

use croft_inspect::inventory::placement_violations;
use croft_manifest::{Objects, Sourced};
use croft_policy::Tenants;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Resource, ResourceExt as _};

use crate::{
    failure::Failure,
    output::Output,
    table::{BAD, GOOD, NOTE},
};

/// The cluster-scoped object called `name`.
///
/// # Errors
/// If there is none: `kind` and the closest name.
pub(super) fn named<'o, K: Resource>(
    objects: &'o Objects<K>,
    kind: &str,
    name: &str,
) -> Result<&'o Sourced<K>, Failure> {
    let names = || objects.iter().filter_map(|one| one.meta().name.as_deref());
    objects.get("", name).ok_or_else(|| Failure::missing(kind, name, names()))
}

/// Writes one line per condition.
pub(super) fn write_conditions(conditions: &[Condition], out: &mut Output) -> Result<(), Failure> {
    for condition in conditions {
        let style = if condition.status == "True" { GOOD } else { NOTE };
        let Condition { type_: kind, status, reason, message, .. } = condition;
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        writeln!(out, "  {style}{kind}={status}{style:#} ({reason}){message}")?;
    }
    Ok(())
}

/// Writes a line for each rule of placement that a pod violates.
pub(super) fn write_violations(tenants: &Tenants, pods: &[&Pod], out: &mut Output) -> Result<(), Failure> {
    for pod in pods {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        for message in placement_violations(tenants, pod) {
            writeln!(out, "  {BAD}placement violation of pod {namespace}/{name}{BAD:#}: {message}")?;
        }
    }
    Ok(())
}
