//! Why a request has no scope.

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
