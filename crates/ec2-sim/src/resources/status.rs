//! What EC2 says of an instance's health.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A status check of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The host.
    System,
    /// The operating system.
    Instance,
    /// The attached volumes.
    Ebs,
}

/// The status checks that fail, and since when, in milliseconds since 1970.
pub type FailedChecks = BTreeMap<Check, u64>;

/// A scheduled change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledEvent {
    /// EC2's code, such as `instance-retirement`.
    pub code: String,
    /// What EC2 says of it; it begins with `[Completed]` or `[Canceled]` once it is over.
    pub description: String,
    /// Its earliest time, in milliseconds since 1970.
    pub not_before: u64,
}
