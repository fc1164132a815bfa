//! Which objects a file of changes may hold.

use croft_manifest::{Input, InputError, KindGroup, Objects, Problem, each_kind};
use kube::{Resource, ResourceExt as _};

/// Checks that `edit` changes settings alone.
///
/// # Errors
/// Each object of another kind, by file and line.
pub(in crate::commands::simulate) fn check(edit: &Input) -> Result<(), InputError> {
    let mut problems = Vec::new();
    macro_rules! refuse {
        ($($field:ident: $group:ident),*) => { $(if KindGroup::$group != KindGroup::Settings {
            refuse(&edit.$field, &mut problems);
        })* };
    }
    each_kind!(refuse);
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
            message: "only Tenants, TenantPools, EC2NodeClasses and the CroftConfig can be put over a cluster: leave it out"
                .to_owned(),
        });
    }
}
