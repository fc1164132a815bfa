//! Laws of plans and of consolidation, for random clusters and invalid input, with the tables beside them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod bad_input;
mod bound;
mod bound_of_templates;
#[path = "../build/mod.rs"]
mod build;
mod consolidation;
mod host_spread;
mod limits;
mod random_clusters;
mod shares;
