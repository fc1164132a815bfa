//! Objects of any kind, untyped and without defaults.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    error::{InputError, Problem},
    files::{self, Source},
    origin::Origin,
    tree::{self, Node, SyntaxError, Tree},
};

/// One object as written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RawObject {
    /// `apiVersion`, such as `karpenter.sh/v1`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `metadata.name`; empty if there is none.
    pub name: String,
    /// The whole object.
    pub value: Value,
    /// Where it was read.
    pub origin: Origin,
}

impl RawObject {
    /// The part of `apiVersion` before the slash; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Kind and name, for messages.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    /// An error in one of its fields.
    #[must_use]
    pub fn problem(&self, field: &str, message: String) -> Problem {
        let origin = Origin { file: self.origin.file.clone(), line: self.origin.line_of(field) };
        Problem { origin, object: self.title(), field: field.to_owned(), message }
    }
}

/// The objects of files and folders.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RawObjects {
    /// In their order.
    pub objects: Vec<RawObject>,
    /// Values that don't count, since their key is there twice.
    pub warnings: Vec<String>,
}

/// Reads every object in files and folders, the items of lists one by one.
///
/// `paths` are as for [`load`](crate::load).
///
/// ```
/// let file = std::env::temp_dir().join(format!("croft-raw-{}.yaml", std::process::id()));
/// std::fs::write(&file, "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: a}}")?;
/// let objects = croft_manifest::load_raw(&[file.clone()])?.objects;
/// assert_eq!(objects.iter().map(|o| (o.group(), o.title())).collect::<Vec<_>>(), [("karpenter.sh", "NodePool a".to_owned())]);
/// # std::fs::remove_file(file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Paths that can't be read or hold no object, text that isn't YAML or JSON, documents without apiVersion or kind.
pub fn load(paths: &[PathBuf]) -> Result<RawObjects, InputError> {
    let mut found = RawObjects::default();
    let mut problems = Vec::new();
    for given in files::read(paths)? {
        let mut holds_object = false;
        for source in &given.sources {
            holds_object |= read(source, &mut found, &mut problems);
        }
        given.check(holds_object)?;
    }
    if !problems.is_empty() {
        return Err(InputError::Problems(problems));
    }
    if found.objects.is_empty() { Err(files::empty_lists(paths)) } else { Ok(found) }
}

/// False if the text holds nothing but comments.
fn read(source: &Source, found: &mut RawObjects, problems: &mut Vec<Problem>) -> bool {
    let origin = |line: u32| Origin { file: source.file.clone(), line };
    let mut problem = |line: u32, message: String| {
        let (object, field) = (String::new(), String::new());
        problems.push(Problem { origin: origin(line), object, field, message });
    };
    let mut odd = Vec::new();
    match tree::read(&source.text, &mut odd) {
        Ok(documents) => {
            let warning = |odd: &SyntaxError| format!("{}:{}: {}", source.file, odd.line, odd.message);
            found.warnings.extend(odd.iter().map(warning));
            documents.iter().for_each(|tree| collect(tree, &origin, &mut found.objects, &mut problem));
            !documents.is_empty()
        }
        Err(error) => {
            problem(error.line, error.message);
            true
        }
    }
}

fn collect(
    tree: &Tree,
    origin: &impl Fn(u32) -> Origin,
    objects: &mut Vec<RawObject>,
    problem: &mut impl FnMut(u32, String),
) {
    if let Some(Node::List(items)) = tree.get("items").map(|items| &items.node) {
        items.iter().for_each(|item| collect(item, origin, objects, problem));
        return;
    }
    match (tree.text("apiVersion"), tree.text("kind")) {
        (Some(api_version), Some(kind)) => objects.push(RawObject {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: tree.get("metadata").and_then(|m| m.text("name")).unwrap_or_default().to_owned(),
            value: tree.to_json(),
            origin: origin(tree.line),
        }),
        _ => problem(tree.line, "expected an object with apiVersion and kind".to_owned()),
    }
}
