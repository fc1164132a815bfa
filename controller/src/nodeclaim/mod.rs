//! NodeClaims, from creation to release. The engine runs [`instances`], [`lifecycle`], [`garbage_collection`] and
//! [`launch_backoff`] in each pass, and disruption [`status_checks`].

pub mod conditions;
mod evictions;
pub mod garbage_collection;
pub mod instances;
pub mod launch_attempt;
pub mod launch_backoff;
pub mod lifecycle;
pub mod node_patch;
pub mod pod_check;
mod rounds;
pub mod status_checks;
mod template_backoff;
pub mod termination;
pub mod writes;
