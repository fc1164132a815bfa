//! Attempts to place a pod on another tenant's nodes, on the real API server: by pods, templates, changes, other webhooks and
//! policies, moments, and random operations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod churn;
mod later;
mod moments;
mod other_ways_in;
mod pods;
mod policy;
mod pool_templates;
mod random;
mod templates;
