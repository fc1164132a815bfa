//! Croft's controller: makes machines for pods that have no place, and gives machines back that have no pods.
//!
//! ```text
//!            watches                                             API server
//!   API server ──Change──▶ ┌────────────────────────────┐           ▲
//!                          │ Engine                     │           │ Call
//!                          │  Snapshot ─▶ decide (pure) │──Action──▶ Executor
//!                          │  Memory, Flights, Recorder │◀──Report── │
//!                          └────────────────────────────┘           ▼ LaunchRequest, ...
//!                                                                CloudProvider
//! ```
//!
//! [`engine::Engine`] is the whole controller without its surroundings: it takes in what is new, and gives out
//! what to do about it; time is an argument. [`act::Executor`] carries actions out through two traits,
//! [`seam::KubeApi`] and `croft_cloud::CloudProvider`, and is the only place with effects. [`run`] puts both
//! together with watches, a leader's Lease and metrics; the simulation in the tests puts the same two together
//! with an API server and a cloud in memory, on virtual time.

pub mod act;
pub mod action;
pub mod args;
mod batch;
pub mod decide;
pub mod drive;
pub mod engine;
pub mod events;
pub mod fence;
pub mod flights;
pub mod identity;
pub mod merge;
pub mod metrics;
pub mod names;
mod provider;
pub mod run;
pub mod seam;
pub mod settings;
pub mod snapshot;
pub mod solver;
pub mod tenants;
pub mod time;
mod trim;
pub mod watch;
