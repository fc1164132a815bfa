//! NodeClaims, from creation to release. The engine runs [`instances`], [`lifecycle`], [`garbage_collection`] and
//! [`launch_failures`] in each pass, and disruption [`status_checks`].

pub mod conditions;
mod evictions;
pub mod garbage_collection;
mod initialization_timeout;
pub mod instances;
pub mod launch_attempt;
pub mod launch_backoff;
pub mod launch_failures;
pub mod lifecycle;
pub mod node_patch;
pub mod pod_check;
pub mod status_checks;
pub mod termination;
pub mod writes;
