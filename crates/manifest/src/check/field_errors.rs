//! Errors that checks report.

/// Path of an invalid field, and what is wrong with it.
pub type FieldErrors = Vec<(String, String)>;
