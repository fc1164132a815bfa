//! Provisioning: from pending pods to NodeClaims. The engine runs [`planning`] before the deciders of a pass, and
//! [`launch_backoff`] among them.

pub mod batch;
pub mod labels;
pub mod launch_backoff;
pub mod new_claims;
pub mod panic_isolation;
pub mod planning;
pub mod rejected_placements;
pub mod requirements;
pub mod solver;
