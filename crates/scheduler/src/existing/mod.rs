//! Placement onto nodes that exist, then onto those that are coming.

pub(crate) mod cache;
pub(crate) mod emptiest_node;
pub(crate) mod host_counts;
pub(crate) mod placement;
pub(crate) mod room;
pub(crate) mod rules;
