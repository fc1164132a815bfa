//! `croft plan`: what admission does to the pods of a manifest.
//!
//! Each workload's template becomes a pod, which passes the API server's admission plugins and then the functions that the
//! webhook calls. Where a limit is declared, a simulation says how many pods of each workload get a node. With `--live`, the
//! Tenants, pools, classes and settings of the files are compared with those of the cluster: see `impact`. With `--page`, the
//! page answers for the cluster that it shows: see `page`.

mod command;
mod diff;
pub(in crate::commands) mod impact;
mod page;
mod text;

pub(crate) use command::{PlanArgs, run};
