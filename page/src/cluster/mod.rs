//! The cluster as the page keeps it: trimmed objects, the decision log, and snapshots of earlier times.

pub mod log;
pub mod objects;
pub mod recorded;
pub mod sampled;
pub mod snapshots;
pub mod trim;
pub mod usage;
