//! The nodes that are in a cluster, whoever launched them, beside Croft's plan for the same pods.
//!
//! ```text
//!  Input ──launcher──▶ groups of nodes ──derived──▶ a pool for each group that no TenantPool declares
//!    │                                                                        │
//!    └──────────── pods as they run ──subject──▶ pods without a node ─────────┴─solve─▶ Comparison
//! ```
//!
//! The plan begins without nodes: it says what the same pods need, and its bound says how much of the difference no other plan could
//! save. A namespace of a Tenant has its pods in the Tenant's pools, as admission pins them. Each other pod stays in the group in which
//! it runs, so that a cluster without a single object of Croft is compared group by group. Nodes of a TenantPool that Croft doesn't
//! provision stay on both sides. Begin reading at [`compare`]. `croft simulate --compare` prints the answer.

mod compare;
mod derived;
mod launcher;
mod model;
mod subject;

#[cfg(test)]
mod tests;

pub use compare::compare;
pub use launcher::{Launcher, LeftOut};
pub use model::{Comparison, Desired, PodGroup, PoolRow, Side, Uncounted};
