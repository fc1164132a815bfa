//! The real controller on virtual time: its engine, its executor and its loop against an API server in memory and
//! ec2-sim's world, with whatever can go wrong going wrong. A run is its seed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod actors;
mod chance;
mod checks;
mod cloud;
mod cluster;
mod crashes;
mod evidence;
mod run;
mod runs;
mod store;
mod storm;
mod troubles;
