//! Gatekeeper's mutations of pods to Tenants: which namespaces get which node selector and tolerations.

mod mutation;
mod placement;
mod tenants;

pub(super) use mutation::is_mutation;
pub(super) use tenants::import;
