//! Several packings, of which the cheapest wins.

use super::{Bin, Masks, Packing, Yard, ffd};

/// The best packing found, and what is known about it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) bins: Vec<Bin>,
    /// Pods of each kind that found no place.
    pub(crate) left: Vec<u32>,
    /// What is left of the limits.
    pub(crate) limits: Vec<super::Limit>,
    /// No packing of the same pods costs less.
    pub(crate) bound: i64,
    pub(crate) steps: u64,
    pub(crate) cut_short: bool,
}

/// (pods left, cost): less is better.
fn rank(yard: &Yard, packing: &Packing<'_>) -> (Vec<u64>, i64) {
    let placed = packing.placed();
    let mut left: std::collections::BTreeMap<std::cmp::Reverse<i32>, u64> = std::collections::BTreeMap::new();
    for (kind, placed) in yard.kinds.iter().zip(&placed) {
        *left.entry(std::cmp::Reverse(kind.priority)).or_default() += u64::from(kind.count - placed);
    }
    (left.into_values().collect(), packing.cost())
}

/// Packs as cheaply as `effort` allows.
pub(crate) fn pack(yard: &Yard, masks: &mut Masks, effort: u32, stop: &(dyn Fn() -> bool + Sync)) -> Outcome {
    let mut steps = 0;
    let mut cut_short = false;
    let Some(mut best) = ffd::pack(yard, masks, ffd::Opening::Largest, u64::MAX) else {
        let left = yard.kinds.iter().map(|k| k.count).collect();
        return Outcome { bins: Vec::new(), left, limits: yard.limits.clone(), bound: 0, steps, cut_short };
    };
    steps += best.steps;
    let mut best_rank = rank(yard, &best);
    if effort > 0 {
        if stop() {
            cut_short = true;
        } else if let Some(other) = ffd::pack(yard, masks, ffd::Opening::Balanced, u64::MAX) {
            steps += other.steps;
            let other_rank = rank(yard, &other);
            if other_rank < best_rank {
                (best, best_rank) = (other, other_rank);
            }
        }
    }
    let _ = best_rank;
    let left = yard.kinds.iter().zip(best.placed()).map(|(k, placed)| k.count - placed).collect();
    Outcome { bins: best.bins, left, limits: best.limits, bound: 0, steps, cut_short }
}
