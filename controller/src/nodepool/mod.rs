//! TenantPools: status, static capacity, finalizer and deletion. The engine runs [`static_capacity`] and [`status`] in
//! each pass.

mod deletion;
pub mod static_capacity;
pub mod status;
mod supply;
