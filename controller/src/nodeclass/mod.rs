//! EC2NodeClasses: what their terms resolve to, and what the cloud offers to them.

pub mod findings;
pub mod resolution;
