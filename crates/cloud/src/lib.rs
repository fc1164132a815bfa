//! What Croft needs of a cloud, in words that name no cloud.
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
//! The controller drives [`CloudProvider`] and never sees a wire type; `croft-cloud-aws` implements it.
//! What is pure lives here, where it is tested without a network: the capacity and the overhead that a
//! kubelet will report for a type ([`facts`]), the labels that a kubelet may set ([`kubelet`]), what had
//! no capacity and for how long it is set aside ([`shortage`]), what that leaves of a pool ([`supply`]), and the built-in catalogue ([`catalog`])
//! with its dated prices, which `croft simulate` plans with and the provider falls back to.

pub mod catalog;
pub mod error;
pub mod facts;
pub mod kubelet;
pub mod provider;
pub mod shortage;
pub mod supply;
pub mod tags;
pub mod userdata;

pub use catalog::builtin_catalog;
pub use error::{CloudError, Fault, FaultClass, LaunchError, OfferingKey};
pub use provider::{
    Account, ClassFindings, CloudMachine, CloudProvider, InUse, Interruption, InterruptionKind,
    LaunchRequest, Launched, MachineState, ObservedNode, Prepared, Terminated,
};
pub use supply::Shortage;
