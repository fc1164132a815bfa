//! An EC2 that runs locally: the calls that a provisioner makes, on the wire, with scripted faults.
//!
//! ```text
//!   AWS SDK ──HTTP──▶ wire ──Call──▶ World::handle(call, now) ──Answer──▶ wire: XML or JSON
//!                       │                 │
//!   control ──HTTP──────┘                 ├─ market     capacity and prices per (type, zone, capacity type)
//!   (faults, capacity,                    ├─ fleet      allocation strategies, tokens, quotas, addresses
//!    interruptions, state)                ├─ policy     what the caller's IAM policy grants
//!                                         ├─ faults     refusals, latency, broken connections
//!                                         └─ happenings ──▶ kubelet: an instance that runs becomes a Node
//! ```
//!
//! [`world::World`] is the cloud: a value without I/O, clock or threads, driven by calls with their time, so that a run
//! can be repeated from its seed on virtual time. [`wire`] has the protocols, [`server`] serves them on a socket, [`kubelet`]
//! plays booting instances in a cluster, and [`journal`] keeps its state across processes.
//!
//! Limits: signatures are read but not verified; of user data only the kubelet's part is read, and nothing is executed;
//! instances have no volumes, addresses or networks behind them; Describe calls know the filters that provisioners use
//! and refuse others.

pub mod answer;
pub mod bill;
mod calls;
pub mod capacity_rule;
pub mod catalogue;
pub mod control;
mod describe;
mod eks;
pub mod faults;
pub mod fleet;
pub mod iam;
pub mod images;
pub mod instances;
pub mod integration;
pub mod journal;
pub mod kubelet;
pub mod market;
pub mod network;
mod node_resources;
pub mod params;
pub mod policy;
mod pricing;
pub mod process;
mod random;
pub mod reservations;
pub mod resources;
pub mod server;
pub mod sqs;
mod status;
pub mod templates;
mod types;
pub mod userdata;
pub mod wire;
pub mod world;
pub mod xml;
