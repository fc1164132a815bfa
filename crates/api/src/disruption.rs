//! When nodes are given back, and how many at once.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

/// When nodes are given back.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Which nodes are given back to save money.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
    /// How long a node must have been empty, or its pods unchanged, before it is given back: a Go
    /// duration such as `30s`, or `Never`.
    #[serde(default = "default_consolidate_after")]
    #[schemars(schema_with = "bounds::consolidate_after")]
    pub consolidate_after: String,
    /// What moving pods must save at least, in dollars per hour, beside what disturbing them is worth.
    #[serde(default = "default_min_savings")]
    #[schemars(schema_with = "bounds::dollars")]
    pub min_savings: String,
    /// How many of the pool's nodes may be on their way out at once. The strictest that applies counts.
    #[serde(default = "default_budgets")]
    #[schemars(length(max = 50))]
    pub budgets: Vec<Budget>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidation_policy: ConsolidationPolicy::default(),
            consolidate_after: default_consolidate_after(),
            min_savings: default_min_savings(),
            budgets: default_budgets(),
        }
    }
}

fn default_consolidate_after() -> String {
    "30s".to_owned()
}

fn default_min_savings() -> String {
    "0.01".to_owned()
}

/// Giving back an empty node disturbs nobody, so that nothing paces it.
fn default_budgets() -> Vec<Budget> {
    let reasons = vec![DisruptionReason::Underutilized, DisruptionReason::Drifted, DisruptionReason::Expired];
    vec![Budget { nodes: "10%".to_owned(), reasons, schedule: None, duration: None }]
}

/// Which nodes are given back to save money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConsolidationPolicy {
    /// Nodes without pods.
    WhenEmpty,
    /// Those, and nodes whose pods would cost less elsewhere.
    #[default]
    WhenEmptyOrUnderutilized,
}

/// How many of a pool's nodes may be on their way out at once, and when that holds.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.schedule) == has(self.duration)", "schedule says when the budget begins and duration for how long it holds: write both or neither"))]
pub struct Budget {
    /// A number of nodes, or a share of the pool's such as `10%`, rounded up. `0` keeps all.
    #[schemars(schema_with = "bounds::share")]
    pub nodes: String,
    /// The budget counts for these reasons; left out, for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub reasons: Vec<DisruptionReason>,
    /// When the budget begins to hold, in UTC: five fields as in crontab (`0 9 * * mon-fri`), or `@daily` and the
    /// like. Left out, it always holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::schedule")]
    pub schedule: Option<String>,
    /// For how long it holds from then on: hours and minutes such as `8h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::window")]
    pub duration: Option<String>,
}

/// Why a node is given back while it could stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionReason {
    /// It has no pods.
    Empty,
    /// Its pods would cost less elsewhere.
    Underutilized,
    /// It isn't what its pool or class would launch now.
    Drifted,
    /// It is older than its pool's `expireAfter`.
    Expired,
}

impl DisruptionReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Empty, Self::Underutilized, Self::Drifted, Self::Expired];

    /// The reason that is written as `word`.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// As written in budgets, conditions, events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Underutilized => "Underutilized",
            Self::Drifted => "Drifted",
            Self::Expired => "Expired",
        }
    }
}
