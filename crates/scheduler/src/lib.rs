//! Plans which instances to launch and which node each pod goes to. No I/O, no clock; the same input gives the same
//! plan on any computer.
//!
//! ```text
//!  Pod, Node, DaemonSet, PVC ... ──upsert──▶ Cluster ──solve──▶ Plan { instances, existing, unschedulable, cost, bound }
//!  Pool { requirements, offerings } ────────▶   │
//!  ComingNode (a NodeClaim without its Node) ───┘
//! ```
//!
//! A module imports modules above it in this table and none below:
//!
//! | module | owns |
//! |---|---|
//! | `model` | what callers pass in and get back: quantities, requirements, pools, catalogue, options, plan |
//! | `ids`, `index_vec` | ids of classes, groups, domain sets, pools, ...: each a type of its own; the vectors that they index |
//! | `state` | the same interned: `Cluster`, ids and their reuse, compiled requirements, selectors and taints |
//! | `demand` | pending pods as classes of pods with the same needs |
//! | `topology` | topology groups, the domain of each pod, preferences between pods |
//! | `packing` | item types into bins: the cheapest set of new instances, and a lower bound |
//! | `existing` | placement onto nodes that exist or are coming; what solves of one cluster share |
//! | `nomination` | planned pods to nominate, and nominations that are compatible |
//! | `solve` | one run: partition into blocks, tiers of pools by weight, limits, result and reasons |
//! | `consolidation` | the search for a cheaper cluster |

pub mod consolidation;
mod demand;
mod existing;
mod ids;
mod index_vec;
mod model;
mod nomination;
mod packing;
mod solve;
mod state;
mod topology;

pub use model::{
    catalog::{CapacityType, Catalog, InstanceType, Offering},
    error::InputError,
    options::Options,
    plan::{
        ExistingPlacement, LimitOwner, Plan, PlannedInstance, PodKey, REPLICAS, ReachedLimit, Reason,
        ReasonKind, Relaxed, Unschedulable,
    },
    pool::{ComingNode, LIMIT_COST, LIMIT_NODES, Pool, TenantLimits},
    price::{Price, PriceError},
    quantity::{Quantity, QuantityError},
    requirement::{Operator, Requirement},
    resources::{self, Resources},
    well_known::EPHEMERAL_TAINTS,
};
pub use solve::solver::solve;
pub use state::{cluster::Cluster, waiting::Waiting};
