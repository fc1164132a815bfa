//! `make node-test`: Croft's own Deployments on real nodes.
//!
//! ```text
//!  outside: checks what is needed, makes cgroups, and starts itself in new namespaces (network, mounts, processes)
//!     |                                                     which end with their first process, whatever happens
//!     v
//!  inside                                       veth
//!    control plane, ec2-sim, kubelet, kube-proxy <---> kubelet, kube-proxy      network: one namespace per node
//!    node-1: containerd, pods on a bridge              node-2: containerd, pods on a bridge
//! ```
//!
//! Kubelet, kube-proxy, containerd and the CNI plugins are those that `node/build.sh` builds; runc is the distribution's.
//! Nothing is pulled: the images come from `make images`. No traffic leaves the namespaces.

pub mod cgroups;
pub mod checks;
pub mod inside;
pub mod network;
pub mod outside;
pub mod real_node;
pub mod workload;

use std::path::PathBuf;

/// Folders of the programs and images that the test runs.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The folder that `node/build.sh` prints.
    pub programs: PathBuf,
    /// The folder that `make images` writes.
    pub images: PathBuf,
    /// The folder of ec2-sim.
    pub binaries: PathBuf,
}
