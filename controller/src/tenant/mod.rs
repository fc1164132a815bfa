//! Tenants kept: what the API server and the users must know of them, and what came in before they were known.
//!
//! ```text
//!  Changes of the engine's watches ──tee──▶ State ──▶ decide (pure) ──Action──▶ act ──▶ API server
//!  CroftConfig, webhook replicas, policies ──▶ │
//! ```
//!
//! [`state::State`] holds the few facts that count; [`decide::decide`] compares what is with what should be, as a
//! pure function of state and time: marks of namespaces and nodes, what the static policies read, conditions of Tenants,
//! DaemonSets to plan anew, pods to make anew. Every round starts from what is, so that a round that is cut short
//! or a write that is lost is made up for by the next.

pub mod act;
pub mod croft_config;
mod daemonsets;
pub mod decide;
mod evictions;
mod parameters;
mod pods;
mod pools;
pub mod run;
pub mod state;
mod status;
mod unread;

pub use run::{TenantMetrics, spawn};
