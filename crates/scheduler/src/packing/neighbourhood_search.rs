//! Neighbourhood search: removes a few instances, packs their pods again, and keeps the result if it is cheaper.

use crate::ids::{BinIx, BinTypeIx, ColumnIx, ItemTypeIx, LimitIx};
use crate::index_vec::IndexVec;
use crate::packing::{
    bin_types::BinType,
    bins::Bin,
    column_generation::{self, KnapsackEffort, SearchContext},
    compatibility::CompatibilitySets,
    greedy::{self, Chance, Guide},
    limit_rows::DualPrices,
    limits,
    problem::{Limit, PackingProblem, Pattern},
    random::Dice,
    simplex::Column,
};

/// True if bins may be rearranged freely within the limits: no rules between pods of one host.
pub(crate) fn is_free(problem: &PackingProblem) -> bool {
    problem.item_types.iter().all(|k| k.rules.is_none())
        && problem.variants.iter().all(|v| v.ports.is_empty() && v.min_values.is_empty())
}

/// The instances that are packed again, with their pods and their cost.
struct Neighbourhood {
    chosen: Vec<BinIx>,
    demand: IndexVec<ItemTypeIx, u32>,
    cost: i64,
}

/// The search, with what steers it.
struct Repair<'a> {
    search: SearchContext<'a>,
    problem: &'a PackingProblem,
    bin_types: &'a IndexVec<BinTypeIx, BinType>,
    dual_prices: &'a DualPrices,
    pool: Vec<(BinTypeIx, Pattern)>,
    /// What the present instances leave of the limits.
    limits: IndexVec<LimitIx, Limit>,
    dice: Dice,
    steps: u64,
}

/// Gain per step of one way to repack.
#[derive(Clone, Copy, Default)]
struct GainRate {
    gained: f64,
    steps: f64,
}

impl GainRate {
    /// Decays, so that early gains don't decide for ever.
    fn note(&mut self, gained: i64, steps: u64) {
        #[expect(clippy::cast_precision_loss, reason = "steers the search")]
        let (gained, steps) = (gained.max(0) as f64, steps as f64);
        self.gained = self.gained * 0.9 + gained;
        self.steps = self.steps * 0.9 + steps;
    }

    fn rate(&self) -> f64 {
        if self.steps > 0.0 { self.gained / self.steps } else { f64::INFINITY }
    }
}

/// Steps that the relaxation of one neighbourhood may take.
const STEPS_OF_RELAXATION: u64 = 60_000;

/// Steps without a cheaper packing, as a multiple of those that led to the last one, after which extra steps end: the next
/// one is found after several times as many, if there is one.
const PATIENCE: u64 = 6;

/// A packing within this part of its bound is as good as the best: the bound itself is rounded down by about half of it.
const NOTHING_LEFT: i64 = 5_000;

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) steps: u64,
    /// Steps beside them, while they find something cheaper.
    pub(crate) extra: u64,
    /// The steps of the plan without them.
    pub(crate) all: u64,
    /// No packing costs less.
    pub(crate) bound: i64,
}

impl Budget {
    /// True if the search goes on after `steps`, of which `fruitful` led to the cheapest packing.
    fn allows(self, steps: u64, fruitful: u64) -> bool {
        let patience = self.all.max(fruitful).saturating_mul(PATIENCE);
        steps < self.steps.max(patience.min(self.steps.saturating_add(self.extra)))
    }
}

/// Improves `bins` within `budget`; returns the steps taken. `columns` are patterns known to be good.
pub(crate) fn improve(
    search: SearchContext<'_>,
    compat_sets: &mut CompatibilitySets,
    dual_prices: &DualPrices,
    columns: &IndexVec<ColumnIx, Column<ItemTypeIx>>,
    bins: &mut IndexVec<BinIx, Bin>,
    budget: Budget,
) -> u64 {
    let SearchContext { problem, cancel, .. } = search;
    let known = |c: &Column<ItemTypeIx>| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of copies")]
        let pattern = c.entries.iter().map(|(k, n)| (*k, (*n + 0.5) as u32)).collect();
        Some((c.bin_type?, pattern))
    };
    let pool = columns.iter().filter_map(known).collect();
    let mut left = problem.limits.clone();
    for bin in bins.iter() {
        limits::spend(problem, &mut left, bin.variant, bin.offer);
    }
    let mut repair = Repair {
        search,
        problem,
        bin_types: search.bin_types,
        dual_prices,
        pool,
        limits: left,
        dice: Dice::new(0x9E37_79B9_7F4A_7C15),
        steps: 0,
    };
    let (mut greedily, mut anew) = (GainRate::default(), GainRate::default());
    let cost = |bins: &IndexVec<BinIx, Bin>| {
        bins.iter().fold(0i64, |sum, b| sum.saturating_add(problem.cost(b.variant, b.offer)))
    };
    let mut now = cost(bins);
    let mut fruitful = 0;
    let least = budget.bound.saturating_add(budget.bound / NOTHING_LEFT);
    while budget.allows(repair.steps, fruitful) && !bins.is_empty() && now > least && !cancel() {
        let before = repair.steps;
        // Mostly the way with the higher rate; the relaxation costs more steps and runs when the budget
        // allows.
        let likely = anew.rate() > greedily.rate();
        let relax =
            budget.steps + budget.extra > 4 * STEPS_OF_RELAXATION && likely != (repair.dice.below(5) == 0);
        if relax {
            repair.relax(compat_sets, bins);
        } else {
            for _ in 0..16 {
                if budget.allows(repair.steps, fruitful) {
                    repair.greedily(compat_sets, bins);
                }
            }
        }
        let after = cost(bins);
        let by = if relax { &mut anew } else { &mut greedily };
        by.note(now.saturating_sub(after), repair.steps - before);
        if after < now {
            fruitful = repair.steps;
        }
        now = after;
    }
    repair.steps
}

#[expect(clippy::cast_precision_loss, reason = "steers the search")]
impl Repair<'_> {
    /// The most wasteful of a few sampled instances, and some others.
    fn choose(&mut self, bins: &IndexVec<BinIx, Bin>, more: usize) -> Neighbourhood {
        let cost = |b: &Bin| self.problem.cost(b.variant, b.offer);
        let waste = |b: &Bin| {
            let value: f64 = b.pattern.iter().map(|(k, n)| self.dual_prices.items[*k] * f64::from(*n)).sum();
            let uses = self.search.limit_rows.uses(self.problem, b.variant, b.offer);
            cost(b) as f64 + self.dual_prices.charge(&uses) - value
        };
        let candidates: Vec<BinIx> = (0..4).map(|_| BinIx::from(self.dice.below(bins.len()))).collect();
        let worst = candidates.into_iter().max_by(|a, b| waste(&bins[*a]).total_cmp(&waste(&bins[*b])));
        let mut chosen: Vec<BinIx> = worst.into_iter().collect();
        for _ in 0..more {
            let other = BinIx::from(self.dice.below(bins.len()));
            if !chosen.contains(&other) {
                chosen.push(other);
            }
        }
        let mut neighbourhood =
            Neighbourhood { chosen, demand: IndexVec::filled(0u32, self.problem.item_types.len()), cost: 0 };
        for bin in neighbourhood.chosen.iter().map(|bin| &bins[*bin]) {
            neighbourhood.cost = neighbourhood.cost.saturating_add(cost(bin));
            for (item_type, n) in &bin.pattern {
                neighbourhood.demand[*item_type] += n;
            }
        }
        neighbourhood
    }

    /// Exchanges the instances `chosen` for others, if the limits allow that.
    fn exchange(&mut self, bins: &mut IndexVec<BinIx, Bin>, mut chosen: Vec<BinIx>, new: Vec<Bin>) {
        let problem = self.problem;
        for bin in chosen.iter().map(|at| &bins[*at]) {
            limits::give(problem, &mut self.limits, bin.variant, bin.offer);
        }
        let taken =
            new.iter().take_while(|b| limits::take(problem, &mut self.limits, b.variant, b.offer)).count();
        if taken < new.len() {
            for bin in new.iter().take(taken) {
                limits::give(problem, &mut self.limits, bin.variant, bin.offer);
            }
            for bin in chosen.iter().map(|at| &bins[*at]) {
                limits::spend(problem, &mut self.limits, bin.variant, bin.offer);
            }
            return;
        }
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        for bin in chosen {
            bins.swap_remove(bin);
        }
        bins.extend(new);
    }

    /// Repacks a few instances by best value density.
    fn greedily(&mut self, compat_sets: &mut CompatibilitySets, bins: &mut IndexVec<BinIx, Bin>) {
        self.steps += 50;
        let more = 1 + self.dice.below(5);
        let mut neighbourhood = self.choose(bins, more);
        // Small and large perturbations, quick and exact patterns: one finds what another misses.
        let shake = [0.03, 0.1, 0.3].get(self.dice.below(3)).copied().unwrap_or(0.1);
        let nodes = if self.dice.below(3) == 0 { 120 } else { 0 };
        let DualPrices { items, limits } = self.dual_prices;
        let items = items.iter().map(|w| w * (1.0 - shake + 2.0 * shake * self.dice.fraction())).collect();
        let shaken = DualPrices { items, limits: limits.clone() };
        // Equal cost is accepted: it leads to another neighbourhood.
        let ceiling = neighbourhood.cost.saturating_add(1);
        // An instance dearer than all of them together can't help; a sample of the rest keeps each try short
        // and different.
        let some: IndexVec<BinTypeIx, BinType> = self
            .bin_types
            .iter()
            .filter(|s| {
                self.problem.cost(s.variant, s.offer) <= neighbourhood.cost && self.dice.next() & 3 != 0
            })
            .cloned()
            .collect();
        let guide = Guide { problem: self.problem, bin_types: &some, dual_prices: &shaken, nodes };
        let found = greedy::repack(guide, compat_sets, &mut neighbourhood.demand, ceiling, &mut self.steps);
        if let Some(new) = found
            && neighbourhood.demand.iter().all(|n| *n == 0)
        {
            self.exchange(bins, neighbourhood.chosen, new);
        }
    }

    /// Repacks some more instances by a relaxation of their own.
    fn relax(&mut self, compat_sets: &mut CompatibilitySets, bins: &mut IndexVec<BinIx, Bin>) {
        let more = 2 + self.dice.below(10);
        let neighbourhood = self.choose(bins, more);
        let mut seed: Vec<(f64, BinTypeIx, Pattern)> = Vec::new();
        for (number, pattern) in &self.pool {
            let Some(bin_type) = self.bin_types.find(*number) else { continue };
            let cut: Pattern = pattern
                .iter()
                .map(|(k, n)| (*k, (*n).min(neighbourhood.demand[*k])))
                .filter(|(_, n)| *n > 0)
                .collect();
            let value: f64 = cut.iter().map(|(k, n)| self.dual_prices.items[*k] * f64::from(*n)).sum();
            let price = self.problem.cost(bin_type.variant, bin_type.offer).max(1) as f64;
            let cost = price + self.dual_prices.charge(&bin_type.uses);
            if value > 0.8 * cost {
                seed.push((value / cost, *number, cut));
            }
        }
        self.steps += u64::try_from(self.pool.len()).unwrap_or(0);
        seed.sort_by(|a, b| b.0.total_cmp(&a.0));
        seed.truncate(100);
        let mut seed: Vec<(BinTypeIx, Pattern)> =
            seed.into_iter().map(|(_, bin_type, pattern)| (bin_type, pattern)).collect();
        let old: Vec<Bin> = neighbourhood.chosen.iter().filter_map(|bin| bins.find(*bin).cloned()).collect();
        seed.extend(column_generation::of_bins(self.bin_types, &old));
        let mut left = self.limits.clone();
        for bin in &old {
            limits::give(self.problem, &mut left, bin.variant, bin.offer);
        }
        let search = SearchContext { limits: &left, ..self.search };
        let first = column_generation::generate(
            search,
            &neighbourhood.demand,
            &seed,
            self.dual_prices,
            KnapsackEffort::Little,
            STEPS_OF_RELAXATION,
        );
        self.steps += first.steps;
        let value: f64 = first.solution.iter().map(|(c, x)| first.columns[*c].cost * x).sum();
        if value >= neighbourhood.cost as f64 * (1.0 - 1e-4) {
            return;
        }
        let mut chance = Chance::Dice(Dice::new(self.dice.next() | 1));
        let dived = greedy::diving_heuristic(
            search,
            compat_sets,
            &first,
            neighbourhood.demand,
            &mut chance,
            4 * STEPS_OF_RELAXATION,
        );
        let Some(dived) = dived else {
            self.steps += 4 * STEPS_OF_RELAXATION;
            return;
        };
        self.steps += dived.steps;
        let all: u32 = dived.bins.iter().flat_map(|b| &b.pattern).map(|(_, n)| n).sum();
        let wanted: u32 = old.iter().flat_map(|b| &b.pattern).map(|(_, n)| n).sum();
        if all == wanted && dived.cost() <= neighbourhood.cost {
            let new = dived.bins.into_iter().collect();
            self.exchange(bins, neighbourhood.chosen, new);
        }
    }
}
