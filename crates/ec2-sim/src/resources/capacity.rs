//! Capacity reservations, and launches that fail.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A capacity reservation.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Reserved instances.
    pub total: u32,
    /// Instances not in use.
    pub free: u32,
    /// False once it has ended.
    pub active: bool,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// Instances that end instead of running: EC2 finds some faults only when an instance starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaunchFailure {
    /// Instance type, with wildcards.
    #[serde(default = "any")]
    pub instance_type: String,
    /// Zone, with wildcards.
    #[serde(default = "any")]
    pub zone: String,
    /// EC2's reason: a code such as `Client.InternalError`, a colon, and a message.
    pub reason: String,
    /// Number of instances it applies to; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

fn any() -> String {
    "*".to_owned()
}
