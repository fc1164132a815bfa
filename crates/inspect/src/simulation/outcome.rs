//! The answer of a simulation: the plan, and the savings of consolidation.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_scheduler::{InstanceType, Plan, PlannedInstance, PodKey, Price, consolidation::Consolidation};

/// A plan for an input.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The scheduler's answer.
    pub plan: Plan,
    /// Headroom pods by node or new instance.
    pub headroom: BTreeMap<String, usize>,
    /// Pods that admission refuses, which are therefore never created.
    pub denied: Vec<Denied>,
    /// Findings that don't make the input invalid.
    pub warnings: Vec<String>,
    /// Milliseconds from the parsed input to the plan.
    pub elapsed_ms: u64,
    /// The commands of consolidation, if requested.
    pub savings: Option<Savings>,
    pub(super) types: Arc<[InstanceType]>,
}

impl Simulation {
    /// True if the instance's price is an estimate, not published.
    #[must_use]
    pub fn is_estimate(&self, instance: &PlannedInstance) -> bool {
        let offerings =
            self.types.iter().filter(|t| t.name == instance.instance_type).flat_map(|t| &t.offerings);
        offerings
            .into_iter()
            .any(|o| o.estimated && o.zone == instance.zone && o.capacity_type == instance.capacity_type)
    }

    /// Number of headroom pods on a node or new instance.
    #[must_use]
    pub fn headroom_on(&self, node: &str) -> usize {
        self.headroom.get(node).copied().unwrap_or(0)
    }

    /// The nodes on which pending or headroom pods have a place.
    pub(super) fn nodes_with_pods(&self) -> BTreeSet<&str> {
        let planned = self.plan.existing.iter().filter(|place| !place.pods.is_empty());
        let with_headroom = self.headroom.iter().filter(|(_, pods)| **pods > 0);
        planned.map(|place| place.node.as_str()).chain(with_headroom.map(|(node, _)| node.as_str())).collect()
    }

    /// True if no pod stays pending.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.plan.unschedulable.is_empty() && self.denied.is_empty()
    }
}

/// The result of the search, and the nodes that aren't candidates.
#[derive(Clone, Debug)]
pub struct Savings {
    /// The nodes that can be removed now.
    pub found: Consolidation,
    /// Why a node isn't a candidate, by node.
    pub kept: BTreeMap<String, String>,
    /// Savings without the limits of disruption budgets, if those limits reduce them.
    pub in_time: Option<Price>,
    /// Empty nodes that can be removed now and whose price is unknown: what they save is in no sum.
    pub unpriced: BTreeSet<String>,
}

/// Pods refused for the same reason.
#[derive(Clone, Debug)]
pub struct Denied {
    /// The pods.
    pub pods: Vec<PodKey>,
    /// The message of the denial.
    pub refusal: String,
}

/// The reason of refused pods, beside those of [`croft_scheduler::ReasonKind`].
pub const DENIED: &str = "Denied";
