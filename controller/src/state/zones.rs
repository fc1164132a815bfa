//! Zones that the CroftConfig declares bad.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{
    NodeClaim,
    zone::{self, ClosedZone, ZoneState},
};

use super::snapshot::Snapshot;
use crate::{definitions::keys, time::Now};

impl Snapshot {
    /// Closes the zones that are declared bad at `now`, and opens the others. Returns when the next one opens by time alone, on
    /// the monotonic clock.
    pub fn close_zones(&mut self, now: Now) -> Option<Duration> {
        let closed: BTreeMap<String, ClosedZone> = zone::in_force(&self.declared_zones, now.wall)
            .map(|one| (one.name.clone(), one.clone()))
            .collect();
        let next = closed.values().filter_map(ClosedZone::end).min();
        if closed != self.closed_zones {
            self.closed_zones = closed;
            self.changes += 1;
            self.plan_version += 1;
            let pools: Vec<String> = self.pools.keys().cloned().collect();
            for pool in pools {
                self.update_cluster_pool(&pool);
            }
        }
        let left = Duration::try_from(next?.duration_since(now.wall)).unwrap_or(Duration::ZERO);
        Some(now.mono.saturating_add(left))
    }

    /// The zones that are closed, by name.
    #[must_use]
    pub const fn closed_zones(&self) -> &BTreeMap<String, ClosedZone> {
        &self.closed_zones
    }

    /// The zone of a claim's instance, if nodes there are to be replaced elsewhere.
    #[must_use]
    pub fn evacuated_zone_of(&self, claim: &NodeClaim) -> Option<&ClosedZone> {
        let zone = self.closed_zones.get(claim.status.as_ref()?.zone.as_deref()?)?;
        (zone.state == ZoneState::Evacuate).then_some(zone)
    }

    /// Nodes in closed zones, and claims whose instances are coming there: no pod is moved onto them.
    #[must_use]
    pub fn closed_nodes(&self) -> Vec<String> {
        if self.closed_zones.is_empty() {
            return Vec::new();
        }
        let is_closed = |zone: Option<&String>| zone.is_some_and(|zone| self.closed_zones.contains_key(zone));
        let nodes = self.nodes.iter().filter(|(_, node)| is_closed(node.labels.get(keys::ZONE_LABEL)));
        let zone_of = |claim: &NodeClaim| is_closed(claim.status.as_ref().and_then(|s| s.zone.as_ref()));
        let claims = self.claims.iter().filter(|(_, claim)| zone_of(claim));
        nodes.map(|(name, _)| name.clone()).chain(claims.map(|(name, _)| name.clone())).collect()
    }
}
