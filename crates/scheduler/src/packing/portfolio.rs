//! An anytime portfolio of packings; the cheapest wins.
//!
//! Plain first-fit-decreasing always runs first and to its end, so that no plan is ever dearer. The others are
//! counted in steps, and end when the steps are spent, when the bound is met, or when the caller cancels.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::ids::{BinIx, BinTypeIx, ItemTypeIx, LimitIx};
use crate::index_vec::IndexVec;
use crate::packing::{
    bin_types::{self, BinType},
    bins::{Bin, Packing},
    column_generation::{self, Generated, KnapsackEffort, SearchContext},
    compatibility::CompatibilitySets,
    first_fit_decreasing::{self, Opening},
    greedy,
    limit_rows::{DualPrices, LimitRows},
    neighbourhood_search,
    problem::{Limit, PackingProblem},
};

/// Steps per pod and item type at effort 1, beside a fixed part.
const STEPS_EACH: u64 = 800;
const STEPS_AT_LEAST: u64 = 3_000;
/// Column generation keeps a dense inverse with one row per item type.
const MOST_KINDS: u64 = 160;
const MOST_KINDS_EVER: u64 = 1_000;
/// Where limits leave pods out, the searches begin anew this often with those that found room.
const ROUNDS: u32 = 4;

/// The best packing found, and its bound.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) bins: IndexVec<BinIx, Bin>,
    /// Remainder of the limits.
    pub(crate) limits: IndexVec<LimitIx, Limit>,
    /// No packing of the same pods within [`PackingProblem::whole_limits`] costs less.
    pub(crate) bound: i64,
    /// The bound leaves out limits that a packing may reach.
    pub(crate) relaxes_limits: bool,
    pub(crate) steps: u64,
    pub(crate) cut_short: bool,
}

/// How good a packing is. The least is the best: fields are compared from first to last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Unplaced pods by priority, highest first.
    unplaced: Vec<u64>,
    cost: i64,
}

impl Rank {
    /// True if every pod is placed.
    fn is_complete(&self) -> bool {
        self.unplaced.iter().all(|n| *n == 0)
    }
}

struct Best<'a> {
    packing: Packing<'a>,
    rank: Rank,
}

fn rank(problem: &PackingProblem, packing: &Packing<'_>) -> Rank {
    let mut left: BTreeMap<Reverse<i64>, u64> = BTreeMap::new();
    for (item_type, placed) in problem.item_types.iter().zip(packing.placed()) {
        *left.entry(Reverse(item_type.priority)).or_default() +=
            u64::from(item_type.count.saturating_sub(placed));
    }
    Rank { unplaced: left.into_values().collect(), cost: packing.cost() }
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

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Multiple of the steps per pod and item type. 0 is plain first-fit-decreasing.
    pub(crate) multiple: u32,
    /// Steps beside them, while they find something cheaper.
    pub(crate) extra_steps: u64,
}

/// Packs as cheaply as `effort` allows, or until every packing is proven to cost at least `cost_cutoff`.
pub(crate) fn pack(
    problem: &PackingProblem,
    compat_sets: &mut CompatibilitySets,
    effort: Effort,
    cost_cutoff: Option<i64>,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Outcome {
    let packing = first_fit_decreasing::pack(problem, compat_sets, Opening::Largest);
    let steps = packing.steps;
    let first = rank(problem, &packing);
    let mut limit_rows = LimitRows::default();
    let mut bin_types = bin_types::bin_types(problem, compat_sets, &limit_rows);
    if effort.multiple > 0 {
        // Another packing may place pods that this one leaves out, for more than this one costs.
        let most = if first.is_complete() { first.cost } else { i64::MAX };
        let considered: Vec<_> = bin_types.iter().map(|it| (it.variant, it.offer)).collect();
        limit_rows = LimitRows::new(problem, &considered, most);
    }
    if !limit_rows.is_empty() {
        bin_types = bin_types::bin_types(problem, compat_sets, &limit_rows);
    }
    let best = Best { packing, rank: first };
    let pods: u64 = problem.item_types.iter().map(|k| u64::from(k.count)).sum();
    let item_types = u64::try_from(problem.item_types.len()).unwrap_or(u64::MAX);
    let each = STEPS_EACH.saturating_mul(item_types.saturating_add(pods));
    let budget = Budget {
        total: u64::from(effort.multiple).saturating_mul(STEPS_AT_LEAST.saturating_add(each)),
        extra: effort.extra_steps,
        item_types: MOST_KINDS.saturating_mul(u64::from(effort.multiple)).min(MOST_KINDS_EVER),
        cost_cutoff,
    };
    let context = SearchContext {
        problem,
        bin_types: &bin_types,
        limit_rows: &limit_rows,
        limits: &problem.limits,
        cancel,
    };
    let mut search = Search {
        context,
        compat_sets,
        budget,
        best,
        bound: 0,
        knows_limits: effort.multiple > 0 && limit_rows.is_none_in_reach(),
        steps,
    };
    if item_types > 0 {
        let placed = search.best.packing.placed();
        let (dual_prices, by_resources) = column_generation::resource_prices(problem, &bin_types, &placed);
        search.bound = by_resources;
        if effort.multiple > 0 {
            search.improve(dual_prices);
        }
        search.bound = in_prices(problem, &bin_types, search.bound);
    }
    let Search { best, bound, knows_limits, steps, .. } = search;
    Outcome {
        bins: best.packing.bins,
        limits: best.packing.limits,
        bound,
        relaxes_limits: !knows_limits,
        steps,
        cut_short: effort.multiple > 0 && cancel(),
    }
}

/// The limits of a search.
#[derive(Clone, Copy)]
struct Budget {
    /// Steps.
    total: u64,
    /// Steps beside them, while they find something cheaper.
    extra: u64,
    /// Item types of a problem that columns are generated for, at most.
    item_types: u64,
    cost_cutoff: Option<i64>,
}

/// State of the search.
struct Search<'a, 's> {
    context: SearchContext<'a>,
    compat_sets: &'s mut CompatibilitySets,
    budget: Budget,
    best: Best<'a>,
    bound: i64,
    /// The bound is that of a relaxation that knows every limit that may be reached.
    knows_limits: bool,
    steps: u64,
}

impl<'a> Search<'a, '_> {
    /// True if every packing costs too much to be of use.
    fn is_useless(&self) -> bool {
        let SearchContext { problem, bin_types, .. } = self.context;
        self.budget.cost_cutoff.is_some_and(|from| in_prices(problem, bin_types, self.bound) >= from)
    }

    /// True if nothing is to be gained any more.
    fn is_done(&self) -> bool {
        self.best.rank.cost <= self.bound || self.is_useless() || (self.context.cancel)()
    }

    /// Takes `other` if it is better, with the pods for which it has room beside those that were searched for. `None`: its search spent
    /// `most` steps in vain.
    fn offer(&mut self, other: Option<Packing<'a>>, most: u64) {
        let Some(mut other) = other else {
            self.steps += most;
            return;
        };
        let items = self.context.problem.item_types.iter().zip(other.placed());
        let mut left: IndexVec<ItemTypeIx, u32> =
            items.map(|(item_type, placed)| item_type.count.saturating_sub(placed)).collect();
        if left.iter().any(|n| *n > 0) {
            first_fit_decreasing::finish(&mut other, self.compat_sets, &mut left);
            other.take_cheapest_offers(self.compat_sets);
        }
        self.steps += other.steps;
        self.best.offer(self.context.problem, other);
    }

    /// Searches for a cheaper packing.
    ///
    /// Where limits leave pods out, those that are placed are packed anew: which pods these are the first packing decides, and for
    /// less they leave room for more. A search that wants nothing above a cost has no use for that: it wants every pod placed.
    fn improve(&mut self, mut dual_prices: DualPrices) {
        let SearchContext { problem, bin_types, cancel, .. } = self.context;
        if cancel() || self.is_useless() {
            return;
        }
        let mut placed = self.best.packing.placed();
        let other = first_fit_decreasing::pack(problem, self.compat_sets, Opening::Balanced);
        self.offer(Some(other), 0);
        let end = self.steps.saturating_add(self.budget.total);
        for round in 0..=ROUNDS {
            let now = self.best.packing.placed();
            if now != placed {
                // The bound is that of other pods.
                placed = now;
                (dual_prices, self.bound) = column_generation::resource_prices(problem, bin_types, &placed);
                self.knows_limits = self.context.limit_rows.is_none_in_reach();
            }
            let is_useless = !self.best.rank.is_complete() && self.budget.cost_cutoff.is_some();
            if is_useless || self.is_done() || self.has_too_many_kinds() {
                return;
            }
            let generated = self.generate(&dual_prices, &placed);
            dual_prices.clone_from(&generated.dual_prices);
            if round == ROUNDS {
                return;
            }
            self.round(&generated, &placed, end);
            if self.best.packing.placed() == placed {
                self.rearrange(&generated, end);
            }
            if self.best.packing.placed() == placed {
                return;
            }
        }
    }

    /// Packs the pods of a few instances of the best packing again, and again those of others.
    fn rearrange(&mut self, generated: &Generated, end: u64) {
        let problem = self.context.problem;
        let budget = neighbourhood_search::Budget {
            steps: end.saturating_sub(self.steps),
            extra: self.budget.extra,
            all: self.budget.total,
            bound: self.bound,
        };
        if neighbourhood_search::is_free(problem) && budget.steps + budget.extra > 0 && !self.is_done() {
            let mut bins = self.best.packing.bins.clone();
            self.steps += neighbourhood_search::improve(
                self.context,
                self.compat_sets,
                &generated.dual_prices,
                &generated.columns,
                &mut bins,
                budget,
            );
            let mut other = Packing::new(problem);
            other.take_over(bins);
            self.offer(Some(other), 0);
        }
    }

    /// True if the linear relaxation has more rows than can be solved.
    fn has_too_many_kinds(&self) -> bool {
        let kinds = u64::try_from(self.context.problem.item_types.len()).unwrap_or(u64::MAX);
        kinds > self.budget.item_types
    }

    /// Solves the linear relaxation of `demand`, which may raise the bound.
    fn generate(&mut self, dual_prices: &DualPrices, demand: &IndexVec<ItemTypeIx, u32>) -> Generated {
        // Another plan may leave more of the limits to these pods than this one's heavier pools did.
        let context = SearchContext { limits: &self.context.problem.whole_limits, ..self.context };
        let bin_types = context.bin_types;
        let seed = column_generation::of_bins(bin_types, &self.best.packing.bins);
        let (effort, most) = (KnapsackEffort::Full, self.budget.total / 2);
        let generated = column_generation::generate(context, demand, &seed, dual_prices, effort, most);
        self.steps += generated.steps;
        self.bound = self.bound.max(generated.bound);
        self.knows_limits = !self.context.limit_rows.has_too_many();
        generated
    }

    /// Rounds the fractional solution of `demand` in several ways.
    fn round(&mut self, generated: &Generated, demand: &IndexVec<ItemTypeIx, u32>, end: u64) {
        if self.steps < end && !self.is_done() {
            let most = (end - self.steps) / 2;
            let dual_prices = &generated.dual_prices;
            let other =
                greedy::sequential(self.context, self.compat_sets, dual_prices, demand.clone(), 60, most);
            self.offer(other, most);
        }
        for share in [0.9, 0.6] {
            if self.steps >= end || self.is_done() {
                break;
            }
            let most = (end - self.steps) / 2;
            let mut chance = greedy::Chance::Share(share);
            let other = greedy::diving_heuristic(
                self.context,
                self.compat_sets,
                generated,
                demand.clone(),
                &mut chance,
                most,
            );
            self.offer(other, most);
        }
    }
}

/// Turns a bound of the relaxation's cost into a bound of prices: surcharges are subtracted at the rate at which
/// they weigh most, and what free offerings are taken at.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounded down with a margin"
)]
fn in_prices(problem: &PackingProblem, bin_types: &IndexVec<BinTypeIx, BinType>, bound: i64) -> i64 {
    let ratio = bin_types.iter().filter_map(|s| {
        let ctx = problem.variants.find(s.variant)?;
        let price = ctx.catalog.offers.find(s.offer)?.price?;
        let cost = problem.cost(s.variant, s.offer);
        (cost > price).then(|| price as f64 / cost as f64)
    });
    let least = ratio.fold(1.0, f64::min);
    let bound = if least < 1.0 { (bound as f64 * least * (1.0 - 1e-9)).floor() as i64 } else { bound };
    // The relaxation takes a free offering at one micro-dollar, and no plan has more instances than pods.
    let is_free = |bin_type: &BinType| problem.cost(bin_type.variant, bin_type.offer) == 0;
    let pods: i64 = problem.item_types.iter().map(|item_type| i64::from(item_type.count)).sum();
    if bin_types.iter().any(is_free) { (bound - pods).max(0) } else { bound }
}
