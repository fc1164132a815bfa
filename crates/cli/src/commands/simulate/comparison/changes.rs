//! Which objects a file of changes may hold.

use croft_manifest::{Input, InputError, Objects, Problem};
use kube::{Resource, ResourceExt as _};

/// Checks that `edit` changes settings alone.
///
/// # Errors
/// Each object of another kind, by file and line.
pub(in crate::commands::simulate) fn check(edit: &Input) -> Result<(), InputError> {
    let mut problems = Vec::new();
    macro_rules! refuse {
        ($($field:ident),*) => { $(refuse(&edit.$field, &mut problems);)* };
    }
    refuse!(
        claims,
        namespaces,
        nodes,
        pods,
        deployments,
        replica_sets,
        stateful_sets,
        daemon_sets,
        replication_controllers,
        jobs,
        cron_jobs,
        volume_claims,
        volumes,
        storage_classes,
        csi_nodes,
        priority_classes,
        runtime_classes,
        limit_ranges,
        budgets
    );
    if problems.is_empty() { Ok(()) } else { Err(InputError::Problems(problems)) }
}

fn refuse<K: Resource<DynamicType = ()>>(objects: &Objects<K>, problems: &mut Vec<Problem>) {
    for object in objects {
        let name = match object.namespace() {
            Some(namespace) => format!("{} {namespace}/{}", K::kind(&()), object.name_any()),
            None => format!("{} {}", K::kind(&()), object.name_any()),
        };
        problems.push(Problem {
            origin: object.origin.clone(),
            object: name,
            field: String::new(),
            message: "only Tenants, TenantPools, EC2NodeClasses and the CroftConfig can change in a recorded cluster: leave it out"
                .to_owned(),
        });
    }
}
