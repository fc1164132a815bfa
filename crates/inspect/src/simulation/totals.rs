//! Sums over a time: what nodes cost, how long they were there, how many came and went.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::pool::Provisioner;
use croft_manifest::Input;
use croft_scheduler::{InstanceType, Price};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use crate::{inventory::node_infos, node_index::NodeIndex};

pub(super) const MILLIS_PER_HOUR: i128 = 3_600_000;

/// The price of some nodes over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Micro-dollars per hour, times milliseconds.
    micros_per_hour_millis: i128,
    /// Nodes times milliseconds.
    node_millis: i128,
    /// True if a price is an estimate.
    pub estimated: bool,
    /// True if a node has no known price.
    pub unknown: bool,
}

impl Usage {
    /// The dollars that were paid.
    #[must_use]
    pub fn cost(self) -> Price {
        Price::from_micros(i64::try_from(self.micros_per_hour_millis / MILLIS_PER_HOUR).unwrap_or(i64::MAX))
    }

    /// Nodes times hours.
    #[must_use]
    pub fn node_hours(self) -> f64 {
        self.node_millis as f64 / MILLIS_PER_HOUR as f64
    }

    fn add(&mut self, other: Self) {
        self.micros_per_hour_millis =
            self.micros_per_hour_millis.saturating_add(other.micros_per_hour_millis);
        self.node_millis = self.node_millis.saturating_add(other.node_millis);
        self.estimated |= other.estimated;
        self.unknown |= other.unknown;
    }
}

/// Sums over a time.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Of each pool's nodes.
    pub pools: BTreeMap<String, Usage>,
    /// Nodes that were launched.
    pub launched: usize,
    /// Nodes that were removed.
    pub removed: usize,
    nodes: BTreeSet<String>,
}

impl Totals {
    /// Of all pools.
    #[must_use]
    pub fn all(&self) -> Usage {
        let mut all = Usage::default();
        self.pools.values().for_each(|usage| all.add(*usage));
        all
    }

    /// Begins with the nodes of `input`, which were neither launched nor removed.
    #[must_use]
    pub fn begin(input: &Input) -> Self {
        Self { nodes: names(input), ..Self::default() }
    }

    /// Counts nodes that have come and gone since the last call.
    pub fn observe(&mut self, input: &Input) {
        let before = std::mem::replace(&mut self.nodes, names(input));
        self.launched = self.launched.saturating_add(self.nodes.difference(&before).count());
        self.removed = self.removed.saturating_add(before.difference(&self.nodes).count());
    }

    /// Adds what the nodes of `input` that are in a pool cost for some time.
    pub fn add(&mut self, input: &Input, types: &Arc<[InstanceType]>, lasted: SignedDuration) {
        let millis = lasted.as_millis();
        for node in node_infos(input, types) {
            let Some(pool) = node.pool else { continue };
            let micros = i128::from(node.price.map_or(0, Price::micros));
            self.pools.entry(pool).or_default().add(Usage {
                micros_per_hour_millis: micros.saturating_mul(millis),
                node_millis: millis,
                estimated: node.estimated,
                unknown: node.price.is_none(),
            });
        }
    }
}

/// The names of the nodes that are in a pool which Croft provisions.
fn names(input: &Input) -> BTreeSet<String> {
    let index = NodeIndex::new(input);
    let nodes = input.nodes.iter().filter(|node| is_provisioned(&index, node));
    nodes.map(|node| node.name_any()).collect()
}

/// True for a node of a pool that Croft provisions.
pub(super) fn is_provisioned(index: &NodeIndex<'_>, node: &Node) -> bool {
    index.pool_of(node).is_some_and(|pool| pool.spec.provisioner == Provisioner::Croft)
}
