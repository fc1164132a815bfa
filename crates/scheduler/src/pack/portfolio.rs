//! Several packings, of which the cheapest wins.
//!
//! Plain first-fit-decreasing always runs first and to its end, so that no plan is ever dearer. What follows is
//! counted in steps, and ends when they are spent, when the bound is met, or when the caller says so.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Bin, Limit, Masks, Packing, Yard, columns, ffd, greedy, repair};

/// Steps per pod and kind at effort 1, beside a fixed part.
const STEPS_EACH: u64 = 400;
const STEPS_AT_LEAST: u64 = 3_000;
/// Column generation keeps a dense inverse of as many rows as there are kinds.
const MOST_KINDS: u64 = 160;
const MOST_KINDS_EVER: u64 = 1_000;

/// The best packing found, and what is known about it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) bins: Vec<Bin>,
    /// What is left of the limits.
    pub(crate) limits: Vec<Limit>,
    /// No packing of the same pods costs less.
    pub(crate) bound: i64,
    pub(crate) steps: u64,
    pub(crate) cut_short: bool,
}

/// Pods left by priority, then cost: less is better.
type Rank = (Vec<u64>, i64);

struct Best<'a> {
    packing: Packing<'a>,
    rank: Rank,
}

fn rank(yard: &Yard, packing: &Packing<'_>) -> Rank {
    let mut left: BTreeMap<Reverse<i32>, u64> = BTreeMap::new();
    for (kind, placed) in yard.kinds.iter().zip(packing.placed()) {
        *left.entry(Reverse(kind.priority)).or_default() += u64::from(kind.count.saturating_sub(placed));
    }
    (left.into_values().collect(), packing.cost())
}

impl<'a> Best<'a> {
    fn offer(&mut self, yard: &Yard, other: Packing<'a>) {
        let rank = rank(yard, &other);
        if rank < self.rank {
            self.packing = other;
            self.rank = rank;
        }
    }
}

/// Packs as cheaply as `effort` allows, or until it is certain that nothing costs less than `useless_from`.
pub(crate) fn pack(
    yard: &Yard,
    masks: &mut Masks,
    effort: u32,
    useless_from: Option<i64>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Outcome {
    let sites = columns::sites(yard, masks);
    let packing = ffd::pack(yard, masks, ffd::Opening::Largest);
    let mut steps = packing.steps;
    let first = rank(yard, &packing);
    let mut best = Best { packing, rank: first };
    let pods: u64 = yard.kinds.iter().map(|k| u64::from(k.count)).sum();
    let kinds = u64::try_from(yard.kinds.len()).unwrap_or(u64::MAX);
    let mut bound = 0;
    if kinds > 0 {
        let complete = best.rank.0.iter().all(|n| *n == 0);
        let (worth, by_resources) = columns::resource_worth(yard, &sites, &best.packing.placed());
        bound = by_resources;
        if effort > 0 {
            let each = STEPS_EACH.saturating_mul(kinds.saturating_add(pods));
            let budget = u64::from(effort).saturating_mul(STEPS_AT_LEAST.saturating_add(each));
            let room = Budget { total: budget, effort, complete, useless_from };
            let field = columns::Field { yard, sites: &sites, stop };
            improve(field, masks, worth, room, &mut best, &mut bound, &mut steps);
        }
        bound = in_prices(yard, &sites, bound);
    }
    Outcome {
        bins: best.packing.bins,
        limits: best.packing.limits,
        bound,
        steps,
        cut_short: effort > 0 && stop(),
    }
}

/// What the search may spend, and whether all pods found a place.
#[derive(Clone, Copy)]
struct Budget {
    total: u64,
    effort: u32,
    complete: bool,
    useless_from: Option<i64>,
}

fn improve<'a>(
    field: columns::Field<'a>,
    masks: &mut Masks,
    mut worth: Vec<f64>,
    budget: Budget,
    best: &mut Best<'a>,
    bound: &mut i64,
    steps: &mut u64,
) {
    let columns::Field { yard, sites, stop } = field;
    let useless = |bound: i64| budget.useless_from.is_some_and(|from| in_prices(yard, sites, bound) >= from);
    if stop() || useless(*bound) {
        return;
    }
    let other = ffd::pack(yard, masks, ffd::Opening::Balanced);
    *steps += other.steps;
    best.offer(yard, other);
    let kinds = u64::try_from(yard.kinds.len()).unwrap_or(u64::MAX);
    let most = MOST_KINDS.saturating_mul(u64::from(budget.effort)).min(MOST_KINDS_EVER);
    let met = |best: &Best<'_>, bound: i64| best.rank.1 <= bound || useless(bound) || stop();
    if !budget.complete || met(best, *bound) {
        return;
    }
    let end = steps.saturating_add(budget.total);
    let mut columns = Vec::new();
    if kinds <= most {
        let demand: Vec<u32> = yard.kinds.iter().map(|k| k.count).collect();
        let seed = columns::of_bins(sites, &best.packing.bins);
        let generated =
            columns::generate(field, &demand, &seed, &worth, columns::Care::Full, budget.total / 2);
        *steps += generated.steps;
        *bound = (*bound).max(generated.bound);
        worth.clone_from(&generated.worth);
        if *steps < end && !met(best, *bound) {
            let left = end - *steps;
            if let Some(other) = greedy::sequential(field, masks, &worth, 60, left / 2) {
                *steps += other.steps;
                best.offer(yard, other);
            } else {
                *steps += left / 2;
            }
        }
        for share in [0.9, 0.6] {
            if *steps >= end || met(best, *bound) {
                break;
            }
            let left = end - *steps;
            let mut chance = greedy::Chance::Share(share);
            let dived = greedy::dive(field, masks, &generated, demand.clone(), &mut chance, left / 2);
            if let Some(other) = dived {
                *steps += other.steps;
                best.offer(yard, other);
            } else {
                *steps += left / 2;
            }
        }
        columns = generated.columns;
    }
    if repair::is_free(yard) && kinds <= most && *steps < end && !met(best, *bound) {
        let mut bins = best.packing.bins.clone();
        *steps += repair::improve(field, masks, &worth, &columns, &mut bins, end - *steps);
        let mut other = Packing::new(yard);
        other.take_over(bins);
        best.offer(yard, other);
    }
}

/// The bound of what the search pays, as one of prices: surcharges taken off at the rate at which they weigh most.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounded down with a margin"
)]
fn in_prices(yard: &Yard, sites: &[columns::Site], bound: i64) -> i64 {
    let ratio = sites.iter().filter_map(|s| {
        let ctx = yard.variants.get(s.variant as usize)?;
        let price = ctx.catalog.offers.get(s.offer as usize)?.price?;
        let cost = yard.cost(s.variant, s.offer);
        (cost > price).then(|| price as f64 / cost as f64)
    });
    let least = ratio.fold(1.0, f64::min);
    if least < 1.0 { (bound as f64 * least * (1.0 - 1e-9)).floor() as i64 } else { bound }
}
