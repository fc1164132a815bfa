//! `croft lab`: the real control plane, an EC2 simulator and Croft itself, on this computer.
//!
//! ```text
//!   croft lab up ──starts──▶ keeper (croft lab up --foreground) ──▶ ControlPlane ──▶ Croft
//!        │ shows its progress until it is up          │ holds the lock, writes state.json
//!   croft lab status ──reads────────────────────────▶ │
//!   croft lab down ──SIGTERM, waits for the lock────▶ ends with all its processes
//!
//!   croft lab demo: a control plane of its own, in the foreground
//! ```
//!
//! With `--real-node` the keeper starts itself again in namespaces of their own, where Croft runs from its images:
//! `real_nodes`.
//!
//! One process, the keeper, owns all others; they end with it, also if it is killed.

mod command;
mod demo;
mod folder;
mod keeper;
mod load;
mod progress;
mod real_nodes;
mod start;
mod status;
mod view;

pub(crate) use command::{LabArgs, run};
