//! The scheduler's plan for an input: new instances, existing nodes, pending pods, and nodes that could be removed.
//!
//! ```text
//!  Input ──workload──▶ pods ──admission──▶ pods as created ──demand──▶ scheduler::Cluster ──solve──▶ Simulation
//! ```
//!
//! The controller calls the same `solve` with the same conversions. `croft simulate`, `plan --live` and `explain` call
//! this module.

mod consolidation;
mod demand;
mod denied;
mod eligibility;
mod simulate;
mod static_capacity;

pub(crate) use consolidation::Savings;
pub(crate) use demand::{belongs, is_created};
pub(crate) use denied::DENIED;
pub(crate) use simulate::{Simulation, node_outlook, simulate, simulate_with_consolidation};
