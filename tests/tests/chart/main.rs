//! The Helm charts: what they render is valid for the API server and for the processes, for a matrix of values; they
//! install, and leave nothing stuck when they are uninstalled.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod install;
mod matrix;
mod metrics;
mod render;
