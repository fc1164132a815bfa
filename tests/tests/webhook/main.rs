//! The webhook as a server: its replicas, certificates, hostile clients, and the answers that it gives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod abuse;
mod certificates;
mod corpus;
mod placement;
mod replicas;
