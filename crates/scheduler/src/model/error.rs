//! Errors of input objects.

use thiserror::Error;

/// An object that can't be read. Names the object, the field, and what is wrong with the value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("failed to read {kind} {name}: {field}: {problem}")]
pub struct InputError {
    /// Kind of the object.
    pub kind: &'static str,
    /// Its name, with the namespace where it has one.
    pub name: String,
    /// Path of the field.
    pub field: String,
    /// The error, and the text to write instead.
    pub problem: String,
}
