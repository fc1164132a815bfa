//! The controller's state: one incremental snapshot, fed by watches and by the responses to its own calls.
//!
//! ```text
//!   watch ─────┐
//!              ├──Change──▶ Snapshot ──▶ scheduler::Cluster (interned: pods, nodes, volumes, ...)
//!   response ──┘               └───────▶ views (few fields: pods, nodes), claims, pools, classes, tenants
//! ```
//!
//! Objects arrive from both sources in any order, so the snapshot takes an object only if its resourceVersion is newer
//! than the one held. A deleted object stays deleted (`tombstones`).

pub(crate) mod blockers;
mod claims;
mod daemon_sets;
mod declared;
mod dirty_set;
mod evidence;
mod headroom;
mod health;
pub(crate) mod holdings;
mod in_flight_nodes;
mod invalid_objects;
mod launch_holds;
mod leaving_nodes;
mod milestones;
mod nodes;
mod pods;
mod pool_versions;
mod records;
mod reservations;
mod schedules;
mod snapshot;
mod tombstones;
mod unclaimed;
mod views;
mod zones;

pub use evidence::Evidence;
pub use milestones::Milestones;
pub use records::{
    BoundPod, ClassState, HeadroomStatus, InstanceList, InvalidObject, InvalidObjects, LaunchHold,
    LaunchHolds, ScheduledPool,
};
pub use snapshot::Snapshot;
pub use views::{
    BudgetView, NodeView, PodTraits, PodView, has_condition, instance_of, is_accepted, price,
    resource_version,
};
