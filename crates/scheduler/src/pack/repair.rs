//! Local repair: takes a few machines away and packs their pods anew, and keeps what is cheaper.

use super::{Bin, Masks, Yard, columns::Site, greedy};

/// Numbers that are as good as random and the same everywhere (xorshift64*).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % n.max(1)
    }

    /// Between 0 and 1.
    #[expect(clippy::cast_precision_loss, reason = "31 bits")]
    fn fraction(&mut self) -> f64 {
        (self.next() >> 33) as f64 / (1u64 << 31) as f64
    }
}

/// True if bins may be rearranged freely: no rules between neighbours, and no limit to watch.
pub(crate) fn is_free(yard: &Yard) -> bool {
    yard.kinds.iter().all(|k| k.rules.is_none())
        && yard.variants.iter().all(|v| v.limits.is_empty() && v.ports.is_empty() && v.min_values.is_empty())
}

/// Improves `bins` for `budget` steps; answers the steps taken.
#[expect(clippy::indexing_slicing, reason = "kinds and bins are numbered by their lists")]
#[expect(clippy::cast_precision_loss, reason = "steers the search")]
pub(crate) fn improve(
    yard: &Yard,
    masks: &mut Masks,
    sites: &[Site],
    worth: &[f64],
    bins: &mut Vec<Bin>,
    budget: u64,
    stop: &(dyn Fn() -> bool + Sync),
) -> u64 {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut steps = 0;
    let mut demand = vec![0u32; yard.kinds.len()];
    let cost = |b: &Bin| yard.cost(b.variant, b.offer);
    let waste = |b: &Bin| {
        let value: f64 = b.content.iter().map(|(k, n)| worth[*k as usize] * f64::from(*n)).sum();
        cost(b) as f64 - value
    };
    while steps < budget && bins.len() > 1 && !stop() {
        steps += 50;
        // One wasteful machine of a few looked at, and some others.
        let mut chosen: Vec<usize> = Vec::new();
        let candidates: Vec<usize> = (0..4).map(|_| dice.below(bins.len())).collect();
        let worst = candidates.into_iter().max_by(|a, b| waste(&bins[*a]).total_cmp(&waste(&bins[*b])));
        chosen.extend(worst);
        let more = 1 + dice.below(5);
        for _ in 0..more {
            let other = dice.below(bins.len());
            if !chosen.contains(&other) {
                chosen.push(other);
            }
        }
        demand.iter_mut().for_each(|n| *n = 0);
        let mut before = 0i64;
        for at in &chosen {
            before = before.saturating_add(cost(&bins[*at]));
            for (kind, n) in &bins[*at].content {
                demand[*kind as usize] += n;
            }
        }
        // Small and large shakes, quick and careful fillings: what one misses another finds.
        let shake = [0.03, 0.1, 0.3].get(dice.below(3)).copied().unwrap_or(0.1);
        let nodes = if dice.below(3) == 0 { 120 } else { 0 };
        let shaken: Vec<f64> =
            worth.iter().map(|w| w * (1.0 - shake + 2.0 * shake * dice.fraction())).collect();
        // As cheap is good enough: it leads somewhere else.
        let ceiling = before.saturating_add(1);
        // A machine dearer than all of them together can't help; a part of the rest keeps each try short and different.
        let some: Vec<Site> = sites
            .iter()
            .filter(|s| yard.cost(s.variant, s.offer) <= before && dice.next() & 3 != 0)
            .cloned()
            .collect();
        if let Some((new, _)) =
            greedy::repack(yard, masks, &some, &shaken, &mut demand, ceiling, nodes, &mut steps)
            && demand.iter().all(|n| *n == 0)
        {
            chosen.sort_unstable_by(|a, b| b.cmp(a));
            for at in chosen {
                bins.swap_remove(at);
            }
            bins.extend(new);
        }
    }
    steps
}
