//! What Tenants use: nodes, what these cost, and quota.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{Tenant, tenant::QuotaUse};
use croft_policy::{Tenants, declarations::PoolId};

use crate::{
    state::Snapshot,
    tenant::{
        objects::share_used,
        quota::amounts::{millis, text},
        state::State,
    },
};

/// The quota of all the tenant's namespaces together, and what they use of it.
pub(super) fn quota_use(state: &State, tenant: &Tenant, own: &[&str]) -> Vec<QuotaUse> {
    let Some(quota) = &tenant.spec.quota else { return Vec::new() };
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for (resource, millis) in own.iter().flat_map(|namespace| share_used(state, namespace)) {
        let sum = used.entry(resource).or_default();
        *sum = sum.saturating_add(millis);
    }
    let entry = |(resource, total): (&String, &croft_api::amount::Amount)| {
        let used = used.get(resource.as_str()).copied().unwrap_or_default();
        let total = millis(&total.0)?;
        Some(QuotaUse { resource: resource.clone(), total: text(total), used: text(used) })
    };
    quota.total.iter().filter_map(entry).collect()
}

/// Nodes and the prices of claims by pool: each Tenant's status adds up those of its pools.
#[derive(Default)]
pub(super) struct PoolUsage<'s> {
    /// A node may carry the labels of several pools.
    nodes: BTreeMap<PoolId, Vec<&'s str>>,
    prices: BTreeMap<PoolId, Prices>,
}

/// The prices of claims per hour.
#[derive(Clone, Copy, Default)]
pub(super) struct Prices {
    pub(super) micros: u64,
    pub(super) unpriced: usize,
}

impl Prices {
    const fn plus(self, other: Self) -> Self {
        Self {
            micros: self.micros.saturating_add(other.micros),
            unpriced: self.unpriced.saturating_add(other.unpriced),
        }
    }
}

impl<'s> PoolUsage<'s> {
    pub(super) fn new(state: &'s State, snapshot: &Snapshot, view: &Tenants) -> Self {
        let mut usage = Self::default();
        for node in state.nodes.keys() {
            for id in view.node(node).into_iter().flat_map(|pools| &pools.labelled) {
                usage.nodes.entry(*id).or_default().push(node);
            }
        }
        for claim in snapshot.claims().values() {
            if let Some(id) = view.declarations().pool_id(&claim.spec.pool) {
                let prices = usage.prices.entry(id).or_default();
                let launched = claim.status.as_ref().filter(|status| status.provider_id.is_some());
                let price =
                    launched.map_or(Some(0), |status| status.price_per_hour.as_deref().and_then(micros));
                let one = Prices { micros: price.unwrap_or(0), unpriced: usize::from(price.is_none()) };
                *prices = prices.plus(one);
            }
        }
        usage
    }

    /// The number of nodes, and the prices, of all of these pools.
    pub(super) fn of(&self, pools: &BTreeSet<PoolId>) -> (usize, Prices) {
        let nodes: BTreeSet<&str> =
            pools.iter().filter_map(|id| self.nodes.get(id)).flatten().copied().collect();
        let prices = pools.iter().filter_map(|id| self.prices.get(id)).copied();
        (nodes.len(), prices.fold(Prices::default(), Prices::plus))
    }
}

/// Millionths of a dollar, from a price in dollars as a claim's status has it.
fn micros(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain(std::iter::repeat('0')).take(6).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_whole_millionths() {
        let cases =
            [("0.096", Some(96_000)), ("12", Some(12_000_000)), ("1.2345678", Some(1_234_567)), ("x", None)];
        for (text, expected) in cases {
            assert_eq!(micros(text), expected, "{text}");
        }
    }
}
