//! The disruption of a pool: which nodes are removed, and how many at once.

use std::{collections::BTreeMap, time::Duration};

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{bounds, duration, pause::Pause};

/// The `initializationTimeout` of a pool that says none.
const INITIALIZATION_TIMEOUT: Duration = Duration::from_secs(900);
/// How long a defect is tolerated by a pool that says nothing of it.
const REPAIR_AFTER: Duration = Duration::from_secs(1_800);
/// The same for what doesn't heal by itself, and wastes a whole node meanwhile. A broken accelerator is one. A host or an
/// operating system that fails its check is another: where EC2 recovers an instance by itself, it begins a few minutes after
/// the check has failed and takes as long as a reboot, as does a reboot for any other reason. Both are over well before.
const REPAIR_SOON: Duration = Duration::from_secs(600);
/// The defects that are tolerated for [`REPAIR_SOON`]. Volumes are not among them: a volume that doesn't answer follows its
/// pods to the next node.
const SOON: [&str; 3] = ["AcceleratedHardwareReady", "SystemStatusCheck", "InstanceStatusCheck"];

/// When nodes are removed, and how many at once.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// The nodes that are removed to save money.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
    /// Cheap nodes or calm pods: sets `consolidateAfter`, `minSavings` and `evictionCost` where they are left out.
    #[serde(default)]
    pub preference: Preference,
    /// The time that a node must have been empty, or its pods unchanged, before it is removed: a Go duration such as
    /// `30s`, or `Never`. Default: as `preference` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::consolidate_after")]
    pub consolidate_after: Option<String>,
    /// The time within which a node must be initialized once it has registered: Ready, without startup taints and with
    /// the devices of its instance type. Then it is replaced. A Go duration of at least `1m`, or `Never`. Default: `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::initialization_timeout")]
    pub initialization_timeout: Option<String>,
    /// How long a defect of a node is tolerated before the node is replaced, by its name: a condition of the Node (`Ready`,
    /// `AcceleratedHardwareReady`, `ContainerRuntimeReady`, `KernelReady`, `NetworkingReady`, `StorageReady`) or a status check of
    /// EC2 (`SystemStatusCheck`, `InstanceStatusCheck`, `EBSStatusCheck`). A Go duration of at least `1m`, or `Never`. Default:
    /// `10m` for `AcceleratedHardwareReady`, `SystemStatusCheck` and `InstanceStatusCheck`, `30m` for the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::repair_after")]
    pub repair_after: BTreeMap<String, String>,
    /// What is done when EC2 recommends to leave a spot instance since the risk of its interruption has risen: `Replace`
    /// replaces it within the breaker's cap, `Ignore` waits for the interruption itself.
    #[serde(default, skip_serializing_if = "RebalanceRecommendations::is_default")]
    pub rebalance_recommendations: RebalanceRecommendations,
    /// A time in which no voluntary disruption of the pool's nodes starts. `croft pause` writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The least savings in dollars per hour for which pods are moved, in addition to `evictionCost` for each. Default:
    /// as `preference` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::dollars")]
    pub min_savings: Option<String>,
    /// The savings in dollars per hour that moving a pod needs, in addition to `minSavings`, if it has at least four
    /// replicas and has run for less than three hours. Pods that have run longer need less; those of fewer replicas or
    /// with `controller.kubernetes.io/pod-deletion-cost` need more, and but for `Cheapest` those that have just started.
    /// Default: as `preference` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::dollars")]
    pub eviction_cost: Option<String>,
    /// The number of the pool's nodes that may be disrupted at once. The strictest budget that applies counts.
    #[serde(default = "default_budgets")]
    #[schemars(length(max = 50))]
    pub budgets: Vec<Budget>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidation_policy: ConsolidationPolicy::default(),
            preference: Preference::default(),
            consolidate_after: None,
            initialization_timeout: None,
            repair_after: BTreeMap::new(),
            rebalance_recommendations: RebalanceRecommendations::default(),
            paused: None,
            min_savings: None,
            eviction_cost: None,
            budgets: default_budgets(),
        }
    }
}

impl Disruption {
    /// The time that a node must have been empty, or its pods unchanged: a Go duration, or `Never`.
    #[must_use]
    pub fn consolidate_after(&self) -> &str {
        self.consolidate_after.as_deref().unwrap_or(self.preference.settings().consolidate_after)
    }

    /// The least savings for which pods are moved, in dollars per hour.
    #[must_use]
    pub fn min_savings(&self) -> &str {
        self.min_savings.as_deref().unwrap_or(self.preference.settings().min_savings)
    }

    /// The savings that moving a pod needs, in dollars per hour.
    #[must_use]
    pub fn eviction_cost(&self) -> &str {
        self.eviction_cost.as_deref().unwrap_or(self.preference.settings().eviction_cost)
    }

    /// Pods that have started within this time cost more to move.
    #[must_use]
    pub fn rest(&self) -> Duration {
        self.preference.settings().rest
    }

    /// The time within which a node must be initialized once it has registered; `None` for ever. An unreadable one, which
    /// the schema refuses, counts as the default.
    #[must_use]
    pub fn initialization_timeout(&self) -> Option<Duration> {
        let text = self.initialization_timeout.as_deref();
        text.map_or(Ok(Some(INITIALIZATION_TIMEOUT)), duration::parse).unwrap_or(Some(INITIALIZATION_TIMEOUT))
    }

    /// How long a defect of a node is tolerated, by its name in `repairAfter`; `None` for ever. An unreadable time, which the
    /// schema refuses, counts as the default.
    #[must_use]
    pub fn repair_after(&self, defect: &str) -> Option<Duration> {
        let usual = if SOON.contains(&defect) { REPAIR_SOON } else { REPAIR_AFTER };
        let text = self.repair_after.get(defect);
        text.map_or(Ok(Some(usual)), |text| duration::parse(text)).unwrap_or(Some(usual))
    }
}

/// What is done on rebalance recommendations of EC2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebalanceRecommendations {
    /// The instance is replaced.
    #[default]
    Replace,
    /// Nothing.
    Ignore,
}

impl RebalanceRecommendations {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether cheap nodes or calm pods come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Preference {
    /// Pods are moved for small savings, so that nodes are full.
    Cheapest,
    /// Pods are moved for savings that are seldom undone within the hour.
    #[default]
    Balanced,
    /// Pods are moved for large savings alone.
    Calm,
}

impl Preference {
    /// Every preference.
    pub const ALL: [Self; 3] = [Self::Cheapest, Self::Balanced, Self::Calm];

    /// The name in manifests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cheapest => "Cheapest",
            Self::Balanced => "Balanced",
            Self::Calm => "Calm",
        }
    }

    /// The settings that it stands for. They are points of one measured curve of cost against evictions (docs/scaling.md).
    /// Of the three numbers `evictionCost` buys fewer evictions for the least money, so the others differ little.
    #[must_use]
    pub const fn settings(self) -> PreferenceSettings {
        match self {
            Self::Cheapest => PreferenceSettings {
                consolidate_after: "30s",
                min_savings: "0.01",
                eviction_cost: "0.008",
                rest: Duration::ZERO,
            },
            Self::Balanced => PreferenceSettings {
                consolidate_after: "30s",
                min_savings: "0.01",
                eviction_cost: "0.032",
                rest: Duration::from_secs(30 * 60),
            },
            Self::Calm => PreferenceSettings {
                consolidate_after: "5m",
                min_savings: "0.03",
                eviction_cost: "0.064",
                rest: Duration::from_secs(60 * 60),
            },
        }
    }
}

/// The settings that a [`Preference`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreferenceSettings {
    /// `consolidateAfter`.
    pub consolidate_after: &'static str,
    /// `minSavings`, in dollars per hour.
    pub min_savings: &'static str,
    /// `evictionCost`, in dollars per hour.
    pub eviction_cost: &'static str,
    /// Pods that have started within this time cost more to move: most were just moved, or are part of a load that still
    /// changes.
    pub rest: Duration,
}

/// No budget for empty nodes, whose removal disrupts no pod.
fn default_budgets() -> Vec<Budget> {
    let reasons =
        DisruptionReason::ALL.into_iter().filter(|reason| *reason != DisruptionReason::Empty).collect();
    vec![Budget { nodes: "10%".to_owned(), reasons, schedule: None, duration: None, time_zone: None }]
}

/// The nodes that are removed to save money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConsolidationPolicy {
    /// Nodes without pods.
    WhenEmpty,
    /// Nodes without pods, and nodes whose pods would cost less elsewhere.
    #[default]
    WhenEmptyOrUnderutilized,
}

/// The number of a pool's nodes that may be disrupted at once, and when that applies.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.schedule) == has(self.duration)", "schedule says when the budget begins and duration for how long it holds: write both or neither"), validation = ("!has(self.timeZone) || has(self.schedule)", "timeZone is that of schedule: write schedule as well, or leave it out"))]
pub struct Budget {
    /// A number of nodes, or a share of the pool's such as `10%`, rounded up. `0` disrupts none.
    #[schemars(schema_with = "bounds::share")]
    pub nodes: String,
    /// The reasons for which the budget counts. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub reasons: Vec<DisruptionReason>,
    /// The times at which the budget starts to apply: five fields as in crontab (`0 9 * * mon-fri`), or `@daily` and the
    /// like. Without it the budget always applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::schedule")]
    pub schedule: Option<String>,
    /// The time for which the budget applies from then on: hours and minutes such as `8h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::window")]
    pub duration: Option<String>,
    /// The time zone of `schedule`, by its name in the IANA database such as `Europe/Berlin`. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::time_zone")]
    pub time_zone: Option<String>,
}

/// The reason for which a node is removed that could stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionReason {
    /// The node has no pods.
    Empty,
    /// The node's pods would cost less elsewhere.
    Underutilized,
    /// The node differs from what its pool or class would launch now.
    Drifted,
    /// The node is older than its pool's `expireAfter`.
    Expired,
    /// A heavier template of its pool has room for its pods, and the pool's `return` is `Eagerly`.
    Outweighed,
}

impl DisruptionReason {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::Empty, Self::Underutilized, Self::Drifted, Self::Expired, Self::Outweighed];

    /// Parses the name of a reason.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// The name in budgets, conditions, events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Underutilized => "Underutilized",
            Self::Drifted => "Drifted",
            Self::Expired => "Expired",
            Self::Outweighed => "Outweighed",
        }
    }
}
