//! Column generation: patterns of instances that cover the demand at the least cost of the linear relaxation.
//!
//! The duals price each item type. From them follow patterns whose value exceeds the instance's cost, a proven lower
//! bound, and weights for the greedy searches.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{
    ids::{BinTypeIx, ColumnIx, ItemTypeIx, LimitIx, LimitRowIx, MasterRowIx, OfferIx, VariantIx},
    index_vec::IndexVec,
    packing::{
        bin_types::BinType,
        bins::Bin,
        knapsack::{self, KnapsackItem},
        limit_rows::{DualPrices, LimitRows, uses_no_more},
        problem::{Limit, PackingProblem, Pattern, fits},
        rows::covers,
        simplex::{Column, Master},
    },
};

/// Input of a search: the problem, the bin types considered, and the caller's cancel callback.
#[derive(Clone, Copy)]
pub(crate) struct SearchContext<'a> {
    pub(crate) problem: &'a PackingProblem,
    pub(crate) bin_types: &'a IndexVec<BinTypeIx, BinType>,
    pub(crate) limit_rows: &'a LimitRows,
    /// What is left of the limits.
    pub(crate) limits: &'a IndexVec<LimitIx, Limit>,
    pub(crate) cancel: &'a (dyn Fn() -> bool + Sync),
}

/// Result of a generation.
#[derive(Debug, Default)]
pub(crate) struct Generated {
    pub(crate) dual_prices: DualPrices,
    pub(crate) columns: IndexVec<ColumnIx, Column<ItemTypeIx>>,
    /// Columns in the basis with their values.
    pub(crate) solution: Vec<(ColumnIx, f64)>,
    /// No packing of the demand within the limits costs less.
    pub(crate) bound: i64,
    pub(crate) steps: u64,
}

/// Copies of an item type that one instance may hold under the item type's own rules.
fn copies(problem: &PackingProblem, item_type: ItemTypeIx, demand: u32) -> u32 {
    let Some(rules) = problem.rules(item_type) else {
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

fn items<'a>(
    problem: &'a PackingProblem,
    bin_type: &BinType,
    dual_prices: &IndexVec<ItemTypeIx, f64>,
    demand: &IndexVec<ItemTypeIx, u32>,
) -> Vec<KnapsackItem<'a>> {
    bin_type
        .item_types
        .iter()
        .filter(|k| dual_prices[**k] > 0.0 && demand[**k] > 0)
        .map(|k| KnapsackItem {
            number: *k,
            size: problem.size(*k),
            value: dual_prices[*k],
            copies: copies(problem, *k, demand[*k]),
        })
        .filter(|t| t.copies > 0)
        .collect()
}

/// A lower bound on the cost of the demand from dual prices: if the value of every bin type's best pattern is at most `most` times what
/// it is charged, the demand costs at least its total value divided by `most`, less what the rest of the limits is worth, `of_limits`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounded down with a margin"
)]
fn lower(
    dual_prices: &IndexVec<ItemTypeIx, f64>,
    demand: &IndexVec<ItemTypeIx, u32>,
    most: f64,
    of_limits: f64,
) -> i64 {
    let total: f64 = dual_prices.iter().zip(demand).map(|(w, n)| w.max(0.0) * f64::from(*n)).sum();
    if most <= 0.0 {
        return 0;
    }
    let bound = total / most * (1.0 - 1e-9) - of_limits * (1.0 + 1e-9);
    bound.floor().clamp(0.0, i64::MAX as f64 / 4.0) as i64
}

/// The bound by resources alone: room valued at the best prices, without limits.
#[expect(clippy::cast_precision_loss, reason = "has a margin")]
pub(crate) fn resource_prices(
    problem: &PackingProblem,
    bin_types: &IndexVec<BinTypeIx, BinType>,
    demand: &IndexVec<ItemTypeIx, u32>,
) -> (DualPrices, i64) {
    let mut total = vec![0.0f64; problem.d];
    for (item_type, count) in demand.enumerate() {
        for (t, s) in total.iter_mut().zip(problem.size(item_type)) {
            *t += *s as f64 * f64::from(*count);
        }
    }
    // A row per resource in demand, scaled so that the demand is 1 in each.
    let rows = || total.iter().filter(|t| **t > 0.0);
    let scaled = |bin_type: &BinType| -> SmallVec<[(MasterRowIx, f64); 4]> {
        let row = problem.row(bin_type.variant, bin_type.offer).iter().zip(&total);
        let entries = row.filter(|(_, t)| **t > 0.0).map(|(r, t)| (*r).max(0) as f64 / t).enumerate();
        entries.map(|(at, a)| (MasterRowIx::from(at), a)).filter(|(_, a)| *a > 0.0).collect()
    };
    let cost = |bin_type: &BinType| problem.cost(bin_type.variant, bin_type.offer).max(1) as f64;
    let dearest = bin_types.iter().map(&cost).fold(1.0, f64::max);
    let alone = |(row, _)| {
        let entries = SmallVec::from_slice(&[(MasterRowIx::from(row), 1.0)]);
        Column { cost: dearest * 1e6, entries, bin_type: None }
    };
    let mut master = Master::new(&vec![1.0; rows().count()], rows().enumerate().map(alone).collect(), &[]);
    master.columns.extend(bin_types.iter().map(|bin_type| Column {
        cost: cost(bin_type),
        entries: scaled(bin_type),
        bin_type: None,
    }));
    master.improve(200);
    let mut duals = master.y.iter();
    let price_of = |t: &f64| if *t > 0.0 { duals.next().map_or(0.0, |y| y.max(0.0) / t) } else { 0.0 };
    let price: Vec<f64> = total.iter().map(price_of).collect();
    let dual_prices =
        |size: &[i64]| size.iter().zip(&price).map(|(s, p)| (*s).max(0) as f64 * p).sum::<f64>();
    let item_types: IndexVec<ItemTypeIx, f64> =
        problem.item_types.ids().map(|k| dual_prices(problem.size(k))).collect();
    let most = bin_types
        .iter()
        .map(|s| dual_prices(problem.row(s.variant, s.offer)) * (1.0 + 1e-9) / cost(s))
        .fold(0.0, f64::max);
    let bound = lower(&item_types, demand, most, 0.0);
    // Dual price per pod, scaled so that a full instance has about its cost as value.
    let item_types = item_types.into_iter().map(|w| if most > 0.0 { w / most } else { 0.0 }).collect();
    (DualPrices { items: item_types, limits: IndexVec::new() }, bound)
}

/// One pricing round.
struct Round<'a> {
    problem: &'a PackingProblem,
    bin_types: &'a IndexVec<BinTypeIx, BinType>,
    /// Bin types that may have a pattern of positive reduced value for this demand.
    active: &'a [BinTypeIx],
    relaxation: &'a Relaxation,
    demand: &'a IndexVec<ItemTypeIx, u32>,
    /// Those of the master problem.
    dual_prices: &'a DualPrices,
    per_round: usize,
}

/// The best pattern known of a bin type, under the dual prices of a pricing round.
struct PricedPattern {
    /// No pattern of the bin type has more value per cost under the guide's prices.
    upper_bound: f64,
    /// Value per cost of `pattern` under the prices of the master problem.
    density: f64,
    bin_type: BinTypeIx,
    pattern: Pattern,
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
    fn price(&self, guide: &DualPrices, nodes: u64, most_steps: u64) -> Priced {
        let mut out = Priced::default();
        let mut tried: Vec<PricedPattern> = Vec::new();
        for at in self.active.iter().copied() {
            let bin_type = &self.bin_types[at];
            let list = items(self.problem, bin_type, &guide.items, self.demand);
            if list.is_empty() {
                continue;
            }
            let quick = knapsack::quick(&list, self.problem.row(bin_type.variant, bin_type.offer));
            out.steps += quick.steps;
            let ratio = self.value(&quick.pattern) / self.charged(bin_type, self.dual_prices);
            tried.push(PricedPattern {
                upper_bound: quick.most / self.charged(bin_type, guide),
                density: ratio,
                bin_type: at,
                pattern: quick.pattern,
            });
        }
        tried.sort_by(|a, b| b.upper_bound.total_cmp(&a.upper_bound).then(a.bin_type.cmp(&b.bin_type)));
        let better = 1.0 + 1e-6;
        let mut good = tried.iter().filter(|priced| priced.density > better).count();
        for (searched, priced) in tried.iter_mut().enumerate() {
            // No remaining bin type can have a value above its cost.
            let enough = (good > 0 && searched >= 2) || good >= self.per_round || out.steps > most_steps;
            if nodes == 0 || priced.upper_bound <= better || enough {
                break;
            }
            let bin_type = &self.bin_types[priced.bin_type];
            let cost = self.charged(bin_type, guide);
            let list = items(self.problem, bin_type, &guide.items, self.demand);
            let exact =
                knapsack::fill(&list, self.problem.row(bin_type.variant, bin_type.offer), cost * 1e-4, nodes);
            out.steps += exact.steps;
            priced.upper_bound = priced.upper_bound.min(exact.most / cost);
            let ratio = self.value(&exact.pattern) / self.charged(bin_type, self.dual_prices);
            if ratio > priced.density {
                good += usize::from(priced.density <= better && ratio > better);
                priced.density = ratio;
                priced.pattern = exact.pattern;
            }
        }
        let most = tried.iter().map(|priced| priced.upper_bound).fold(0.0, f64::max);
        out.bound = lower(&guide.items, self.demand, most, self.relaxation.value_of_limits(guide));
        tried.retain(|priced| priced.density > better);
        tried.sort_by(|a, b| b.density.total_cmp(&a.density).then(a.bin_type.cmp(&b.bin_type)));
        tried.truncate(self.per_round);
        for PricedPattern { bin_type, pattern, .. } in tried {
            out.found.push(self.relaxation.column(
                self.problem,
                bin_type,
                &self.bin_types[bin_type],
                &pattern,
            ));
        }
        out
    }

    /// What an instance is charged at these prices of limits.
    fn charged(&self, bin_type: &BinType, dual_prices: &DualPrices) -> f64 {
        cost(self.problem, bin_type) + dual_prices.charge(&bin_type.uses)
    }

    fn value(&self, pattern: &[(ItemTypeIx, u32)]) -> f64 {
        pattern.iter().map(|(k, n)| self.dual_prices.items[*k] * f64::from(*n)).sum()
    }
}

/// The search's cost of an instance, without its uses of limits.
#[expect(clippy::cast_precision_loss, reason = "has a margin")]
fn cost(problem: &PackingProblem, bin_type: &BinType) -> f64 {
    problem.cost(bin_type.variant, bin_type.offer).max(1) as f64
}

/// Patterns of a packing whose bin types are among those considered.
pub(crate) fn of_bins<'b>(
    bin_types: &IndexVec<BinTypeIx, BinType>,
    bins: impl IntoIterator<Item = &'b Bin>,
) -> Vec<(BinTypeIx, Pattern)> {
    let mut numbers: FxHashMap<(VariantIx, OfferIx), Vec<BinTypeIx>> = FxHashMap::default();
    for (at, bin_type) in bin_types.enumerate() {
        numbers.entry((bin_type.variant, bin_type.offer)).or_default().push(at);
    }
    let mut patterns: FxHashSet<(BinTypeIx, Pattern)> = FxHashSet::default();
    for bin in bins {
        let places = numbers.get(&(bin.variant, bin.offer)).into_iter().flatten();
        let holds = |at: &&BinTypeIx| bin.pattern.iter().all(|(k, _)| bin_types[**at].item_types.contains(k));
        if let Some(at) = places.into_iter().find(holds) {
            let mut pattern = bin.pattern.clone();
            pattern.sort_unstable();
            patterns.insert((*at, pattern));
        }
    }
    let mut list: Vec<_> = patterns.into_iter().collect();
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

/// Bin types that no other dominates in price, in room for the remaining demand and in uses of limits.
fn active(
    problem: &PackingProblem,
    bin_types: &IndexVec<BinTypeIx, BinType>,
    demand: &IndexVec<ItemTypeIx, u32>,
) -> Vec<BinTypeIx> {
    let mut kept: Vec<(BinTypeIx, SmallVec<[i64; 6]>, Vec<ItemTypeIx>)> = Vec::new();
    for (at, bin_type) in bin_types.enumerate() {
        let row = problem.row(bin_type.variant, bin_type.offer);
        let item_types: Vec<ItemTypeIx> =
            bin_type.item_types.iter().copied().filter(|k| demand[*k] > 0).collect();
        if item_types.is_empty() {
            continue;
        }
        let mut useful: SmallVec<[i64; 6]> = SmallVec::from_elem(0, problem.d);
        for item_type in &item_types {
            for (u, s) in useful.iter_mut().zip(problem.size(*item_type)) {
                *u = u.saturating_add(s.saturating_mul(i64::from(demand[*item_type])));
            }
        }
        useful.iter_mut().zip(row).for_each(|(u, r)| *u = (*u).min(*r));
        let cost = problem.cost(bin_type.variant, bin_type.offer);
        let beaten = |(other, room, theirs): &(BinTypeIx, SmallVec<[i64; 6]>, Vec<ItemTypeIx>)| {
            let other = &bin_types[*other];
            problem.cost(other.variant, other.offer) <= cost
                && covers(room, &useful)
                && uses_no_more(&other.uses, &bin_type.uses)
                && item_types.iter().all(|k| theirs.contains(k))
        };
        if !kept.iter().rev().any(beaten) {
            kept.push((at, useful, item_types));
        }
    }
    kept.into_iter().map(|(at, _, _)| at).collect()
}

/// The best instance for one item type alone.
#[derive(Clone, Copy)]
struct Alone {
    /// Cost per pod.
    per: f64,
    bin_type: BinTypeIx,
    copies: u32,
}

fn alone(
    problem: &PackingProblem,
    bin_types: &IndexVec<BinTypeIx, BinType>,
    demand: &IndexVec<ItemTypeIx, u32>,
) -> IndexVec<ItemTypeIx, Option<Alone>> {
    let mut best: IndexVec<ItemTypeIx, Option<Alone>> = IndexVec::filled(None, problem.item_types.len());
    for (at, bin_type) in bin_types.enumerate() {
        let row = problem.row(bin_type.variant, bin_type.offer);
        let cost = cost(problem, bin_type);
        for item_type in bin_type.item_types.iter().copied().filter(|k| demand[*k] > 0) {
            let most = copies(problem, item_type, demand[item_type]);
            let n = fits(problem.size(item_type), row).min(most);
            let per = cost / f64::from(n.max(1));
            if n > 0 && best[item_type].is_none_or(|least| per < least.per) {
                best[item_type] = Some(Alone { per, bin_type: at, copies: n });
            }
        }
    }
    best
}

/// The linear relaxation: a row for each item type that some instance holds, and then one for each limit.
struct Relaxation {
    rows: IndexVec<MasterRowIx, ItemTypeIx>,
    row_of: IndexVec<ItemTypeIx, Option<MasterRowIx>>,
    /// Demand of each row.
    needs: Vec<f64>,
    /// What is left of each limit.
    left: Vec<f64>,
    master: Master,
}

/// A pod costs so many times its cost alone while the columns that are known have no room for it within the limits.
const WITHOUT_ROOM: f64 = 100.0;

impl Relaxation {
    /// A master problem of the best instance for each item type alone, and of `seed`.
    fn new(
        search: SearchContext<'_>,
        demand: &IndexVec<ItemTypeIx, u32>,
        seed: &[(BinTypeIx, Pattern)],
    ) -> Self {
        let SearchContext { problem, bin_types, limit_rows, limits, .. } = search;
        let mut rows: IndexVec<MasterRowIx, ItemTypeIx> = IndexVec::new();
        let mut row_of = IndexVec::filled(None, problem.item_types.len());
        let mut start = IndexVec::new();
        for (item_type, best) in alone(problem, bin_types, demand).enumerate() {
            let Some(Alone { per, bin_type, copies }) = *best else { continue };
            let (row, n) = (rows.push(item_type), f64::from(copies));
            row_of[item_type] = Some(row);
            let entries = SmallVec::from_slice(&[(row, n)]);
            start.push(Column { cost: per * n, entries, bin_type: Some(bin_type) });
        }
        let needs: Vec<f64> = rows.iter().map(|k| f64::from(demand[*k])).collect();
        let left = limit_rows.left(limits);
        let mut known: Vec<(BinTypeIx, Pattern)> = Vec::new();
        if !left.is_empty() {
            // These instances together may be more than the limits allow, and the simplex begins with what is allowed.
            for column in &mut start {
                let pods = column.entries.iter().map(|(row, n)| (rows[*row], *n));
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count of copies"
                )]
                let pattern: Pattern = pods.map(|(item_type, n)| (item_type, n as u32)).collect();
                known.extend(column.bin_type.take().map(|bin_type| (bin_type, pattern)));
                column.cost *= WITHOUT_ROOM;
            }
        }
        let master = Master::new(&needs, start, &left);
        let mut relaxation = Self { rows, row_of, needs, left, master };
        for (bin_type, pattern) in known.iter().chain(seed) {
            let column = relaxation.column(problem, *bin_type, &bin_types[*bin_type], pattern);
            if column.entries.iter().any(|(row, _)| relaxation.rows.find(*row).is_some()) {
                relaxation.master.columns.push(column);
            }
        }
        relaxation
    }

    /// The column of a pattern, without item types that have no row.
    fn column(
        &self,
        problem: &PackingProblem,
        number: BinTypeIx,
        bin_type: &BinType,
        pattern: &[(ItemTypeIx, u32)],
    ) -> Column {
        let pods = pattern.iter().filter_map(|(k, n)| Some((self.row_of[*k]?, f64::from(*n))));
        let first = self.rows.len();
        let uses = bin_type.uses.iter().map(|(row, n)| (MasterRowIx::from(first + usize::from(*row)), -n));
        Column { cost: cost(problem, bin_type), entries: pods.chain(uses).collect(), bin_type: Some(number) }
    }

    /// Writes the dual price of each row's item type, and of each limit.
    fn write_duals(&self, dual_prices: &mut DualPrices) {
        for (item_type, y) in self.rows.iter().zip(&self.master.y) {
            dual_prices.items[*item_type] = y.max(0.0);
        }
        dual_prices.limits = self.master.y.iter().skip(self.rows.len()).map(|y| y.max(0.0)).collect();
    }

    /// Value of the demand at the duals, less that of the limits.
    fn value(&self) -> f64 {
        let all = self.needs.iter().copied().chain(self.left.iter().map(|left| -left));
        all.zip(&self.master.y).map(|(n, y)| n * y).sum()
    }

    /// What all that is left of the limits is worth.
    fn value_of_limits(&self, dual_prices: &DualPrices) -> f64 {
        self.left.iter().zip(&dual_prices.limits).map(|(left, price)| left * price).sum()
    }

    /// All columns, by item type.
    fn into_columns(self) -> IndexVec<ColumnIx, Column<ItemTypeIx>> {
        let Self { rows, master, .. } = self;
        let named = |Column { cost, entries, bin_type }: Column| {
            let pods = entries.into_iter().filter_map(|(row, n)| Some((*rows.find(row)?, n)));
            let entries = pods.collect();
            Column { cost, entries, bin_type }
        };
        master.columns.into_iter().map(named).collect()
    }
}

/// Generates columns for `demand` until none improves the master or `budget` steps are spent. `seed` are
/// known columns, `guide` are the first dual prices.
#[expect(clippy::cast_precision_loss, reason = "has a margin")]
pub(crate) fn generate(
    search: SearchContext<'_>,
    demand: &IndexVec<ItemTypeIx, u32>,
    seed: &[(BinTypeIx, Pattern)],
    guide: &DualPrices,
    knapsack_effort: KnapsackEffort,
    budget: u64,
) -> Generated {
    let SearchContext { problem, bin_types, cancel, .. } = search;
    let limits: IndexVec<LimitRowIx, f64> = IndexVec::filled(0.0, search.limit_rows.len());
    let none = DualPrices { items: IndexVec::filled(0.0, problem.item_types.len()), limits: limits.clone() };
    let mut out = Generated { dual_prices: none, ..Generated::default() };
    let mut relaxation = Relaxation::new(search, demand, seed);
    if relaxation.rows.is_empty() {
        return out;
    }
    let mut rounds = 0;
    let mut center = DualPrices { items: guide.items.clone(), limits };
    let mut calm = CALM;
    let mut nodes = NODES;
    let active = active(problem, bin_types, demand);
    loop {
        out.steps += relaxation.master.improve(40 + 2 * relaxation.rows.len());
        if out.steps > budget || cancel() {
            break;
        }
        relaxation.write_duals(&mut out.dual_prices);
        let round = Round {
            problem,
            bin_types,
            active: &active,
            relaxation: &relaxation,
            demand,
            dual_prices: &out.dual_prices,
            per_round: PER_ROUND,
        };
        let between = center.towards(&out.dual_prices, calm);
        let careful = if calm > 0.0 || knapsack_effort == KnapsackEffort::Little { 0 } else { nodes };
        let priced = round.price(&between, careful, budget.saturating_sub(out.steps));
        out.steps += priced.steps;
        if priced.bound > out.bound {
            out.bound = priced.bound;
            center = between;
        }
        rounds += 1;
        if rounds > 2_000 || relaxation.value() <= out.bound as f64 * (1.0 + 1e-4) {
            break;
        }
        if !priced.found.is_empty() {
            calm = CALM;
            relaxation.master.columns.extend(priced.found);
        } else if calm > 0.0 {
            // The smoothed dual prices hide what the master lacks: move closer to its own.
            calm = if calm > 0.2 { calm / 2.0 } else { 0.0 };
        } else if knapsack_effort == KnapsackEffort::Little || nodes >= MOST_NODES {
            break;
        } else {
            // A deeper search may prove absence, which raises the bound.
            nodes *= 8;
        }
    }
    relaxation.write_duals(&mut out.dual_prices);
    out.solution = relaxation.master.solution();
    out.columns = relaxation.into_columns();
    out
}
