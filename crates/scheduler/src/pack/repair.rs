//! Local repair: takes a few machines away and packs their pods anew, and keeps what is cheaper.

use super::{
    Bin, Masks, Yard,
    columns::{self, Care, Field, Site},
    greedy::{self, Chance, Content},
    simplex::Column,
};

/// Numbers that are as good as random and the same everywhere (xorshift64*).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// `seed` isn't zero.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
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

/// A part of a plan that is packed anew.
struct Part {
    chosen: Vec<usize>,
    demand: Vec<u32>,
    cost: i64,
}

/// The search for cheaper parts.
struct Repair<'a> {
    field: Field<'a>,
    yard: &'a Yard,
    sites: &'a [Site],
    worth: &'a [f64],
    pool: Vec<(u32, Content)>,
    dice: Dice,
    steps: u64,
}

/// What a way to pack anew has brought so far, per step.
#[derive(Clone, Copy, Default)]
struct Yield {
    gained: f64,
    steps: f64,
}

impl Yield {
    /// Fades, so that what helped long ago doesn't decide for ever.
    fn note(&mut self, gained: i64, steps: u64) {
        #[expect(clippy::cast_precision_loss, reason = "steers the search")]
        let (gained, steps) = (gained.max(0) as f64, steps as f64);
        self.gained = self.gained * 0.9 + gained;
        self.steps = self.steps * 0.9 + steps;
    }

    fn rate(&self) -> f64 {
        if self.steps > 0.0 { self.gained / self.steps } else { f64::INFINITY }
    }
}

/// Steps that the relaxation of one part may take.
const STEPS_OF_A_PART: u64 = 60_000;

/// Improves `bins` for `budget` steps; answers the steps taken. `columns` are fillings known to be good.
pub(crate) fn improve(
    field: Field<'_>,
    masks: &mut Masks,
    worth: &[f64],
    columns: &[Column],
    bins: &mut Vec<Bin>,
    budget: u64,
) -> u64 {
    let Field { yard, stop, .. } = field;
    let known = |c: &Column| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of copies")]
        let content = c.entries.iter().map(|(k, n)| (*k, (*n + 0.5) as u32)).collect();
        (c.site, content)
    };
    let pool = columns.iter().filter(|c| c.site != u32::MAX).map(known).collect();
    let mut repair = Repair {
        field,
        yard,
        sites: field.sites,
        worth,
        pool,
        dice: Dice::new(0x9E37_79B9_7F4A_7C15),
        steps: 0,
    };
    let (mut greedily, mut anew) = (Yield::default(), Yield::default());
    let cost =
        |bins: &[Bin]| bins.iter().fold(0i64, |sum, b| sum.saturating_add(yard.cost(b.variant, b.offer)));
    let mut now = cost(bins);
    while repair.steps < budget && bins.len() > 1 && !stop() {
        let before = repair.steps;
        // The better of the two ways most of the time; the relaxation costs more and so comes in when there is room.
        let likely = anew.rate() > greedily.rate();
        let relax = budget > 4 * STEPS_OF_A_PART && likely != (repair.dice.below(5) == 0);
        if relax {
            repair.relax(masks, bins);
        } else {
            for _ in 0..16 {
                if repair.steps < budget {
                    repair.greedily(masks, bins);
                }
            }
        }
        let after = cost(bins);
        let by = if relax { &mut anew } else { &mut greedily };
        by.note(now.saturating_sub(after), repair.steps - before);
        now = after;
    }
    repair.steps
}

#[expect(clippy::indexing_slicing, reason = "kinds and bins are numbered by their lists")]
#[expect(clippy::cast_precision_loss, reason = "steers the search")]
impl Repair<'_> {
    /// One wasteful machine of a few looked at, and some others.
    fn choose(&mut self, bins: &[Bin], more: usize) -> Part {
        let cost = |b: &Bin| self.yard.cost(b.variant, b.offer);
        let waste = |b: &Bin| {
            let value: f64 = b.content.iter().map(|(k, n)| self.worth[*k as usize] * f64::from(*n)).sum();
            cost(b) as f64 - value
        };
        let candidates: Vec<usize> = (0..4).map(|_| self.dice.below(bins.len())).collect();
        let worst = candidates.into_iter().max_by(|a, b| waste(&bins[*a]).total_cmp(&waste(&bins[*b])));
        let mut chosen: Vec<usize> = worst.into_iter().collect();
        for _ in 0..more {
            let other = self.dice.below(bins.len());
            if !chosen.contains(&other) {
                chosen.push(other);
            }
        }
        let mut part = Part { chosen, demand: vec![0u32; self.yard.kinds.len()], cost: 0 };
        for at in &part.chosen {
            part.cost = part.cost.saturating_add(cost(&bins[*at]));
            for (kind, n) in &bins[*at].content {
                part.demand[*kind as usize] += n;
            }
        }
        part
    }

    fn exchange(bins: &mut Vec<Bin>, mut chosen: Vec<usize>, new: Vec<Bin>) {
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        for at in chosen {
            bins.swap_remove(at);
        }
        bins.extend(new);
    }

    /// Packs a few machines anew by the best bargain.
    fn greedily(&mut self, masks: &mut Masks, bins: &mut Vec<Bin>) {
        self.steps += 50;
        let more = 1 + self.dice.below(5);
        let mut part = self.choose(bins, more);
        // Small and large shakes, quick and careful fillings: what one misses another finds.
        let shake = [0.03, 0.1, 0.3].get(self.dice.below(3)).copied().unwrap_or(0.1);
        let nodes = if self.dice.below(3) == 0 { 120 } else { 0 };
        let shaken: Vec<f64> =
            self.worth.iter().map(|w| w * (1.0 - shake + 2.0 * shake * self.dice.fraction())).collect();
        // As cheap is good enough: it leads somewhere else.
        let ceiling = part.cost.saturating_add(1);
        // A machine dearer than all of them together can't help; a part of the rest keeps each try short and different.
        let some: Vec<Site> = self
            .sites
            .iter()
            .filter(|s| self.yard.cost(s.variant, s.offer) <= part.cost && self.dice.next() & 3 != 0)
            .cloned()
            .collect();
        let found = greedy::repack(
            self.yard,
            masks,
            &some,
            &shaken,
            &mut part.demand,
            ceiling,
            nodes,
            &mut self.steps,
        );
        if let Some((new, _)) = found
            && part.demand.iter().all(|n| *n == 0)
        {
            Self::exchange(bins, part.chosen, new);
        }
    }

    /// Packs some more machines anew by a relaxation of their own.
    fn relax(&mut self, masks: &mut Masks, bins: &mut Vec<Bin>) {
        let more = 2 + self.dice.below(10);
        let part = self.choose(bins, more);
        let mut seed: Vec<(f64, u32, Content)> = Vec::new();
        for (site, content) in &self.pool {
            let Some(at) = self.sites.get(*site as usize) else { continue };
            let cut: Content = content
                .iter()
                .map(|(k, n)| (*k, (*n).min(part.demand[*k as usize])))
                .filter(|(_, n)| *n > 0)
                .collect();
            let value: f64 = cut.iter().map(|(k, n)| self.worth[*k as usize] * f64::from(*n)).sum();
            let cost = self.yard.cost(at.variant, at.offer).max(1) as f64;
            if value > 0.8 * cost {
                seed.push((value / cost, *site, cut));
            }
        }
        self.steps += u64::try_from(self.pool.len()).unwrap_or(0);
        seed.sort_by(|a, b| b.0.total_cmp(&a.0));
        seed.truncate(100);
        let mut seed: Vec<(u32, Content)> =
            seed.into_iter().map(|(_, site, content)| (site, content)).collect();
        let old: Vec<Bin> = part.chosen.iter().filter_map(|at| bins.get(*at).cloned()).collect();
        seed.extend(columns::of_bins(self.sites, &old));
        let first =
            columns::generate(self.field, &part.demand, &seed, self.worth, Care::Little, STEPS_OF_A_PART);
        self.steps += first.steps;
        let value: f64 = first.solution.iter().map(|(c, x)| first.columns[*c].cost * x).sum();
        if value >= part.cost as f64 * (1.0 - 1e-4) {
            return;
        }
        let mut chance = Chance::Dice(Dice::new(self.dice.next() | 1));
        let dived = greedy::dive(self.field, masks, &first, part.demand, &mut chance, 4 * STEPS_OF_A_PART);
        let Some(dived) = dived else {
            self.steps += 4 * STEPS_OF_A_PART;
            return;
        };
        self.steps += dived.steps;
        let all: u32 = dived.bins.iter().flat_map(|b| &b.content).map(|(_, n)| n).sum();
        let wanted: u32 = old.iter().flat_map(|b| &b.content).map(|(_, n)| n).sum();
        if all == wanted && dived.cost() <= part.cost {
            Self::exchange(bins, part.chosen, dived.bins);
        }
    }
}
