//! Limits of pools, tenants, the cluster and single offerings during packing.

use smallvec::SmallVec;

use crate::{
    ids::{LimitIx, OfferIx, VariantIx},
    index_vec::IndexVec,
    packing::problem::{Counted, Limit, PackingProblem},
    state::{
        catalog_index::CatalogIndex,
        requests::{ResourceId, amount},
    },
};

fn capacity_of(catalog: &CatalogIndex, offer: OfferIx, resource: ResourceId) -> i64 {
    let kind = catalog.kind(offer);
    catalog.capacity.find(kind).map_or(0, |list| amount(list, resource))
}

/// The vCPU of an instance, in thousandths.
pub(crate) fn cpu_of(catalog: &CatalogIndex, offer: OfferIx) -> i64 {
    capacity_of(catalog, offer, ResourceId::CPU)
}

fn price_of(catalog: &CatalogIndex, offer: OfferIx) -> Option<i64> {
    catalog.offers.find(offer)?.price
}

/// The amounts of a limit that one more instance would overdraw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overdrawn {
    pub(crate) nodes: bool,
    pub(crate) cost: bool,
    pub(crate) resources: SmallVec<[ResourceId; 2]>,
}

impl Limit {
    pub(crate) fn capacity(
        problem: &PackingProblem,
        variant: VariantIx,
        offer: OfferIx,
        resource: ResourceId,
    ) -> i64 {
        problem.variants.find(variant).map_or(0, |ctx| capacity_of(&ctx.catalog, offer, resource))
    }

    pub(crate) fn price(problem: &PackingProblem, variant: VariantIx, offer: OfferIx) -> Option<i64> {
        price_of(&problem.variants.find(variant)?.catalog, offer)
    }

    /// Counts a price against a limit in dollars. An unknown one may be anything: it leaves nothing.
    pub(crate) fn pay(&mut self, price: Option<i64>) {
        if let Some(left) = &mut self.cost {
            *left = price.map_or(i64::MIN, |price| left.saturating_sub(price));
        }
    }

    /// True if some amount is bounded: the packing searches freely without limits.
    pub(crate) const fn is_bound(&self) -> bool {
        self.nodes.is_some() || self.cost.is_some() || !self.resources.is_empty()
    }

    /// True if the limit counts instances of this offering, of the pools whose limit it is.
    pub(crate) fn is_counted(&self, catalog: &CatalogIndex, offer: OfferIx) -> bool {
        let is_of = |own| catalog.offers.find(offer).is_some_and(|offer| offer.capacity == own);
        match self.counted {
            Counted::All => true,
            Counted::Only(id) => catalog.identity(offer) == Some(id),
            Counted::Of(own) => is_of(own),
            Counted::NotOf(own) => !is_of(own),
        }
    }

    /// Counts an instance of `offer`, whether or not the limit allows it.
    pub(crate) fn spend(&mut self, catalog: &CatalogIndex, offer: OfferIx) {
        if !self.is_counted(catalog, offer) {
            return;
        }
        if let Some(nodes) = &mut self.nodes {
            *nodes -= 1;
        }
        self.pay(price_of(catalog, offer));
        for (id, left) in &mut self.resources {
            *left = left.saturating_sub(capacity_of(catalog, offer, *id));
        }
    }

    /// True if more is counted than the limit allows.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.nodes.is_some_and(|left| left < 0)
            || self.cost.is_some_and(|left| left < 0)
            || self.resources.iter().any(|(_, left)| *left < 0)
    }

    /// True if an instance of `offer` may still be added.
    pub(crate) fn has_room(&self, catalog: &CatalogIndex, offer: OfferIx) -> bool {
        let mut after = self.clone();
        after.spend(catalog, offer);
        !after.is_overdrawn()
    }

    /// The amounts that an instance of `offer` would overdraw: the number of nodes, the cost, and resources by id.
    pub(crate) fn overdrawn_by(&self, catalog: &CatalogIndex, offer: OfferIx) -> Overdrawn {
        let mut after = self.clone();
        after.spend(catalog, offer);
        Overdrawn {
            nodes: after.nodes.is_some_and(|left| left < 0),
            cost: after.cost.is_some_and(|left| left < 0),
            resources: after.resources.iter().filter(|(_, left)| *left < 0).map(|(id, _)| *id).collect(),
        }
    }

    fn allows(
        &self,
        problem: &PackingProblem,
        variant: VariantIx,
        old: Option<OfferIx>,
        new: OfferIx,
    ) -> bool {
        let counts = |o| problem.variants.find(variant).is_some_and(|ctx| self.is_counted(&ctx.catalog, o));
        if self.counted != Counted::All && !counts(new) {
            return true;
        }
        let old = old.filter(|o| counts(*o));
        let back = |f: &dyn Fn(OfferIx) -> i64| old.map_or(0, f);
        self.nodes.is_none_or(|n| n + i64::from(old.is_some()) >= 1)
            && self.cost.is_none_or(|left| {
                let price = |o| Self::price(problem, variant, o);
                let paid = old.and_then(price).unwrap_or(0);
                price(new).is_some_and(|price| left.saturating_add(paid) >= price)
            })
            && self.resources.iter().all(|(id, left)| {
                let has = |o| Self::capacity(problem, variant, o, *id);
                // Shrinking is always allowed, also beyond a limit that was lowered.
                let need = has(new);
                left.saturating_add(back(&has)) >= need || old.is_some_and(|o| has(o) >= need)
            })
    }

    fn count(&mut self, problem: &PackingProblem, variant: VariantIx, offer: OfferIx, sign: i64) {
        if !problem.variants.find(variant).is_some_and(|ctx| self.is_counted(&ctx.catalog, offer)) {
            return;
        }
        if let Some(nodes) = &mut self.nodes {
            *nodes -= sign;
        }
        // Under a limit in dollars no instance without a price is taken.
        if let (Some(cost), Some(price)) = (&mut self.cost, Self::price(problem, variant, offer)) {
            *cost = cost.saturating_sub(sign * price);
        }
        for (id, left) in &mut self.resources {
            *left = left.saturating_sub(sign * Self::capacity(problem, variant, offer, *id));
        }
    }
}

fn of<'a>(problem: &'a PackingProblem, variant: VariantIx) -> impl Iterator<Item = LimitIx> + 'a {
    problem.variants.find(variant).into_iter().flat_map(|ctx| ctx.limits.iter().copied())
}

/// True if an instance of `offer` may be added.
pub(crate) fn allows(
    problem: &PackingProblem,
    limits: &IndexVec<LimitIx, Limit>,
    variant: VariantIx,
    offer: OfferIx,
) -> bool {
    of(problem, variant)
        .all(|l| limits.find(l).is_none_or(|limit| limit.allows(problem, variant, None, offer)))
}

/// True if an instance of `old` may become one of `new`.
pub(crate) fn allows_swap(
    problem: &PackingProblem,
    limits: &IndexVec<LimitIx, Limit>,
    variant: VariantIx,
    old: OfferIx,
    new: OfferIx,
) -> bool {
    of(problem, variant)
        .all(|l| limits.find(l).is_none_or(|limit| limit.allows(problem, variant, Some(old), new)))
}

/// Counts an instance, if the limits allow it.
pub(crate) fn take(
    problem: &PackingProblem,
    limits: &mut IndexVec<LimitIx, Limit>,
    variant: VariantIx,
    offer: OfferIx,
) -> bool {
    let allowed = allows(problem, limits, variant, offer);
    if allowed {
        count(problem, limits, variant, offer, 1);
    }
    allowed
}

/// Removes an instance from the counts.
pub(crate) fn give(
    problem: &PackingProblem,
    limits: &mut IndexVec<LimitIx, Limit>,
    variant: VariantIx,
    offer: OfferIx,
) {
    count(problem, limits, variant, offer, -1);
}

/// Counts `new` in the place of `old`.
pub(crate) fn swap(
    problem: &PackingProblem,
    limits: &mut IndexVec<LimitIx, Limit>,
    variant: VariantIx,
    old: OfferIx,
    new: OfferIx,
) {
    if limits.is_empty() {
        return;
    }
    count(problem, limits, variant, old, -1);
    count(problem, limits, variant, new, 1);
}

/// Counts an instance, whether or not the limits allow it.
pub(crate) fn spend(
    problem: &PackingProblem,
    limits: &mut IndexVec<LimitIx, Limit>,
    variant: VariantIx,
    offer: OfferIx,
) {
    count(problem, limits, variant, offer, 1);
}

fn count(
    problem: &PackingProblem,
    limits: &mut IndexVec<LimitIx, Limit>,
    variant: VariantIx,
    offer: OfferIx,
    sign: i64,
) {
    for l in of(problem, variant) {
        if let Some(limit) = limits.find_mut(l) {
            limit.count(problem, variant, offer, sign);
        }
    }
}
