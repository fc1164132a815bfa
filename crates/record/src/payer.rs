//! Payers of a node: an entry of the log names the requests of each, and the ledger divides the node's price by them.

use serde::{Deserialize, Serialize};

/// The purpose of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Requests of pods.
    Used,
    /// Requests of DaemonSets' pods.
    DaemonSets,
    /// Spare capacity that the pool keeps.
    Headroom,
    /// Capacity that no pod requests.
    Idle,
    /// A node that isn't initialized yet.
    Starting,
    /// Capacity that no pod requests on a node that is being removed.
    Draining,
}

impl Purpose {
    /// The purpose in a table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::DaemonSets => "daemonsets",
            Self::Headroom => "headroom",
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Draining => "draining",
        }
    }
}

/// A payer of costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Payer {
    /// The tenant; empty for none.
    #[serde(rename = "ten", default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The namespace; empty for what no pod requests.
    #[serde(rename = "ns", default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The workload, as `Kind/name`; empty for what no pod requests.
    #[serde(rename = "w", default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
}

/// Requests on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    /// The payer, whose pods request them.
    #[serde(flatten)]
    pub payer: Payer,
    /// [`Purpose::Used`], [`Purpose::DaemonSets`] or [`Purpose::Headroom`].
    #[serde(rename = "for")]
    pub purpose: Purpose,
    /// Thousandths of a CPU.
    #[serde(rename = "cpu")]
    pub cpu_millis: u64,
    /// Bytes of memory.
    #[serde(rename = "mem")]
    pub memory_bytes: u64,
}
