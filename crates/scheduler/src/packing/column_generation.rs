//! Column generation: patterns of instances that cover the demand at the least cost of the linear relaxation.
//!
//! The duals price each item type. From them follow patterns whose value exceeds the instance's cost, a proven lower
//! bound, and weights for the greedy searches.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    model::bit_set::BitSet,
    packing::{
        compatibility::CompatibilitySets,
        knapsack::{self, KnapsackItem},
        problem::{PackingProblem, fits},
        simplex::{Column, Master},
    },
};

/// Input of a search: the problem, the bin types considered, and the caller's cancel callback.
#[derive(Clone, Copy)]
pub(crate) struct SearchContext<'a> {
    pub(crate) problem: &'a PackingProblem,
    pub(crate) bin_types: &'a [BinType],
    pub(crate) cancel: &'a (dyn Fn() -> bool + Sync),
}

/// An instance considered for some set of item types.
#[derive(Clone, Debug)]
pub(crate) struct BinType {
    pub(crate) variant: u32,
    pub(crate) offer: u32,
    /// Item types that may go onto it and that fit.
    pub(crate) item_types: Arc<[u32]>,
}

/// All bin types considered: per variant and set of item types, those that no other dominates in room and
/// price.
///
/// Room beyond the whole demand is no advantage, which leaves few bin types for few pods.
#[expect(
    clippy::indexing_slicing,
    reason = "item_types, variants and compat_sets are numbered by the problem"
)]
pub(crate) fn bin_types(problem: &PackingProblem, compat_sets: &CompatibilitySets) -> Vec<BinType> {
    let mut bin_types = Vec::new();
    let mut clipped: Vec<Vec<i64>> = Vec::new();
    for variant in 0..problem.variants.len() {
        let number = u32::try_from(variant).unwrap_or(u32::MAX);
        // Item types by compatibility set on this variant.
        let mut by_mask: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
        for (item_type, it) in problem.item_types.iter().enumerate() {
            for (_, compat_set) in it.options.iter().filter(|(v, _)| *v == number) {
                by_mask.entry(*compat_set).or_default().push(u32::try_from(item_type).unwrap_or(u32::MAX));
            }
        }
        let list: Vec<u32> = by_mask.keys().copied().collect();
        let size = problem.variants[variant].catalog.offers.len();
        for (set, bits) in parts(compat_sets, &list, size) {
            let all: Vec<u32> = set
                .iter()
                .flat_map(|at| list.get(*at).and_then(|m| by_mask.get(m)).into_iter().flatten())
                .copied()
                .collect();
            let everyone: Arc<[u32]> = all.clone().into();
            let mut whole = vec![0i64; problem.d];
            for item_type in &all {
                let count = i64::from(problem.item_types[*item_type as usize].count);
                for (w, s) in whole.iter_mut().zip(problem.size(*item_type as usize)) {
                    *w = w.saturating_add(s.saturating_mul(count));
                }
            }
            let mut largest = vec![0i64; problem.d];
            for item_type in &all {
                for (l, s) in largest.iter_mut().zip(problem.size(*item_type as usize)) {
                    *l = (*l).max(*s);
                }
            }
            clipped.clear();
            for offer in problem.variants[variant].table.edges(&bits).ladder.iter() {
                let row = problem.row(number, *offer);
                let useful: Vec<i64> = row.iter().zip(&whole).map(|(r, w)| (*r).min(*w)).collect();
                let beaten = |kept: &Vec<i64>| kept.iter().zip(&useful).all(|(k, u)| k >= u);
                if clipped.iter().rev().any(beaten) {
                    continue;
                }
                // An offering that holds the whole demand can't be improved upon.
                let holds_all = useful == whole;
                clipped.push(useful);
                let item_types: Arc<[u32]> = if fits(&largest, row) > 0 {
                    Arc::clone(&everyone)
                } else {
                    all.iter().copied().filter(|k| fits(problem.size(*k as usize), row) > 0).collect()
                };
                if item_types.is_empty() {
                    continue;
                }
                bin_types.push(BinType { variant: number, offer: *offer, item_types });
                if holds_all {
                    break;
                }
            }
        }
    }
    bin_types
}

/// Offerings by the subset of `list` that contains them; those in no set are left out.
fn parts(compat_sets: &CompatibilitySets, list: &[u32], size: usize) -> Vec<(SmallVec<[usize; 4]>, BitSet)> {
    let mut parts: Vec<(SmallVec<[usize; 4]>, BitSet)> = vec![(SmallVec::new(), BitSet::all(size))];
    for (at, compat_set) in list.iter().enumerate() {
        let inside = compat_sets.bits(*compat_set);
        let mut split = Vec::new();
        for (set, bits) in &mut parts {
            let both = bits.and(inside);
            if both.is_empty() {
                continue;
            }
            bits.take_away(inside);
            let mut with = set.clone();
            with.push(at);
            split.push((with, both));
        }
        parts.retain(|(_, bits)| !bits.is_empty());
        parts.extend(split);
    }
    parts.retain(|(set, _)| !set.is_empty());
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts
}

/// Result of a generation.
#[derive(Debug, Default)]
pub(crate) struct Generated {
    /// Dual price of each item type.
    pub(crate) dual_prices: Vec<f64>,
    pub(crate) columns: Vec<Column>,
    /// Columns in the basis with their values.
    pub(crate) solution: Vec<(usize, f64)>,
    /// No packing of the demand costs less.
    pub(crate) bound: i64,
    pub(crate) steps: u64,
}

/// Copies of an item type that one instance may hold under the item type's own rules.
fn copies(problem: &PackingProblem, item_type: u32, demand: u32) -> u32 {
    let Some(rules) = problem.item_types.get(item_type as usize).and_then(|k| k.rules.as_deref()) else {
        return demand;
    };
    let mut most = rules.most.min(demand);
    if !rules.ports.is_empty() {
        most = most.min(1);
    }
    for (group, cap) in &rules.caps {
        if rules.counts.contains(group) {
            most = most.min(*cap);
        }
    }
    most
}

#[expect(clippy::indexing_slicing, reason = "item_types are numbered by the problem")]
fn items<'a>(
    problem: &'a PackingProblem,
    bin_type: &BinType,
    dual_prices: &[f64],
    demand: &[u32],
) -> Vec<KnapsackItem<'a>> {
    bin_type
        .item_types
        .iter()
        .filter(|k| dual_prices[**k as usize] > 0.0 && demand[**k as usize] > 0)
        .map(|k| KnapsackItem {
            number: *k,
            size: problem.size(*k as usize),
            value: dual_prices[*k as usize],
            copies: copies(problem, *k, demand[*k as usize]),
        })
        .filter(|t| t.copies > 0)
        .collect()
}

/// A lower bound on the cost of the demand from dual prices: if the value of every bin type's best pattern is
/// at most `most` times its cost, the demand costs at least its total value divided by `most`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounded down with a margin"
)]
fn lower(dual_prices: &[f64], demand: &[u32], most: f64) -> i64 {
    let total: f64 = dual_prices.iter().zip(demand).map(|(w, n)| w.max(0.0) * f64::from(*n)).sum();
    if most <= 0.0 { 0 } else { (total / most * (1.0 - 1e-9)).floor().min(i64::MAX as f64 / 4.0) as i64 }
}

/// The bound by resources alone: room valued at the best prices.
#[expect(clippy::indexing_slicing, reason = "dense tables of one row per resource")]
#[expect(clippy::cast_precision_loss, reason = "has a margin")]
pub(crate) fn resource_prices(
    problem: &PackingProblem,
    bin_types: &[BinType],
    demand: &[u32],
) -> (Vec<f64>, i64) {
    let d = problem.d;
    let mut total = vec![0.0f64; d];
    for (item_type, count) in demand.iter().enumerate() {
        for (t, s) in total.iter_mut().zip(problem.size(item_type)) {
            *t += *s as f64 * f64::from(*count);
        }
    }
    let rows: Vec<usize> = (0..d).filter(|k| total[*k] > 0.0).collect();
    // Scaled so that the demand is 1 in each resource.
    let scaled = |bin_type: &BinType| -> SmallVec<[(u32, f64); 4]> {
        let row = problem.row(bin_type.variant, bin_type.offer);
        let entries = rows
            .iter()
            .enumerate()
            .map(|(at, k)| (u32::try_from(at).unwrap_or(0), row[*k].max(0) as f64 / total[*k]));
        entries.filter(|(_, a)| *a > 0.0).collect()
    };
    let cost = |bin_type: &BinType| problem.cost(bin_type.variant, bin_type.offer).max(1) as f64;
    let dearest = bin_types.iter().map(&cost).fold(1.0, f64::max);
    let start = (0..rows.len())
        .map(|row| Column {
            cost: dearest * 1e6,
            entries: SmallVec::from_slice(&[(u32::try_from(row).unwrap_or(0), 1.0)]),
            bin_type: u32::MAX,
        })
        .collect();
    let mut master = Master::new(&vec![1.0; rows.len()], start);
    master.columns.extend(bin_types.iter().map(|bin_type| Column {
        cost: cost(bin_type),
        entries: scaled(bin_type),
        bin_type: 0,
    }));
    master.improve(200);
    let mut price = vec![0.0; d];
    for (at, k) in rows.iter().enumerate() {
        price[*k] = master.y[at].max(0.0) / total[*k];
    }
    let dual_prices =
        |size: &[i64]| size.iter().zip(&price).map(|(s, p)| (*s).max(0) as f64 * p).sum::<f64>();
    let item_types: Vec<f64> = (0..problem.item_types.len()).map(|k| dual_prices(problem.size(k))).collect();
    let most = bin_types
        .iter()
        .map(|s| dual_prices(problem.row(s.variant, s.offer)) * (1.0 + 1e-9) / cost(s))
        .fold(0.0, f64::max);
    let bound = lower(&item_types, demand, most);
    // Dual price per pod, scaled so that a full instance has about its cost as value.
    let item_types = item_types.into_iter().map(|w| if most > 0.0 { w / most } else { 0.0 }).collect();
    (item_types, bound)
}

/// One pricing round.
struct Round<'a> {
    problem: &'a PackingProblem,
    bin_types: &'a [BinType],
    /// Bin types that may have a pattern of positive reduced value for this demand.
    active: &'a [usize],
    row_of: &'a FxHashMap<u32, u32>,
    demand: &'a [u32],
    /// Dual price of each item type in the master problem.
    dual_prices: &'a [f64],
    per_round: usize,
}

/// Result of a pricing round.
#[derive(Default)]
struct Priced {
    bound: i64,
    found: Vec<Column>,
    steps: u64,
}

impl Round<'_> {
    /// Patterns whose value in the master exceeds their cost, searched for with the dual prices `guide`, and
    /// the bound that `guide` gives. Every bin type is filled quickly; where that finds nothing, the
    /// promising ones are searched exactly.
    #[expect(clippy::indexing_slicing, reason = "bin_types are numbered by their list")]
    fn price(&self, guide: &[f64], nodes: u64, most_steps: u64) -> Priced {
        let mut out = Priced::default();
        // (optimistic value, value of the pattern found, bin type, pattern), per cost.
        let mut tried: Vec<(f64, f64, usize, crate::packing::problem::Pattern)> = Vec::new();
        for at in self.active.iter().copied() {
            let bin_type = &self.bin_types[at];
            let list = items(self.problem, bin_type, guide, self.demand);
            if list.is_empty() {
                continue;
            }
            let cost = self.cost(bin_type);
            let quick = knapsack::quick(&list, self.problem.row(bin_type.variant, bin_type.offer));
            out.steps += quick.steps;
            let ratio = self.value(&quick.pattern) / cost;
            tried.push((quick.most / cost, ratio, at, quick.pattern));
        }
        tried.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
        let better = 1.0 + 1e-6;
        let mut good = tried.iter().filter(|t| t.1 > better).count();
        for (searched, entry) in tried.iter_mut().enumerate() {
            // No remaining bin type can have a value above its cost.
            let enough = (good > 0 && searched >= 2) || good >= self.per_round || out.steps > most_steps;
            if nodes == 0 || entry.0 <= better || enough {
                break;
            }
            let bin_type = &self.bin_types[entry.2];
            let cost = self.cost(bin_type);
            let list = items(self.problem, bin_type, guide, self.demand);
            let filling =
                knapsack::fill(&list, self.problem.row(bin_type.variant, bin_type.offer), cost * 1e-4, nodes);
            out.steps += filling.steps;
            entry.0 = entry.0.min(filling.most / cost);
            let ratio = self.value(&filling.pattern) / cost;
            if ratio > entry.1 {
                good += usize::from(entry.1 <= better && ratio > better);
                entry.1 = ratio;
                entry.3 = filling.pattern;
            }
        }
        let most = tried.iter().map(|t| t.0).fold(0.0, f64::max);
        out.bound = lower(guide, self.demand, most);
        tried.retain(|t| t.1 > better);
        tried.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
        tried.truncate(self.per_round);
        for (_, _, at, pattern) in tried {
            let entries = pattern.iter().filter_map(|(k, n)| Some((*self.row_of.get(k)?, f64::from(*n))));
            out.found.push(Column {
                cost: self.cost(&self.bin_types[at]),
                entries: entries.collect(),
                bin_type: u32::try_from(at).unwrap_or(u32::MAX),
            });
        }
        out
    }

    #[expect(clippy::cast_precision_loss, reason = "has a margin")]
    fn cost(&self, bin_type: &BinType) -> f64 {
        self.problem.cost(bin_type.variant, bin_type.offer).max(1) as f64
    }

    #[expect(clippy::indexing_slicing, reason = "item_types are numbered by the problem")]
    fn value(&self, pattern: &[(u32, u32)]) -> f64 {
        pattern.iter().map(|(k, n)| self.dual_prices[*k as usize] * f64::from(*n)).sum()
    }
}

/// Patterns of a packing whose bin types are among those considered.
pub(crate) fn of_bins(
    bin_types: &[BinType],
    bins: &[crate::packing::bins::Bin],
) -> Vec<(u32, crate::packing::problem::Pattern)> {
    let mut numbers: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
    for (at, bin_type) in bin_types.iter().enumerate() {
        numbers
            .entry((bin_type.variant, bin_type.offer))
            .or_default()
            .push(u32::try_from(at).unwrap_or(u32::MAX));
    }
    let mut seen: rustc_hash::FxHashSet<(u32, crate::packing::problem::Pattern)> =
        rustc_hash::FxHashSet::default();
    for bin in bins {
        let places = numbers.get(&(bin.variant, bin.offer)).into_iter().flatten();
        let holds = |at: &&u32| {
            bin_types
                .get(**at as usize)
                .is_some_and(|s| bin.pattern.iter().all(|(k, _)| s.item_types.contains(k)))
        };
        if let Some(at) = places.into_iter().find(holds) {
            let mut pattern = bin.pattern.clone();
            pattern.sort_unstable();
            seen.insert((*at, pattern));
        }
    }
    let mut list: Vec<_> = seen.into_iter().collect();
    list.sort_unstable();
    list
}

/// Weight of the smoothing of dual prices towards those of the best bound: the master's own oscillate
/// (Wentges 1997).
const CALM: f64 = 0.6;
/// Columns added per round at most.
const PER_ROUND: usize = 24;
/// Nodes of an exact knapsack search: at first, and at most.
const NODES: u64 = 4_000;
const MOST_NODES: u64 = 1_000_000;

/// Effort of the knapsack searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnapsackEffort {
    /// Quick patterns alone, without a bound.
    Little,
    /// Until no pattern of positive reduced value is left.
    Full,
}

/// Bin types that no other dominates in price and in room for the remaining demand.
#[expect(clippy::indexing_slicing, reason = "bin_types are numbered by their list")]
fn active(problem: &PackingProblem, bin_types: &[BinType], demand: &[u32]) -> Vec<usize> {
    let mut kept: Vec<(usize, SmallVec<[i64; 6]>, Vec<u32>)> = Vec::new();
    for (at, bin_type) in bin_types.iter().enumerate() {
        let row = problem.row(bin_type.variant, bin_type.offer);
        let item_types: Vec<u32> =
            bin_type.item_types.iter().copied().filter(|k| demand[*k as usize] > 0).collect();
        if item_types.is_empty() {
            continue;
        }
        let mut useful: SmallVec<[i64; 6]> = SmallVec::from_elem(0, problem.d);
        for item_type in &item_types {
            for (u, s) in useful.iter_mut().zip(problem.size(*item_type as usize)) {
                *u = u.saturating_add(s.saturating_mul(i64::from(demand[*item_type as usize])));
            }
        }
        useful.iter_mut().zip(row).for_each(|(u, r)| *u = (*u).min(*r));
        let cost = problem.cost(bin_type.variant, bin_type.offer);
        let beaten = |(other, room, theirs): &(usize, SmallVec<[i64; 6]>, Vec<u32>)| {
            let other = &bin_types[*other];
            problem.cost(other.variant, other.offer) <= cost
                && room.iter().zip(&useful).all(|(r, u)| r >= u)
                && item_types.iter().all(|k| theirs.contains(k))
        };
        if !kept.iter().rev().any(beaten) {
            kept.push((at, useful, item_types));
        }
    }
    kept.into_iter().map(|(at, _, _)| at).collect()
}

/// Generates columns for `demand` until none improves the master or `budget` steps are spent. `seed` are
/// known columns, `guide` are the first dual prices.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "item_types and bin_types are numbered by their lists"
)]
pub(crate) fn generate(
    search: SearchContext<'_>,
    demand: &[u32],
    seed: &[(u32, crate::packing::problem::Pattern)],
    guide: &[f64],
    knapsack_effort: KnapsackEffort,
    budget: u64,
) -> Generated {
    let SearchContext { problem, bin_types, cancel } = search;
    let mut out = Generated { dual_prices: vec![0.0; problem.item_types.len()], ..Generated::default() };
    // The best instance for each item type alone.
    let mut alone: Vec<Option<(f64, u32, u32)>> = vec![None; problem.item_types.len()];
    for (at, bin_type) in bin_types.iter().enumerate() {
        let row = problem.row(bin_type.variant, bin_type.offer);
        let cost = problem.cost(bin_type.variant, bin_type.offer).max(1) as f64;
        for item_type in bin_type.item_types.iter().filter(|k| demand[**k as usize] > 0) {
            let n = fits(problem.size(*item_type as usize), row).min(copies(
                problem,
                *item_type,
                demand[*item_type as usize],
            ));
            let per = cost / f64::from(n.max(1));
            if n > 0 && alone[*item_type as usize].is_none_or(|(least, _, _)| per < least) {
                alone[*item_type as usize] = Some((per, u32::try_from(at).unwrap_or(u32::MAX), n));
            }
        }
    }
    let rows: Vec<u32> = (0..problem.item_types.len())
        .filter(|k| alone[*k].is_some())
        .filter_map(|k| u32::try_from(k).ok())
        .collect();
    if rows.is_empty() {
        return out;
    }
    let start = rows.iter().enumerate().filter_map(|(row, item_type)| {
        let (per, bin_type, n) = alone[*item_type as usize]?;
        let row = u32::try_from(row).unwrap_or(0);
        let n = f64::from(n);
        Some(Column { cost: per * n, entries: SmallVec::from_slice(&[(row, n)]), bin_type })
    });
    let needs: Vec<f64> = rows.iter().map(|k| f64::from(demand[*k as usize])).collect();
    let mut master = Master::new(&needs, start.collect());
    let mut row_of: FxHashMap<u32, u32> = FxHashMap::default();
    for (row, item_type) in rows.iter().enumerate() {
        row_of.insert(*item_type, u32::try_from(row).unwrap_or(0));
    }
    for (bin_type, pattern) in seed {
        let it = &bin_types[*bin_type as usize];
        let entries: SmallVec<[(u32, f64); 4]> =
            pattern.iter().filter_map(|(k, n)| Some((*row_of.get(k)?, f64::from(*n)))).collect();
        if !entries.is_empty() {
            let cost = problem.cost(it.variant, it.offer).max(1) as f64;
            master.columns.push(Column { cost, entries, bin_type: *bin_type });
        }
    }
    let mut rounds = 0;
    let mut center: Vec<f64> = guide.to_vec();
    let mut calm = CALM;
    let mut nodes = NODES;
    let active = active(problem, bin_types, demand);
    loop {
        out.steps += master.improve(40 + 2 * rows.len());
        if out.steps > budget || cancel() {
            break;
        }
        for (row, item_type) in rows.iter().enumerate() {
            out.dual_prices[*item_type as usize] = master.y[row].max(0.0);
        }
        let round = Round {
            problem,
            bin_types,
            active: &active,
            row_of: &row_of,
            demand,
            dual_prices: &out.dual_prices,
            per_round: PER_ROUND,
        };
        let between: Vec<f64> =
            center.iter().zip(&out.dual_prices).map(|(c, w)| calm * c + (1.0 - calm) * w).collect();
        let careful = if calm > 0.0 || knapsack_effort == KnapsackEffort::Little { 0 } else { nodes };
        let priced = round.price(&between, careful, budget.saturating_sub(out.steps));
        out.steps += priced.steps;
        if priced.bound > out.bound {
            out.bound = priced.bound;
            center = between;
        }
        rounds += 1;
        let value: f64 = rows.iter().zip(&needs).map(|(_, n)| n).zip(&master.y).map(|(n, y)| n * y).sum();
        if rounds > 2_000 || value <= out.bound as f64 * (1.0 + 1e-4) {
            break;
        }
        if priced.found.is_empty() {
            if calm == 0.0 {
                if knapsack_effort == KnapsackEffort::Little || nodes >= MOST_NODES {
                    break;
                }
                // A deeper search may prove absence, which raises the bound.
                nodes *= 8;
                continue;
            }
            // The smoothed dual prices hide what the master lacks: move closer to its own.
            calm = if calm > 0.2 { calm / 2.0 } else { 0.0 };
            continue;
        }
        calm = CALM;
        master.columns.extend(priced.found);
    }
    for (row, item_type) in rows.iter().enumerate() {
        out.dual_prices[*item_type as usize] = master.y[row].max(0.0);
    }
    out.solution = master.solution();
    out.columns = master
        .columns
        .into_iter()
        .map(|mut c| {
            for (row, _) in &mut c.entries {
                *row = rows[*row as usize];
            }
            c
        })
        .collect();
    out
}
