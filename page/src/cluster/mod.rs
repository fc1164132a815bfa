//! The cluster as the page keeps it: trimmed objects, and the decision log.

pub mod log;
pub mod objects;
pub mod trim;
