//! Real processes that are killed, frozen and cut off: nothing is lost, and nothing is launched twice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod kill;
mod leader;
mod network;
