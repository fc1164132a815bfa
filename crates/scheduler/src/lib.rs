//! Which machines to launch, and what goes where: exactly, at once, and cheaply. No I/O, no clock; the same input
//! gives the same plan on any machine.
//!
//! ```text
//!  Pod, Node, DaemonSet, PVC ... ──upsert──▶ Cluster ──solve──▶ Plan { machines, existing, unschedulable, cost, bound }
//!  Pool { requirements, offerings } ────────▶   │
//!  ComingNode (a claim without its Node) ───────┘
//! ```

mod bits;
mod block;
mod catalog;
mod cluster;
pub mod consolidate;
mod demand;
mod error;
mod existing;
mod finish;
mod groups;
mod intern;
mod nodereq;
mod options;
mod pack;
mod plan;
mod pool;
mod price;
mod quantity;
mod reasons;
mod requests;
mod requirement;
pub mod resources;
mod selector;
mod shape;
mod soft;
mod solver;
mod space;
mod taint;
mod warm;
mod wellknown;
mod zones;

pub use catalog::{CapacityType, Catalog, InstanceType, Offering};
pub use cluster::{Cluster, Waiting};
pub use error::InputError;
pub use options::Options;
pub use plan::{ExistingPlacement, Machine, Plan, PodKey, Reason, ReasonKind, Relaxed, Unschedulable};
pub use pool::{ComingNode, LIMIT_COST, LIMIT_NODES, Pool, TenantLimits};
pub use price::{Price, PriceError};
pub use quantity::{Quantity, QuantityError};
pub use requirement::{Operator, Requirement};
pub use resources::Resources;
pub use solver::solve;
