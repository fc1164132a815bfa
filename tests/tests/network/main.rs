//! `Tenant.spec.networkIsolation` on the real API server: what the running controller writes is given to an evaluator that
//! knows nothing of Croft, and its answers are compared with what the Tenants declare.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod life;
mod matrix;
mod world;
