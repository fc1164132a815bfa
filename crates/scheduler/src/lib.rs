//! Plans which instances to launch and which node each pod goes to. No I/O, no clock; the same input gives the same
//! plan on any computer.
//!
//! ```text
//!  Pod, Node, DaemonSet, PVC ... ──upsert──▶ Cluster ──solve──▶ Plan { instances, existing, unschedulable, cost, bound }
//!  Pool { requirements, offerings } ────────▶   │
//!  ComingNode (a NodeClaim without its Node) ───┘
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use croft_scheduler::{Catalog, Cluster, Options, Pool, solve};
//! use serde_json::json;
//!
//! let catalog: Catalog = serde_json::from_value(json!({"instanceTypes": [{
//!     "name": "m.4", "arch": "amd64", "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
//!     "offerings": [{"zone": "a", "capacityType": "on-demand", "price": 0.2}],
//! }]}))?;
//! let mut cluster = Cluster::new();
//! cluster.upsert_pool(Pool {
//!     name: "default".to_owned(),
//!     key: "node-pool".to_owned(),
//!     value: "default".to_owned(),
//!     instance_types: Arc::from(catalog.instance_types),
//!     launches: true,
//!     ..Pool::default()
//! })?;
//! cluster.upsert_pod(&serde_json::from_value(json!({
//!     "metadata": {"namespace": "shop", "name": "web"},
//!     "spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]},
//! }))?)?;
//! let plan = solve(&cluster, &Options::default(), &|| false);
//! let planned: Vec<&str> = plan.instances.iter().map(|instance| instance.instance_type.as_str()).collect();
//! assert_eq!(planned, ["m.4"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A module imports modules above it in this table and none below:
//!
//! | module | owns |
//! |---|---|
//! | `model` | what callers pass in and get back: quantities, requirements, pools, catalogue, options, plan |
//! | `ids`, `index_vec` | ids: each a type of its own; the vectors that they index |
//! | `state` | the same interned: `Cluster`, ids of values and their reuse, compiled requirements, selectors and taints |
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
    catalog::{CapacityType, Catalog, InstanceType, Offering, region_of_zone},
    error::InputError,
    options::{LaunchTemplates, Options},
    plan::{
        ExistingPlacement, LimitOwner, Plan, PlannedInstance, PodKey, REPLICAS, ReachedLimit, Reason,
        ReasonKind, Relaxed, SHARES, Unschedulable,
    },
    pool::{ComingNode, LIMIT_COST, LIMIT_NODES, Pool, TenantLimits},
    price::{Price, PriceError},
    quantity::{Quantity, QuantityError},
    requirement::{Operator, Requirement},
    resources::{self, Resources},
    share::{Balance, NodeSum, Share, ShareBound, ShareOf},
    well_known::EPHEMERAL_TAINTS,
};
pub use solve::solver::solve;
pub use state::{cluster::Cluster, shares::ShareLedger, waiting::Waiting};
