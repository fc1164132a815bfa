//! The model: what the views show of the cluster, built from the objects and the log, and what differs between two models.

pub mod change;
pub mod facts;
