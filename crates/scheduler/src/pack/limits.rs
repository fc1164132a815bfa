//! What pools and tenants may have together.

use super::Yard;

/// What is left of one limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limit {
    pub(crate) nodes: Option<i64>,
    /// Micro-dollars per hour.
    pub(crate) cost: Option<i64>,
    /// By resource number.
    pub(crate) resources: Vec<(u32, i64)>,
}

impl Limit {
    fn capacity(yard: &Yard, variant: u32, offer: u32, resource: u32) -> i64 {
        let Some(ctx) = yard.variants.get(variant as usize) else { return 0 };
        let kind = ctx.catalog.kind(offer as usize);
        ctx.catalog.capacity.get(kind).map_or(0, |list| crate::requests::amount(list, resource))
    }

    fn price(yard: &Yard, variant: u32, offer: u32) -> i64 {
        let catalog = yard.variants.get(variant as usize).map(|ctx| &ctx.catalog);
        catalog.and_then(|c| c.offers.get(offer as usize)).and_then(|o| o.price).unwrap_or(0)
    }

    fn allows(&self, yard: &Yard, variant: u32, old: Option<u32>, new: u32) -> bool {
        let back = |f: &dyn Fn(u32) -> i64| old.map_or(0, f);
        self.nodes.is_none_or(|n| n + i64::from(old.is_some()) >= 1)
            && self.cost.is_none_or(|left| {
                let price = |o| Self::price(yard, variant, o);
                left.saturating_add(back(&price)) >= price(new)
            })
            && self.resources.iter().all(|(id, left)| {
                let has = |o| Self::capacity(yard, variant, o, *id);
                // Shrinking is always allowed, also past a limit that was lowered.
                let need = has(new);
                left.saturating_add(back(&has)) >= need || old.is_some_and(|o| has(o) >= need)
            })
    }

    fn count(&mut self, yard: &Yard, variant: u32, offer: u32, sign: i64) {
        if let Some(nodes) = &mut self.nodes {
            *nodes -= sign;
        }
        if let Some(cost) = &mut self.cost {
            *cost = cost.saturating_sub(sign * Self::price(yard, variant, offer));
        }
        for (id, left) in &mut self.resources {
            *left = left.saturating_sub(sign * Self::capacity(yard, variant, offer, *id));
        }
    }
}

fn of<'a>(yard: &'a Yard, variant: u32) -> impl Iterator<Item = usize> + 'a {
    yard.variants.get(variant as usize).into_iter().flat_map(|ctx| ctx.limits.iter().copied())
}

/// True if a machine of `offer` may be added.
pub(crate) fn allows(yard: &Yard, limits: &[Limit], variant: u32, offer: u32) -> bool {
    of(yard, variant).all(|l| limits.get(l).is_none_or(|limit| limit.allows(yard, variant, None, offer)))
}

/// True if a machine of `old` may become one of `new`.
pub(crate) fn allows_swap(yard: &Yard, limits: &[Limit], variant: u32, old: u32, new: u32) -> bool {
    of(yard, variant).all(|l| limits.get(l).is_none_or(|limit| limit.allows(yard, variant, Some(old), new)))
}

/// Counts a machine, if it may be added.
pub(crate) fn take(yard: &Yard, limits: &mut [Limit], variant: u32, offer: u32) -> bool {
    let allowed = allows(yard, limits, variant, offer);
    if allowed {
        count(yard, limits, variant, offer, 1);
    }
    allowed
}

/// Counts a machine less.
pub(crate) fn give(yard: &Yard, limits: &mut [Limit], variant: u32, offer: u32) {
    count(yard, limits, variant, offer, -1);
}

/// A machine becomes another.
pub(crate) fn swap(yard: &Yard, limits: &mut [Limit], variant: u32, old: u32, new: u32) {
    if limits.is_empty() {
        return;
    }
    count(yard, limits, variant, old, -1);
    count(yard, limits, variant, new, 1);
}

fn count(yard: &Yard, limits: &mut [Limit], variant: u32, offer: u32, sign: i64) {
    for l in of(yard, variant) {
        if let Some(limit) = limits.get_mut(l) {
            limit.count(yard, variant, offer, sign);
        }
    }
}
