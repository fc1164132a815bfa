//! Croft's controller: launches nodes for pods that don't fit, and removes nodes that aren't needed.
//!
//! ```text
//!            watches                                               API server
//!   API server ──Change──▶ ┌─────────────────────────────┐         ▲
//!                          │ Engine                      │         │ Call
//!                          │  Snapshot ─▶ deciders (pure)│──Action──▶ Executor
//!                          │  InFlight, EventRecorder    │◀──Report─ │
//!                          └─────────────────────────────┘         ▼ LaunchRequest, ...
//!                                                                CloudProvider
//! ```
//!
//! [`engine::Engine`] is the whole controller without I/O: it takes in changes and reports, and gives out actions;
//! time is an argument. [`executor::Executor`] carries actions out through two traits, [`kube_api::KubeApi`] and
//! `croft_cloud::CloudProvider`, and is the only place with effects. [`run`] connects both with watches, the leader's
//! Lease and metrics. The simulation in the tests connects the same two with an API server and a cloud in memory, on
//! virtual time.
//!
//! | module | owns |
//! |---|---|
//! | `state` | the snapshot of the cluster: watched objects, what calls answered, the scheduler's interned cluster |
//! | `reconcile` | the context of one pass: time, settings, in-flight keys, the actions asked for; the breaker; commands in flight |
//! | `provisioning` | pending pods to NodeClaims; pods on which the scheduler panics |
//! | `nodeclaim` | NodeClaims: launch and its backoff, registration, initialization, termination, garbage collection |
//! | `disruption` | expired, drifted, empty, underutilised, interrupted and unhealthy nodes |
//! | `nodepool` | TenantPools: status, static capacity, deletion |
//! | `nodeclass` | EC2NodeClasses: status, offerings |
//! | `tenant` | Tenants: status, what admission reads, misplaced pods, DaemonSets |
//! | `croft_config` | the status of the CroftConfig |
//! | `solver` | the scheduler behind a panic boundary |
//! | `record`, `record_store` | the decision log: entries, and their way into a store; stores, and the copy in an object store |
//! | `executor` | the effects of actions |
//! | `kube_api` | the API server: calls, watches, the leader gate |
//! | `kubernetes_features` | the condition about features that the API server's release lacks |
//! | `pool_figures`, `metrics` | figures per tenant and pool, and all metrics |
//! | `definitions` | every metric, condition, event reason and key that the controller writes |

pub mod action;
mod cloud_provider;
pub mod config;
pub mod croft_config;
pub mod definitions;
pub mod disruption;
pub mod drive;
pub mod engine;
pub mod events;
pub mod executor;
pub mod identity;
pub mod in_flight;
mod json_pointer;
pub mod kube_api;
mod kubernetes_features;
pub mod merge_patch;
pub mod metrics;
pub mod nodeclaim;
pub mod nodeclass;
pub mod nodepool;
pub mod pool_figures;
pub mod provisioning;
pub mod reconcile;
pub mod record;
pub mod record_store;
pub mod result;
pub mod run;
pub mod solver;
pub mod state;
pub mod tenant;
pub mod time;
