//! Nodes, capacity and cost of a pool.

use croft_scheduler::{Price, Quantity, Resources};

use crate::state::{Snapshot, price};

/// The instances and nodes of pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) nodes: i64,
    pub(crate) capacity: Resources,
    /// The sum of known prices.
    pub(crate) cost: Price,
    /// Nodes whose price is unknown.
    pub(crate) unpriced: i64,
}

impl Holdings {
    /// Adds another pool's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.capacity.add(&other.capacity);
        self.cost = self.cost.saturating_add(other.cost);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }

    /// The cost as statuses say it: `1.25`, or `1.25 + 2 unknown`.
    pub(crate) fn cost_text(&self) -> String {
        cost_text(self.cost, self.unpriced)
    }
}

/// A cost that leaves out `unpriced` nodes, as statuses say it.
pub(crate) fn cost_text(cost: Price, unpriced: i64) -> String {
    if unpriced == 0 { cost.to_string() } else { format!("{cost} + {unpriced} unknown") }
}

/// Holdings of a pool: the instances of its claims, and nodes with its label that have no claim.
pub(crate) fn count(snapshot: &Snapshot, pool: &str) -> Holdings {
    let mut held = Holdings::default();
    for (_, claim) in snapshot.claims_of_pool(pool) {
        held.nodes += 1;
        let status = claim.status.as_ref();
        if let Some((_, node)) = snapshot.node_of(claim).filter(|(_, node)| !node.capacity.is_empty()) {
            held.capacity.add(&node.capacity);
        } else if let Some(launched) = status.filter(|s| s.instance_type.is_some()) {
            for (name, amount) in &launched.capacity {
                if let Ok(quantity) = amount.0.parse::<Quantity>() {
                    let mut one = Resources::new();
                    one.set_quantity(name, quantity);
                    held.capacity.add(&one);
                }
            }
        } else if let Some(planned) =
            claim.spec.instance_types.first().and_then(|t| snapshot.instance_type(claim, t))
        {
            held.capacity.add(&planned.capacity);
        }
        match price(claim) {
            Some(price) => held.cost = held.cost.saturating_add(price),
            // Before its launch there is nothing to pay for.
            None => held.unpriced += i64::from(status.is_some_and(|s| s.provider_id.is_some())),
        }
    }
    for (name, node) in snapshot.nodes_of_pool(pool) {
        if snapshot.claim_of_node(name).is_none() {
            held.nodes += 1;
            held.unpriced += 1;
            held.capacity.add(&node.capacity);
        }
    }
    held
}
