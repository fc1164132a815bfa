//! The part of the cluster that a reader may see.

use std::collections::BTreeSet;

use crate::model::facts::Model;

/// The namespaces that a reader may see, or everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// An operator: everything.
    All,
    /// The pods of these namespaces, each of which belongs to a tenant.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// True for an operator.
    #[must_use]
    pub const fn is_operator(&self) -> bool {
        matches!(self, Self::All)
    }

    /// True if the reader may see anything.
    #[must_use]
    pub fn is_any(&self) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(namespaces) => !namespaces.is_empty(),
        }
    }

    /// The namespaces that the reader may see; none for all.
    #[must_use]
    pub fn namespaces(&self) -> Option<BTreeSet<String>> {
        match self {
            Self::All => None,
            Self::Namespaces(namespaces) => Some(namespaces.clone()),
        }
    }

    /// The same for an earlier model: namespaces that belonged to the tenant that they belong to now.
    #[must_use]
    pub fn at(&self, then: &Model, now: &Model) -> Self {
        match self {
            Self::All => Self::All,
            Self::Namespaces(mine) => {
                let is_same = |one: &&String| {
                    let owner = then.owners.get(*one);
                    owner.is_some() && owner == now.owners.get(*one)
                };
                Self::Namespaces(mine.iter().filter(is_same).cloned().collect())
            }
        }
    }

    /// True if the reader may see the pods of a namespace.
    #[must_use]
    pub fn sees_namespace(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(namespaces) => namespaces.contains(namespace),
        }
    }

    /// True if the reader may see a pod, given as `namespace/name`.
    #[must_use]
    pub fn sees_pod(&self, pod: &str) -> bool {
        pod.split_once('/').is_some_and(|(namespace, _)| self.sees_namespace(namespace))
    }

    /// True if the reader may see a tenant: pods of one of its namespaces at least.
    #[must_use]
    pub fn sees_tenant(&self, model: &Model, tenant: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(mine) => model
                .tenants
                .get(tenant)
                .is_some_and(|facts| facts.namespaces.iter().any(|one| mine.contains(one))),
        }
    }

    /// True if the reader may see the pods of each namespace of a tenant.
    #[must_use]
    pub fn sees_whole_tenant(&self, model: &Model, tenant: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(mine) => model.tenants.get(tenant).is_some_and(|facts| {
                !facts.namespaces.is_empty() && facts.namespaces.iter().all(|one| mine.contains(one))
            }),
        }
    }

    /// True if the reader may see a pool: a tenant that uses it.
    #[must_use]
    pub fn sees_pool(&self, model: &Model, pool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(_) => model
                .pools
                .get(pool)
                .is_some_and(|facts| facts.tenants.iter().any(|one| self.sees_tenant(model, one))),
        }
    }

    /// True if the reader may see the nodes of a pool; of those without one, if the reader is an operator.
    #[must_use]
    pub fn sees_nodes_of(&self, model: &Model, pool: Option<&str>) -> bool {
        pool.map_or_else(|| self.is_operator(), |pool| self.sees_pool(model, pool))
    }

    /// True if the reader may see the pods of every tenant that uses a pool.
    #[must_use]
    pub fn sees_whole_pool(&self, model: &Model, pool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(_) => model.pools.get(pool).is_some_and(|facts| {
                !facts.tenants.is_empty()
                    && facts.tenants.iter().all(|one| self.sees_whole_tenant(model, one))
            }),
        }
    }
}

/// Why a request has no scope.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There is no token, or the API server doesn't accept it.
    #[error(
        "sign in: send a token for the page's audience, which croft page or kubectl create token --audience=croft-page requests"
    )]
    Unauthenticated,
    /// The reader may see nothing.
    #[error(
        "{0} may see nothing here: a tenant's people need the right to list pods in one of its namespaces; operators, to list pods, nodes and tenants.croft.dev in the cluster"
    )]
    Forbidden(String),
    /// The API server can't be asked.
    #[error("the API server couldn't be asked about this token or its rights; retry")]
    Unavailable,
}

impl AccessError {
    /// The error for a call that failed, which is logged.
    pub(super) fn unavailable(error: kube::Error) -> Self {
        tracing::warn!(%error, "a review of a token or a right failed");
        Self::Unavailable
    }
}
