//! `make node-test`: Croft's own Deployments on real nodes, under load. [`croft_testkit::nodes`] makes the nodes.

pub mod checks;
pub mod inside;
pub mod lab;
pub mod page;
pub mod workload;
