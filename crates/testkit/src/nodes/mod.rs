//! A cluster of two real nodes, in namespaces of its own: for `make node-test` and `croft lab up --real-node`.
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
//! Kubelet, kube-proxy, containerd and the CNI plugins are those that `tools/node/build.sh` builds; runc is the distribution's.
//! Nothing is pulled: the images come from `make node-images`. No traffic leaves the namespaces, except through the
//! [`relay`] of one port.

mod cgroups;
mod cluster;
mod namespaces;
mod network;
mod parts;
mod real_node;
pub mod relay;

pub use cluster::{CLOUD, NodeCluster};
pub use namespaces::{Inside, Namespaces};
pub use network::run;
pub use parts::Parts;
pub use real_node::RealNode;
