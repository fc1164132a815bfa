//! Decision tables: what is, and what is to be done about it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod bench;
mod claims;
mod gone;
mod interruption;
mod limits;
mod pools;
mod standing;
