//! Why a command ends without its result, and the exit code of each.

use std::io;

use thiserror::Error;

use crate::input::InputError;

/// What a command failed of.
#[derive(Debug, Error)]
pub enum Failure {
    /// The input is wrong: exit code 2.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The result can't be written: exit code 1, and 0 where the reader has left.
    #[error("failed to write the result: {0}")]
    Write(#[from] io::Error),
    /// Anything else: exit code 1.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            // `croft simulate | head` is no failure.
            Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Write(_) | Self::Other(_) => 1,
        }
    }
}
