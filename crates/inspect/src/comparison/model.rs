//! The comparison. Its shape as JSON is part of the command line's contract.

use std::collections::{BTreeMap, BTreeSet};

use croft_scheduler::{Price, Relaxed};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use super::launcher::{Launcher, LeftOut};
use crate::{amounts::signed_dollars, inventory::Cost};

/// The nodes that are there beside Croft's plan for the same pods.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// When the cluster was recorded, if a file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<String>,
    /// What the plan's pools come from.
    pub desired: Desired,
    /// The nodes that are compared.
    pub now: Side,
    /// The nodes of the plan.
    pub planned: Side,
    /// No plan for the pods that have a place costs less per hour; null if that isn't known.
    pub lower_bound_per_hour: Option<Price>,
    /// `planned` less `now`, in dollars per hour; null if a price is unknown.
    #[serde(serialize_with = "signed", rename = "differencePerHour")]
    pub difference: Option<i64>,
    /// By pool of the plan and by group of nodes that are there.
    pub pools: Vec<PoolRow>,
    /// Pods whose place would be in another pool than the group in which they run.
    pub moves: Vec<PodGroup>,
    /// Pods without a place in the plan.
    pub waits: Vec<PodGroup>,
    /// Pods that admission would refuse.
    pub refused: Vec<PodGroup>,
    /// Pending pods that the plan has a place for: it pays for them, and the nodes that are there don't.
    pub waiting_now: usize,
    /// What isn't compared.
    pub uncounted: Uncounted,
    /// Compared nodes whose labels don't say how they are paid for: priced as on-demand.
    pub nodes_of_unsaid_capacity_type: usize,
    /// The constraints that the bound leaves out of account.
    pub bound_relaxes: Vec<Relaxed>,
    /// True if the bound holds only for plans that give topology spreads and affinities the domains of this plan.
    pub bound_given_domains: bool,
    /// True if the bound holds only for plans that use pools and templates in this plan's order of weights.
    pub bound_given_weights: bool,
    /// True if the search for a plan ended early.
    pub cut_short: bool,
    /// Findings that don't make the input invalid.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

impl Comparison {
    /// True if the plan leaves a pod out that is there: it would wait, or be refused.
    #[must_use]
    pub fn leaves_pods_out(&self) -> bool {
        !self.waits.is_empty() || !self.refused.is_empty()
    }
}

/// What the plan's pools come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Desired {
    /// TenantPools alone.
    Declared,
    /// TenantPools for the pods of Tenants; for all others, a pool for each group of nodes in which they run.
    Both,
    /// A pool for each group of nodes, since there is neither a Tenant nor a TenantPool.
    Derived,
}

/// Nodes, what they cost, and the pods on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// The nodes.
    pub nodes: usize,
    /// Their cost per hour; nodes of unknown price are counted in it.
    pub cost: Cost,
    /// The pods on them, without those of DaemonSets.
    pub pods: usize,
}

impl Side {
    /// Counts a node.
    pub(super) fn add(&mut self, price: Option<Price>, is_estimate: bool, pods: usize) {
        self.nodes = self.nodes.saturating_add(1);
        self.cost.add(price);
        self.cost.estimated |= is_estimate && price.is_some();
        self.pods = self.pods.saturating_add(pods);
    }

    /// Counts the nodes of another side.
    pub(super) fn add_all(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.cost.sum += other.cost.sum;
        self.cost.unknown = self.cost.unknown.saturating_add(other.cost.unknown);
        self.cost.estimated |= other.cost.estimated;
        self.pods = self.pods.saturating_add(other.pods);
    }

    /// What it costs, if every price is known.
    pub(super) const fn known(self) -> Option<Price> {
        if self.cost.unknown == 0 { Some(self.cost.sum) } else { None }
    }

    /// `planned` less `self` in micro-dollars per hour, if every price is known.
    pub(super) fn difference(self, planned: Self) -> Option<i64> {
        Some(planned.known()?.micros().saturating_sub(self.known()?.micros()))
    }
}

impl Serialize for Side {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { nodes, cost: Cost { sum, unknown, estimated }, pods } = self;
        let mut fields = serializer.serialize_struct("Side", 5)?;
        fields.serialize_field("nodes", nodes)?;
        fields.serialize_field("costPerHour", sum)?;
        fields.serialize_field("estimated", estimated)?;
        fields.serialize_field("nodesOfUnknownPrice", unknown)?;
        fields.serialize_field("pods", pods)?;
        fields.end()
    }
}

/// A pool of the plan, and the nodes that are there in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    /// The TenantPool, or the group of a launcher, such as `node group web`.
    pub pool: String,
    /// True for a TenantPool.
    pub declared: bool,
    /// What launched the nodes that are there; empty if there is none.
    pub launchers: BTreeSet<Launcher>,
    /// The nodes that are there.
    pub now: Side,
    /// The nodes of the plan.
    pub planned: Side,
    /// No plan for these pods costs less per hour; null if that isn't known, as for pools that share constraints.
    pub lower_bound_per_hour: Option<Price>,
    /// `planned` less `now`, in dollars per hour; null if a price is unknown.
    #[serde(serialize_with = "signed", rename = "differencePerHour")]
    pub difference: Option<i64>,
}

/// Pods of which the same is to be said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodGroup {
    /// Namespace and name of each.
    pub pods: Vec<String>,
    /// The TenantPool or the group in which they run; null if they run nowhere.
    pub from: Option<String>,
    /// The pool of their place in the plan; null if they have none.
    pub to: Option<String>,
    /// The reason.
    pub why: String,
}

/// Nodes and pods that neither side counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Uncounted {
    /// Nodes that Croft would launch none of.
    #[serde(flatten, serialize_with = "by_kind")]
    pub nodes: BTreeMap<LeftOut, usize>,
    /// Pods on those nodes.
    pub pods_on_them: usize,
    /// Pods that a kubelet runs from files of its own.
    pub static_pods: usize,
    /// Pods on nodes that the input doesn't have.
    #[serde(rename = "podsOnNodesThatAreMissing")]
    pub pods_elsewhere: usize,
    /// Pods of DaemonSets that the input doesn't have: planned nodes are without them.
    #[serde(rename = "podsOfMissingDaemonSets")]
    pub pods_of_unknown_daemon_sets: usize,
    /// Pods that workloads want and have not created: only pods that are there are compared.
    #[serde(rename = "podsNotCreated")]
    pub missing_pods: usize,
}

/// A field for each kind of nodes.
fn by_kind<S: Serializer>(nodes: &BTreeMap<LeftOut, usize>, serializer: S) -> Result<S::Ok, S::Error> {
    let kinds = [
        ("controlPlaneNodes", LeftOut::ControlPlane),
        ("fargateNodes", LeftOut::Fargate),
        ("hybridNodes", LeftOut::Hybrid),
        ("windowsNodes", LeftOut::Windows),
    ];
    serializer.collect_map(kinds.map(|(name, kind)| (name, nodes.get(&kind).copied().unwrap_or_default())))
}

/// Micro-dollars as dollars, with a sign.
fn signed<S: Serializer>(micros: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    micros.map(signed_dollars).serialize(serializer)
}
