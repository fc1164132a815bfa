//! The condition about features of Kubernetes that the API server's release lacks: on each TenantPool for what concerns its
//! nodes, on the CroftConfig for all of them. Called by the writers of both statuses.

use croft_api::condition::Statement;
use croft_runtime::kubernetes::{Concern, Release};

use crate::definitions::conditions as reasons;

/// The condition of a pool; `None` while the release isn't known or lacks nothing that concerns pools.
pub(crate) fn pool_condition(release: Option<Release>) -> Option<Statement> {
    condition(release, &[Concern::Pools])
}

/// The condition of the CroftConfig; `None` while the release isn't known or lacks nothing.
pub(crate) fn cluster_condition(release: Option<Release>) -> Option<Statement> {
    condition(release, &Concern::ALL)
}

fn condition(release: Option<Release>, concerns: &[Concern]) -> Option<Statement> {
    let release = release?;
    let missing = release.shortcomings(concerns)?;
    Some(Statement {
        kind: reasons::KUBERNETES_FEATURES,
        status: Some(false),
        reason: reasons::RELEASE_TOO_OLD,
        message: format!("Kubernetes {release} lacks {missing}. Upgrade the cluster to have them"),
    })
}
