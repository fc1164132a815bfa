//! Greedy and dual-guided packings: dual prices tell which instance, with which pattern, has the best value density.

use smallvec::SmallVec;

use crate::packing::{
    bins::{Bin, Packing},
    colocation,
    column_generation::{BinType, Generated, KnapsackEffort, SearchContext, generate},
    compatibility::CompatibilitySets,
    first_fit_decreasing,
    knapsack::{self, KnapsackItem},
    problem::{PackingProblem, Pattern},
    random::Dice,
};

/// Launches an instance of `bin_type` with as much of `pattern` as its rules and the demand allow. Returns
/// false if it holds no pod.
#[expect(clippy::indexing_slicing, reason = "item_types are numbered by the problem")]
pub(crate) fn launch(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    bin_type: &BinType,
    pattern: &[(u32, u32)],
    demand: &mut [u32],
) -> bool {
    let problem = packing.problem;
    let mut bin = None;
    for (item_type, copies) in pattern {
        let item_type = *item_type as usize;
        let want = (*copies).min(demand[item_type]);
        if want == 0 {
            continue;
        }
        let at = match bin {
            Some(at) => at,
            None => {
                let Some((_, compat_set)) =
                    problem.item_types[item_type].options.iter().find(|(v, _)| *v == bin_type.variant)
                else {
                    continue;
                };
                let Some(at) = packing.open(bin_type.variant, *compat_set, bin_type.offer, false) else {
                    return false;
                };
                bin = Some(at);
                at
            }
        };
        if let Some((room, compat_set, offer)) = packing.room(compat_sets, at, item_type) {
            let count = room.min(want);
            packing.put(at, item_type, count, compat_set, offer);
            demand[item_type] -= count;
        }
    }
    let Some(at) = bin else { return false };
    if packing.bins[at].pattern.is_empty() {
        packing.close_empty();
        return false;
    }
    true
}

/// The best pattern of `bin_type`: value per cost, and the pattern.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "item_types are numbered by the problem"
)]
fn best_filling(
    problem: &PackingProblem,
    bin_type: &BinType,
    dual_prices: &[f64],
    demand: &[u32],
    nodes: u64,
    least: f64,
    steps: &mut u64,
) -> Option<(f64, Pattern)> {
    let items: Vec<KnapsackItem<'_>> = bin_type
        .item_types
        .iter()
        .filter(|k| demand[**k as usize] > 0)
        .map(|k| KnapsackItem {
            number: *k,
            size: problem.size(*k as usize),
            value: dual_prices[*k as usize].max(1e-6),
            copies: demand[*k as usize],
        })
        .collect();
    if items.is_empty() {
        return None;
    }
    let cost = problem.cost(bin_type.variant, bin_type.offer).max(1) as f64;
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
fn best_value_density(
    problem: &PackingProblem,
    bin_types: &[BinType],
    dual_prices: &[f64],
    demand: &[u32],
    nodes: u64,
    steps: &mut u64,
) -> Option<(usize, Pattern)> {
    let mut best: Option<(f64, usize, Pattern)> = None;
    for (at, bin_type) in bin_types.iter().enumerate() {
        let least = best.as_ref().map_or(0.0, |(most, _, _)| *most);
        let Some((ratio, pattern)) =
            best_filling(problem, bin_type, dual_prices, demand, nodes, least, steps)
        else {
            continue;
        };
        if best.as_ref().is_none_or(|(most, _, _)| ratio > *most) {
            best = Some((ratio, at, pattern));
        }
    }
    best.map(|(_, at, pattern)| (at, pattern))
}

/// Takes the best value density repeatedly. `None` if `budget` runs out.
///
/// With less demand no bin type's density rises, so that one whose last density is below another's present
/// one needs no new evaluation.
#[expect(clippy::indexing_slicing, reason = "item_types and bin_types are numbered by their lists")]
pub(crate) fn sequential<'a>(
    search: SearchContext<'a>,
    compat_sets: &mut CompatibilitySets,
    dual_prices: &[f64],
    nodes: u64,
    budget: u64,
) -> Option<Packing<'a>> {
    let SearchContext { problem, bin_types, cancel } = search;
    let mut packing = Packing::new(problem);
    let mut demand: Vec<u32> = problem.item_types.iter().map(|k| k.count).collect();
    colocation::place(&mut packing, compat_sets, &first_fit_decreasing::order(problem), &mut demand);
    let mut round = 0u32;
    // (density, bin type, pattern, round of its evaluation), best first.
    let mut ranked: Vec<(f64, usize, Pattern, u32)> =
        (0..bin_types.len()).map(|at| (f64::INFINITY, at, Pattern::new(), u32::MAX)).collect();
    while !ranked.is_empty() {
        if packing.steps > budget || cancel() {
            return None;
        }
        let (_, at, pattern, when) = ranked[0].clone();
        if when != round {
            match best_filling(problem, &bin_types[at], dual_prices, &demand, nodes, 0.0, &mut packing.steps)
            {
                Some((ratio, pattern)) => ranked[0] = (ratio, at, pattern, round),
                None => {
                    ranked.remove(0);
                    continue;
                }
            }
            // Sinks to its rank among the rest.
            let ratio = ranked[0].0;
            let place = ranked[1..].partition_point(|other| other.0 > ratio);
            ranked[..=place].rotate_left(1);
            continue;
        }
        let times = pattern.iter().map(|(k, n)| demand[*k as usize] / n).min().unwrap_or(0).max(1);
        let mut any = false;
        for _ in 0..times {
            if !launch(&mut packing, compat_sets, &bin_types[at], &pattern, &mut demand) {
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
    packing.settle(compat_sets);
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
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "columns and item_types are numbered by their lists; counts are small"
)]
pub(crate) fn diving_heuristic<'a>(
    search: SearchContext<'a>,
    compat_sets: &mut CompatibilitySets,
    first: &Generated,
    mut demand: Vec<u32>,
    chance: &mut Chance,
    budget: u64,
) -> Option<Packing<'a>> {
    let SearchContext { problem, bin_types, cancel } = search;
    let mut packing = Packing::new(problem);
    colocation::place(&mut packing, compat_sets, &first_fit_decreasing::order(problem), &mut demand);
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
        let mut parts: Vec<(usize, f64)> = it.solution.clone();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut any = false;
        for (column, x) in &parts {
            let whole = (x + 1e-6).floor().max(if x.fract() >= share { x.ceil() } else { 0.0 }) as u32;
            any |= take(&mut packing, compat_sets, bin_types, it, *column, whole, &mut demand);
        }
        if !any {
            let by_chance = chance.first(parts.len());
            parts.swap(0, by_chance);
            for (column, _) in &parts {
                if take(&mut packing, compat_sets, bin_types, it, *column, 1, &mut demand) {
                    any = true;
                    break;
                }
            }
        }
        if !any || demand.iter().all(|n| *n == 0) {
            break;
        }
        let mut seed: Vec<(f64, u32, Pattern)> = it
            .columns
            .iter()
            .filter(|c| c.bin_type != u32::MAX)
            .map(|c| {
                let gain: f64 = c.entries.iter().map(|(k, n)| it.dual_prices[*k as usize] * n).sum();
                let pattern = c
                    .entries
                    .iter()
                    .filter(|(k, _)| demand[*k as usize] > 0)
                    .map(|(k, n)| (*k, (*n as u32).min(demand[*k as usize])))
                    .collect();
                (c.cost - gain, c.bin_type, pattern)
            })
            .collect();
        seed.sort_by(|a, b| a.0.total_cmp(&b.0));
        seed.truncate(300);
        let seed: Vec<_> = seed.into_iter().map(|(_, bin_type, pattern)| (bin_type, pattern)).collect();
        let next = generate(search, &demand, &seed, &it.dual_prices, KnapsackEffort::Little, budget / 24);
        packing.steps += next.steps;
        now = Some(next);
    }
    first_fit_decreasing::finish(&mut packing, compat_sets, &mut demand);
    packing.settle(compat_sets);
    Some(packing)
}

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "columns are numbered by their list; counts are small"
)]
fn take(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    bin_types: &[BinType],
    from: &Generated,
    column: usize,
    times: u32,
    demand: &mut [u32],
) -> bool {
    let column = &from.columns[column];
    let Some(bin_type) = bin_types.get(column.bin_type as usize) else { return false };
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
#[expect(clippy::indexing_slicing, reason = "item_types are numbered by the problem")]
pub(crate) fn bin(
    problem: &PackingProblem,
    compat_sets: &mut CompatibilitySets,
    variant: u32,
    pattern: Pattern,
) -> Option<(Bin, i64)> {
    let mut compat_set = None;
    let mut used: SmallVec<[i64; 6]> = SmallVec::from_elem(0, problem.d);
    for (item_type, n) in &pattern {
        let (_, own) = problem.item_types[*item_type as usize].options.iter().find(|(v, _)| *v == variant)?;
        compat_set = Some(match compat_set {
            Some(compat_set) => compat_sets.and(problem, compat_set, *own)?,
            None => *own,
        });
        for (u, s) in used.iter_mut().zip(problem.size(*item_type as usize)) {
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

/// Repacks a few pods quickly: best value density, repeatedly, among `bin_types`.
#[expect(clippy::indexing_slicing, reason = "item_types and bin_types are numbered by their lists")]
#[expect(clippy::too_many_arguments, reason = "the state of the search, passed down")]
pub(crate) fn repack(
    problem: &PackingProblem,
    compat_sets: &mut CompatibilitySets,
    bin_types: &[BinType],
    dual_prices: &[f64],
    demand: &mut [u32],
    ceiling: i64,
    nodes: u64,
    steps: &mut u64,
) -> Option<(Vec<Bin>, i64)> {
    let (mut bins, mut cost) = (Vec::new(), 0i64);
    while let Some((at, pattern)) = best_value_density(problem, bin_types, dual_prices, demand, nodes, steps)
    {
        if pattern.is_empty() {
            return None;
        }
        for (item_type, n) in &pattern {
            demand[*item_type as usize] -= n;
        }
        let (made, price) = bin(problem, compat_sets, bin_types[at].variant, pattern)?;
        cost = cost.saturating_add(price);
        if cost >= ceiling {
            return None;
        }
        bins.push(made);
    }
    Some((bins, cost))
}
