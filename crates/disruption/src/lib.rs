//! Rules of voluntary disruption, over small structs of facts. No I/O, no clock, no Kubernetes objects but those that facts
//! are read from, and the fields of a TenantPool's `spec.disruption`.
//!
//! ```text
//!   controller: Snapshot ──▶ facts ──▶ eligibility ──▶ status, or candidate ──▶ scheduler::consolidation
//!   croft simulate: files ──▶ facts ──┘     │
//!                                           └─ blockers, cost, budgets
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`eligibility`] | whether consolidation may consider a node, and the status that says why not |
//! | [`blockers`] | what blocks the disruption of a node: annotations, PodDisruptionBudgets, bare pods |
//! | [`eviction`] | which pods must be evicted, and whether they can be now, as the eviction API decides |
//! | [`cost`] | the disruption cost of moving a node's pods |
//! | [`pause`] | the pause of voluntary disruption that keeps a pool's nodes |
//! | [`budgets`] | how many nodes of a pool may be disrupted now, and the least savings of a command |
//!
//! The controller and `croft simulate --consolidate` fill the facts, each from its own state, so both follow one rule.

pub mod blockers;
pub mod budgets;
pub mod cost;
pub mod eligibility;
pub mod eviction;
pub mod pause;
