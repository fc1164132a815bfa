//! The real controller on virtual time: its engine, executor and loop against an API server in memory and ec2-sim's world,
//! with faults drawn from a seed. The models of the cluster are croft-simkit's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod aws;
mod budgets;
mod checks;
mod crashes;
mod edits;
mod evidence;
mod faults;
mod ledger;
mod log;
mod panics;
mod run;
mod runs;
mod storm;
mod templates;
mod volumes;
mod watched;
