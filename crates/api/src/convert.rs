//! From what users write to what the pure crates decide on.

pub mod policy;
pub mod scheduler;
pub mod standing;
pub mod unlimited;
