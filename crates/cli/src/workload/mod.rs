//! The pods that workloads create, as their controllers would.

mod owners;
mod pods;
mod workloads;

pub(crate) use owners::{WorkloadName, controller, is_active, workload_of};
pub(crate) use pods::{PodNames, create_pods, prototype};
pub(crate) use workloads::{WorkloadKind, workloads};
