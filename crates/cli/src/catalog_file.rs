//! The file of `--catalog`: instance types and prices.

use std::{path::Path, sync::Arc};

use croft_manifest::{InputError, Origin, Problem};
use croft_scheduler::{Catalog, InstanceType};

/// Reads the instance types of a catalogue file, or the built-in ones without a path.
///
/// # Errors
/// A file that can't be read, isn't a catalogue, or holds no instance type, with line and field.
pub(crate) fn instance_types(path: Option<&Path>) -> Result<Arc<[InstanceType]>, InputError> {
    path.map_or_else(|| Ok(croft_cloud::builtin_catalog()), read)
}

fn read(path: &Path) -> Result<Arc<[InstanceType]>, InputError> {
    let file = path.display().to_string();
    let text = std::fs::read(path).map_err(|source| InputError::File { path: file.clone(), source })?;
    let problem = |line: usize, field: String, message: String| {
        InputError::from(Problem {
            origin: Origin {
                file: file.as_str().into(),
                line: u32::try_from(line).unwrap_or(u32::MAX).max(1),
            },
            object: "catalogue".to_owned(),
            field,
            message,
        })
    };
    let mut json = serde_json::Deserializer::from_slice(&text);
    let catalog: Catalog = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        let message = inner.to_string();
        // The line is part of the problem's origin.
        let message =
            message.rsplit_once(" at line ").map_or(message.clone(), |(before, _)| before.to_owned());
        problem(inner.line(), if path == "." { String::new() } else { path }, message)
    })?;
    json.end().map_err(|error| {
        problem(error.line(), String::new(), "something follows the catalogue".to_owned())
    })?;
    if catalog.instance_types.is_empty() {
        return Err(problem(
            1,
            "instanceTypes".to_owned(),
            "the catalogue holds no instance type".to_owned(),
        ));
    }
    let mut names = std::collections::HashSet::new();
    for (i, one) in catalog.instance_types.iter().enumerate() {
        if one.name.is_empty() {
            return Err(problem(1, format!("instanceTypes[{i}].name"), "this is required".to_owned()));
        }
        if !names.insert(one.name.as_str()) {
            let message = format!("{:?} is there twice", one.name);
            return Err(problem(1, format!("instanceTypes[{i}].name"), message));
        }
        for (resource, amount) in one.capacity.iter().chain(one.overhead.iter()) {
            if amount < 0 {
                let message = format!("{resource} of {} is below zero", one.name);
                return Err(problem(1, format!("instanceTypes[{i}]"), message));
            }
        }
    }
    Ok(catalog.instance_types.into())
}
