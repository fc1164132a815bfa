//! The error for an object that the input lacks.

use croft_manifest::{InputError, closest};

use crate::failure::Failure;

/// `there is no <kind> <name>`, with the closest existing name.
pub(super) fn missing<'n>(kind: &str, name: &str, there: impl Iterator<Item = &'n str>) -> Failure {
    let there: Vec<&str> = there.collect();
    let hint = closest(name, &there).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
    InputError::Other(format!("there is no {kind} {name}{hint}")).into()
}
