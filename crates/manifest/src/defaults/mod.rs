//! Defaults that the API server writes into absent fields.
//!
//! They follow `pkg/apis/{core,apps,batch}/v1/defaults.go` of Kubernetes 1.36 field by field;
//! `tests/tests/cli/defaults.rs` creates objects on a real API server and compares. Admission plugins are in
//! [`crate::admission_plugins`]; `croft_api` defaults Croft's own kinds.

mod pod;
mod volume;
mod workload;

pub(crate) use pod::{pod, pod_spec};
pub(crate) use workload::{
    cron_job, daemon_set, deployment, job, replica_set, replication_controller, stateful_set,
};
