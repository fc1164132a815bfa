//! The launch request that a claim records, and the next one after a request found no capacity.

use croft_api::NodeClaim;
use croft_cloud::{LaunchRequest, Prepared};
use croft_scheduler::InstanceType;

/// The request that a claim records as sent, with an unknown outcome.
#[must_use]
pub fn open_request(claim: &NodeClaim) -> Option<Prepared> {
    let attempt = claim.status.as_ref()?.attempt.as_ref()?;
    Some(Prepared { hash: attempt.request_hash.clone(), body: attempt.request.clone()? })
}

/// The request of the next attempt, once the cloud had no capacity for `request`: for those of its offerings that are
/// still available in `types`. `None` if there is none.
#[must_use]
pub fn next_attempt(
    claim: &NodeClaim,
    request: &LaunchRequest,
    types: &[InstanceType],
) -> Option<LaunchRequest> {
    let is_open = |name: &str, zone: Option<&str>| {
        types.iter().filter(|t| t.name == name).flat_map(|t| &t.offerings).any(|o| {
            o.available && o.capacity_type == request.capacity_type && zone.is_none_or(|z| o.zone == z)
        })
    };
    let has_capacity = |zone: &&String| request.instance_types.iter().any(|t| is_open(t, Some(zone)));
    let zones: Vec<String> = request.zones.iter().filter(has_capacity).cloned().collect();
    if zones.is_empty() && !request.zones.is_empty() {
        return None;
    }
    let is_within = |name: &&String| {
        if zones.is_empty() { is_open(name, None) } else { zones.iter().any(|z| is_open(name, Some(z))) }
    };
    let instance_types: Vec<String> = request.instance_types.iter().filter(is_within).cloned().collect();
    if instance_types.is_empty() {
        return None;
    }
    let last = claim.status.as_ref().and_then(|s| s.attempt.as_ref()).map_or(0, |attempt| attempt.number);
    Some(LaunchRequest { attempt: last.saturating_add(1), instance_types, zones, ..request.clone() })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use croft_scheduler::{CapacityType, Resources};
    use serde_json::json;

    use super::*;

    fn request(zones: &[&str]) -> LaunchRequest {
        let class = json!({"metadata": {"name": "class"}, "spec": {"role": "r", "subnetSelectorTerms": [],
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "securityGroupSelectorTerms": []}});
        LaunchRequest {
            claim_name: "a-1".to_owned(),
            claim_uid: "uid".to_owned(),
            pool: "a".to_owned(),
            tenant: None,
            attempt: 1,
            class: Arc::new(serde_json::from_value(class).unwrap()),
            instance_types: vec!["m5.large".to_owned(), "m5.xlarge".to_owned()],
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            capacity_type: CapacityType::OnDemand,
            requests: Resources::default(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            tags: BTreeMap::new(),
        }
    }

    fn claim() -> NodeClaim {
        let claim = json!({"metadata": {"name": "a-1"}, "spec": {"pool": "a", "nodeClassRef": {"name": "class"},
            "instanceTypes": ["m5.large"], "zones": [], "capacityType": "on-demand"},
            "status": {"conditions": [], "attempt": {"number": 4, "requestHash": "h"}}});
        serde_json::from_value(claim).unwrap()
    }

    /// The two types, with on-demand offerings in these zones alone.
    fn types(open: [&[&str]; 2]) -> Vec<InstanceType> {
        let named = |name: &str, open: &[&str]| {
            let mut found = croft_cloud::builtin_catalog().iter().find(|t| t.name == name).unwrap().clone();
            for offering in &mut found.offerings {
                offering.available = offering.capacity_type == CapacityType::OnDemand
                    && open.contains(&offering.zone.as_str());
            }
            found
        };
        vec![named("m5.large", open[0]), named("m5.xlarge", open[1])]
    }

    #[test]
    fn the_next_attempt_asks_for_what_is_still_available() {
        let all: Vec<String> = types([&[], &[]])[0].offerings.iter().map(|o| o.zone.clone()).collect();
        let (first, last) = (all.first().unwrap().as_str(), all.last().unwrap().as_str());
        assert_ne!(first, last);
        let next = next_attempt(&claim(), &request(&[first, last]), &types([&[], &[last]])).unwrap();
        assert_eq!((next.attempt, next.zones.as_slice()), (5, &[last.to_owned()][..]));
        assert_eq!(next.instance_types, ["m5.xlarge"]);
        // A request for every zone stays one for every zone.
        let next = next_attempt(&claim(), &request(&[]), &types([&[first], &[]])).unwrap();
        assert_eq!((next.zones.len(), next.instance_types), (0, vec!["m5.large".to_owned()]));
    }

    #[test]
    fn there_is_no_next_attempt_without_an_offering() {
        let all: Vec<String> = types([&[], &[]])[0].offerings.iter().map(|o| o.zone.clone()).collect();
        let first = all.first().unwrap().as_str();
        assert!(next_attempt(&claim(), &request(&[first]), &types([&[], &[]])).is_none());
        assert!(next_attempt(&claim(), &request(&["elsewhere"]), &types([&[first], &[]])).is_none());
        assert!(next_attempt(&claim(), &request(&[]), &types([&[], &[]])).is_none());
    }
}
