//! A search for a way in: every order of events that ends with a pod bound to a node that isn't its own to use, from settled
//! clusters, breadth first, so that what is found is shortest. The events call the product's own code.
//!
//! ```text
//!   Scope ──▶ Search (a stateright Model)
//!               │  State: numbers of a World, a Node and a pod's spec
//!               ▼
//!             Event ─┬─ operators edit ─────────▶ declared
//!                    ├─ the controller writes ──▶ controller ──▶ croft-controller: tenant::reconcile, the engine
//!                    ├─ the webhook sees ───────▶ world ───────▶ croft-policy: Index; croft-webhook: Scope
//!                    ├─ a node joins ───────────▶ nodes
//!                    ├─ users create, update ───▶ pods ──▶ admission ─┬─▶ policies ──▶ cel: the generated policies
//!                    │                                                └─▶ croft-policy: evaluate
//!                    └─ kube-scheduler binds ───▶ scheduler ──▶ property
//! ```
//!
//! To add a kind of namespace, begin in `declared`; a symbol of pods, in [`pods::Alphabet`]; an event, in [`events::Event`].
//! `designs/proved-isolation.md` says what is searched and what isn't.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a crate of tests: a test fails by panicking"
)]

pub mod admission;
pub mod cel;
pub mod controller;
pub mod declared;
pub mod events;
pub mod interner;
pub mod model;
pub mod nodes;
pub mod pods;
pub mod policies;
pub mod property;
pub mod report;
pub mod scheduler;
pub mod scopes;
pub mod world;
