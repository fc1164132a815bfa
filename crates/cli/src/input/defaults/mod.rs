//! What the API server writes into an object that leaves it out.
//!
//! A file must mean offline what it means once applied, so these follow `pkg/apis/{core,apps,batch}/v1/defaults.go`
//! of Kubernetes 1.36 field by field; `tests/tests/cli_defaults.rs` applies objects to the real API server and
//! compares. The built-in admission plugins that touch scheduling are in [`super::builtin`]; Croft's own kinds
//! get theirs from `croft_api`.

mod pod;
mod volume;
mod workload;

pub(crate) use pod::{pod, pod_spec};
pub(crate) use workload::{
    cron_job, daemon_set, deployment, job, replica_set, replication_controller, stateful_set,
};

/// Writes `value` where nothing is.
fn fill<T>(field: &mut Option<T>, value: T) {
    field.get_or_insert(value);
}

/// Writes `text` where nothing or an empty string is: to Go the two are one.
fn fill_text(field: &mut Option<String>, text: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(text.to_owned());
    }
}
