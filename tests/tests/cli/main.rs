//! The commands of `croft` against the real API server, and its lab.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod check;
mod compare;
mod defaults;
mod lab;
mod live;
mod preflight;
mod uninstall;
