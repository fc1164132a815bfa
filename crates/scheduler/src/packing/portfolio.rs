//! An anytime portfolio of packings; the cheapest wins.
//!
//! Plain first-fit-decreasing always runs first and to its end, so that no plan is ever dearer. The others are
//! counted in steps, and end when the steps are spent, when the bound is met, or when the caller cancels.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::packing::{
    bins::{Bin, Packing},
    column_generation,
    compatibility::CompatibilitySets,
    first_fit_decreasing, greedy, neighbourhood_search,
    problem::{Limit, PackingProblem},
};

/// Steps per pod and item type at effort 1, beside a fixed part.
const STEPS_EACH: u64 = 400;
const STEPS_AT_LEAST: u64 = 3_000;
/// Column generation keeps a dense inverse with one row per item type.
const MOST_KINDS: u64 = 160;
const MOST_KINDS_EVER: u64 = 1_000;

/// The best packing found, and its bound.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) bins: Vec<Bin>,
    /// Remainder of the limits.
    pub(crate) limits: Vec<Limit>,
    /// No packing of the same pods costs less.
    pub(crate) bound: i64,
    pub(crate) steps: u64,
    pub(crate) cut_short: bool,
}

/// Unplaced pods by priority, then cost: less is better.
type Rank = (Vec<u64>, i64);

struct Best<'a> {
    packing: Packing<'a>,
    rank: Rank,
}

fn rank(problem: &PackingProblem, packing: &Packing<'_>) -> Rank {
    let mut left: BTreeMap<Reverse<i32>, u64> = BTreeMap::new();
    for (item_type, placed) in problem.item_types.iter().zip(packing.placed()) {
        *left.entry(Reverse(item_type.priority)).or_default() +=
            u64::from(item_type.count.saturating_sub(placed));
    }
    (left.into_values().collect(), packing.cost())
}

impl<'a> Best<'a> {
    fn offer(&mut self, problem: &PackingProblem, other: Packing<'a>) {
        let rank = rank(problem, &other);
        if rank < self.rank {
            self.packing = other;
            self.rank = rank;
        }
    }
}

/// Packs as cheaply as `effort` allows, or until every packing is proven to cost at least `cost_cutoff`.
pub(crate) fn pack(
    problem: &PackingProblem,
    compat_sets: &mut CompatibilitySets,
    effort: u32,
    cost_cutoff: Option<i64>,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Outcome {
    let bin_types = column_generation::bin_types(problem, compat_sets);
    let packing = first_fit_decreasing::pack(problem, compat_sets, first_fit_decreasing::Opening::Largest);
    let mut steps = packing.steps;
    let first = rank(problem, &packing);
    let mut best = Best { packing, rank: first };
    let pods: u64 = problem.item_types.iter().map(|k| u64::from(k.count)).sum();
    let item_types = u64::try_from(problem.item_types.len()).unwrap_or(u64::MAX);
    let mut bound = 0;
    if item_types > 0 {
        let complete = best.rank.0.iter().all(|n| *n == 0);
        let (dual_prices, by_resources) =
            column_generation::resource_prices(problem, &bin_types, &best.packing.placed());
        bound = by_resources;
        if effort > 0 {
            let each = STEPS_EACH.saturating_mul(item_types.saturating_add(pods));
            let budget = u64::from(effort).saturating_mul(STEPS_AT_LEAST.saturating_add(each));
            let room = Budget { total: budget, effort, complete, cost_cutoff };
            let search = column_generation::SearchContext { problem, bin_types: &bin_types, cancel };
            improve(search, compat_sets, dual_prices, room, &mut best, &mut bound, &mut steps);
        }
        bound = in_prices(problem, &bin_types, bound);
    }
    Outcome {
        bins: best.packing.bins,
        limits: best.packing.limits,
        bound,
        steps,
        cut_short: effort > 0 && cancel(),
    }
}

/// Budget of the search, and whether all pods found a place.
#[derive(Clone, Copy)]
struct Budget {
    total: u64,
    effort: u32,
    complete: bool,
    cost_cutoff: Option<i64>,
}

fn improve<'a>(
    search: column_generation::SearchContext<'a>,
    compat_sets: &mut CompatibilitySets,
    mut dual_prices: Vec<f64>,
    budget: Budget,
    best: &mut Best<'a>,
    bound: &mut i64,
    steps: &mut u64,
) {
    let column_generation::SearchContext { problem, bin_types, cancel } = search;
    let useless =
        |bound: i64| budget.cost_cutoff.is_some_and(|from| in_prices(problem, bin_types, bound) >= from);
    if cancel() || useless(*bound) {
        return;
    }
    let other = first_fit_decreasing::pack(problem, compat_sets, first_fit_decreasing::Opening::Balanced);
    *steps += other.steps;
    best.offer(problem, other);
    let item_types = u64::try_from(problem.item_types.len()).unwrap_or(u64::MAX);
    let most = MOST_KINDS.saturating_mul(u64::from(budget.effort)).min(MOST_KINDS_EVER);
    let met = |best: &Best<'_>, bound: i64| best.rank.1 <= bound || useless(bound) || cancel();
    if !budget.complete || met(best, *bound) {
        return;
    }
    let end = steps.saturating_add(budget.total);
    let mut columns = Vec::new();
    if item_types <= most {
        let demand: Vec<u32> = problem.item_types.iter().map(|k| k.count).collect();
        let seed = column_generation::of_bins(bin_types, &best.packing.bins);
        let generated = column_generation::generate(
            search,
            &demand,
            &seed,
            &dual_prices,
            column_generation::KnapsackEffort::Full,
            budget.total / 2,
        );
        *steps += generated.steps;
        *bound = (*bound).max(generated.bound);
        dual_prices.clone_from(&generated.dual_prices);
        if *steps < end && !met(best, *bound) {
            let left = end - *steps;
            if let Some(other) = greedy::sequential(search, compat_sets, &dual_prices, 60, left / 2) {
                *steps += other.steps;
                best.offer(problem, other);
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
            let dived = greedy::diving_heuristic(
                search,
                compat_sets,
                &generated,
                demand.clone(),
                &mut chance,
                left / 2,
            );
            if let Some(other) = dived {
                *steps += other.steps;
                best.offer(problem, other);
            } else {
                *steps += left / 2;
            }
        }
        columns = generated.columns;
    }
    if neighbourhood_search::is_free(problem) && item_types <= most && *steps < end && !met(best, *bound) {
        let mut bins = best.packing.bins.clone();
        *steps += neighbourhood_search::improve(
            search,
            compat_sets,
            &dual_prices,
            &columns,
            &mut bins,
            end - *steps,
        );
        let mut other = Packing::new(problem);
        other.take_over(bins);
        best.offer(problem, other);
    }
}

/// Turns a bound of the search's cost into a bound of prices: surcharges are subtracted at the rate at which
/// they weigh most.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounded down with a margin"
)]
fn in_prices(problem: &PackingProblem, bin_types: &[column_generation::BinType], bound: i64) -> i64 {
    let ratio = bin_types.iter().filter_map(|s| {
        let ctx = problem.variants.get(s.variant as usize)?;
        let price = ctx.catalog.offers.get(s.offer as usize)?.price?;
        let cost = problem.cost(s.variant, s.offer);
        (cost > price).then(|| price as f64 / cost as f64)
    });
    let least = ratio.fold(1.0, f64::min);
    if least < 1.0 { (bound as f64 * least * (1.0 - 1e-9)).floor() as i64 } else { bound }
}
