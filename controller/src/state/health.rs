//! The health of instances, as the last list of the cloud shows it.

use std::collections::BTreeMap;

use croft_api::NodeClaim;
use croft_cloud::{InstanceHealth, StatusCheck};

use super::{snapshot::Snapshot, views::instance_of};

impl Snapshot {
    /// The health of a claim's instance by the last list, if the cloud told it.
    #[must_use]
    pub fn health_of(&self, claim: &NodeClaim) -> Option<&InstanceHealth> {
        self.instances()?.instances.get(instance_of(claim)?)?.health.as_ref()
    }

    /// True if a status check of a claim's instance fails.
    #[must_use]
    pub fn fails_checks(&self, claim: &NodeClaim) -> bool {
        self.health_of(claim).is_some_and(|health| !health.failed.is_empty())
    }

    /// How many instances fail each status check; `None` if the last list has the health of none.
    #[must_use]
    pub fn failed_checks(&self) -> Option<BTreeMap<StatusCheck, usize>> {
        let mut known = self.instances()?.instances.values().filter_map(|one| one.health.as_ref()).peekable();
        known.peek()?;
        let mut counts = BTreeMap::from(StatusCheck::ALL.map(|check| (check, 0)));
        for failed in known.flat_map(|health| &health.failed) {
            *counts.entry(failed.check).or_default() += 1;
        }
        Some(counts)
    }
}
