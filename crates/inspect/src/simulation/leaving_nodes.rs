//! Nodes that are about to go, which no share of their pool counts any more.

use std::collections::BTreeSet;

use croft_api::definitions::{DISRUPTED_TAINT, REPLACES};
use croft_manifest::Input;
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt as _;

/// Names of the nodes whose claim is deleted or replaced by another, and of those that Croft has cordoned; none without shares.
pub(super) fn leaving_nodes(input: &Input) -> Vec<String> {
    if input.pools.iter().all(|pool| pool.spec.shares.is_empty()) {
        return Vec::new();
    }
    let replaced: BTreeSet<&str> = input
        .claims
        .iter()
        .filter_map(|claim| claim.annotations().get(REPLACES))
        .flat_map(|names| names.split(','))
        .collect();
    let leaving = input.claims.iter().filter(|claim| {
        claim.metadata.deletion_timestamp.is_some()
            || claim.metadata.name.as_deref().is_some_and(|name| replaced.contains(name))
    });
    let of_claims = leaving.map(|claim| {
        let node = claim.status.as_ref().and_then(|status| status.node_name.clone());
        node.unwrap_or_else(|| claim.name_any())
    });
    let is_cordoned = |taints: &[Taint]| taints.iter().any(|taint| taint.key == DISRUPTED_TAINT);
    let cordoned = input.nodes.iter().filter(|node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        taints.is_some_and(is_cordoned)
    });
    of_claims.chain(cordoned.map(|node| node.name_any())).collect()
}
