//! The admission rules, one file per kind of object.
//!
//! | module | decides about |
//! |---|---|
//! | `pod` | pods on CREATE, and the plan of every pod spec |
//! | `update` | pods on UPDATE |
//! | `daemonset` | DaemonSets; `injected` and `earlier_record` take out what an earlier plan added |
//! | `workload` | warnings on the templates of other workloads |
//! | `binding` | nodes that are named outright |
//! | `node`, `namespace` | writes of nodes and namespaces |
//! | `role_binding` | roles that Croft's controller gives |
//! | `pool_choice`, `injection` | the pool of a tenant's pod, and what its spec lacks to run there; `obstacles` compares it with nodes |
//! | `keep_out`, `node_affinity` | what keeps a non-tenant pod off the pools |

pub(crate) mod binding;
pub(crate) mod daemonset;
pub(crate) mod earlier_record;
pub(crate) mod injected;
pub(crate) mod injection;
pub(crate) mod keep_out;
pub mod namespace;
pub mod node;
pub(crate) mod node_affinity;
pub(crate) mod obstacles;
pub(crate) mod pod;
pub(crate) mod pool_choice;
pub(crate) mod role_binding;
pub(crate) mod update;
pub(crate) mod workload;
