//! Rules that limit capacity.

use croft_scheduler::CapacityType;
use serde::{Deserialize, Serialize};

use crate::params::wildcard;

/// A limit on capacity; the last one that matches applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapacityRule {
    /// Instance type, with wildcards.
    #[serde(default = "any")]
    pub instance_type: String,
    /// Zone, with wildcards.
    #[serde(default = "any")]
    pub zone: String,
    /// Capacity type, with wildcards.
    #[serde(default = "any")]
    pub capacity_type: String,
    /// Instances that can be launched before capacity runs out; without it, any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

fn any() -> String {
    "*".to_owned()
}

impl CapacityRule {
    pub(crate) fn matches(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> bool {
        wildcard(&self.instance_type, instance_type)
            && wildcard(&self.zone, zone)
            && wildcard(&self.capacity_type, capacity_type.as_str())
    }
}
