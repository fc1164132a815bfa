//! First-fit-decreasing: plain, and with a price-aware choice of instance.

use crate::ids::{BinIx, CompatSetIx, ItemTypeIx, OfferIx, VariantIx};
use crate::index_vec::IndexVec;
use crate::packing::{
    bins::{Fit, Packing},
    colocation,
    compatibility::CompatibilitySets,
    problem::{PackingProblem, fits},
};

/// How a new instance is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The largest, exchanged in the end for the cheapest that holds its pods.
    Largest,
    /// The one with which the remaining pods would cost least in the linear relaxation.
    Balanced,
}

/// The bins that may take more pods.
struct OpenBins {
    /// How another one is chosen.
    opening: Opening,
    open: Vec<BinIx>,
    /// The least request of any item type for each resource.
    smallest: Vec<i64>,
}

/// Packs every item type in order.
pub(crate) fn pack<'a>(
    problem: &'a PackingProblem,
    compat_sets: &mut CompatibilitySets,
    opening: Opening,
) -> Packing<'a> {
    let mut packing = Packing::new(problem);
    let mut left: IndexVec<ItemTypeIx, u32> = problem.item_types.iter().map(|k| k.count).collect();
    run(&mut packing, compat_sets, opening, &mut left);
    packing.take_cheapest_offers(compat_sets);
    packing
}

/// Packs the counts in `left` beside what is packed already.
pub(crate) fn finish(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    left: &mut IndexVec<ItemTypeIx, u32>,
) {
    if left.iter().any(|n| *n > 0) {
        run(packing, compat_sets, Opening::Balanced, left);
    }
}

fn run(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    opening: Opening,
    left: &mut IndexVec<ItemTypeIx, u32>,
) {
    let problem = packing.problem;
    let priority = |item_type: ItemTypeIx| problem.item_types.find(item_type).map_or(0, |k| k.priority);
    let mut bins = OpenBins { opening, open: packing.bins.ids().collect(), smallest: smallest(problem) };
    for item_types in problem.largest_first().chunk_by(|a, b| priority(*a) == priority(*b)) {
        let known = packing.bins.len();
        colocation::place(packing, compat_sets, item_types, left);
        bins.open.extend(packing.bins.ids().skip(known));
        for item_type in item_types {
            one(packing, compat_sets, *item_type, left, &mut bins);
        }
    }
}

/// Packs the remaining pods of one item type.
fn one(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    item_type: ItemTypeIx,
    left: &mut IndexVec<ItemTypeIx, u32>,
    bins: &mut OpenBins,
) {
    let Some(count) = left.find(item_type).copied().filter(|n| *n > 0) else { return };
    if colocation::must_wait(packing, item_type, left) {
        return;
    }
    let mut rest = fill(packing, compat_sets, item_type, count, bins);
    while rest > 0 {
        if let Some(l) = left.find_mut(item_type) {
            *l = rest;
        }
        let Some(bin) = launch(packing, compat_sets, item_type, bins.opening, left) else { break };
        let Some(fit) = packing.room(compat_sets, bin, item_type) else {
            packing.close_empty();
            break;
        };
        let count = fit.count.min(rest);
        packing.put(bin, item_type, Fit { count, ..fit });
        bins.open.push(bin);
        rest -= count;
    }
    if let Some(l) = left.find_mut(item_type) {
        *l = rest;
    }
}

/// The least request of any item type for each resource.
fn smallest(problem: &PackingProblem) -> Vec<i64> {
    let mut least = vec![i64::MAX; problem.d];
    for item_type in problem.item_types.ids() {
        for (l, s) in least.iter_mut().zip(problem.size(item_type)) {
            *l = (*l).min(*s);
        }
    }
    least
}

/// Fills open bins, first to last; returns the remaining count.
fn fill(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    item_type: ItemTypeIx,
    count: u32,
    bins: &mut OpenBins,
) -> u32 {
    let OpenBins { open, smallest, .. } = bins;
    let mut rest = count;
    let mut full = false;
    for bin in open.iter() {
        packing.steps += 1;
        if rest == 0 {
            break;
        }
        if let Some(fit) = packing.room(compat_sets, *bin, item_type) {
            let count = fit.count.min(rest);
            packing.put(*bin, item_type, Fit { count, ..fit });
            rest -= count;
            full |= is_full(packing, compat_sets, *bin, smallest);
        }
    }
    if full {
        open.retain(|bin| !is_full(packing, compat_sets, *bin, smallest));
    }
    rest
}

/// True if no item type fits into the bin.
fn is_full(packing: &Packing<'_>, compat_sets: &CompatibilitySets, bin: BinIx, smallest: &[i64]) -> bool {
    let Some(it) = packing.bins.find(bin) else { return true };
    let single = !it.flexible || matches!(compat_sets.maximal(it.compat_set), [only] if *only == it.offer);
    single && packing.free(bin).iter().zip(smallest).any(|(f, s)| *s > 0 && f < s)
}

/// Opens a bin for `item_type`, if the limits allow one.
pub(crate) fn launch(
    packing: &mut Packing<'_>,
    compat_sets: &CompatibilitySets,
    item_type: ItemTypeIx,
    opening: Opening,
    left: &IndexVec<ItemTypeIx, u32>,
) -> Option<BinIx> {
    let problem = packing.problem;
    let options = problem.item_types.find(item_type)?.options.clone();
    let size = problem.size(item_type);
    let wanted = match opening {
        Opening::Largest => options.iter().find_map(|(variant, compat_set)| {
            let fitting =
                compat_sets.maximal(*compat_set).iter().find(|o| fits(size, problem.row(*variant, **o)) > 0);
            fitting.map(|offer| (*variant, *compat_set, *offer))
        }),
        Opening::Balanced => {
            let rest = remaining(problem, item_type, left);
            packing.steps += u64::try_from(compat_sets.ladder(options.first()?.1).len()).unwrap_or(0) / 4;
            let mut best: Option<((i128, VariantIx, OfferIx), CompatSetIx)> = None;
            for (variant, compat_set) in &options {
                for offer in compat_sets.ladder(*compat_set) {
                    let cost = problem.cost(*variant, *offer);
                    // The following offerings cost more, and at least one instance is paid.
                    if best.is_some_and(|((least, _, _), _)| i128::from(cost) > least) {
                        break;
                    }
                    let row = problem.row(*variant, *offer);
                    if fits(size, row) > 0 {
                        let rank = (divided(cost, row, &rest), *variant, *offer);
                        if best.is_none_or(|(least, _)| rank < least) {
                            best = Some((rank, *compat_set));
                        }
                    }
                }
            }
            best.map(|((_, variant, offer), compat_set)| (variant, compat_set, offer))
        }
    };
    let (variant, compat_set, offer) = wanted?;
    let flexible = opening == Opening::Largest;
    if let Some(bin) = packing.open(variant, compat_set, offer, flexible) {
        return Some(bin);
    }
    // A limit binds: open bins shrink to what they hold, and the rest goes to the cheapest offering that the
    // limit allows.
    packing.take_cheapest_offers(compat_sets);
    if let Some(bin) = packing.open(variant, compat_set, offer, flexible) {
        return Some(bin);
    }
    for (variant, compat_set) in &options {
        for offer in compat_sets.ladder(*compat_set) {
            packing.steps += 1;
            if fits(size, problem.row(*variant, *offer)) > 0
                && let Some(bin) = packing.open(*variant, *compat_set, *offer, true)
            {
                return Some(bin);
            }
        }
    }
    None
}

/// Sum of the remaining requests of the item types that may go where `item_type` may.
fn remaining(problem: &PackingProblem, item_type: ItemTypeIx, left: &IndexVec<ItemTypeIx, u32>) -> Vec<i64> {
    let mut sum = vec![0i64; problem.d];
    let Some(options) = problem.item_types.find(item_type).map(|k| &k.options) else { return sum };
    for (other, count) in left.enumerate().filter(|(_, n)| **n > 0) {
        if problem.item_types.find(other).is_some_and(|k| k.options == *options) {
            for (s, size) in sum.iter_mut().zip(problem.size(other)) {
                *s = s.saturating_add(size.saturating_mul(i64::from(*count)));
            }
        }
    }
    sum
}

/// Cost of `rest` on instances of `row` at `cost` each, in the linear relaxation.
fn divided(cost: i64, row: &[i64], rest: &[i64]) -> i128 {
    let one = rest.iter().zip(row).filter(|(r, _)| **r > 0).map(|(r, row)| {
        if *row <= 0 { i128::MAX } else { i128::from(cost).saturating_mul(i128::from(*r)) / i128::from(*row) }
    });
    // At least one instance.
    one.max().unwrap_or(0).max(i128::from(cost))
}
