//! File and line of an object.

use std::{fmt, fs, sync::Arc};

use crate::tree::{self, Node, Tree};

/// Where an object was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file as the caller named it; `-` for standard input.
    pub file: Arc<str>,
    /// The object's first line, from 1.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Origin {
    /// The line of `field` in the object that begins here; the object's line if the field isn't found.
    ///
    /// Reads the file again, so it is meant for error messages only.
    #[must_use]
    pub fn line_of(&self, field: &str) -> u32 {
        let text = fs::read_to_string(&*self.file).ok();
        let documents = text.and_then(|text| tree::read(&text, &mut Vec::new()).ok());
        let found =
            documents.as_deref().and_then(|all| all.iter().find_map(|tree| object_at(tree, self.line)));
        found.map_or(self.line, |tree| tree.line_of(field))
    }
}

/// The object that begins on `line`: the document, or an item of its list.
fn object_at(tree: &Tree, line: u32) -> Option<&Tree> {
    match tree.get("items").map(|items| &items.node) {
        Some(Node::List(items)) => items.iter().find_map(|item| object_at(item, line)),
        _ => (tree.line == line).then_some(tree),
    }
}
