//! Validation that decides placement, as the API server does it: names, labels, selectors, tolerations, spreads,
//! quantities.

mod budget;
mod metadata;
mod names;
mod node;
mod pod;
mod workload;

pub(crate) use budget::budget;
pub use metadata::FieldErrors;
pub(crate) use metadata::metadata;
pub use names::object_name;
pub(crate) use node::node;
pub(crate) use pod::pod;
pub(crate) use workload::{
    cron_job, daemon_set, deployment, job, replica_set, replication_controller, stateful_set,
};
