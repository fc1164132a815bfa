//! The provider against the simulated EC2, with the real SDK on the wire.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod account;
mod bed;
mod discovery;
mod ending;
mod health;
mod launching;
mod nodes;
mod region;
mod reserved;
mod rights;
mod together;
mod variants;
mod wire;
mod wrong;
