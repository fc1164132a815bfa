//! The most valuable pattern of one instance: a bounded multidimensional knapsack.
//!
//! First the linear relaxation, by a simplex of as many rows as there are dimensions, which prices each unit of room;
//! then branch and bound with those prices. The answer carries an upper bound that holds whatever the search left
//! out.
#![expect(
    clippy::indexing_slicing,
    reason = "the innermost loops of the search, over tables of one entry per item or per dimension, made together; an \
              item's size is a row of the problem"
)]

use smallvec::SmallVec;

use crate::{
    ids::ItemTypeIx,
    packing::problem::{Pattern, fits},
};

/// A pattern and what is known about the best one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filling {
    pub(crate) pattern: Pattern,
    pub(crate) value: f64,
    /// No pattern has a higher value.
    pub(crate) most: f64,
    pub(crate) steps: u64,
}

/// One item that may go in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnapsackItem<'a> {
    pub(crate) number: ItemTypeIx,
    pub(crate) size: &'a [i64],
    pub(crate) value: f64,
    pub(crate) copies: u32,
}

type Prices = SmallVec<[f64; 6]>;

/// Prices per unit of room under which no item's value exceeds the price of its room, at the least total for
/// `room`; and the fractional pattern of the same basis.
#[expect(clippy::cast_precision_loss, reason = "steers the search; the bound has a margin")]
fn relax(items: &[KnapsackItem<'_>], room: &[i64]) -> (Prices, Vec<f64>, u64) {
    let d = room.len();
    let scale: Prices = room.iter().map(|r| 1.0 / (*r).max(1) as f64).collect();
    let size = |t: &KnapsackItem<'_>, k: usize| t.size[k] as f64 * scale[k];
    let mut inverse = vec![0.0; d * d];
    for k in 0..d {
        inverse[k * d + k] = 1.0;
    }
    let mut x: Prices = SmallVec::from_elem(1.0, d);
    let mut basis: SmallVec<[Option<usize>; 6]> = SmallVec::from_elem(None, d);
    // Only prices are kept: a slack reenters when its price falls below zero.
    let mut price: Prices = SmallVec::from_elem(0.0, d);
    let mut steps = 0;
    for _ in 0..12 * d {
        let mut best = (1e-9, None);
        for (at, t) in items.iter().enumerate() {
            let gain = t.value - (0..d).map(|k| price[k] * size(t, k)).sum::<f64>();
            if gain / t.value.max(1e-12) > best.0 {
                best = (gain / t.value.max(1e-12), Some(at));
            }
        }
        steps += u64::try_from(items.len() / 4 + 1).unwrap_or(1);
        let negative = (0..d).filter(|k| price[*k] < -1e-9).min_by(|a, b| price[*a].total_cmp(&price[*b]));
        let (column, gain): (Prices, f64) = match (negative, best.1) {
            (Some(k), _) => {
                let unit = (0..d).map(|r| inverse[r * d + k]).collect();
                (unit, -price[k])
            }
            (None, Some(at)) => {
                let t = &items[at];
                let column =
                    (0..d).map(|r| (0..d).map(|k| inverse[r * d + k] * size(t, k)).sum::<f64>()).collect();
                (column, t.value - (0..d).map(|k| price[k] * size(t, k)).sum::<f64>())
            }
            (None, None) => break,
        };
        let mut leaving: Option<(f64, usize)> = None;
        for r in 0..d {
            if column[r] > 1e-9 {
                let ratio = x[r].max(0.0) / column[r];
                if leaving.is_none_or(|(least, _)| ratio < least) {
                    leaving = Some((ratio, r));
                }
            }
        }
        let Some((ratio, r)) = leaving else { break };
        for k in 0..d {
            x[k] -= ratio * column[k];
        }
        x[r] = ratio;
        let old: Prices = SmallVec::from_slice(&inverse[r * d..(r + 1) * d]);
        for k in 0..d {
            price[k] += gain / column[r] * old[k];
        }
        for i in (0..d).filter(|i| *i != r) {
            let factor = column[i] / column[r];
            for k in 0..d {
                inverse[i * d + k] -= factor * old[k];
            }
        }
        for v in &mut inverse[r * d..(r + 1) * d] {
            *v /= column[r];
        }
        basis[r] = if negative.is_some() { None } else { best.1 };
    }
    let mut fraction = vec![0.0; items.len()];
    for (b, x) in basis.iter().zip(&x) {
        if let Some(at) = b {
            fraction[*at] = x.max(0.0);
        }
    }
    let prices = price.iter().zip(&scale).map(|(p, s)| p.max(0.0) * s).collect();
    (prices, fraction, steps)
}

/// An upper bound on any pattern's value for any non-negative prices: the room at those prices, plus each
/// item's value above the price of its room.
#[expect(clippy::cast_precision_loss, reason = "has a margin")]
fn bound(items: &[KnapsackItem<'_>], room: &[i64], prices: &[f64]) -> f64 {
    let price_of = |size: &[i64]| size.iter().zip(prices).map(|(s, p)| *s as f64 * p).sum::<f64>();
    let beyond: f64 = items.iter().map(|t| (t.value - price_of(t.size)).max(0.0) * f64::from(t.copies)).sum();
    (price_of(room) + beyond) * (1.0 + 1e-9)
}

/// A good pattern and an upper bound, without searching.
pub(crate) fn quick(items: &[KnapsackItem<'_>], room: &[i64]) -> Filling {
    let start = Start::new(items, room);
    let pattern =
        start.taken.iter().zip(&start.sorted).filter(|(n, _)| **n > 0).map(|(n, t)| (t.number, *n)).collect();
    Filling { pattern, value: start.value, most: start.root, steps: start.steps }
}

/// Start of every search.
struct Start<'a> {
    prices: Prices,
    /// Items by their value above the price of their room.
    sorted: Vec<KnapsackItem<'a>>,
    taken: Vec<u32>,
    value: f64,
    root: f64,
    steps: u64,
}

impl<'a> Start<'a> {
    fn new(items: &[KnapsackItem<'a>], room: &[i64]) -> Self {
        let (prices, fraction, steps) = relax(items, room);
        let root = bound(items, room, &prices);
        let relative: Vec<f64> = items.iter().map(|t| excess(t, &prices) / t.value.max(1e-12)).collect();
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by(|a, b| relative[*b].total_cmp(&relative[*a]).then(a.cmp(b)));
        let sorted: Vec<KnapsackItem<'_>> = order.iter().map(|i| items[*i]).collect();
        // The fractional pattern rounded down, and the rest by the best value for its room.
        let mut left: SmallVec<[i64; 6]> = SmallVec::from_slice(room);
        let mut taken = vec![0u32; sorted.len()];
        let mut value = 0.0;
        for rounded in [true, false] {
            for (at, t) in sorted.iter().enumerate() {
                let most = fits(t.size, &left).min(t.copies - taken[at]);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count of copies"
                )]
                let count = if rounded { most.min((fraction[order[at]] + 1e-6) as u32) } else { most };
                if count == 0 {
                    continue;
                }
                for (r, s) in left.iter_mut().zip(t.size) {
                    *r -= s * i64::from(count);
                }
                taken[at] += count;
                value += t.value * f64::from(count);
            }
        }
        let mut start = Self { prices, sorted, taken, value, root, steps };
        start.exchange(&mut left);
        start
    }

    /// Exchanges one copy for another of higher value that uses the room better, while there is one.
    fn exchange(&mut self, left: &mut [i64]) {
        for _ in 0..EXCHANGES {
            let mut best: Option<(f64, usize, usize)> = None;
            for (out, from) in self.sorted.iter().enumerate().filter(|(at, _)| self.taken[*at] > 0) {
                self.steps += 1;
                for (into, to) in self.sorted.iter().enumerate() {
                    let gain = to.value - from.value;
                    if into == out
                        || gain <= best.map_or(1e-9 * self.root, |(g, _, _)| g)
                        || self.taken[into] >= to.copies
                    {
                        continue;
                    }
                    let has_room = left.iter().zip(from.size).zip(to.size).all(|((l, f), t)| l + f >= *t);
                    if has_room {
                        best = Some((gain, out, into));
                    }
                }
            }
            let Some((gain, out, into)) = best else { break };
            for ((l, f), t) in left.iter_mut().zip(self.sorted[out].size).zip(self.sorted[into].size) {
                *l += f - t;
            }
            self.taken[out] -= 1;
            self.taken[into] += 1;
            self.value += gain;
        }
    }
}

/// Rounds of exchange at most.
const EXCHANGES: u32 = 12;

/// An item's value above the price of its room.
#[expect(clippy::cast_precision_loss, reason = "orders the search")]
fn excess(t: &KnapsackItem<'_>, prices: &[f64]) -> f64 {
    t.value - t.size.iter().zip(prices).map(|(s, p)| *s as f64 * p).sum::<f64>()
}

struct Search<'a, 'b> {
    items: &'b [KnapsackItem<'a>],
    /// Of the items from here on: the most value that they can have above the prices.
    beyond: Vec<f64>,
    prices: Prices,
    taken: Vec<u32>,
    best: Vec<u32>,
    best_value: f64,
    tolerance: f64,
    nodes: u64,
    limit: u64,
}

#[expect(clippy::cast_precision_loss, reason = "has a margin")]
impl Search<'_, '_> {
    fn descend(&mut self, level: usize, room: &mut [i64], value: f64) {
        self.nodes += 1;
        if value > self.best_value {
            self.best_value = value;
            self.best.clone_from(&self.taken);
        }
        if level == self.items.len() || self.nodes > self.limit {
            return;
        }
        let price_of: f64 = room.iter().zip(&self.prices).map(|(r, p)| *r as f64 * p).sum();
        if (value + price_of + self.beyond[level]) * (1.0 + 1e-9) <= self.best_value + self.tolerance {
            return;
        }
        let item = self.items[level];
        let most = fits(item.size, room).min(item.copies);
        for (r, s) in room.iter_mut().zip(item.size) {
            *r -= s * i64::from(most);
        }
        for count in (0..=most).rev() {
            self.taken[level] = count;
            self.descend(level + 1, room, value + item.value * f64::from(count));
            if count > 0 {
                for (r, s) in room.iter_mut().zip(item.size) {
                    *r += s;
                }
            }
            if self.nodes > self.limit {
                for (r, s) in room.iter_mut().zip(item.size) {
                    *r += s * i64::from(count.saturating_sub(1));
                }
                break;
            }
        }
        self.taken[level] = 0;
    }
}

/// The best pattern found within `limit` nodes; differences below `tolerance` are ignored.
pub(crate) fn fill(items: &[KnapsackItem<'_>], room: &[i64], tolerance: f64, limit: u64) -> Filling {
    let Start { prices, sorted, taken: start, value, root, steps } = Start::new(items, room);
    let mut beyond = vec![0.0; sorted.len() + 1];
    for i in (0..sorted.len()).rev() {
        beyond[i] = beyond[i + 1] + excess(&sorted[i], &prices).max(0.0) * f64::from(sorted[i].copies);
    }
    let mut search = Search {
        items: &sorted,
        beyond,
        prices,
        taken: vec![0; sorted.len()],
        best: start,
        best_value: value,
        tolerance,
        nodes: 0,
        limit,
    };
    let mut room = room.to_vec();
    search.descend(0, &mut room, 0.0);
    let complete = search.nodes <= search.limit;
    let pattern =
        search.best.iter().zip(&sorted).filter(|(n, _)| **n > 0).map(|(n, t)| (t.number, *n)).collect();
    let most = if complete { (search.best_value + tolerance).min(root) } else { root };
    Filling { pattern, value: search.best_value, most, steps: steps + search.nodes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_best_filling_and_bounds_it() {
        let sizes = [[3, 5], [4, 2], [7, 7]];
        let item = |i: usize, value, copies| KnapsackItem {
            number: ItemTypeIx::from(i),
            size: &sizes[i],
            value,
            copies,
        };
        let items = [item(0, 5.0, 9), item(1, 4.0, 9), item(2, 10.0, 9)];
        let room = [20, 17];
        let mut best = 0.0f64;
        for a in 0..7i64 {
            for b in 0..6i64 {
                for c in 0..3i64 {
                    if 3 * a + 4 * b + 7 * c <= 20 && 5 * a + 2 * b + 7 * c <= 17 {
                        #[allow(clippy::cast_precision_loss)]
                        {
                            best = best.max(5.0 * a as f64 + 4.0 * b as f64 + 10.0 * c as f64);
                        }
                    }
                }
            }
        }
        let filling = fill(&items, &room, 0.0, 10_000);
        assert!((filling.value - best).abs() < 1e-9, "{filling:?} {best}");
        assert!(filling.most >= best && filling.most <= best + 1e-6);
        assert!(quick(&items, &room).most >= best);
        let cut = fill(&items, &room, 0.0, 1);
        assert!(cut.most >= best);
    }
}
