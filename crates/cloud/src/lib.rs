//! The interface between Croft and a cloud, without the name of one.
//!
//! ```text
//!   EC2NodeClass ──resolve──▶ ClassFindings (subnets, groups, images, conditions)
//!        │
//!        ├──instance_types──▶ Arc<[InstanceType]> ──▶ scheduler::solve
//!        │                        ▲ available: false after NoCapacity ──┐
//!        ▼                        │                                    │
//!   LaunchRequest ──prepare──▶ Prepared ──launch──▶ Launched | LaunchError
//!                                 │ stored in the claim before the call, so that after a
//!                                 ▼ crash the very same request is repeated
//!                           NodeClaim.status.attempt
//!
//!   list, find_by_claim, terminate, tag, interruptions, sweep: what the life cycle needs afterwards
//!   observe_capacity: what nodes really have, for the next plan; shortages: what was refused, for conditions
//! ```
//!
//! The controller calls [`CloudProvider`] and never sees a wire type; `croft-cloud-aws` implements it. Pure logic is
//! here, where it is tested without a network: what a class says of its instances ([`class`]), capacity and overhead that
//! a kubelet will report for a type ([`facts`]), labels that a kubelet may set ([`kubelet`]), offerings that are unavailable ([`unavailable`]), the types that a pool may
//! launch ([`pool_types`]) and their supply ([`supply`]), and the built-in catalogue ([`catalog`]) with its dated prices, which `croft simulate` plans with and
//! the provider falls back to.

pub mod catalog;
pub mod class;
pub mod error;
pub mod facts;
pub mod health;
pub mod kubelet;
pub mod pool_types;
pub mod provider;
pub mod supply;
pub mod tags;
pub mod unavailable;
pub mod userdata;

pub use catalog::builtin_catalog;
pub use error::{CloudError, Fault, FaultClass, LaunchError, OfferingKey};
pub use health::{FailedCheck, InstanceHealth, ScheduledChange, StatusCheck};
pub use provider::{
    Account, CallCount, ClassFindings, CloudInstance, CloudProvider, InUse, InstanceState, Interruption,
    InterruptionKind, LaunchRequest, Launched, ObservedNode, Prepared, Terminated, instance_id,
};
pub use supply::Shortage;
