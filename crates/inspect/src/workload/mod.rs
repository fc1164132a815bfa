//! The pods that workloads create, as their controllers would.

mod owners;
mod pods;
mod workloads;

pub(crate) use owners::{WorkloadName, workload_of};
pub use owners::{controller, is_active};
pub use pods::prototype;
pub(crate) use pods::{PodNames, create_pods, workloads_of_created_pods};
pub(crate) use workloads::WorkloadKind;
pub use workloads::{Workload, workloads};
