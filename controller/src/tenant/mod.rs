//! Tenants: labels and annotations of their namespaces and nodes, objects in their namespaces, parameters of the admission
//! policies, status of Tenants, and pods that were admitted before their tenant was known. The engine runs [`Isolation`] in each
//! pass.
//!
//! ```text
//!  Change ──▶ State ──▶ reconcile (pure) ──Action──▶ Isolation ──▶ the engine
//!
//!   parameters    what the admission policies read of the whole cluster -> written, and probed until in force
//!   objects       what Tenants declare for their namespaces             -> created, restored, deleted
//!   quota         a tenant's quota                                      -> shares of its namespaces
//!   namespaces    what admission reads of a namespace                   -> label and annotations
//!   status        what holds for a Tenant                               -> its conditions, with what it uses (usage)
//!   pool_status   label and spec of pools                               -> conditions, which nodepool writes
//!   daemonsets    templates that admission would plan anew              -> written, few at a time
//!   placement     pods that are in a wrong place, or could get there    -> pending ones deleted
//!   evictions     pods bound to a wrong node, with misplaced: Recreate  -> evicted, few at a time
//!   misplaced     such pods that stay                                   -> an event each
//! ```
//!
//! [`state::State`] caches the facts; [`reconcile::reconcile`] runs the above, as a pure function of state and time. Every pass
//! starts from the present facts, so the next pass repairs an interrupted pass or a lost write. [`Isolation`] says when a pass is
//! due. [`crate::in_flight`] doesn't repeat a write before the watch could show it.

mod absences;
mod class_facts;
mod daemonsets;
mod decider;
mod evictions;
mod let_in;
mod misplaced;
pub(crate) mod mutation;
mod namespaces;
mod notices;
mod objects;
mod parameter_writes;
mod parameters;
mod placement;
mod pod_security;
mod pool_status;
mod quota;
pub mod reconcile;
mod shared;
mod spec_valid;
pub mod state;
mod status;
mod tenant_objects;
mod usage;

pub use decider::{Isolation, TenantCounts};
