//! The models of the cluster around the controller.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a simulation fails by panicking, as the tests that run it do"
)]

mod api;
mod cloud;
mod connection;
mod daemonset;
mod environment;
mod index;
mod kubelet;
mod lease;
mod model;
pub mod objects;
mod pod_gc;
mod process;
mod scheduler;
mod store;
mod volumes;
mod watch;
mod wire;
mod workload;

pub use self::{
    cloud::{CLUSTER, cloud},
    daemonset::is_of_daemonset,
    environment::{Environment, Faults, Links, MakeProvider, SimClock},
    index::{Amounts, ClusterIndex, NodeView, PodView},
    model::{ClusterModel, Observer, PodChange, Timing},
    process::{NAMESPACE, Process},
    scheduler::Placement,
    store::{Backup, Id, Logged, Store, cluster_id},
    wire::Wire,
    workload::{Spread, Workload},
};
