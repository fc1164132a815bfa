//! Topology spread, pod affinity and anti-affinity: which domain each pod goes to, decided by counting before packing.

pub(crate) mod assignment;
pub(crate) mod constraint_tracker;
pub(crate) mod domains;
pub(crate) mod groups;
pub(crate) mod preferences;
