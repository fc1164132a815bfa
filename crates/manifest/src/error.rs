//! Why an input can't be used: unreadable files, and invalid objects with file, line and field.

use std::fmt;

use thiserror::Error;

use crate::origin::Origin;

/// One error in the input.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct Problem {
    /// The file, and the line of the invalid value.
    pub origin: Origin,
    /// Kind and name of the object, such as `Deployment shop/web`; empty if they can't be read.
    pub object: String,
    /// Path of the field; empty for the object itself.
    pub field: String,
    /// The error, and the text to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        for part in [&self.object, &self.field] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.message)
    }
}

/// Why the input can't be used. `croft` exits with 2.
#[derive(Debug, Error)]
pub enum InputError {
    /// A file or folder that can't be read.
    #[error("failed to read {path}: {source}")]
    File {
        /// As the caller named it.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A folder without a file to read.
    #[error("failed to read {path}: the folder holds no .yaml, .yml or .json file")]
    EmptyFolder {
        /// As the caller named it.
        path: String,
    },
    /// A file, folder or standard input without an object.
    #[error(
        "{} holds no object: it is empty, or has only comments; if another program writes it, see whether that failed",
        if path == "-" { "standard input" } else { path }
    )]
    Empty {
        /// As the caller named it.
        path: String,
    },
    /// Files whose lists are empty, as `kubectl get` writes them where it found nothing, and no object beside.
    #[error(
        "no object in {paths}: every list there is empty; if another program writes it, see whether that failed"
    )]
    EmptyLists {
        /// As the caller named them.
        paths: String,
    },
    /// Invalid objects, all of them.
    #[error("{}", list(.0))]
    Problems(Vec<Problem>),
    /// Any other error in the input or the arguments.
    #[error("{0}")]
    Other(String),
}

impl From<Problem> for InputError {
    fn from(problem: Problem) -> Self {
        Self::Problems(vec![problem])
    }
}

/// At most this many problems are shown; the rest is counted.
const SHOWN_PROBLEMS: usize = 20;

fn list(problems: &[Problem]) -> String {
    let mut lines: Vec<String> = problems.iter().take(SHOWN_PROBLEMS).map(ToString::to_string).collect();
    if let Some(more) = problems.len().checked_sub(SHOWN_PROBLEMS).filter(|n| *n > 0) {
        lines.push(format!("... and {more} more"));
    }
    lines.join("\n")
}
