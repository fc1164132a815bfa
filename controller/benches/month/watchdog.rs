//! Reports violations: more nodes on their way out than a pool's budget allows, or a pod evicted that its
//! PodDisruptionBudget keeps.

use std::collections::{BTreeMap, BTreeSet};

use croft_controller::definitions::keys;
use croft_simkit::ClusterIndex;
use serde_json::Value;

/// The default budget of a pool: this share of its nodes, rounded up.
const PERCENT: usize = 10;

#[derive(Debug, Default)]
struct Claim {
    pool: String,
    node: Option<String>,
    replaces: BTreeSet<String>,
    /// It was deleted while pods ran there.
    going: bool,
    deleted: bool,
}

#[derive(Debug, Default)]
pub struct Watchdog {
    claims: BTreeMap<String, Claim>,
    /// By app: how many pods must stay, as its budget last said.
    least: BTreeMap<String, u64>,
    pub broken: Vec<String>,
}

impl Watchdog {
    /// A budget has changed.
    pub fn follow_budget(&mut self, app: &str, budget: &Value) {
        let healthy = budget["status"]["desiredHealthy"].as_u64().unwrap_or(0);
        self.least.insert(app.to_owned(), healthy);
    }

    /// A pod is evicted; `up` others of its Deployment run.
    pub fn follow_eviction(&mut self, pod: &str, app: &str, up: u64) {
        let least = self.least.get(app).copied().unwrap_or(0);
        if up < least {
            self.broken.push(format!("pod {pod} was evicted with {up} others up, and {least} must be"));
        }
    }

    /// A claim has changed.
    pub fn follow_claim(&mut self, name: &str, object: &Value, gone: bool, index: &ClusterIndex) {
        if gone {
            self.claims.remove(name);
            return;
        }
        let claim = self.claims.entry(name.to_owned()).or_default();
        object["spec"]["pool"].as_str().unwrap_or_default().clone_into(&mut claim.pool);
        claim.node = object["status"]["nodeName"].as_str().map(str::to_owned);
        let replaces = object["metadata"]["annotations"][keys::REPLACES].as_str().unwrap_or_default();
        claim.replaces = replaces.split(',').filter(|r| !r.is_empty()).map(str::to_owned).collect();
        let deleted = !object["metadata"]["deletionTimestamp"].is_null();
        if !deleted || claim.deleted {
            return;
        }
        claim.deleted = true;
        let pods = claim.node.as_ref().map_or(0, |node| index.pods_on(node).count());
        if pods == 0 {
            // Nothing paces the end of an empty node.
            return;
        }
        claim.going = true;
        let pool = claim.pool.clone();
        let awaited = |c: &Claim| c.replaces.iter().any(|r| self.claims.contains_key(r));
        let own = self.claims.values().filter(|c| c.pool == pool);
        let total = own.clone().filter(|c| c.node.as_ref().is_some_and(|n| index.nodes().contains_key(n)));
        let total = total.filter(|c| !awaited(c)).count();
        let going = own.filter(|c| c.going).count();
        let allowed = (total * PERCENT).div_ceil(100);
        if going > allowed {
            self.broken.push(format!("{going} of {total} nodes of {pool} go at once, and {allowed} may"));
        }
    }
}
