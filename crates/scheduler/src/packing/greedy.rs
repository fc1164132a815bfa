//! Greedy and dual-guided packings: dual prices tell which instance, with which pattern, has the best value density.

use smallvec::SmallVec;

use crate::ids::{BinTypeIx, ColumnIx, ItemTypeIx, VariantIx};
use crate::index_vec::IndexVec;
use crate::packing::{
    bin_types::BinType,
    bins::{Bin, Fit, Packing},
    colocation,
    column_generation::{Generated, KnapsackEffort, SearchContext, generate},
    compatibility::CompatibilitySets,
    first_fit_decreasing,
    knapsack::{self, KnapsackItem},
    limit_rows::DualPrices,
    problem::{PackingProblem, Pattern},
    random::Dice,
    simplex::Column,
};

/// Launches an instance of `bin_type` with as much of `pattern` as its rules and the demand allow. Returns
/// false if it holds no pod.
pub(crate) fn launch(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    bin_type: &BinType,
    pattern: &[(ItemTypeIx, u32)],
    demand: &mut IndexVec<ItemTypeIx, u32>,
) -> bool {
    let problem = packing.problem;
    let mut opened = None;
    for (item_type, copies) in pattern {
        let want = (*copies).min(demand[*item_type]);
        if want == 0 {
            continue;
        }
        let bin = match opened {
            Some(bin) => bin,
            None => {
                let Some((_, compat_set)) =
                    problem.item_types[*item_type].options.iter().find(|(v, _)| *v == bin_type.variant)
                else {
                    continue;
                };
                let Some(bin) = packing.open(bin_type.variant, *compat_set, bin_type.offer, false) else {
                    return false;
                };
                opened = Some(bin);
                bin
            }
        };
        if let Some(fit) = packing.room(compat_sets, bin, *item_type) {
            let count = fit.count.min(want);
            packing.put(bin, *item_type, Fit { count, ..fit });
            demand[*item_type] -= count;
        }
    }
    let Some(bin) = opened else { return false };
    if packing.bins[bin].pattern.is_empty() {
        packing.close_empty();
        return false;
    }
    true
}

/// How the best value density is searched for: by dual prices, in `nodes` nodes per bin type.
#[derive(Clone, Copy)]
pub(crate) struct Guide<'a> {
    pub(crate) problem: &'a PackingProblem,
    pub(crate) bin_types: &'a IndexVec<BinTypeIx, BinType>,
    pub(crate) dual_prices: &'a DualPrices,
    pub(crate) nodes: u64,
}

/// The best pattern of `bin_type`: value per cost, and the pattern.
#[expect(clippy::cast_precision_loss, reason = "steers the search")]
fn best_filling(
    guide: Guide<'_>,
    bin_type: &BinType,
    demand: &IndexVec<ItemTypeIx, u32>,
    least: f64,
    steps: &mut u64,
) -> Option<(f64, Pattern)> {
    let Guide { problem, dual_prices, nodes, .. } = guide;
    let items: Vec<KnapsackItem<'_>> = bin_type
        .item_types
        .iter()
        .filter(|k| demand[**k] > 0)
        .map(|k| KnapsackItem {
            number: *k,
            size: problem.size(*k),
            value: dual_prices.items[*k].max(1e-6),
            copies: demand[*k],
        })
        .collect();
    if items.is_empty() {
        return None;
    }
    let price = problem.cost(bin_type.variant, bin_type.offer).max(1) as f64;
    let cost = price + dual_prices.charge(&bin_type.uses);
    let total: f64 = items.iter().map(|t| t.value * f64::from(t.copies)).sum();
    *steps += 1;
    if total / cost <= least {
        return None;
    }
    let filling = knapsack::fill(&items, problem.row(bin_type.variant, bin_type.offer), cost * 1e-3, nodes);
    *steps += filling.steps;
    Some((filling.value / cost, filling.pattern))
}

/// The best value density at present: the bin type and pattern with the most value per cost.
fn best_value_density<'a>(
    guide: Guide<'a>,
    demand: &IndexVec<ItemTypeIx, u32>,
    steps: &mut u64,
) -> Option<(&'a BinType, Pattern)> {
    let mut best: Option<(f64, &BinType, Pattern)> = None;
    for bin_type in guide.bin_types {
        let least = best.as_ref().map_or(0.0, |(most, _, _)| *most);
        let Some((ratio, pattern)) = best_filling(guide, bin_type, demand, least, steps) else { continue };
        if best.as_ref().is_none_or(|(most, _, _)| ratio > *most) {
            best = Some((ratio, bin_type, pattern));
        }
    }
    best.map(|(_, bin_type, pattern)| (bin_type, pattern))
}

/// A bin type by its value density, which was evaluated in some round.
#[derive(Clone)]
struct Ranked<'a> {
    density: f64,
    bin_type: &'a BinType,
    pattern: Pattern,
    round: u32,
}

/// Takes the best value density repeatedly until `demand` is packed. `None` if `budget` runs out.
///
/// With less demand no bin type's density rises, so that one whose last density is below another's present
/// one needs no new evaluation.
pub(crate) fn sequential<'a>(
    search: SearchContext<'a>,
    compat_sets: &mut CompatibilitySets,
    dual_prices: &DualPrices,
    mut demand: IndexVec<ItemTypeIx, u32>,
    nodes: u64,
    budget: u64,
) -> Option<Packing<'a>> {
    let SearchContext { problem, bin_types, cancel, .. } = search;
    let mut packing = Packing::new(problem);
    let guide = Guide { problem, bin_types, dual_prices, nodes };
    colocation::place(&mut packing, compat_sets, &problem.largest_first(), &mut demand);
    let mut round = 0u32;
    let first =
        |bin_type| Ranked { density: f64::INFINITY, bin_type, pattern: Pattern::new(), round: u32::MAX };
    // Best first.
    let mut ranked: Vec<Ranked<'_>> = bin_types.iter().map(first).collect();
    while let Some(Ranked { bin_type, pattern, round: when, .. }) = ranked.first().cloned() {
        if packing.steps > budget || cancel() {
            return None;
        }
        if when != round {
            match best_filling(guide, bin_type, &demand, 0.0, &mut packing.steps) {
                Some((density, pattern)) => {
                    let rest = ranked.get(1..).unwrap_or_default();
                    let place = rest.partition_point(|other| other.density > density);
                    if let Some([first, ..]) = ranked.get_mut(..=place) {
                        *first = Ranked { density, bin_type, pattern, round };
                    }
                    // Sinks to its rank among the rest.
                    ranked.get_mut(..=place).unwrap_or_default().rotate_left(1);
                }
                None => drop(ranked.remove(0)),
            }
            continue;
        }
        let times = pattern.iter().map(|(k, n)| demand[*k] / n).min().unwrap_or(0).max(1);
        let mut any = false;
        for _ in 0..times {
            if !launch(&mut packing, compat_sets, bin_type, &pattern, &mut demand) {
                break;
            }
            any = true;
        }
        if any {
            round += 1;
        } else {
            ranked.remove(0);
        }
    }
    first_fit_decreasing::finish(&mut packing, compat_sets, &mut demand);
    packing.take_cheapest_offers(compat_sets);
    Some(packing)
}

/// How a diving heuristic breaks ties: always alike, or randomised, so that one finds what another misses.
#[derive(Debug)]
pub(crate) enum Chance {
    /// Fractional instances from this share on are rounded up.
    Share(f64),
    Dice(Dice),
}

impl Chance {
    fn share(&mut self) -> f64 {
        match self {
            Self::Share(share) => *share,
            Self::Dice(dice) => [0.6, 0.75, 0.9, 1.1].get(dice.below(4)).copied().unwrap_or(0.9),
        }
    }

    /// Which of the `parts` largest fractions comes first.
    fn first(&mut self, parts: usize) -> usize {
        match self {
            Self::Share(_) => 0,
            Self::Dice(dice) => dice.below(parts.min(3)),
        }
    }
}

/// Rounds a fractional solution: whole instances first, then the largest fraction, then the relaxation of the
/// rest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small")]
pub(crate) fn diving_heuristic<'a>(
    search: SearchContext<'a>,
    compat_sets: &mut CompatibilitySets,
    first: &Generated,
    mut demand: IndexVec<ItemTypeIx, u32>,
    chance: &mut Chance,
    budget: u64,
) -> Option<Packing<'a>> {
    let SearchContext { problem, bin_types, limits, cancel, .. } = search;
    let mut packing = Packing::new(problem);
    packing.limits.clone_from(limits);
    colocation::place(&mut packing, compat_sets, &problem.largest_first(), &mut demand);
    let mut now: Option<Generated> = None;
    loop {
        let it = now.as_ref().unwrap_or(first);
        if it.solution.is_empty() || demand.iter().all(|n| *n == 0) {
            break;
        }
        if packing.steps > budget || cancel() {
            return None;
        }
        let share = chance.share();
        let mut parts: Vec<(ColumnIx, f64)> = it.solution.clone();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut any = false;
        for (column, x) in &parts {
            let whole = (x + 1e-6).floor().max(if x.fract() >= share { x.ceil() } else { 0.0 }) as u32;
            any |= take(&mut packing, compat_sets, bin_types, &it.columns[*column], whole, &mut demand);
        }
        if !any {
            let by_chance = chance.first(parts.len());
            parts.swap(0, by_chance);
            for (column, _) in &parts {
                if take(&mut packing, compat_sets, bin_types, &it.columns[*column], 1, &mut demand) {
                    any = true;
                    break;
                }
            }
        }
        if !any || demand.iter().all(|n| *n == 0) {
            break;
        }
        let mut seed: Vec<(f64, BinTypeIx, Pattern)> = it
            .columns
            .iter()
            .filter_map(|c| {
                let gain: f64 = c.entries.iter().map(|(k, n)| it.dual_prices.items[*k] * n).sum();
                let charge = it.dual_prices.charge(&bin_types.find(c.bin_type?)?.uses);
                let pattern = c
                    .entries
                    .iter()
                    .filter(|(k, _)| demand[*k] > 0)
                    .map(|(k, n)| (*k, (*n as u32).min(demand[*k])))
                    .collect();
                Some((c.cost + charge - gain, c.bin_type?, pattern))
            })
            .collect();
        seed.sort_by(|a, b| a.0.total_cmp(&b.0));
        seed.truncate(300);
        let seed: Vec<_> = seed.into_iter().map(|(_, bin_type, pattern)| (bin_type, pattern)).collect();
        let search = SearchContext { limits: &packing.limits, ..search };
        let next = generate(search, &demand, &seed, &it.dual_prices, KnapsackEffort::Little, budget / 24);
        packing.steps += next.steps;
        now = Some(next);
    }
    first_fit_decreasing::finish(&mut packing, compat_sets, &mut demand);
    packing.take_cheapest_offers(compat_sets);
    Some(packing)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small")]
fn take(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    bin_types: &IndexVec<BinTypeIx, BinType>,
    column: &Column<ItemTypeIx>,
    times: u32,
    demand: &mut IndexVec<ItemTypeIx, u32>,
) -> bool {
    let Some(bin_type) = column.bin_type.map(|bin_type| &bin_types[bin_type]) else { return false };
    let pattern: Pattern = column.entries.iter().map(|(k, n)| (*k, (*n + 0.5) as u32)).collect();
    let mut any = false;
    for _ in 0..times {
        if !launch(packing, compat_sets, bin_type, &pattern, demand) {
            break;
        }
        any = true;
    }
    any
}

/// The cheapest instance for `pattern`, as a bin.
pub(crate) fn bin(
    problem: &PackingProblem,
    compat_sets: &mut CompatibilitySets,
    variant: VariantIx,
    pattern: Pattern,
) -> Option<(Bin, i64)> {
    let mut compat_set = None;
    let mut used: SmallVec<[i64; 6]> = SmallVec::from_elem(0, problem.d);
    for (item_type, n) in &pattern {
        let (_, own) = problem.item_types[*item_type].options.iter().find(|(v, _)| *v == variant)?;
        compat_set = Some(match compat_set {
            Some(compat_set) => compat_sets.and(problem, compat_set, *own)?,
            None => *own,
        });
        for (u, s) in used.iter_mut().zip(problem.size(*item_type)) {
            *u = u.saturating_add(s.saturating_mul(i64::from(*n)));
        }
    }
    let compat_set = compat_set?;
    let offer = crate::packing::bins::cheapest(problem, compat_sets, variant, compat_set, &used, |_| true)?;
    let cost = problem.cost(variant, offer);
    let bin = Bin {
        variant,
        compat_set,
        offer,
        pattern,
        groups: SmallVec::new(),
        ports: SmallVec::new(),
        flexible: false,
    };
    Some((bin, cost))
}

/// Repacks a few pods quickly: best value density, repeatedly. `None` if that costs `ceiling` or more.
pub(crate) fn repack(
    guide: Guide<'_>,
    compat_sets: &mut CompatibilitySets,
    demand: &mut IndexVec<ItemTypeIx, u32>,
    ceiling: i64,
    steps: &mut u64,
) -> Option<Vec<Bin>> {
    let (mut bins, mut cost) = (Vec::new(), 0i64);
    while let Some((bin_type, pattern)) = best_value_density(guide, demand, steps) {
        if pattern.is_empty() {
            return None;
        }
        for (item_type, n) in &pattern {
            demand[*item_type] -= n;
        }
        let (made, price) = bin(guide.problem, compat_sets, bin_type.variant, pattern)?;
        cost = cost.saturating_add(price);
        if cost >= ceiling {
            return None;
        }
        bins.push(made);
    }
    Some(bins)
}
