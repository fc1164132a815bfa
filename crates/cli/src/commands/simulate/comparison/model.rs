//! The comparison. Its shape as JSON is part of the command line's contract.

use croft_inspect::{
    amounts::{monthly, signed_dollars},
    inventory::Cost,
};
use croft_scheduler::Price;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    commands::{plan::impact::Edited, simulate::report::less},
    costs,
};

/// A recorded cluster under its own settings and under others.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands::simulate) struct Comparison {
    /// When the cluster was recorded, if the record says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded_at: Option<String>,
    /// The objects that change.
    pub(super) changes: Vec<Edited>,
    /// Under the recorded settings.
    pub(super) before: Side,
    /// Under the changed ones.
    pub(super) after: Side,
    /// `after` less `before`.
    pub(super) difference: Difference,
    /// By pool of either side.
    pub(super) pools: Vec<Row>,
    /// By tenant of either side: the nodes of its pools, and the pods of its namespaces.
    pub(super) tenants: Vec<Row>,
    /// Launched instances that are left at the end, by type.
    pub(super) launched: Vec<LaunchedRow>,
    /// Pods that are pending at the end of a side.
    pub(super) pending: Vec<PendingRow>,
    #[serde(skip)]
    pub(in crate::commands::simulate) warnings: Vec<String>,
}

impl Comparison {
    /// True if a pod is pending under the changed settings.
    pub(in crate::commands::simulate) const fn has_pending(&self) -> bool {
        self.after.end.pending > 0
    }
}

/// One side of the comparison.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Side {
    /// Cost of the recorded nodes.
    #[serde(serialize_with = "cost")]
    pub(super) recorded: Cost,
    /// Cost once pending pods have a place.
    #[serde(serialize_with = "cost")]
    pub(super) placed: Cost,
    /// The end of consolidation.
    pub(super) end: Figures,
    /// Work steps of the solver and the search.
    pub(super) steps: u64,
    /// True if a search ended before it found nothing more.
    pub(super) cut_short: bool,
}

/// A part of the cluster at the end of consolidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Figures {
    /// Cost of its nodes.
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
    /// Its nodes.
    pub(super) nodes: usize,
    /// Nodes that weren't recorded.
    pub(super) launched: usize,
    /// Recorded nodes that are gone.
    pub(super) removed: usize,
    /// Pods that run on another node than recorded, or on none.
    #[serde(rename = "podsMoved")]
    pub(super) moved: usize,
    /// Pods without a place.
    #[serde(rename = "podsPending")]
    pub(super) pending: usize,
}

/// `after` less `before`, at the end of consolidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// Micro-dollars a month.
    #[serde(rename = "costPerMonth", serialize_with = "signed")]
    pub(super) cost: i64,
    pub(super) nodes: i64,
    pub(super) launched: i64,
    pub(super) removed: i64,
    #[serde(rename = "podsMoved")]
    pub(super) moved: i64,
    #[serde(rename = "podsPending")]
    pub(super) pending: i64,
}

impl Difference {
    pub(super) fn new(before: &Figures, after: &Figures) -> Self {
        Self {
            cost: cents(after.cost) - cents(before.cost),
            nodes: less(after.nodes, before.nodes),
            launched: less(after.launched, before.launched),
            removed: less(after.removed, before.removed),
            moved: less(after.moved, before.moved),
            pending: less(after.pending, before.pending),
        }
    }
}

/// A month's cost in micro-dollars, cut to whole cents as it is shown.
pub(super) fn cents(cost: Cost) -> i64 {
    costs::cents(monthly(cost.sum)).micros()
}

/// A pool or a tenant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) before: Figures,
    pub(super) after: Figures,
    pub(super) difference: Difference,
}

impl Row {
    pub(super) fn new(name: String, before: Figures, after: Figures) -> Self {
        Self { name, before, after, difference: Difference::new(&before, &after) }
    }
}

/// Equal instances.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LaunchedRow {
    pub(super) pool: String,
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) capacity_type: String,
    /// Dollars per hour of each; null if unknown.
    pub(super) price: Option<Price>,
    pub(super) before: usize,
    pub(super) after: usize,
}

/// A pod that is pending at the end: why, on each side on which it is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PendingRow {
    pub(super) pod: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

/// Dollars a month; nodes of unknown price are counted.
fn cost<S: Serializer>(cost: &Cost, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Cost", 3)?;
    fields.serialize_field("costPerMonth", &Price::from_micros(cents(*cost)))?;
    fields.serialize_field("estimated", &cost.estimated)?;
    fields.serialize_field("nodesOfUnknownPrice", &cost.unknown)?;
    fields.end()
}

/// Micro-dollars as dollars, with a sign.
fn signed<S: Serializer>(micros: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(signed_dollars(*micros))
}
