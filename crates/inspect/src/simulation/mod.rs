//! The scheduler's plan for an input: new instances, existing nodes, pending pods, and nodes that could be removed.
//!
//! ```text
//!  Input ──workload──▶ pods ──admission──▶ pods as created ──demand──▶ scheduler::Cluster ──solve──▶ Simulation
//! ```
//!
//! The controller calls the same `solve` with the same conversions. `croft simulate`, `plan --live` and `explain` call
//! this module. `settle` repeats plan and consolidation on an input until nothing changes any more; `replay` goes through a recorded
//! time.

mod consolidation;
mod demand;
mod eligibility;
mod leaving_nodes;
mod outcome;
mod replay;
mod schedules;
mod settle;
mod simulate;
mod static_capacity;
mod totals;

pub use consolidation::WITHOUT_CLAIM;
pub(crate) use consolidation::is_disrupted;
pub use demand::is_created;
pub(crate) use demand::is_stored;
pub(crate) use eligibility::{Horizon, PodIndex, has_do_not_disrupt};
pub use eligibility::{closed_zones, forbidden_disruption, pause_of_pool, time_of};
pub use outcome::{DENIED, Denied, Savings, Simulation};
pub use replay::{Replay, keep_demand};
pub use schedules::in_force;
pub(crate) use settle::allows_nothing;
pub use settle::{Settling, register_coming};
pub(crate) use simulate::simulate_admitted;
pub use simulate::{node_outlook, simulate, simulate_with_consolidation};
pub use totals::{Totals, Usage};
