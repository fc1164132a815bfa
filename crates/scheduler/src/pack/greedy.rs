//! Greedy and guided packings: what pods are worth tells which machine, filled with what, is the best bargain.

use smallvec::SmallVec;

use super::{
    Bin, Masks, Packing, Yard,
    columns::{Care, Field, Generated, Site, generate},
    ffd,
    knapsack::{self, Thing},
    repair::Dice,
    together,
};

/// What goes onto one machine: (kind, copies).
pub(crate) type Content = SmallVec<[(u32, u32); 4]>;

/// Launches a machine of `site` with as much of `content` as its rules and the demand allow. Answers false if nothing
/// came of it.
#[expect(clippy::indexing_slicing, reason = "kinds are numbered by the yard")]
pub(crate) fn launch(
    packing: &mut Packing<'_>,
    masks: &mut Masks,
    site: &Site,
    content: &[(u32, u32)],
    demand: &mut [u32],
) -> bool {
    let yard = packing.yard;
    let mut bin = None;
    for (kind, copies) in content {
        let kind = *kind as usize;
        let want = (*copies).min(demand[kind]);
        if want == 0 {
            continue;
        }
        let at = match bin {
            Some(at) => at,
            None => {
                let Some((_, mask)) = yard.kinds[kind].options.iter().find(|(v, _)| *v == site.variant)
                else {
                    continue;
                };
                let Some(at) = packing.open(site.variant, *mask, site.offer, false) else { return false };
                bin = Some(at);
                at
            }
        };
        if let Some((room, mask, offer)) = packing.room(masks, at, kind) {
            let count = room.min(want);
            packing.put(at, kind, count, mask, offer);
            demand[kind] -= count;
        }
    }
    let Some(at) = bin else { return false };
    if packing.bins[at].content.is_empty() {
        packing.close_empty();
        return false;
    }
    true
}

/// What a machine of `site` can be filled with at best: worth per cost, and the filling.
#[expect(clippy::indexing_slicing, clippy::cast_precision_loss, reason = "kinds are numbered by the yard")]
fn best_filling(
    yard: &Yard,
    site: &Site,
    worth: &[f64],
    demand: &[u32],
    nodes: u64,
    least: f64,
    steps: &mut u64,
) -> Option<(f64, Content)> {
    let things: Vec<Thing<'_>> = site
        .kinds
        .iter()
        .filter(|k| demand[**k as usize] > 0)
        .map(|k| Thing {
            number: *k,
            size: yard.size(*k as usize),
            value: worth[*k as usize].max(1e-6),
            copies: demand[*k as usize],
        })
        .collect();
    if things.is_empty() {
        return None;
    }
    let cost = yard.cost(site.variant, site.offer).max(1) as f64;
    let total: f64 = things.iter().map(|t| t.value * f64::from(t.copies)).sum();
    *steps += 1;
    if total / cost <= least {
        return None;
    }
    let filling = knapsack::fill(&things, yard.row(site.variant, site.offer), cost * 1e-3, nodes);
    *steps += filling.steps;
    Some((filling.value / cost, filling.content))
}

/// The best bargain at present: the site and filling with the most worth per cost.
fn bargain(
    yard: &Yard,
    sites: &[Site],
    worth: &[f64],
    demand: &[u32],
    nodes: u64,
    steps: &mut u64,
) -> Option<(usize, Content)> {
    let mut best: Option<(f64, usize, Content)> = None;
    for (at, site) in sites.iter().enumerate() {
        let least = best.as_ref().map_or(0.0, |(most, _, _)| *most);
        let Some((ratio, content)) = best_filling(yard, site, worth, demand, nodes, least, steps) else {
            continue;
        };
        if best.as_ref().is_none_or(|(most, _, _)| ratio > *most) {
            best = Some((ratio, at, content));
        }
    }
    best.map(|(_, at, content)| (at, content))
}

/// Takes the best bargain again and again. `None` if `budget` runs out.
///
/// With less left to choose from no machine becomes a better bargain, so that one whose last ratio is below another's
/// present one needn't be looked at again.
#[expect(clippy::indexing_slicing, reason = "kinds and sites are numbered by their lists")]
pub(crate) fn sequential<'a>(
    field: Field<'a>,
    masks: &mut Masks,
    worth: &[f64],
    nodes: u64,
    budget: u64,
) -> Option<Packing<'a>> {
    let Field { yard, sites, stop } = field;
    let mut packing = Packing::new(yard);
    let mut demand: Vec<u32> = yard.kinds.iter().map(|k| k.count).collect();
    together::place(&mut packing, masks, &ffd::order(yard), &mut demand);
    let mut round = 0u32;
    // (ratio, site, filling, the round that it was found in), best first.
    let mut ranked: Vec<(f64, usize, Content, u32)> =
        (0..sites.len()).map(|at| (f64::INFINITY, at, Content::new(), u32::MAX)).collect();
    while !ranked.is_empty() {
        if packing.steps > budget || stop() {
            return None;
        }
        let (_, at, content, when) = ranked[0].clone();
        if when != round {
            match best_filling(yard, &sites[at], worth, &demand, nodes, 0.0, &mut packing.steps) {
                Some((ratio, content)) => ranked[0] = (ratio, at, content, round),
                None => {
                    ranked.remove(0);
                    continue;
                }
            }
            // Down to its place among the rest.
            let ratio = ranked[0].0;
            let place = ranked[1..].partition_point(|other| other.0 > ratio);
            ranked[..=place].rotate_left(1);
            continue;
        }
        let times = content.iter().map(|(k, n)| demand[*k as usize] / n).min().unwrap_or(0).max(1);
        let mut any = false;
        for _ in 0..times {
            if !launch(&mut packing, masks, &sites[at], &content, &mut demand) {
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
    ffd::finish(&mut packing, masks, &mut demand);
    packing.settle(masks);
    Some(packing)
}

/// How a dive chooses where it may: always alike, or by chance, so that one finds what another misses.
#[derive(Debug)]
pub(crate) enum Chance {
    /// Parts of machines from this share on count as whole.
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

    /// Which of the `parts` likeliest machines comes first.
    fn first(&mut self, parts: usize) -> usize {
        match self {
            Self::Share(_) => 0,
            Self::Dice(dice) => dice.below(parts.min(3)),
        }
    }
}

/// Rounds a fractional solution: whole machines first, then the likeliest one, then the relaxation of what is left.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "columns and kinds are numbered by their lists; counts are small"
)]
pub(crate) fn dive<'a>(
    field: Field<'a>,
    masks: &mut Masks,
    first: &Generated,
    mut demand: Vec<u32>,
    chance: &mut Chance,
    budget: u64,
) -> Option<Packing<'a>> {
    let Field { yard, sites, stop } = field;
    let mut packing = Packing::new(yard);
    together::place(&mut packing, masks, &ffd::order(yard), &mut demand);
    let mut now: Option<Generated> = None;
    loop {
        let it = now.as_ref().unwrap_or(first);
        if it.solution.is_empty() || demand.iter().all(|n| *n == 0) {
            break;
        }
        if packing.steps > budget || stop() {
            return None;
        }
        let share = chance.share();
        let mut parts: Vec<(usize, f64)> = it.solution.clone();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut any = false;
        for (column, x) in &parts {
            let whole = (x + 1e-6).floor().max(if x.fract() >= share { x.ceil() } else { 0.0 }) as u32;
            any |= take(&mut packing, masks, sites, it, *column, whole, &mut demand);
        }
        if !any {
            let by_chance = chance.first(parts.len());
            parts.swap(0, by_chance);
            for (column, _) in &parts {
                if take(&mut packing, masks, sites, it, *column, 1, &mut demand) {
                    any = true;
                    break;
                }
            }
        }
        if !any || demand.iter().all(|n| *n == 0) {
            break;
        }
        let mut seed: Vec<(f64, u32, Content)> = it
            .columns
            .iter()
            .filter(|c| c.site != u32::MAX)
            .map(|c| {
                let gain: f64 = c.entries.iter().map(|(k, n)| it.worth[*k as usize] * n).sum();
                let content = c
                    .entries
                    .iter()
                    .filter(|(k, _)| demand[*k as usize] > 0)
                    .map(|(k, n)| (*k, (*n as u32).min(demand[*k as usize])))
                    .collect();
                (c.cost - gain, c.site, content)
            })
            .collect();
        seed.sort_by(|a, b| a.0.total_cmp(&b.0));
        seed.truncate(300);
        let seed: Vec<_> = seed.into_iter().map(|(_, site, content)| (site, content)).collect();
        let next = generate(field, &demand, &seed, &it.worth, Care::Little, budget / 24);
        packing.steps += next.steps;
        now = Some(next);
    }
    ffd::finish(&mut packing, masks, &mut demand);
    packing.settle(masks);
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
    masks: &mut Masks,
    sites: &[Site],
    from: &Generated,
    column: usize,
    times: u32,
    demand: &mut [u32],
) -> bool {
    let column = &from.columns[column];
    let Some(site) = sites.get(column.site as usize) else { return false };
    let content: Content = column.entries.iter().map(|(k, n)| (*k, (*n + 0.5) as u32)).collect();
    let mut any = false;
    for _ in 0..times {
        if !launch(packing, masks, site, &content, demand) {
            break;
        }
        any = true;
    }
    any
}

/// The cheapest machine for `content`, as a bin.
#[expect(clippy::indexing_slicing, reason = "kinds are numbered by the yard")]
pub(crate) fn bin(yard: &Yard, masks: &mut Masks, variant: u32, content: Content) -> Option<(Bin, i64)> {
    let mut mask = None;
    let mut used: SmallVec<[i64; 6]> = SmallVec::from_elem(0, yard.d);
    for (kind, n) in &content {
        let (_, own) = yard.kinds[*kind as usize].options.iter().find(|(v, _)| *v == variant)?;
        mask = Some(match mask {
            Some(mask) => masks.and(yard, mask, *own)?,
            None => *own,
        });
        for (u, s) in used.iter_mut().zip(yard.size(*kind as usize)) {
            *u = u.saturating_add(s.saturating_mul(i64::from(*n)));
        }
    }
    let mask = mask?;
    let offer = super::cheapest(yard, masks, variant, mask, &used, |_| true)?;
    let cost = yard.cost(variant, offer);
    let bin = Bin {
        variant,
        mask,
        offer,
        content,
        groups: SmallVec::new(),
        ports: SmallVec::new(),
        flexible: false,
    };
    Some((bin, cost))
}

/// Packs a few pods anew, quickly: the best bargain again and again, among `sites`.
#[expect(clippy::indexing_slicing, reason = "kinds and sites are numbered by their lists")]
#[expect(clippy::too_many_arguments, reason = "the state of the search, passed down")]
pub(crate) fn repack(
    yard: &Yard,
    masks: &mut Masks,
    sites: &[Site],
    worth: &[f64],
    demand: &mut [u32],
    ceiling: i64,
    nodes: u64,
    steps: &mut u64,
) -> Option<(Vec<Bin>, i64)> {
    let (mut bins, mut cost) = (Vec::new(), 0i64);
    while let Some((at, content)) = bargain(yard, sites, worth, demand, nodes, steps) {
        if content.is_empty() {
            return None;
        }
        for (kind, n) in &content {
            demand[*kind as usize] -= n;
        }
        let (made, price) = bin(yard, masks, sites[at].variant, content)?;
        cost = cost.saturating_add(price);
        if cost >= ceiling {
            return None;
        }
        bins.push(made);
    }
    Some((bins, cost))
}
