//! Bins under construction, and how many pods of an item type fit into each.

use smallvec::SmallVec;

use crate::{
    ids::{BinIx, CompatSetIx, GroupIx, ItemTypeIx, LimitIx, OfferIx, VariantIx},
    index_vec::IndexVec,
    packing::{
        compatibility::CompatibilitySets,
        limits,
        problem::{Limit, MinValues, PackingProblem, Pattern, Rules, fits},
        rows::Rows,
    },
    state::{interner::Sym, requests::Port},
};

/// Count and cap of one group on one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupUse {
    pub(crate) group: GroupIx,
    pub(crate) count: u32,
    pub(crate) cap: u32,
}

/// How many pods of an item type fit into a bin, with the compatibility set and the offering that the bin would then have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    pub(crate) count: u32,
    pub(crate) compat_set: CompatSetIx,
    pub(crate) offer: OfferIx,
}

/// An instance under construction.
#[derive(Clone, Debug)]
pub(crate) struct Bin {
    pub(crate) variant: VariantIx,
    pub(crate) compat_set: CompatSetIx,
    /// An offering of the compatibility set that is large enough.
    pub(crate) offer: OfferIx,
    pub(crate) pattern: Pattern,
    pub(crate) groups: SmallVec<[GroupUse; 2]>,
    pub(crate) ports: SmallVec<[Port; 1]>,
    /// It may still become any offering of its compatibility set.
    pub(crate) flexible: bool,
}

/// A packing under construction.
#[derive(Clone, Debug)]
pub(crate) struct Packing<'a> {
    pub(crate) problem: &'a PackingProblem,
    pub(crate) bins: IndexVec<BinIx, Bin>,
    /// Room left in each bin's witness.
    free: Rows<BinIx>,
    pub(crate) limits: IndexVec<LimitIx, Limit>,
    present: Vec<GroupIx>,
    pub(crate) steps: u64,
}

impl<'a> Packing<'a> {
    pub(crate) fn new(problem: &'a PackingProblem) -> Self {
        Self {
            problem,
            bins: IndexVec::new(),
            free: Rows::new(problem.d),
            limits: problem.limits.clone(),
            present: problem.present.clone(),
            steps: 0,
        }
    }

    pub(crate) fn free(&self, bin: BinIx) -> &[i64] {
        &self.free[bin]
    }

    /// How many of `item_type` the rules allow into `bin`.
    fn rules(&self, bin: &Bin, item_type: ItemTypeIx) -> u32 {
        let Some(rules) = &self.problem.item_types[item_type].rules else { return u32::MAX };
        let mut most = rules.most;
        if !rules.ports.is_empty() {
            if rules.ports.iter().any(|p| bin.ports.iter().any(|q| p.conflicts(q))) {
                return 0;
            }
            most = most.min(1);
        }
        if most != u32::MAX {
            let there = bin.pattern.iter().find(|(k, _)| *k == item_type).map_or(0, |(_, n)| *n);
            most = most.saturating_sub(there);
        }
        if self.is_crowding(bin, rules) {
            return 0;
        }
        let after = self.only_affinity_target(bin, rules);
        for g in &bin.groups {
            if rules.counts.contains(&g.group) {
                let cap =
                    after.map_or(g.cap, |affinity_target| self.cap_after(bin, g.group, affinity_target));
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
            let has_target = bin.groups.iter().any(|g| g.group == *group && g.count > 0);
            let is_first = rules.may_be_first && !self.present.contains(group);
            if !has_target && !is_first {
                return 0;
            }
        }
        most
    }

    /// The item type of the only pod in `bin` that `rules` needs: that pod is bound first.
    fn only_affinity_target(&self, bin: &Bin, rules: &Rules) -> Option<ItemTypeIx> {
        let need = rules.needs.first()?;
        let one = bin.groups.iter().any(|g| g.group == *need && g.count == 1);
        let is_affinity_target = |item_type: ItemTypeIx| {
            self.problem.item_types[item_type].rules.as_ref().is_some_and(|r| r.counts.contains(need))
        };
        bin.pattern
            .iter()
            .map(|(item_type, _)| *item_type)
            .find(|item_type| one && is_affinity_target(*item_type))
    }

    /// The maximum of a group in `bin` without the spreads of `affinity_target`.
    fn cap_after(&self, bin: &Bin, group: GroupIx, affinity_target: ItemTypeIx) -> u32 {
        let mut least = u32::MAX;
        for (item_type, _) in &bin.pattern {
            let Some(rules) = &self.problem.item_types[*item_type].rules else { continue };
            if *item_type != affinity_target || rules.apart.contains(&group) {
                let caps = rules.caps.iter().filter(|(g, _)| *g == group);
                least = caps.fold(least, |least, (_, cap)| least.min(*cap));
            }
        }
        least
    }

    /// True if a pod with `rules` would let another pod be bound before the target, after which alone there
    /// is room for both.
    fn is_crowding(&self, bin: &Bin, rules: &Rules) -> bool {
        bin.groups.iter().any(|g| g.count > g.cap)
            && bin.pattern.iter().any(|(item_type, _)| {
                let theirs = &self.problem.item_types[*item_type].rules;
                theirs.as_ref().is_some_and(|t| t.needs.iter().any(|g| rules.counts.contains(g)))
            })
    }

    /// How many of `item_type` fit into `bin`; `None` if none does.
    pub(crate) fn room(
        &self,
        compat_sets: &mut CompatibilitySets,
        bin: BinIx,
        item_type: ItemTypeIx,
    ) -> Option<Fit> {
        let it = &self.bins[bin];
        let size = self.problem.size(item_type);
        let mut most = fits(size, self.free(bin));
        if most == 0 && !it.flexible {
            return None;
        }
        let (_, own) = self.problem.item_types[item_type].options.iter().find(|(v, _)| *v == it.variant)?;
        let compat_set = compat_sets.and(self.problem, it.compat_set, *own)?;
        let mut offer = it.offer;
        if most == 0 || !compat_sets.contains(compat_set, offer) {
            if !it.flexible {
                return None;
            }
            (most, offer) = self.other_witness(compat_sets, it, bin, compat_set, size)?;
        }
        let mut most = most.min(self.rules(it, item_type)).min(self.problem.item_types[item_type].count);
        if !self.problem.variants[it.variant].min_values.is_empty() {
            let used = |n: u32| -> SmallVec<[i64; 4]> {
                let row = self.problem.row(it.variant, it.offer).iter().zip(self.free(bin));
                row.zip(size).map(|((r, f), s)| r - f + s.saturating_mul(i64::from(n))).collect()
            };
            while most > 0 && !has_min_values(self.problem, compat_sets, it.variant, compat_set, &used(most))
            {
                most /= 2;
            }
        }
        (most > 0).then_some(Fit { count: most, compat_set, offer })
    }

    /// Another offering of `compat_set` that holds the bin's pods and more of `size`.
    fn other_witness(
        &self,
        compat_sets: &CompatibilitySets,
        it: &Bin,
        bin: BinIx,
        compat_set: CompatSetIx,
        size: &[i64],
    ) -> Option<(u32, OfferIx)> {
        let old = self.problem.row(it.variant, it.offer);
        let free = self.free(bin);
        let mut best: Option<(u32, OfferIx)> = None;
        for offer in compat_sets.maximal(compat_set) {
            let row = self.problem.row(it.variant, *offer);
            let room: SmallVec<[i64; 4]> =
                row.iter().zip(old.iter().zip(free)).map(|(new, (o, f))| new - (o - f)).collect();
            // No resource that the present pods use may be overdrawn.
            if room.iter().zip(old.iter().zip(free)).any(|(r, (o, f))| *r < 0 && o != f) {
                continue;
            }
            let count = fits(size, &room);
            if count > 0 && best.is_none_or(|(most, _)| count > most) && self.is_within_limits(it, *offer) {
                best = Some((count, *offer));
            }
        }
        best
    }

    /// Places the pods of `item_type` that [`Packing::room`] returned, or fewer of them, into `bin`.
    pub(crate) fn put(&mut self, bin: BinIx, item_type: ItemTypeIx, fit: Fit) {
        let Fit { count, compat_set, offer } = fit;
        let it = &mut self.bins[bin];
        if offer != it.offer {
            let old = self.problem.row(it.variant, it.offer);
            let new = self.problem.row(it.variant, offer);
            for (f, (n, o)) in self.free[bin].iter_mut().zip(new.iter().zip(old)) {
                *f += n - o;
            }
            limits::swap(self.problem, &mut self.limits, it.variant, it.offer, offer);
        }
        it.compat_set = compat_set;
        it.offer = offer;
        for (f, s) in self.free[bin].iter_mut().zip(self.problem.size(item_type)) {
            *f -= s.saturating_mul(i64::from(count));
        }
        match it.pattern.iter_mut().find(|(k, _)| *k == item_type) {
            Some((_, n)) => *n += count,
            None => it.pattern.push((item_type, count)),
        }
        let Some(rules) = &self.problem.item_types[item_type].rules else { return };
        for group in &rules.counts {
            match it.groups.iter_mut().find(|g| g.group == *group) {
                Some(g) => g.count += count,
                None => it.groups.push(GroupUse { group: *group, count, cap: u32::MAX }),
            }
            if self.problem.host_affinity.contains(group) && !self.present.contains(group) {
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

    fn is_within_limits(&self, bin: &Bin, offer: OfferIx) -> bool {
        limits::allows_swap(self.problem, &self.limits, bin.variant, bin.offer, offer)
    }

    /// Opens an empty bin, if the limits allow its instance.
    pub(crate) fn open(
        &mut self,
        variant: VariantIx,
        compat_set: CompatSetIx,
        offer: OfferIx,
        flexible: bool,
    ) -> Option<BinIx> {
        if !limits::take(self.problem, &mut self.limits, variant, offer) {
            return None;
        }
        self.free.push(self.problem.row(variant, offer));
        let bin = Bin {
            variant,
            compat_set,
            offer,
            pattern: SmallVec::new(),
            groups: SmallVec::new(),
            ports: SmallVec::from_slice(&self.problem.variants[variant].ports),
            flexible,
        };
        Some(self.bins.push(bin))
    }

    /// Removes the last bin.
    pub(crate) fn close_empty(&mut self) {
        if let Some(bin) = self.bins.pop() {
            self.free.pop();
            limits::give(self.problem, &mut self.limits, bin.variant, bin.offer);
        }
    }

    pub(super) fn is_present(&self, group: GroupIx) -> bool {
        self.present.contains(&group)
    }

    pub(super) fn present_count(&self) -> usize {
        self.present.len()
    }

    /// Removes the last bin with its pods; `present` is how many groups were present before it.
    pub(super) fn undo_last(&mut self, present: usize) {
        self.present.truncate(present);
        self.close_empty();
    }

    /// Replaces the packing by `bins`, which are within the limits; only for problems without rules.
    pub(crate) fn take_over(&mut self, bins: IndexVec<BinIx, Bin>) {
        self.free.clear();
        self.limits.clone_from(&self.problem.limits);
        for bin in &bins {
            limits::spend(self.problem, &mut self.limits, bin.variant, bin.offer);
            let mut free: SmallVec<[i64; 6]> = SmallVec::from_slice(self.problem.row(bin.variant, bin.offer));
            for (item_type, n) in &bin.pattern {
                for (f, s) in free.iter_mut().zip(self.problem.size(*item_type)) {
                    *f = f.saturating_sub(s.saturating_mul(i64::from(*n)));
                }
            }
            self.free.push(&free);
        }
        self.bins = bins;
    }

    /// Gives each bin the cheapest offering that holds its pods.
    pub(crate) fn take_cheapest_offers(&mut self, compat_sets: &CompatibilitySets) {
        for bin in self.bins.ids() {
            self.take_cheapest_offer(compat_sets, bin);
        }
    }

    fn take_cheapest_offer(&mut self, compat_sets: &CompatibilitySets, bin: BinIx) {
        let it = &self.bins[bin];
        let old = self.problem.row(it.variant, it.offer);
        let used: SmallVec<[i64; 4]> = old.iter().zip(self.free(bin)).map(|(o, f)| o - f).collect();
        let Some(offer) = cheapest(self.problem, compat_sets, it.variant, it.compat_set, &used, |offer| {
            offer == it.offer || self.is_within_limits(it, offer)
        }) else {
            return;
        };
        if offer == it.offer || self.problem.cost(it.variant, offer) > self.problem.cost(it.variant, it.offer)
        {
            return;
        }
        let new = self.problem.row(it.variant, offer);
        let (variant, before) = (it.variant, it.offer);
        for (f, (n, o)) in self.free[bin].iter_mut().zip(new.iter().zip(old)) {
            *f += n - o;
        }
        limits::swap(self.problem, &mut self.limits, variant, before, offer);
        self.bins[bin].offer = offer;
    }

    /// The search's cost of all bins.
    pub(crate) fn cost(&self) -> i64 {
        self.bins.iter().fold(0i64, |sum, b| sum.saturating_add(self.problem.cost(b.variant, b.offer)))
    }

    /// How many pods of each item type are placed.
    pub(crate) fn placed(&self) -> IndexVec<ItemTypeIx, u32> {
        let mut placed = IndexVec::filled(0, self.problem.item_types.len());
        for (item_type, n) in self.bins.iter().flat_map(|b| &b.pattern) {
            placed[*item_type] += n;
        }
        placed
    }
}

/// True if the offerings of `compat_set` that hold `used` keep the pool's minValues.
fn has_min_values(
    problem: &PackingProblem,
    compat_sets: &CompatibilitySets,
    variant: VariantIx,
    compat_set: CompatSetIx,
    used: &[i64],
) -> bool {
    let Some(ctx) = problem.variants.find(variant) else { return false };
    ctx.min_values.iter().all(|MinValues { values, least }| {
        let mut distinct: Vec<Sym> = Vec::new();
        for offer in compat_sets.bits(compat_set).iter() {
            let holds = problem.row(variant, offer).iter().zip(used).all(|(r, u)| *u <= 0 || r >= u);
            let Some(value) = values.find(offer).filter(|v| holds && **v != Sym::NONE) else { continue };
            if !distinct.contains(value) {
                distinct.push(*value);
                if distinct.len() >= *least {
                    return true;
                }
            }
        }
        distinct.len() >= *least
    })
}

/// The cheapest offering of `compat_set` whose row holds `used`.
pub(crate) fn cheapest(
    problem: &PackingProblem,
    compat_sets: &CompatibilitySets,
    variant: VariantIx,
    compat_set: CompatSetIx,
    used: &[i64],
    allowed: impl Fn(OfferIx) -> bool,
) -> Option<OfferIx> {
    let ladder = compat_sets.ladder(compat_set).iter().copied();
    ladder.into_iter().find(|offer| {
        let row = problem.row(variant, *offer);
        row.iter().zip(used).all(|(r, u)| *u <= 0 || r >= u) && allowed(*offer)
    })
}
