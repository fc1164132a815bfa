//! TenantPools: status, static capacity, finalizer and deletion. The engine runs [`static_capacity`] and [`status`] in
//! each pass.

mod deletion;
mod holdings;
pub mod static_capacity;
pub mod status;
mod supply;

pub(crate) use holdings::{Holdings, cost_text, count};
