//! The tags that name an instance's cluster, tenant, pool and claim.

use std::collections::BTreeMap;

use crate::provider::LaunchRequest;

/// The UID of the cluster's kube-system namespace: the owner of the instance. Reserved; the IAM policy lets Croft
/// terminate and tag only instances with the right value.
pub const CLUSTER: &str = "croft.dev/cluster";
/// The tenant, for cost allocation.
pub const TENANT: &str = "croft.dev/tenant";
/// The pool.
pub const POOL: &str = "croft.dev/pool";
/// The claim's name.
pub const CLAIM: &str = "croft.dev/claim";
/// The claim's uid.
pub const CLAIM_UID: &str = "croft.dev/claim-uid";
/// The EC2NodeClass.
pub const CLASS: &str = "croft.dev/class";
/// The instance's name in the EC2 console.
pub const NAME: &str = "Name";

/// True for keys that users can't set.
#[must_use]
pub fn is_reserved(key: &str) -> bool {
    key.starts_with("croft.dev/") || key.starts_with("aws:") || key.starts_with("kubernetes.io/cluster/")
}

/// The tags of a claim's instance: the class's and the request's, overridden by Croft's.
#[must_use]
pub fn of_instance(cluster: &str, request: &LaunchRequest) -> BTreeMap<String, String> {
    let mut tags = of_pool(cluster, request);
    tags.entry(NAME.to_owned()).or_insert_with(|| format!("{}/{}", request.pool, request.claim_name));
    for (key, value) in [(CLAIM, &request.claim_name), (CLAIM_UID, &request.claim_uid)] {
        tags.insert(key.to_owned(), value.to_owned());
    }
    tags
}

/// The tags that all instances of the pool have.
#[must_use]
pub fn of_pool(cluster: &str, request: &LaunchRequest) -> BTreeMap<String, String> {
    let class = request.class.metadata.name.clone().unwrap_or_default();
    let mut tags: BTreeMap<String, String> = request
        .class
        .spec
        .tags
        .iter()
        .chain(&request.tags)
        .filter(|(key, _)| !is_reserved(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, value) in [(CLUSTER, cluster), (POOL, &request.pool), (CLASS, &class)] {
        tags.insert(key.to_owned(), value.to_owned());
    }
    if let Some(tenant) = &request.tenant {
        tags.insert(TENANT.to_owned(), tenant.clone());
    }
    tags
}
