//! The kinds of objects that Croft keeps in tenants' namespaces and for tenants in the whole cluster, and the key of one.

use std::fmt;

/// A kind of which Croft keeps objects in tenants' namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// `networking.k8s.io/v1`.
    NetworkPolicy,
    /// `v1`.
    ResourceQuota,
    /// `v1`.
    LimitRange,
    /// `rbac.authorization.k8s.io/v1`.
    RoleBinding,
    /// `rbac.authorization.k8s.io/v1`, in no namespace.
    ClusterRoleBinding,
}

impl ObjectKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::NetworkPolicy,
        Self::ResourceQuota,
        Self::LimitRange,
        Self::RoleBinding,
        Self::ClusterRoleBinding,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetworkPolicy => "NetworkPolicy",
            Self::ResourceQuota => "ResourceQuota",
            Self::LimitRange => "LimitRange",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// True if its objects are in no namespace.
    #[must_use]
    pub const fn is_cluster_scoped(self) -> bool {
        matches!(self, Self::ClusterRoleBinding)
    }

    /// Its group and version.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::ResourceQuota | Self::LimitRange => "v1",
            Self::RoleBinding | Self::ClusterRoleBinding => "rbac.authorization.k8s.io/v1",
        }
    }
}

/// One such object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace; empty if the kind is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{} {}", self.kind.name(), self.name);
        }
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}
