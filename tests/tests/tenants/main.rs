//! Fields of tenants, pools and settings on the real API server and the lab: what they give to namespaces, their edits, and
//! values that are refused or can't be read.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod edits_behaviour;
mod edits_refused;
mod given;
mod network;
mod stored_objects;
