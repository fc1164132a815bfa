//! Provisioning: from pending pods to NodeClaims. The engine runs [`planning`] before the deciders of a pass.

pub mod batch;
pub mod new_claims;
pub mod panic_isolation;
pub mod planning;
pub mod rejected_placements;
pub mod requirements;
