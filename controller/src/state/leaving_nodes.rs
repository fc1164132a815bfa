//! Nodes that are about to go, which no share of their pool counts any more.

use std::collections::BTreeSet;

use croft_api::NodeClaim;

use super::snapshot::Snapshot;
use crate::definitions::keys;

impl Snapshot {
    /// The names of the nodes, and of the claims whose node isn't there yet, that are about to go: their claim is deleted or a command
    /// replaces it, or Croft has cordoned the node. Nodes are looked for only in pools with shares.
    #[must_use]
    pub fn leaving_nodes(&self) -> Vec<String> {
        let mut pools = self.pools().iter().filter(|(_, pool)| !pool.spec.shares.is_empty()).peekable();
        if pools.peek().is_none() {
            return Vec::new();
        }
        let replaced: BTreeSet<&str> = self
            .replacements()
            .filter_map(|(_, claim)| claim.metadata.annotations.as_ref()?.get(keys::REPLACES))
            .flat_map(|names| names.split(','))
            .collect();
        let is_leaving = |name: &str, claim: &NodeClaim| {
            claim.metadata.deletion_timestamp.is_some()
                || replaced.contains(name)
                || self.node_of(claim).is_some_and(|(_, node)| node.has_taint(keys::DISRUPTED_TAINT))
        };
        pools
            .flat_map(|(pool, _)| self.claims_of_pool(pool))
            .filter(|(name, claim)| is_leaving(name.as_str(), claim))
            .map(|(name, claim)| {
                self.node_of(claim).map_or_else(|| name.clone(), |(node, _)| node.to_owned())
            })
            .collect()
    }
}
