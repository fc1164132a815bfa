//! Tenants: labels and annotations of their namespaces and nodes, objects in their namespaces, parameters of the admission
//! policies, status of Tenants, and pods that were admitted before their tenant was known.
//!
//! ```text
//!  Change ──▶ State ──▶ reconcile (pure) ──Action──▶ Isolation ──▶ the engine
//! ```
//!
//! [`state::State`] caches the facts; [`reconcile::reconcile`] compares them with the Tenants, as a pure function of state and
//! time. Every pass starts from the present facts, so the next pass repairs an interrupted pass or a lost write.
//! [`isolation::Isolation`] is the decider: it says when a pass is due. [`crate::in_flight`] doesn't repeat a write before the watch
//! could show it.

mod absences;
mod class_facts;
mod daemonsets;
mod evictions;
mod given_status;
pub mod isolation;
mod let_in;
mod misplaced;
pub(crate) mod mutation;
mod namespace_metadata;
mod notices;
mod objects;
mod parameter_writes;
mod parameters;
mod placement;
mod pod_security;
mod pool_status;
mod prices;
mod quota;
pub mod reconcile;
mod shared;
mod spec_valid;
pub mod state;
mod tenant_objects;
mod tenant_status;
