//! Objects of any kind, as they are written.

use std::path::PathBuf;

use serde_json::Value;

use super::{
    InputError, Origin, Problem, files,
    tree::{self, Node, Tree},
};

/// One object, untyped and without defaults.
#[derive(Clone, Debug)]
pub(crate) struct RawObject {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) value: Value,
}

impl RawObject {
    /// The part of `apiVersion` before the slash.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// As messages name it.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// Reads every object that `paths` name, the items of lists one by one.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<RawObject>, InputError> {
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    for source in files::read(paths)? {
        let problem = |line: u32, message: String| Problem {
            origin: Origin { file: source.file.clone(), line },
            object: String::new(),
            field: String::new(),
            message,
        };
        match tree::read(&source.text, &mut Vec::new()) {
            Ok(documents) => documents.iter().for_each(|tree| {
                collect(tree, &mut objects, &mut |line, message| {
                    problems.push(problem(line, message));
                })
            }),
            Err(error) => problems.push(problem(error.line, error.message)),
        }
    }
    if problems.is_empty() { Ok(objects) } else { Err(InputError::Problems(problems)) }
}

fn collect(tree: &Tree, objects: &mut Vec<RawObject>, problem: &mut impl FnMut(u32, String)) {
    if let Some(Node::List(items)) = tree.get("items").map(|items| &items.node) {
        items.iter().for_each(|item| collect(item, objects, problem));
        return;
    }
    match (tree.text("apiVersion"), tree.text("kind")) {
        (Some(api_version), Some(kind)) => objects.push(RawObject {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: tree.get("metadata").and_then(|m| m.text("name")).unwrap_or_default().to_owned(),
            value: tree.to_json(),
        }),
        _ => problem(tree.line, "expected an object with apiVersion and kind".to_owned()),
    }
}
