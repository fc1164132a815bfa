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
        let mut by_set: FxHashMap<Vec<bool>, crate::bits::Bits> = FxHashMap::default();
        let size = yard.variants[variant].catalog.offers.len();
        let mut any = crate::bits::Bits::none(size);
        list.iter().for_each(|mask| any.unite(masks.bits(*mask)));
        for offer in any.iter() {
            let set = list.iter().map(|m| masks.bits(*m).contains(offer)).collect();
            by_set.entry(set).or_insert_with(|| crate::bits::Bits::none(size)).insert(offer);
        }
        let mut sets: Vec<_> = by_set.into_iter().collect();
        sets.sort_by(|a, b| a.0.cmp(&b.0));
        for (set, bits) in sets {
            let all: Vec<u32> = set
                .iter()
                .zip(&list)
                .filter(|(yes, _)| **yes)
                .flat_map(|(_, m)| by_mask[m].iter().copied())
                .collect();
            let everyone: Arc<[u32]> = all.clone().into();
            let mut whole = vec![0i64; yard.d];
            for kind in &all {
                let count = i64::from(yard.kinds[*kind as usize].count);
                for (w, s) in whole.iter_mut().zip(yard.size(*kind as usize)) {
                    *w = w.saturating_add(s.saturating_mul(count));
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
                clipped.push(useful);
                let fitting: Vec<u32> =
                    all.iter().copied().filter(|k| fits(yard.size(*k as usize), row) > 0).collect();
                if fitting.is_empty() {
                    continue;
                }
                let kinds =
                    if fitting.len() == everyone.len() { Arc::clone(&everyone) } else { fitting.into() };
                sites.push(Site { variant: number, offer: *offer, kinds });
            }
        }
    }
    sites
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

/// One round of pricing: adds fillings worth more than they cost. Answers the bound that the duals give, and if any
/// filling was found.
#[expect(clippy::indexing_slicing, clippy::cast_precision_loss, reason = "sites are numbered by their list")]
fn price(
    yard: &Yard,
    sites: &[Site],
    master: &mut Master,
    rows: &[u32],
    demand: &[u32],
    steps: &mut u64,
    per_round: usize,
) -> (i64, bool) {
    let mut worth = vec![0.0; yard.kinds.len()];
    for (row, kind) in rows.iter().enumerate() {
        worth[*kind as usize] = master.y[row].max(0.0);
    }
    let mut row_of: FxHashMap<u32, u32> = FxHashMap::default();
    for (row, kind) in rows.iter().enumerate() {
        row_of.insert(*kind, u32::try_from(row).unwrap_or(0));
    }
    let mut hopes: Vec<(f64, usize)> = Vec::new();
    for (at, site) in sites.iter().enumerate() {
        let list = things(yard, site, &worth, demand);
        if list.is_empty() {
            continue;
        }
        let cost = yard.cost(site.variant, site.offer).max(1) as f64;
        let (most, work) = knapsack::estimate(&list, yard.row(site.variant, site.offer));
        *steps += work;
        hopes.push((most / cost, at));
    }
    hopes.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let (mut most, mut added) = (0.0f64, 0);
    for (hope, at) in hopes {
        // What is left can't beat what was found, and isn't worth more than it costs.
        if hope <= most || added >= per_round {
            most = most.max(hope);
            break;
        }
        let site = &sites[at];
        let cost = yard.cost(site.variant, site.offer).max(1) as f64;
        let list = things(yard, site, &worth, demand);
        let filling = knapsack::fill(&list, yard.row(site.variant, site.offer), cost * 2e-4, 4_000);
        *steps += filling.steps;
        most = most.max(filling.most / cost);
        if filling.value > cost * (1.0 + 1e-6) {
            added += 1;
            let entries = filling.content.iter().filter_map(|(k, n)| Some((*row_of.get(k)?, f64::from(*n))));
            master.columns.push(Column {
                cost,
                entries: entries.collect(),
                site: u32::try_from(at).unwrap_or(u32::MAX),
            });
        }
    }
    (lower(&worth, demand, most), added > 0)
}

/// Generates columns for `demand` until nothing helps or `budget` steps are spent. `seed` are columns known before.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "kinds and sites are numbered by their lists"
)]
pub(crate) fn generate(
    yard: &Yard,
    sites: &[Site],
    demand: &[u32],
    seed: &[(u32, super::greedy::Content)],
    budget: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> Generated {
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
    loop {
        out.steps += master.improve(40 + 2 * rows.len());
        if out.steps > budget || stop() {
            break;
        }
        let (bound, found) = price(yard, sites, &mut master, &rows, demand, &mut out.steps, 12);
        out.bound = out.bound.max(bound);
        rounds += 1;
        let value: f64 = rows.iter().zip(&needs).map(|(_, n)| n).zip(&master.y).map(|(n, y)| n * y).sum();
        if !found || rounds > 2_000 || value <= out.bound as f64 * (1.0 + 1e-4) {
            break;
        }
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
