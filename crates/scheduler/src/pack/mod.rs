//! Packing: kinds of pods into bins, each bin a machine to launch.
//!
//! By the time a pod comes here its topology domains are decided (see [`zones`](crate::zones)), so that a kind is a
//! size, a set of offerings per variant, and rules between neighbours on one host. A bin is *open*: it keeps the set of
//! offerings that suit all its pods and one witness of them that is large enough; the cheapest is chosen at the end.

mod columns;
mod ffd;
mod greedy;
mod knapsack;
mod limits;
mod masks;
mod portfolio;
mod repair;
mod simplex;
mod table;
mod together;

pub(crate) use limits::Limit;
pub(crate) use masks::Masks;
pub(crate) use portfolio::{Outcome, pack};
pub(crate) use table::{Edges, Surcharge, Table};

use smallvec::SmallVec;
use std::sync::Arc;

use crate::{requests::Port, space::CatalogIndex};

/// A variant of a pool, priced for this search.
#[derive(Debug)]
pub(crate) struct VariantCtx {
    /// Number of the pool, and of the variant within it.
    pub(crate) pool: usize,
    pub(crate) variant: usize,
    pub(crate) catalog: Arc<CatalogIndex>,
    /// Room and cost of each offering.
    pub(crate) table: Arc<Table>,
    /// Ports that DaemonSets take on every node.
    pub(crate) ports: Vec<Port>,
    /// Limits that count this variant's machines.
    pub(crate) limits: Vec<usize>,
    /// (values of each offering, how many different ones must remain).
    pub(crate) min_values: Vec<(Vec<u32>, usize)>,
}

/// Rules between pods on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// Groups that count this kind.
    pub(crate) counts: Box<[u32]>,
    /// Groups of which at most so many may be on the host, this kind's own pods included.
    pub(crate) caps: Box<[(u32, u32)]>,
    /// Those whose cap holds whoever comes first: required anti-affinity is mutual, a spread binds only who comes after.
    pub(crate) apart: Box<[u32]>,
    /// Groups of which one must be on the host already; `true`: the kind may start one where there is none at all.
    pub(crate) needs: Box<[u32]>,
    pub(crate) starts: bool,
    pub(crate) ports: Box<[Port]>,
    /// At most so many of this kind on one host.
    pub(crate) most: u32,
}

/// Pods that are alike to the packing.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Offerings by variant: (variant, mask).
    pub(crate) options: SmallVec<[(u32, u32); 2]>,
    /// `None`: no rules.
    pub(crate) rules: Option<Box<Rules>>,
    pub(crate) count: u32,
    /// Zero where no limit can make it matter.
    pub(crate) priority: i32,
}

/// Everything that the packing reads.
#[derive(Debug)]
pub(crate) struct Yard {
    /// Resources per row.
    pub(crate) d: usize,
    pub(crate) variants: Vec<VariantCtx>,
    pub(crate) kinds: Vec<Kind>,
    /// Requests of each kind, flat.
    pub(crate) sizes: Vec<i64>,
    pub(crate) limits: Vec<Limit>,
    /// Groups that have a member somewhere already, for [`Rules::needs`].
    pub(crate) present: Vec<u32>,
    /// Groups that some kind needs.
    pub(crate) near: Vec<u32>,
}

#[expect(clippy::indexing_slicing, reason = "rows and sizes are made with the tables that number them")]
impl Yard {
    pub(crate) fn row(&self, variant: u32, offer: u32) -> &[i64] {
        self.variants[variant as usize].table.row(offer)
    }

    pub(crate) fn size(&self, kind: usize) -> &[i64] {
        &self.sizes[kind * self.d..(kind + 1) * self.d]
    }

    pub(crate) fn cost(&self, variant: u32, offer: u32) -> i64 {
        self.variants[variant as usize].table.cost[offer as usize]
    }
}

/// How many of `size` fit into `free`. Resources that aren't asked for don't count, as in kube-scheduler.
pub(crate) fn fits(size: &[i64], free: &[i64]) -> u32 {
    let mut most = i64::from(u32::MAX);
    for (s, f) in size.iter().zip(free) {
        if *s > 0 {
            if f < s {
                return 0;
            }
            most = most.min(f / s);
        }
    }
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// Count and cap of one group on one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupUse {
    pub(crate) group: u32,
    pub(crate) count: u32,
    pub(crate) cap: u32,
}

/// A machine in the making.
#[derive(Clone, Debug)]
pub(crate) struct Bin {
    pub(crate) variant: u32,
    pub(crate) mask: u32,
    /// An offering of the mask that is large enough.
    pub(crate) offer: u32,
    pub(crate) content: SmallVec<[(u32, u32); 4]>,
    pub(crate) groups: SmallVec<[GroupUse; 2]>,
    pub(crate) ports: SmallVec<[Port; 1]>,
    /// May still become any offering of its mask.
    pub(crate) flexible: bool,
}

/// A packing under construction.
#[derive(Clone, Debug)]
pub(crate) struct Packing<'a> {
    pub(crate) yard: &'a Yard,
    pub(crate) bins: Vec<Bin>,
    /// Room left in each bin's witness, flat.
    pub(crate) free: Vec<i64>,
    pub(crate) limits: Vec<Limit>,
    present: Vec<u32>,
    pub(crate) steps: u64,
}

#[expect(clippy::indexing_slicing, reason = "bins and free grow together")]
impl<'a> Packing<'a> {
    pub(crate) fn new(yard: &'a Yard) -> Self {
        Self {
            yard,
            bins: Vec::new(),
            free: Vec::new(),
            limits: yard.limits.clone(),
            present: yard.present.clone(),
            steps: 0,
        }
    }

    pub(crate) fn free(&self, bin: usize) -> &[i64] {
        &self.free[bin * self.yard.d..(bin + 1) * self.yard.d]
    }

    /// How many of `kind` the rules let into `bin`.
    fn rules(&self, bin: &Bin, kind: usize) -> u32 {
        let Some(rules) = &self.yard.kinds[kind].rules else { return u32::MAX };
        let mut most = rules.most;
        if !rules.ports.is_empty() {
            if rules.ports.iter().any(|p| bin.ports.iter().any(|q| p.conflicts(q))) {
                return 0;
            }
            most = most.min(1);
        }
        if most != u32::MAX {
            let there = bin.content.iter().find(|(k, _)| *k as usize == kind).map_or(0, |(_, n)| *n);
            most = most.saturating_sub(there);
        }
        if self.crowds(bin, rules) {
            return 0;
        }
        let after = self.only_mate(bin, rules);
        for g in &bin.groups {
            if rules.counts.contains(&g.group) {
                let cap = after.map_or(g.cap, |mate| self.cap_after(bin, g.group, mate));
                most = most.min(cap.saturating_sub(g.count));
            }
        }
        for (group, cap) in &rules.caps {
            let there = bin.groups.iter().find(|g| g.group == *group).map_or(0, |g| g.count);
            if rules.counts.contains(group) {
                most = most.min(cap.saturating_sub(there));
            } else if there > *cap {
                return 0;
            }
        }
        for group in &rules.needs {
            let here = bin.groups.iter().any(|g| g.group == *group && g.count > 0);
            let first = rules.starts && !self.present.contains(group);
            if !here && !first {
                return 0;
            }
        }
        most
    }

    /// The kind of the only pod in `bin` that one with `rules` needs: that pod is bound before it.
    fn only_mate(&self, bin: &Bin, rules: &Rules) -> Option<u32> {
        let need = rules.needs.first()?;
        let one = bin.groups.iter().any(|g| g.group == *need && g.count == 1);
        let is_mate = |kind: u32| {
            self.yard.kinds[kind as usize].rules.as_ref().is_some_and(|r| r.counts.contains(need))
        };
        bin.content.iter().map(|(kind, _)| *kind).find(|kind| one && is_mate(*kind))
    }

    /// How many of a group may be in `bin` where the spreads of `mate` don't count.
    fn cap_after(&self, bin: &Bin, group: u32, mate: u32) -> u32 {
        let mut least = u32::MAX;
        for (kind, _) in &bin.content {
            let Some(rules) = &self.yard.kinds[*kind as usize].rules else { continue };
            if *kind != mate || rules.apart.contains(&group) {
                let caps = rules.caps.iter().filter(|(g, _)| *g == group);
                least = caps.fold(least, |least, (_, cap)| least.min(*cap));
            }
        }
        least
    }

    /// True if one with `rules` would let somebody come before the mate after which alone there is room for both.
    fn crowds(&self, bin: &Bin, rules: &Rules) -> bool {
        bin.groups.iter().any(|g| g.count > g.cap)
            && bin.content.iter().any(|(kind, _)| {
                let theirs = &self.yard.kinds[*kind as usize].rules;
                theirs.as_ref().is_some_and(|t| t.needs.iter().any(|g| rules.counts.contains(g)))
            })
    }

    /// How many of `kind` fit into `bin`, and the offering and mask that the bin would then have.
    pub(crate) fn room(&self, masks: &mut Masks, bin: usize, kind: usize) -> Option<(u32, u32, u32)> {
        let it = &self.bins[bin];
        let size = self.yard.size(kind);
        let mut most = fits(size, self.free(bin));
        if most == 0 && !it.flexible {
            return None;
        }
        let (_, own) = self.yard.kinds[kind].options.iter().find(|(v, _)| *v == it.variant)?;
        let mask = masks.and(self.yard, it.mask, *own)?;
        let mut offer = it.offer;
        if most == 0 || !masks.contains(mask, offer) {
            if !it.flexible {
                return None;
            }
            (most, offer) = self.other_witness(masks, it, bin, mask, size)?;
        }
        let mut most = most.min(self.rules(it, kind)).min(self.yard.kinds[kind].count);
        if !self.yard.variants[it.variant as usize].min_values.is_empty() {
            let used = |n: u32| -> SmallVec<[i64; 4]> {
                let row = self.yard.row(it.variant, it.offer).iter().zip(self.free(bin));
                row.zip(size).map(|((r, f), s)| r - f + s.saturating_mul(i64::from(n))).collect()
            };
            while most > 0 && !keeps_values(self.yard, masks, it.variant, mask, &used(most)) {
                most /= 2;
            }
        }
        (most > 0).then_some((most, mask, offer))
    }

    /// Another offering of `mask` that takes what is in the bin and more of `size`.
    fn other_witness(
        &self,
        masks: &Masks,
        it: &Bin,
        bin: usize,
        mask: u32,
        size: &[i64],
    ) -> Option<(u32, u32)> {
        let old = self.yard.row(it.variant, it.offer);
        let free = self.free(bin);
        let mut best: Option<(u32, u32)> = None;
        for offer in masks.maximal(mask) {
            let row = self.yard.row(it.variant, *offer);
            let room: SmallVec<[i64; 4]> =
                row.iter().zip(old.iter().zip(free)).map(|(new, (o, f))| new - (o - f)).collect();
            // Nothing may be overdrawn in what the present pods use.
            if room.iter().zip(old.iter().zip(free)).any(|(r, (o, f))| *r < 0 && o != f) {
                continue;
            }
            let count = fits(size, &room);
            if count > 0 && best.is_none_or(|(most, _)| count > most) && self.limit_allows(it, *offer) {
                best = Some((count, *offer));
            }
        }
        best
    }

    /// Puts `count` of `kind` into `bin`, whose mask and witness become those that [`Packing::room`] gave.
    pub(crate) fn put(&mut self, bin: usize, kind: usize, count: u32, mask: u32, offer: u32) {
        let d = self.yard.d;
        let it = &mut self.bins[bin];
        if offer != it.offer {
            let old = self.yard.row(it.variant, it.offer);
            let new = self.yard.row(it.variant, offer);
            for (f, (n, o)) in self.free[bin * d..(bin + 1) * d].iter_mut().zip(new.iter().zip(old)) {
                *f += n - o;
            }
            limits::swap(self.yard, &mut self.limits, it.variant, it.offer, offer);
        }
        it.mask = mask;
        it.offer = offer;
        for (f, s) in self.free[bin * d..(bin + 1) * d].iter_mut().zip(self.yard.size(kind)) {
            *f -= s.saturating_mul(i64::from(count));
        }
        let number = u32::try_from(kind).unwrap_or(u32::MAX);
        match it.content.iter_mut().find(|(k, _)| *k == number) {
            Some((_, n)) => *n += count,
            None => it.content.push((number, count)),
        }
        let Some(rules) = &self.yard.kinds[kind].rules else { return };
        for group in &rules.counts {
            match it.groups.iter_mut().find(|g| g.group == *group) {
                Some(g) => g.count += count,
                None => it.groups.push(GroupUse { group: *group, count, cap: u32::MAX }),
            }
            if self.yard.near.contains(group) && !self.present.contains(group) {
                self.present.push(*group);
            }
        }
        for (group, cap) in &rules.caps {
            match it.groups.iter_mut().find(|g| g.group == *group) {
                Some(g) => g.cap = g.cap.min(*cap),
                None => it.groups.push(GroupUse { group: *group, count: 0, cap: *cap }),
            }
        }
        it.ports.extend(rules.ports.iter().copied());
    }

    fn limit_allows(&self, bin: &Bin, offer: u32) -> bool {
        limits::allows_swap(self.yard, &self.limits, bin.variant, bin.offer, offer)
    }

    /// Opens an empty bin, if the limits allow its machine.
    pub(crate) fn open(&mut self, variant: u32, mask: u32, offer: u32, flexible: bool) -> Option<usize> {
        if !limits::take(self.yard, &mut self.limits, variant, offer) {
            return None;
        }
        self.bins.push(Bin {
            variant,
            mask,
            offer,
            content: SmallVec::new(),
            groups: SmallVec::new(),
            ports: SmallVec::from_slice(&self.yard.variants[variant as usize].ports),
            flexible,
        });
        self.free.extend_from_slice(self.yard.row(variant, offer));
        Some(self.bins.len() - 1)
    }

    /// Takes the last bin back.
    pub(crate) fn close_empty(&mut self) {
        if let Some(bin) = self.bins.pop() {
            self.free.truncate(self.bins.len() * self.yard.d);
            limits::give(self.yard, &mut self.limits, bin.variant, bin.offer);
        }
    }

    pub(super) fn is_present(&self, group: u32) -> bool {
        self.present.contains(&group)
    }

    pub(super) fn present_count(&self) -> usize {
        self.present.len()
    }

    /// Takes the last bin back with all that is in it; `present` is how many groups were present before it.
    fn undo_last(&mut self, present: usize) {
        self.present.truncate(present);
        self.close_empty();
    }

    /// Becomes `bins`, which hold and cost what they say; only for packings without rules and limits.
    pub(crate) fn take_over(&mut self, bins: Vec<Bin>) {
        self.free.clear();
        for bin in &bins {
            let mut free: SmallVec<[i64; 6]> = SmallVec::from_slice(self.yard.row(bin.variant, bin.offer));
            for (kind, n) in &bin.content {
                for (f, s) in free.iter_mut().zip(self.yard.size(*kind as usize)) {
                    *f = f.saturating_sub(s.saturating_mul(i64::from(*n)));
                }
            }
            self.free.extend_from_slice(&free);
        }
        self.bins = bins;
    }

    /// Gives each bin the cheapest offering that holds what is in it.
    pub(crate) fn settle(&mut self, masks: &Masks) {
        for bin in 0..self.bins.len() {
            self.settle_one(masks, bin);
        }
    }

    pub(crate) fn settle_one(&mut self, masks: &Masks, bin: usize) {
        let d = self.yard.d;
        let it = &self.bins[bin];
        let old = self.yard.row(it.variant, it.offer);
        let used: SmallVec<[i64; 4]> = old.iter().zip(self.free(bin)).map(|(o, f)| o - f).collect();
        let Some(offer) = cheapest(self.yard, masks, it.variant, it.mask, &used, |offer| {
            offer == it.offer || self.limit_allows(it, offer)
        }) else {
            return;
        };
        if offer == it.offer || self.yard.cost(it.variant, offer) > self.yard.cost(it.variant, it.offer) {
            return;
        }
        let new = self.yard.row(it.variant, offer);
        let (variant, before) = (it.variant, it.offer);
        for (f, (n, o)) in self.free[bin * d..(bin + 1) * d].iter_mut().zip(new.iter().zip(old)) {
            *f += n - o;
        }
        limits::swap(self.yard, &mut self.limits, variant, before, offer);
        self.bins[bin].offer = offer;
    }

    /// What the search pays for all bins.
    pub(crate) fn cost(&self) -> i64 {
        self.bins.iter().fold(0i64, |sum, b| sum.saturating_add(self.yard.cost(b.variant, b.offer)))
    }

    /// How many pods of each kind are placed.
    pub(crate) fn placed(&self) -> Vec<u32> {
        let mut placed = vec![0; self.yard.kinds.len()];
        for (kind, n) in self.bins.iter().flat_map(|b| &b.content) {
            placed[*kind as usize] += n;
        }
        placed
    }
}

/// True if the offerings of `mask` that hold `used` keep the pool's minValues.
fn keeps_values(yard: &Yard, masks: &Masks, variant: u32, mask: u32, used: &[i64]) -> bool {
    let Some(ctx) = yard.variants.get(variant as usize) else { return false };
    ctx.min_values.iter().all(|(values, least)| {
        let mut seen: Vec<u32> = Vec::new();
        for offer in masks.bits(mask).iter() {
            let Ok(number) = u32::try_from(offer) else { continue };
            let holds = yard.row(variant, number).iter().zip(used).all(|(r, u)| *u <= 0 || r >= u);
            let Some(value) = values.get(offer).filter(|v| holds && **v != u32::MAX) else { continue };
            if !seen.contains(value) {
                seen.push(*value);
                if seen.len() >= *least {
                    return true;
                }
            }
        }
        seen.len() >= *least
    })
}

/// The cheapest offering of `mask` whose row holds `used`.
pub(crate) fn cheapest(
    yard: &Yard,
    masks: &Masks,
    variant: u32,
    mask: u32,
    used: &[i64],
    allowed: impl Fn(u32) -> bool,
) -> Option<u32> {
    let ladder = masks.ladder(mask).iter().copied();
    ladder.into_iter().find(|offer| {
        let row = yard.row(variant, *offer);
        row.iter().zip(used).all(|(r, u)| *u <= 0 || r >= u) && allowed(*offer)
    })
}
