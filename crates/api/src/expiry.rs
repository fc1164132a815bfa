//! Expiry: the time at which a node reaches its pool's `expireAfter`. Called by the controller and the CLI.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::{NodeClaim, TenantPool, duration, hash::hash};

/// The part of `expireAfter` by which a node may expire earlier, at most, in thousandths.
const JITTER_PERMILLE: u32 = 100;

/// The time at which `claim` expires; `None` if never. Up to a tenth earlier than the pool says, by a hash of the
/// claim's uid, so that nodes launched together don't expire together.
#[must_use]
pub fn at(claim: &NodeClaim, pool: &TenantPool) -> Option<Timestamp> {
    let after = pool.spec.template.as_ref()?.spec.expire_after.as_deref()?;
    let after: Duration = duration::parse(after).ok()??;
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let digits = hash(&["expiry", uid], 6);
    let chance = u32::from_str_radix(&digits, 16).unwrap_or(0) % (JITTER_PERMILLE + 1);
    let after = after / 1_000 * (1_000 - chance);
    let created = claim.metadata.creation_timestamp.as_ref()?.0;
    created.checked_add(SignedDuration::try_from(after).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expiry_is_at_most_a_tenth_early_and_never_late() {
        let pool = |after: Option<&str>| -> TenantPool {
            serde_json::from_value(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"},
                "spec": {"template": {"spec": {"nodeClassRef": {"name": "c"}, "expireAfter": after}}},
            }))
            .unwrap()
        };
        let claim = |uid: usize| -> NodeClaim {
            serde_json::from_value(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
                "metadata": {"name": "p-1", "uid": uid.to_string(), "creationTimestamp": "2026-11-01T00:00:00Z"},
                "spec": {"pool": "p", "nodeClassRef": {"name": "c"}, "instanceTypes": [], "zones": [],
                    "capacityType": "spot"},
            }))
            .unwrap()
        };
        let earliest: Timestamp = "2026-11-10T00:00:00Z".parse().unwrap();
        let latest: Timestamp = "2026-11-11T00:00:00Z".parse().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for uid in 0..200 {
            let at = at(&claim(uid), &pool(Some("240h"))).unwrap();
            assert!(earliest <= at && at <= latest, "{at}");
            seen.insert(at);
        }
        assert!(seen.len() > 50, "{} moments", seen.len());
        assert_eq!(at(&claim(1), &pool(None)), None);
        assert_eq!(at(&claim(1), &pool(Some("Never"))), None);
    }
}
