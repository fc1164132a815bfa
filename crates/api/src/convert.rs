//! Conversions from custom resources to the types of the pure crates.

pub mod declared;
pub mod given;
pub mod nodes;
pub mod pod_defaults;
pub mod policy;
pub mod scheduler;
pub mod static_capacity;
pub mod template_return;
pub mod tenant_objects;
pub mod unlimited;
