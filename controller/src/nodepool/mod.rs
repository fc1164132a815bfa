//! TenantPools: status, static capacity, finalizer and deletion. The engine runs
//! [`per_tenant`], [`static_capacity`] and [`status`] in each pass.

mod deletion;
pub mod per_tenant;
pub mod static_capacity;
pub mod status;
mod supply;
