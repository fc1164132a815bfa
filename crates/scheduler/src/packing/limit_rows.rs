//! Limits in the linear relaxation: which of them are rows, how much is left of each, and how much of it an instance uses.
//!
//! The instances of a packing use no more of a limit than is left. So let each limit have a price, and each instance be charged for what
//! it uses of it beside its cost. Where no pattern is worth more than its instance is charged, a packing costs at least what its pods
//! are worth, less what all that is left of the limits is worth. That holds for any prices that aren't negative, and so for those with
//! which the simplex ends.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::{
    ids::{ItemTypeIx, LimitIx, LimitRowIx, OfferIx, VariantIx},
    index_vec::IndexVec,
    packing::problem::{Limit, PackingProblem},
    state::requests::ResourceId,
};

/// How much an instance uses of each limit that it uses something of.
pub(crate) type Uses = SmallVec<[(LimitRowIx, f64); 2]>;

/// Dual prices of the linear relaxation, in micro-dollars.
#[derive(Clone, Debug, Default)]
pub(crate) struct DualPrices {
    /// Of one pod of each item type.
    pub(crate) items: IndexVec<ItemTypeIx, f64>,
    /// Of one unit of each limit; zero of those that are left out.
    pub(crate) limits: IndexVec<LimitRowIx, f64>,
}

impl DualPrices {
    /// Prices between these and `others`, which are these if `calm` is 1.
    pub(crate) fn towards(&self, others: &Self, calm: f64) -> Self {
        let between = |(own, other): (&f64, &f64)| calm * own + (1.0 - calm) * other;
        Self {
            items: self.items.iter().zip(&others.items).map(between).collect(),
            limits: self.limits.iter().zip(&others.limits).map(between).collect(),
        }
    }

    /// What an instance is charged for `uses`.
    pub(crate) fn charge(&self, uses: &Uses) -> f64 {
        uses.iter()
            .map(|(row, amount)| self.limits.find(*row).map_or(0.0, |price| price.max(0.0) * amount))
            .sum()
    }
}

/// What of an instance a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Nodes,
    /// In micro-dollars per hour.
    Cost,
    Resource(ResourceId),
}

impl Amount {
    /// The amounts of which `limit` has some left, or none.
    fn all_of(limit: &Limit) -> impl Iterator<Item = (Self, i64)> + '_ {
        let nodes = limit.nodes.map(|left| (Self::Nodes, left));
        let cost = limit.cost.map(|left| (Self::Cost, left));
        let resources = limit.resources.iter().map(|(id, left)| (Self::Resource(*id), *left));
        nodes.into_iter().chain(cost).chain(resources)
    }

    /// How much of it an instance has. One of unknown price isn't launched under a limit in dollars.
    fn of(self, problem: &PackingProblem, variant: VariantIx, offer: OfferIx) -> i64 {
        match self {
            Self::Nodes => 1,
            Self::Cost => Limit::price(problem, variant, offer).unwrap_or(0),
            Self::Resource(id) => Limit::capacity(problem, variant, offer, id),
        }
    }
}

/// One amount of one limit.
#[derive(Debug)]
struct LimitRow {
    limit: LimitIx,
    amount: Amount,
    /// The amounts of a row are multiples of this, so that they are about one.
    unit: f64,
}

/// The limits that the linear relaxation knows.
#[derive(Debug, Default)]
pub(crate) struct LimitRows {
    rows: IndexVec<LimitRowIx, LimitRow>,
    /// There are more than the relaxation can have as rows.
    too_many: bool,
}

/// The simplex keeps a dense inverse: more limits than this are left out.
const MOST_ROWS: usize = 100;

#[expect(clippy::cast_precision_loss, reason = "steers the search, or has a margin")]
impl LimitRows {
    /// The limits that a packing of the `considered` instances for at most `cost` may reach. The others would lengthen the search for
    /// nothing: a relaxation may leave out any limit.
    pub(crate) fn new(problem: &PackingProblem, considered: &[(VariantIx, OfferIx)], cost: i64) -> Self {
        let mut rows = IndexVec::new();
        let known: BTreeSet<LimitIx> =
            problem.variants.iter().flat_map(|ctx| ctx.limits.iter().copied()).collect();
        for number in known {
            let Some(limit) = problem.whole_limits.find(number) else { continue };
            let counted: Vec<_> = considered
                .iter()
                .filter(|(variant, offer)| is_counted(problem, number, *variant, *offer))
                .collect();
            for (amount, left) in Amount::all_of(limit) {
                let (mut most, mut for_a_dollar) = (0i64, 0.0f64);
                for (variant, offer) in &counted {
                    let used = amount.of(problem, *variant, *offer);
                    most = most.max(used);
                    for_a_dollar =
                        for_a_dollar.max(used as f64 / problem.cost(*variant, *offer).max(1) as f64);
                }
                if for_a_dollar * cost as f64 > left as f64 {
                    rows.push(LimitRow { limit: number, amount, unit: most.max(1) as f64 });
                }
            }
        }
        let too_many = rows.len() > MOST_ROWS;
        Self { rows: if too_many { IndexVec::new() } else { rows }, too_many }
    }

    /// True if the relaxation leaves out limits that may be reached.
    pub(crate) const fn has_too_many(&self) -> bool {
        self.too_many
    }

    /// True if no packing reaches a limit.
    pub(crate) const fn is_none_in_reach(&self) -> bool {
        self.rows.is_empty() && !self.too_many
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// How much an instance of `offer` uses of each.
    pub(crate) fn uses(&self, problem: &PackingProblem, variant: VariantIx, offer: OfferIx) -> Uses {
        let of_row = |(row, LimitRow { limit, amount, unit }): (LimitRowIx, &LimitRow)| {
            let counted = is_counted(problem, *limit, variant, offer);
            let used = if counted { amount.of(problem, variant, offer) } else { 0 };
            (used > 0).then(|| (row, used as f64 / unit))
        };
        self.rows.enumerate().filter_map(of_row).collect()
    }

    /// How much is left of each in `limits`. Nothing is left of one that is overdrawn.
    pub(crate) fn left(&self, limits: &IndexVec<LimitIx, Limit>) -> Vec<f64> {
        let of_row = |LimitRow { limit, amount, unit }: &LimitRow| {
            let all = limits.find(*limit).into_iter().flat_map(Amount::all_of);
            let own = all.filter(|(other, _)| other == amount).map(|(_, left)| left).next();
            own.map_or(0.0, |left| left.max(0) as f64 / unit)
        };
        self.rows.iter().map(of_row).collect()
    }
}

/// True if `limit` counts instances of `offer`.
fn is_counted(problem: &PackingProblem, limit: LimitIx, variant: VariantIx, offer: OfferIx) -> bool {
    problem.variants.find(variant).is_some_and(|ctx| {
        let counts = |limit: &Limit| limit.is_counted(&ctx.catalog, offer);
        ctx.limits.contains(&limit) && problem.whole_limits.find(limit).is_some_and(counts)
    })
}

/// True if `one` uses no more of any limit than `other`.
pub(crate) fn uses_no_more(one: &Uses, other: &Uses) -> bool {
    one.iter().all(|(row, amount)| other.iter().any(|(own, most)| own == row && amount <= most))
}
