//! Column generation: fillings of machines that together cover the demand at the least cost, were they divisible.
//!
//! The duals say what each pod is worth; from them come fillings that are worth more than their machine costs, a
//! proven lower bound, and weights for the greedy searches.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    Masks, Yard, fits,
    knapsack::{self, Thing},
    simplex::{Column, Master},
};
use crate::bits::Bits;

/// What a search works on: the pods, the machines worth launching, and who may end it.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) yard: &'a Yard,
    pub(crate) sites: &'a [Site],
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
}

/// A machine worth launching for some set of kinds.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) variant: u32,
    pub(crate) offer: u32,
    /// Kinds that it may hold and that fit it.
    pub(crate) kinds: Arc<[u32]>,
}

/// All machines worth launching: per variant and set of kinds, those that no other one beats in room and price.
#[expect(clippy::indexing_slicing, reason = "kinds, variants and masks are numbered by the yard")]
///
/// Room beyond the whole demand is no advantage, which leaves few machines for few pods.
pub(crate) fn sites(yard: &Yard, masks: &Masks) -> Vec<Site> {
    let mut sites = Vec::new();
    let mut clipped: Vec<Vec<i64>> = Vec::new();
    for variant in 0..yard.variants.len() {
        let number = u32::try_from(variant).unwrap_or(u32::MAX);
        // Kinds by mask on this variant.
        let mut by_mask: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
        for (kind, it) in yard.kinds.iter().enumerate() {
            for (_, mask) in it.options.iter().filter(|(v, _)| *v == number) {
                by_mask.entry(*mask).or_default().push(u32::try_from(kind).unwrap_or(u32::MAX));
            }
        }
        let list: Vec<u32> = by_mask.keys().copied().collect();
        let size = yard.variants[variant].catalog.offers.len();
        for (set, bits) in parts(masks, &list, size) {
            let all: Vec<u32> = set
                .iter()
                .flat_map(|at| list.get(*at).and_then(|m| by_mask.get(m)).into_iter().flatten())
                .copied()
                .collect();
            let everyone: Arc<[u32]> = all.clone().into();
            let mut whole = vec![0i64; yard.d];
            for kind in &all {
                let count = i64::from(yard.kinds[*kind as usize].count);
                for (w, s) in whole.iter_mut().zip(yard.size(*kind as usize)) {
                    *w = w.saturating_add(s.saturating_mul(count));
                }
            }
            let mut largest = vec![0i64; yard.d];
            for kind in &all {
                for (l, s) in largest.iter_mut().zip(yard.size(*kind as usize)) {
                    *l = (*l).max(*s);
                }
            }
            clipped.clear();
            for offer in yard.variants[variant].table.edges(&bits).ladder.iter() {
                let row = yard.row(number, *offer);
                let useful: Vec<i64> = row.iter().zip(&whole).map(|(r, w)| (*r).min(*w)).collect();
                let beaten = |kept: &Vec<i64>| kept.iter().zip(&useful).all(|(k, u)| k >= u);
                if clipped.iter().rev().any(beaten) {
                    continue;
                }
                // Nothing is of more use than room for all.
                let holds_all = useful == whole;
                clipped.push(useful);
                let kinds: Arc<[u32]> = if fits(&largest, row) > 0 {
                    Arc::clone(&everyone)
                } else {
                    all.iter().copied().filter(|k| fits(yard.size(*k as usize), row) > 0).collect()
                };
                if kinds.is_empty() {
                    continue;
                }
                sites.push(Site { variant: number, offer: *offer, kinds });
                if holds_all {
                    break;
                }
            }
        }
    }
    sites
}

/// Offerings by which of the sets in `list` they are in, those in none left out.
fn parts(masks: &Masks, list: &[u32], size: usize) -> Vec<(SmallVec<[usize; 4]>, Bits)> {
    let mut parts: Vec<(SmallVec<[usize; 4]>, Bits)> = vec![(SmallVec::new(), Bits::all(size))];
    for (at, mask) in list.iter().enumerate() {
        let inside = masks.bits(*mask);
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

/// What the generation came to.
#[derive(Debug, Default)]
pub(crate) struct Generated {
    /// What each kind's pod is worth.
    pub(crate) worth: Vec<f64>,
    pub(crate) columns: Vec<Column>,
    /// Columns in use and how much of each.
    pub(crate) solution: Vec<(usize, f64)>,
    /// No packing of the demand costs less.
    pub(crate) bound: i64,
    pub(crate) steps: u64,
}

/// Copies of a kind that one machine may hold, as far as its own rules say.
fn copies(yard: &Yard, kind: u32, demand: u32) -> u32 {
    let Some(rules) = yard.kinds.get(kind as usize).and_then(|k| k.rules.as_deref()) else { return demand };
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

#[expect(clippy::indexing_slicing, reason = "kinds are numbered by the yard")]
fn things<'a>(yard: &'a Yard, site: &Site, worth: &[f64], demand: &[u32]) -> Vec<Thing<'a>> {
    site.kinds
        .iter()
        .filter(|k| worth[**k as usize] > 0.0 && demand[**k as usize] > 0)
        .map(|k| Thing {
            number: *k,
            size: yard.size(*k as usize),
            value: worth[*k as usize],
            copies: copies(yard, *k, demand[*k as usize]),
        })
        .filter(|t| t.copies > 0)
        .collect()
}

/// The least that machines can cost which hold the whole demand, from what pods are worth: if a machine's best filling
/// is worth at most `most` times its cost, whatever machine, then the demand costs at least its worth divided by `most`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounded down with a margin"
)]
fn lower(worth: &[f64], demand: &[u32], most: f64) -> i64 {
    let total: f64 = worth.iter().zip(demand).map(|(w, n)| w.max(0.0) * f64::from(*n)).sum();
    if most <= 0.0 { 0 } else { (total / most * (1.0 - 1e-9)).floor().min(i64::MAX as f64 / 4.0) as i64 }
}

/// The bound that resources alone give: what room is worth at the best prices.
#[expect(clippy::indexing_slicing, reason = "dense tables of one row per resource")]
#[expect(clippy::cast_precision_loss, reason = "has a margin")]
pub(crate) fn resource_worth(yard: &Yard, sites: &[Site], demand: &[u32]) -> (Vec<f64>, i64) {
    let d = yard.d;
    let mut total = vec![0.0f64; d];
    for (kind, count) in demand.iter().enumerate() {
        for (t, s) in total.iter_mut().zip(yard.size(kind)) {
            *t += *s as f64 * f64::from(*count);
        }
    }
    let rows: Vec<usize> = (0..d).filter(|k| total[*k] > 0.0).collect();
    // Units in which the demand is one.
    let scaled = |site: &Site| -> SmallVec<[(u32, f64); 4]> {
        let row = yard.row(site.variant, site.offer);
        let entries = rows
            .iter()
            .enumerate()
            .map(|(at, k)| (u32::try_from(at).unwrap_or(0), row[*k].max(0) as f64 / total[*k]));
        entries.filter(|(_, a)| *a > 0.0).collect()
    };
    let cost = |site: &Site| yard.cost(site.variant, site.offer).max(1) as f64;
    let dearest = sites.iter().map(&cost).fold(1.0, f64::max);
    let start = (0..rows.len())
        .map(|row| Column {
            cost: dearest * 1e6,
            entries: SmallVec::from_slice(&[(u32::try_from(row).unwrap_or(0), 1.0)]),
            site: u32::MAX,
        })
        .collect();
    let mut master = Master::new(&vec![1.0; rows.len()], start);
    master.columns.extend(sites.iter().map(|site| Column {
        cost: cost(site),
        entries: scaled(site),
        site: 0,
    }));
    master.improve(200);
    let mut price = vec![0.0; d];
    for (at, k) in rows.iter().enumerate() {
        price[*k] = master.y[at].max(0.0) / total[*k];
    }
    let worth = |size: &[i64]| size.iter().zip(&price).map(|(s, p)| (*s).max(0) as f64 * p).sum::<f64>();
    let kinds: Vec<f64> = (0..yard.kinds.len()).map(|k| worth(yard.size(k))).collect();
    let most = sites
        .iter()
        .map(|s| worth(yard.row(s.variant, s.offer)) * (1.0 + 1e-9) / cost(s))
        .fold(0.0, f64::max);
    let bound = lower(&kinds, demand, most);
    // Worth per pod, such that a full machine is worth about its cost.
    let kinds = kinds.into_iter().map(|w| if most > 0.0 { w / most } else { 0.0 }).collect();
    (kinds, bound)
}

/// One round of pricing.
struct Round<'a> {
    yard: &'a Yard,
    sites: &'a [Site],
    /// Sites that may be worth something for this demand.
    active: &'a [usize],
    row_of: &'a FxHashMap<u32, u32>,
    demand: &'a [u32],
    /// What each kind's pod is worth to the master.
    worth: &'a [f64],
    per_round: usize,
}

/// What a round came to.
#[derive(Default)]
struct Priced {
    bound: i64,
    found: Vec<Column>,
    steps: u64,
}

impl Round<'_> {
    /// Fillings that are worth more to the master than they cost, looked for with the worths `guide`, and the bound that
    /// `guide` gives. Every machine is filled quickly; the promising ones carefully, where that found nothing.
    #[expect(clippy::indexing_slicing, reason = "sites are numbered by their list")]
    fn price(&self, guide: &[f64], nodes: u64, most_steps: u64) -> Priced {
        let mut out = Priced::default();
        // (hope, what the found one is worth to the master, site, content), per cost.
        let mut tried: Vec<(f64, f64, usize, super::greedy::Content)> = Vec::new();
        for at in self.active.iter().copied() {
            let site = &self.sites[at];
            let list = things(self.yard, site, guide, self.demand);
            if list.is_empty() {
                continue;
            }
            let cost = self.cost(site);
            let quick = knapsack::quick(&list, self.yard.row(site.variant, site.offer));
            out.steps += quick.steps;
            let ratio = self.value(&quick.content) / cost;
            tried.push((quick.most / cost, ratio, at, quick.content));
        }
        tried.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
        let better = 1.0 + 1e-6;
        let mut good = tried.iter().filter(|t| t.1 > better).count();
        for (searched, entry) in tried.iter_mut().enumerate() {
            // Nothing that is left can be worth more than it costs.
            let enough = (good > 0 && searched >= 2) || good >= self.per_round || out.steps > most_steps;
            if nodes == 0 || entry.0 <= better || enough {
                break;
            }
            let site = &self.sites[entry.2];
            let cost = self.cost(site);
            let list = things(self.yard, site, guide, self.demand);
            let filling = knapsack::fill(&list, self.yard.row(site.variant, site.offer), cost * 1e-4, nodes);
            out.steps += filling.steps;
            entry.0 = entry.0.min(filling.most / cost);
            let ratio = self.value(&filling.content) / cost;
            if ratio > entry.1 {
                good += usize::from(entry.1 <= better && ratio > better);
                entry.1 = ratio;
                entry.3 = filling.content;
            }
        }
        let most = tried.iter().map(|t| t.0).fold(0.0, f64::max);
        out.bound = lower(guide, self.demand, most);
        tried.retain(|t| t.1 > better);
        tried.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
        tried.truncate(self.per_round);
        for (_, _, at, content) in tried {
            let entries = content.iter().filter_map(|(k, n)| Some((*self.row_of.get(k)?, f64::from(*n))));
            out.found.push(Column {
                cost: self.cost(&self.sites[at]),
                entries: entries.collect(),
                site: u32::try_from(at).unwrap_or(u32::MAX),
            });
        }
        out
    }

    #[expect(clippy::cast_precision_loss, reason = "has a margin")]
    fn cost(&self, site: &Site) -> f64 {
        self.yard.cost(site.variant, site.offer).max(1) as f64
    }

    #[expect(clippy::indexing_slicing, reason = "kinds are numbered by the yard")]
    fn value(&self, content: &[(u32, u32)]) -> f64 {
        content.iter().map(|(k, n)| self.worth[*k as usize] * f64::from(*n)).sum()
    }
}

/// Fillings of machines that are worth launching, as a packing has them.
pub(crate) fn of_bins(sites: &[Site], bins: &[super::Bin]) -> Vec<(u32, super::greedy::Content)> {
    let mut numbers: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
    for (at, site) in sites.iter().enumerate() {
        numbers.entry((site.variant, site.offer)).or_default().push(u32::try_from(at).unwrap_or(u32::MAX));
    }
    let mut seen: rustc_hash::FxHashSet<(u32, super::greedy::Content)> = rustc_hash::FxHashSet::default();
    for bin in bins {
        let places = numbers.get(&(bin.variant, bin.offer)).into_iter().flatten();
        let holds = |at: &&u32| {
            sites.get(**at as usize).is_some_and(|s| bin.content.iter().all(|(k, _)| s.kinds.contains(k)))
        };
        if let Some(at) = places.into_iter().find(holds) {
            let mut content = bin.content.clone();
            content.sort_unstable();
            seen.insert((*at, content));
        }
    }
    let mut list: Vec<_> = seen.into_iter().collect();
    list.sort_unstable();
    list
}

/// How much the worths that price differ from the master's towards those that gave the best bound: the master's own jump
/// about (Wentges 1997).
const CALM: f64 = 0.6;
/// Columns that one round adds at most.
const PER_ROUND: usize = 24;
/// Nodes of a careful search: at first, and at most.
const NODES: u64 = 4_000;
const MOST_NODES: u64 = 1_000_000;

/// How hard fillings are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// Quick fillings alone: no bound is wanted.
    Little,
    /// Until nothing is left that could be worth more.
    Full,
}

/// Sites that no other one beats in price and in room for what is left.
#[expect(clippy::indexing_slicing, reason = "sites are numbered by their list")]
fn active(yard: &Yard, sites: &[Site], demand: &[u32]) -> Vec<usize> {
    let mut kept: Vec<(usize, SmallVec<[i64; 6]>, Vec<u32>)> = Vec::new();
    for (at, site) in sites.iter().enumerate() {
        let row = yard.row(site.variant, site.offer);
        let kinds: Vec<u32> = site.kinds.iter().copied().filter(|k| demand[*k as usize] > 0).collect();
        if kinds.is_empty() {
            continue;
        }
        let mut useful: SmallVec<[i64; 6]> = SmallVec::from_elem(0, yard.d);
        for kind in &kinds {
            for (u, s) in useful.iter_mut().zip(yard.size(*kind as usize)) {
                *u = u.saturating_add(s.saturating_mul(i64::from(demand[*kind as usize])));
            }
        }
        useful.iter_mut().zip(row).for_each(|(u, r)| *u = (*u).min(*r));
        let cost = yard.cost(site.variant, site.offer);
        let beaten = |(other, room, theirs): &(usize, SmallVec<[i64; 6]>, Vec<u32>)| {
            let other = &sites[*other];
            yard.cost(other.variant, other.offer) <= cost
                && room.iter().zip(&useful).all(|(r, u)| r >= u)
                && kinds.iter().all(|k| theirs.contains(k))
        };
        if !kept.iter().rev().any(beaten) {
            kept.push((at, useful, kinds));
        }
    }
    kept.into_iter().map(|(at, _, _)| at).collect()
}

/// Generates columns for `demand` until nothing helps or `budget` steps are spent. `seed` are columns known before,
/// `guide` what pods may be worth to begin with.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "kinds and sites are numbered by their lists"
)]
pub(crate) fn generate(
    field: Field<'_>,
    demand: &[u32],
    seed: &[(u32, super::greedy::Content)],
    guide: &[f64],
    care: Care,
    budget: u64,
) -> Generated {
    let Field { yard, sites, stop } = field;
    let mut out = Generated { worth: vec![0.0; yard.kinds.len()], ..Generated::default() };
    // The best machine for each kind alone.
    let mut alone: Vec<Option<(f64, u32, u32)>> = vec![None; yard.kinds.len()];
    for (at, site) in sites.iter().enumerate() {
        let row = yard.row(site.variant, site.offer);
        let cost = yard.cost(site.variant, site.offer).max(1) as f64;
        for kind in site.kinds.iter().filter(|k| demand[**k as usize] > 0) {
            let n = fits(yard.size(*kind as usize), row).min(copies(yard, *kind, demand[*kind as usize]));
            let per = cost / f64::from(n.max(1));
            if n > 0 && alone[*kind as usize].is_none_or(|(least, _, _)| per < least) {
                alone[*kind as usize] = Some((per, u32::try_from(at).unwrap_or(u32::MAX), n));
            }
        }
    }
    let rows: Vec<u32> =
        (0..yard.kinds.len()).filter(|k| alone[*k].is_some()).filter_map(|k| u32::try_from(k).ok()).collect();
    if rows.is_empty() {
        return out;
    }
    let start = rows.iter().enumerate().filter_map(|(row, kind)| {
        let (per, site, n) = alone[*kind as usize]?;
        let row = u32::try_from(row).unwrap_or(0);
        let n = f64::from(n);
        Some(Column { cost: per * n, entries: SmallVec::from_slice(&[(row, n)]), site })
    });
    let needs: Vec<f64> = rows.iter().map(|k| f64::from(demand[*k as usize])).collect();
    let mut master = Master::new(&needs, start.collect());
    let mut row_of: FxHashMap<u32, u32> = FxHashMap::default();
    for (row, kind) in rows.iter().enumerate() {
        row_of.insert(*kind, u32::try_from(row).unwrap_or(0));
    }
    for (site, content) in seed {
        let it = &sites[*site as usize];
        let entries: SmallVec<[(u32, f64); 4]> =
            content.iter().filter_map(|(k, n)| Some((*row_of.get(k)?, f64::from(*n)))).collect();
        if !entries.is_empty() {
            let cost = yard.cost(it.variant, it.offer).max(1) as f64;
            master.columns.push(Column { cost, entries, site: *site });
        }
    }
    let mut rounds = 0;
    let mut center: Vec<f64> = guide.to_vec();
    let mut calm = CALM;
    let mut nodes = NODES;
    let active = active(yard, sites, demand);
    loop {
        out.steps += master.improve(40 + 2 * rows.len());
        if out.steps > budget || stop() {
            break;
        }
        for (row, kind) in rows.iter().enumerate() {
            out.worth[*kind as usize] = master.y[row].max(0.0);
        }
        let round = Round {
            yard,
            sites,
            active: &active,
            row_of: &row_of,
            demand,
            worth: &out.worth,
            per_round: PER_ROUND,
        };
        let between: Vec<f64> =
            center.iter().zip(&out.worth).map(|(c, w)| calm * c + (1.0 - calm) * w).collect();
        let careful = if calm > 0.0 || care == Care::Little { 0 } else { nodes };
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
                if care == Care::Little || nodes >= MOST_NODES {
                    break;
                }
                // What can't be found may be proven absent, which raises the bound.
                nodes *= 8;
                continue;
            }
            // The worths between don't show what the master lacks: closer to its own.
            calm = if calm > 0.2 { calm / 2.0 } else { 0.0 };
            continue;
        }
        calm = CALM;
        master.columns.extend(priced.found);
    }
    for (row, kind) in rows.iter().enumerate() {
        out.worth[*kind as usize] = master.y[row].max(0.0);
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
