//! Disruption budgets of pools: nodes that work and leave for Croft's reasons alone are few at a time.

use std::collections::{BTreeMap, BTreeSet};

use croft_controller::definitions::keys;
use croft_simkit::{Store, cluster_id, is_of_daemonset};
use serde_json::{Value, json};

use crate::templates;

/// The default budget of a pool: this share of its nodes, rounded up.
const PERCENT: usize = 10;
/// A claim that was deleted before this time is known to every controller that may act.
const KNOWN_AFTER_MS: u64 = 5_000;
/// After a restore, watches begin again and claims that were deleted are there again.
const AFTER_RESTORE_MS: u64 = 120_000;

/// Claims with a node that are being deleted, and since when.
#[derive(Debug, Default)]
pub struct Outgoing {
    since: BTreeMap<String, u64>,
    era: u64,
    quiet_until: u64,
}

fn is_deleted(claim: &Value) -> bool {
    !claim["metadata"]["deletionTimestamp"].is_null() && claim["status"]["nodeName"].is_string()
}

/// Names of the claims that this one replaces.
pub fn replaces(claim: &Value) -> impl Iterator<Item = &str> {
    let names = claim["metadata"]["annotations"][keys::REPLACES].as_str().unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty())
}

impl Outgoing {
    /// Begins with the claims of another era: after a restore, those that were deleted may be there again.
    pub fn begin(&mut self, store: &Store, now_ms: u64) {
        if store.era != self.era {
            (self.era, self.quiet_until) = (store.era, now_ms + AFTER_RESTORE_MS);
        }
        self.since.retain(|name, _| store.get(&cluster_id("NodeClaim", name)).is_some_and(is_deleted));
    }

    /// A claim is gone.
    pub fn forget(&mut self, name: &str) {
        self.since.remove(name);
    }

    /// Looks at a claim that has changed. Returns the violation, if its node goes beyond the budget.
    pub fn follow(&mut self, store: &Store, name: &str, claim: &Value, now_ms: u64) -> Option<String> {
        if !is_deleted(claim) || self.since.contains_key(name) {
            return None;
        }
        let broken = (now_ms >= self.quiet_until && is_voluntary(store, claim))
            .then(|| self.beyond_budget(store, name, &claim["spec"]["pool"], now_ms))
            .flatten();
        self.since.insert(name.to_owned(), now_ms);
        broken
    }

    fn beyond_budget(&self, store: &Store, name: &str, pool: &Value, now_ms: u64) -> Option<String> {
        let claims: BTreeMap<&str, &Value> =
            store.of_kind("NodeClaim").map(|(id, claim)| (id.2.as_str(), &**claim)).collect();
        let is_known = |(other, since): &(&String, &u64)| {
            *since + KNOWN_AFTER_MS <= now_ms
                && claims.get(other.as_str()).is_some_and(|other| other["spec"]["pool"] == *pool)
        };
        let others = self.since.iter().filter(is_known).count();
        let allowed = (nodes(store, &claims, pool) * PERCENT).div_ceil(100);
        (others + 1 > allowed)
            .then(|| format!("node of {name} leaves beside {others} others of {pool}, and {allowed} may"))
    }
}

/// Nodes of a pool, as its budgets count them.
fn nodes(store: &Store, claims: &BTreeMap<&str, &Value>, pool: &Value) -> usize {
    let has_node = |claim: &Value| {
        claim["status"]["nodeName"]
            .as_str()
            .is_some_and(|node| store.get(&cluster_id("Node", node)).is_some())
    };
    // A replacement isn't one more node while what it replaces is there.
    let counted = |claim: &&&Value| {
        claim["spec"]["pool"] == *pool
            && has_node(claim)
            && !replaces(claim).any(|name| claims.contains_key(name))
    };
    claims.values().filter(counted).count()
}

/// True if the node works with pods on it, no user and no message of the cloud has touched it, and its pool is there.
fn is_voluntary(store: &Store, claim: &Value) -> bool {
    let Some(name) = claim["status"]["nodeName"].as_str() else { return false };
    let Some(node) = store.get(&cluster_id("Node", name)) else { return false };
    let pool = claim["spec"]["pool"].as_str().unwrap_or_default();
    let Some(pool) = store.get(&cluster_id("TenantPool", pool)) else { return false };
    let id = claim["status"]["providerId"].as_str().unwrap_or_default();
    let is_touched = store.touched.iter().any(|instance| id.ends_with(instance.as_str()));
    node["status"]["conditions"][0]["status"] == json!("True")
        && node["metadata"]["deletionTimestamp"].is_null()
        && pool["metadata"]["deletionTimestamp"].is_null()
        && templates::fixed(&pool["spec"]) == 0
        && !is_touched
        && works(store).contains(name)
}

/// Names of nodes with pods that no DaemonSet keeps there.
pub fn works(store: &Store) -> BTreeSet<&str> {
    let pods = store.of_kind("Pod").filter(|(_, pod)| !is_of_daemonset(pod));
    pods.filter_map(|(_, pod)| pod["spec"]["nodeName"].as_str()).collect()
}
