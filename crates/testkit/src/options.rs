//! Options of a control plane.

use std::{net::Ipv4Addr, path::PathBuf};

use crate::stored::StoredObject;

/// How to start a [`ControlPlane`](crate::ControlPlane). The default is a cluster as in production: all components,
/// Node and RBAC authorization, NodeRestriction, default request rates.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    pub(crate) components: Vec<Component>,
    pub(crate) flags: Vec<(Component, String)>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) requests_per_second: Option<u32>,
    pub(crate) stored: Vec<StoredObject>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            components: Component::ALL.to_vec(),
            flags: Vec::new(),
            folder: None,
            address: None,
            requests_per_second: None,
            stored: Vec::new(),
        }
    }
}

impl Options {
    /// Leaves a component out, such as the scheduler if a test binds pods itself.
    #[must_use]
    pub fn without(mut self, component: Component) -> Self {
        self.components.retain(|kept| *kept != component);
        self
    }

    /// Adds a flag to a component, as `--name=value`.
    #[must_use]
    pub fn flag(mut self, component: Component, flag: impl Into<String>) -> Self {
        self.flags.push((component, flag.into()));
        self
    }

    /// Keeps all files in this folder, which isn't removed; the default is a temporary one.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Serves the API on `address` too, under which the Service `kubernetes` has it for pods on real nodes. The default is
    /// loopback alone, and a Service without endpoints.
    #[must_use]
    pub fn address(mut self, address: Ipv4Addr) -> Self {
        self.address = Some(address);
        self
    }

    /// Stores these objects before the API server starts for the first time.
    #[must_use]
    pub fn stored(mut self, objects: Vec<StoredObject>) -> Self {
        self.stored = objects;
        self
    }

    /// Raises the request rates of controller manager and scheduler, by default 20 and 50 per second. For benchmarks.
    #[must_use]
    pub fn requests_per_second(mut self, rate: u32) -> Self {
        self.requests_per_second = Some(rate);
        self
    }
}

/// A process of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// The database.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers of Kubernetes: Deployments, ReplicaSets, garbage collection, node life cycle, ...
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// KWOK, which plays the kubelets.
    Kubelets,
}

impl Component {
    /// In start order.
    pub const ALL: [Self; 5] =
        [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kubelets];

    /// The name of its binary, its log and its process.
    #[must_use]
    pub fn binary(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelets => "kwok",
        }
    }
}
