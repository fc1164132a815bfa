//! Why a command fails, and the exit code of each reason.

use std::io;

use croft_manifest::{InputError, WriteError, closest};
use croft_runtime::process::chain;
use thiserror::Error;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The input is wrong: exit code 2.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The result can't be written: exit code 1, or 0 if the reader closed the pipe.
    #[error("failed to write the result: {0}")]
    Write(#[from] io::Error),
    /// The result can't be written as YAML: exit code 1.
    #[error(transparent)]
    Yaml(#[from] WriteError),
    /// Anything else: exit code 1.
    #[error("{}", told(.0))]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// `there is no <kind> <name>`, with the closest of the names that there are.
    pub(crate) fn missing<'n>(kind: &str, name: &str, there: impl IntoIterator<Item = &'n str>) -> Self {
        let there: Vec<&str> = there.into_iter().collect();
        let hint = closest(name, &there).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
        InputError::Other(format!("there is no {kind} {name}{hint}")).into()
    }

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            // `croft simulate | head` is no failure.
            Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Write(_) | Self::Yaml(_) | Self::Other(_) => 1,
        }
    }
}

/// An error with its causes, each once.
pub(crate) fn told(error: &anyhow::Error) -> String {
    chain(error.as_ref())
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn each_cause_of_a_failure_is_said_once() {
        let inner = io::Error::other("no such file");
        let named: Result<(), _> = Err(Failure::Write(inner));
        let error = named.context("failed to list pods").unwrap_err();
        let text = Failure::Other(error).to_string();
        assert_eq!(text, "failed to list pods: failed to write the result: no such file");
    }
}
