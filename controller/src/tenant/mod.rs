//! Tenants: labels and annotations of their namespaces and nodes, parameters of the admission policies, status of Tenants
//! and TenantPools, and pods that were admitted before their tenant was known. Also the status of the CroftConfig.
//!
//! ```text
//!  Changes of the engine's watches ───▶ State ──▶ reconcile (pure) ──Action──▶ writes ──▶ API server
//!  webhook replicas, policies ──────────▶ │
//! ```
//!
//! [`state::State`] caches the facts; [`reconcile::reconcile`] compares them with the Tenants, as a pure function of state and
//! time. Every pass starts from the present facts, so the next pass repairs an interrupted pass or a lost write. The
//! executor is [`run`], which runs passes while this replica is the leader.

mod absences;
pub mod action;
pub mod croft_config;
mod daemonsets;
mod evictions;
mod invalid_objects;
mod namespace_metadata;
mod parameter_writes;
mod parameters;
mod placement;
mod pool_status;
pub mod reconcile;
pub mod run;
mod spec_valid;
pub mod state;
mod tenant_status;
pub mod writes;

pub use run::{TenantMetrics, spawn};
