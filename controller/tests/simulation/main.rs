//! The real controller on virtual time: its engine, its executor and its loop against an API server in memory and
//! ec2-sim's world, with whatever can go wrong going wrong. A run is its seed.

mod actors;
mod chance;
mod checks;
mod cloud;
mod cluster;
mod runs;
mod store;
