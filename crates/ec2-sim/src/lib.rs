//! An EC2 that runs on a laptop: the calls that a provisioner makes, on the wire, with faults by script.
//!
//! ```text
//!   AWS SDK ──HTTP──▶ server ──Call──▶ World::handle(call, now) ──Answer──▶ XML or JSON
//!                       │                 │
//!   control ──HTTP──────┘                 ├─ market     capacity and prices per (type, zone, capacity type)
//!   (faults, capacity,                    ├─ fleet      allocation strategies, tokens, quotas, addresses
//!    interruptions, state)                ├─ policy     what the caller's IAM policy grants
//!                                         ├─ faults     refusals, latency, broken connections
//!                                         └─ happenings ──▶ kubelet: an instance that runs becomes a Node
//! ```
//!
//! [`world::World`] is the cloud: a value without I/O, clock or threads, driven by calls with their time, so
//! that a run can be repeated from its seed on virtual time. [`server`] puts it on a socket; [`kubelet`]
//! does what a booting instance does to a cluster; [`journal`] lets the cloud outlive its process.
//!
//! What it is not: signatures are read and not verified; user data is read for what concerns the kubelet
//! and not executed; there are no volumes, addresses or networks behind the instances; Describe calls know
//! the filters that provisioners use and refuse others.

pub mod answer;
pub mod catalogue;
pub mod control;
mod eks;
pub mod faults;
pub mod fleet;
pub mod iam;
pub mod images;
pub mod instances;
pub mod journal;
pub mod kubelet;
pub mod market;
pub mod network;
pub mod params;
pub mod policy;
mod pricing;
pub mod process;
pub mod server;
pub mod sqs;
pub mod templates;
mod types;
pub mod userdata;
pub mod world;
pub mod xml;
