//! Tenants that use a pool.

use croft_manifest::Input;
use kube::ResourceExt as _;

/// Names of the tenants that list `pool`.
pub(super) fn users(input: &Input, pool: &str) -> Vec<String> {
    input.tenants.iter().filter(|t| t.spec.pools.iter().any(|p| p == pool)).map(|t| t.name_any()).collect()
}
