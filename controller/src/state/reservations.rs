//! Claims on reserved capacity that the list of offerings doesn't count yet.
//!
//! A list says how many instances of a reservation are left. Until the next one, each claim that is made for it leaves one
//! less: also one that isn't launched yet.

use std::sync::Arc;

use croft_api::NodeClaim;
use croft_scheduler::{CapacityType, InstanceType};

use super::{records::ReservedClaim, snapshot::Snapshot};

impl Snapshot {
    /// Takes in a claim that is new, has changed or is gone.
    pub(super) fn update_reserved(&mut self, name: &str, is_new: bool) {
        let is_uncounted = is_new || self.reserved.contains_key(name);
        let now = self.claims.get(name).filter(|_| is_uncounted).and_then(|claim| reserved(claim));
        let before = match now.clone() {
            Some(now) => self.reserved.insert(name.to_owned(), now),
            None => self.reserved.remove(name),
        };
        if before != now {
            for class in [before, now].into_iter().flatten().map(|claim| claim.class) {
                self.update_cluster_pools_of_class(&class);
            }
        }
    }

    /// Leaves out the claims that a new list of a class's offerings counts: those with an instance. Returns true if some
    /// were.
    pub(super) fn count_reserved(&mut self, class: &str) -> bool {
        let before = self.reserved.len();
        let claims = &self.claims;
        let has_instance = |name: &str| {
            claims.get(name).is_none_or(|c| c.status.as_ref().is_some_and(|s| s.provider_id.is_some()))
        };
        self.reserved.retain(|name, claim| claim.class != class || !has_instance(name));
        self.reserved.len() != before
    }

    /// `types` of a class, less what its claims have taken of reservations since they were listed.
    pub(super) fn less_reserved(&self, class: &str, types: Arc<[InstanceType]>) -> Arc<[InstanceType]> {
        if !self.reserved.values().any(|claim| claim.class == class) {
            return types;
        }
        let mut types = types.to_vec();
        for claim in self.reserved.values().filter(|claim| claim.class == class) {
            let kind = types.iter_mut().find(|kind| kind.name == claim.instance_type);
            for offering in kind.into_iter().flat_map(|kind| &mut kind.offerings) {
                if offering.zone == claim.zone && offering.capacity_type == CapacityType::Reserved {
                    offering.available_count = offering.available_count.map(|count| count.saturating_sub(1));
                    offering.available &= offering.available_count != Some(0);
                }
            }
        }
        types.into()
    }
}

/// A claim's part of a reservation: as it was launched, or else as it was planned.
fn reserved(claim: &NodeClaim) -> Option<ReservedClaim> {
    let (spec, status) = (&claim.spec, claim.status.as_ref());
    if spec.capacity_type != CapacityType::Reserved.as_str() {
        return None;
    }
    let launched =
        |field: fn(&croft_api::NodeClaimStatus) -> &Option<String>| status.and_then(|s| field(s).clone());
    Some(ReservedClaim {
        class: spec.node_class_ref.name.clone(),
        instance_type: launched(|s| &s.instance_type).or_else(|| spec.instance_types.first().cloned())?,
        zone: launched(|s| &s.zone).or_else(|| spec.zones.first().cloned())?,
    })
}
