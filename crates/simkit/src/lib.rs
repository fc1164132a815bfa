//! Random numbers, and models of the cluster around the controller, for simulation, benches and property tests.
//!
//! ```text
//!   Random ──▶ tests and benches of scheduler, tests, fuzz
//!     │
//!     ▼
//!   ClusterModel ──▶ Store ◀── SimApi ◀──┐
//!   (kube-scheduler,   │                 Process: the controller's engine, executor and loop
//!    kubelets,         └──── watches ───▶┘   │
//!    workloads, pod GC)                      ▼
//!        └──────────▶ ec2-sim's World ◀── SimCloud, or a provider on a Wire
//! ```
//!
//! | type | is | used by |
//! |---|---|---|
//! | [`Random`] | the generator of every seed | all below, scheduler and fuzz |
//! | [`Store`] | an API server in memory: versions, preconditions, disruption budgets, a log that watches read | simulation, month, scale |
//! | [`ClusterModel`] | kubelets, kube-scheduler, ReplicaSets, budgets and the pod collector over a `Store` and ec2-sim's world | simulation, month, scale |
//! | [`ClusterIndex`] | what the models know of pods and nodes, read from the store's log | `ClusterModel`, observers |
//! | [`Observer`] | what a bench measures while the models act | month |
//! | [`Environment`] | store, cloud, clock and faults that processes share | simulation, month, scale |
//! | [`Process`] | one controller process, which can be paused, cut off and ended | simulation, month, scale |
//! | [`Wire`] | the HTTP of a process to EC2, for croft-cloud-aws | simulation |
//! | [`cloud()`] | the provider of a controller that isn't Croft's | month, scale |
//!
//! `controller/tests/simulation` draws faults and checks invariants; `controller/benches/month` draws a load and measures
//! cost; `controller/benches/scale` measures memory and CPU beside copies of a settled node. All run the same models. They
//! differ in [`Timing`] and [`Placement`], and in when the models act:
//! [`ClusterModel::run_every`] or [`ClusterModel::run_on_change`]. The bench of the scheduler
//! (`crates/scheduler/benches/disruption`) has no cluster: it binds evicted pods by the default score of kube-scheduler.
//!
//! Tests and benches depend on this crate, and so do `croft-tests` and `croft-fuzz`; no production crate does. Production
//! code keeps generators of its own, since plans depend on their streams: `croft-scheduler` has them for its searches. So
//! has `croft-ec2-sim`, which this crate builds on.

#[cfg(feature = "cluster")]
mod cluster;
mod random;

#[cfg(feature = "cluster")]
pub use self::cluster::*;
pub use random::{Random, Xorshift};
