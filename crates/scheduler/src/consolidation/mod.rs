//! The cheapest valid cluster: which nodes to remove, and what to launch in their place.
//!
//! ```text
//!   Ask { candidates, constraints per pool } ──▶ search ──▶ Consolidation { commands, rejections, before, after }
//!                                            │ ▲
//!             a set of nodes to plan without ▼ │ Plan: their pods on nodes that stay, and on new instances
//!                                          solve
//! ```
//!
//! A large-neighbourhood search: it takes a set of nodes out, and the scheduler's own solve says where their pods
//! would go. The set's price less the cost of that plan is saved. Sets are prefixes of the candidates by wasted price
//! (a node's price less what its pods would cost elsewhere), single nodes, and random neighbourhoods; a prefix of all
//! candidates is a fresh start. Any number of nodes is exchanged for any number of instances. Each independent part of
//! a set's plan is a command of its own, and each must save more than its disruption cost. kube-scheduler must bring it
//! about, too: it binds an evicted pod to the emptiest node, whatever the plan says. Every solve counts its steps, and
//! their sum ends the search, so that the same input gives the same answer on any computer.

mod command;
mod completion;
mod search;
mod split;
mod value;

pub use command::*;
pub use completion::complete;
pub use search::consolidate;
