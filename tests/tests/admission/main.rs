//! Admission on the real API server: what the policies enforce and how they answer, with and without Croft running, and the
//! controller that finds and repairs what contradicts them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod audit;
mod namespaces;
mod policies;
mod policy_mode;
mod policy_switch;
mod repair;
mod start;
