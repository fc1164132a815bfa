//! A block, solved tier by tier: pods go to the heaviest pool that can take them; what its limits leave out goes to the next
//! tier.

use std::collections::BTreeSet;

use crate::{
    ids::{LimitIx, LocalClassIx, OfferIx, PoolIx, PoolVariant, VariantIx},
    index_vec::IndexVec,
    model::{
        bit_set::BitSet,
        plan::{ReasonKind, Relaxed},
    },
    packing::problem::Limit,
    solve::{
        block::{Allowed, Block, Context, LeftOutPods, Solved},
        shares::ROUNDS,
        tier_packing::{Tier, TierDomains, Turn, Unplaced, Wanted},
    },
    state::{attachments::Dimension, requests::ResourceId},
};

impl Context<'_> {
    /// Solves one block within the shares of its pools: see [`shares`](crate::solve::shares).
    pub(crate) fn solve(&self, block: Block) -> Solved {
        let shares = &self.limits.shares;
        let mut limits = self.limits.left.clone();
        let (mut steps, mut round, mut bound) = (0, 0, i64::MAX);
        loop {
            let mut solved = self.solve_within(block.clone(), &limits);
            steps += solved.steps;
            if round == 0 {
                bound = solved.bound;
            }
            let mut is_kept = true;
            for share in shares {
                let launches = solved.launches.iter().map(|launch| (launch.from.pool, launch.offer));
                let launched = share.launched(&self.pools, launches);
                if let Some(limit) = limits.find_mut(share.limit) {
                    is_kept &= !share.tighten(limit, launched, round);
                }
            }
            // Once limits aren't lowered any more, each round bars the nodes of one share at least.
            if is_kept || round > ROUNDS + shares.len() {
                solved.steps = steps;
                if round > 0 {
                    // A bound under these limits says nothing of plans that divide the pods otherwise.
                    solved.bound = if solved.left.is_empty() { bound } else { 0 };
                    solved.relaxed.insert(Relaxed::Limits);
                }
                return solved;
            }
            round += 1;
        }
    }

    /// Solves one block within `limits`.
    ///
    /// Pods that a tier leaves out come to lighter pools once the pods of those are placed, and may count for their spreads. A
    /// class whose spread that violates is solved again, with the rest of the heavier pools and not before.
    pub(super) fn solve_within(&self, block: Block, limits: &IndexVec<LimitIx, Limit>) -> Solved {
        let mut deferred = BTreeSet::new();
        let mut steps = 0;
        loop {
            let (mut solved, violating) = self.solve_tiers(block.clone(), limits, &deferred);
            steps += solved.steps;
            let before = deferred.len();
            deferred.extend(violating);
            if deferred.len() == before {
                solved.steps = steps;
                return solved;
            }
        }
    }

    /// Solves a block tier by tier, classes of `deferred` once all heavier pools are done. Returns the classes whose spreads
    /// hold in their tier and not after all.
    fn solve_tiers(
        &self,
        mut block: Block,
        limits: &IndexVec<LimitIx, Limit>,
        deferred: &BTreeSet<LocalClassIx>,
    ) -> (Solved, BTreeSet<LocalClassIx>) {
        let mut out = Solved::default();
        let mut tiers: Vec<TierDomains> = Vec::new();
        let mut limits = limits.clone();
        let mut waiting: Vec<(LocalClassIx, u32)> =
            block.classes.enumerate().map(|(local, pods)| (local, pods.count)).collect();
        out.has_weights = block.classes.iter().any(|pods| {
            let mut weights = self.allowed[pods.class].iter().map(|a| self.weight(a));
            weights.next().is_some_and(|first| weights.any(|other| other != first))
        });
        // Each class starts with its heaviest pool; the rest falls to its next lighter one.
        let mut ceiling: IndexVec<LocalClassIx, Option<Turn>> = IndexVec::filled(None, block.classes.len());
        let mut blame: IndexVec<LocalClassIx, Option<ReasonKind>> =
            IndexVec::filled(None, block.classes.len());
        while !waiting.is_empty() {
            let mut now: Vec<Wanted> = Vec::new();
            for (local, count) in waiting.drain(..) {
                let class = block.classes[local].class;
                let turn = self.allowed[class]
                    .iter()
                    .flat_map(|allowed| self.turns(allowed, &limits))
                    .filter(|turn| ceiling[local].is_none_or(|ceiling| *turn < ceiling))
                    .max();
                match turn {
                    Some(turn) => now.push(Wanted { local, count, turn }),
                    None => out.left.push(LeftOutPods { class, count, reason: blame[local] }),
                }
            }
            if now.is_empty() {
                break;
            }
            let first = now.iter().map(|wanted| wanted.turn).max();
            let too_early =
                |wanted: &mut Wanted| deferred.contains(&wanted.local) && Some(wanted.turn) < first;
            waiting.extend(now.extract_if(.., too_early).map(|wanted| (wanted.local, wanted.count)));
            let packed = self.pack_tier(&self.tier(&block, &now, &limits), &now, &limits);
            out.add(packed.solved);
            limits = packed.limits;
            // Counts of placed pods stay with the groups for the next tier.
            block.groups = packed.groups;
            tiers.push(packed.domains);
            for Unplaced { local, count, reason } in packed.left {
                if let Some(wanted) = now.iter().find(|wanted| wanted.local == local) {
                    ceiling[local] = Some(wanted.turn);
                }
                blame[local] = blame[local].or(reason);
                if let Some((_, rest)) = waiting.iter_mut().find(|(other, _)| *other == local) {
                    *rest += count;
                } else {
                    waiting.push((local, count));
                }
            }
        }
        // Nothing comes after the last tier.
        tiers.pop();
        let violating = tiers.iter().flat_map(|tier| tier.violating_since(&block.groups)).collect();
        (out, violating)
    }

    /// The turns of an offering's pool, the first one first.
    fn turns(&self, allowed: &Allowed, limits: &IndexVec<LimitIx, Limit>) -> impl Iterator<Item = Turn> {
        let weight = self.weight(allowed);
        let later = self.bounded(allowed.from, limits).is_some_and(|bounded| {
            let mut others = BitSet::clone(&allowed.bits);
            others.take_away(&bounded);
            !others.is_empty()
        });
        [true, false].into_iter().take(if later { 2 } else { 1 }).map(move |bounded| Turn { weight, bounded })
    }

    /// The limits of a pool's nodes by capacity type.
    fn bounds_by_capacity_type<'l>(
        &'l self,
        pool: PoolIx,
        limits: &'l IndexVec<LimitIx, Limit>,
    ) -> impl Iterator<Item = &'l Limit> {
        let limits = self.limits.of[pool].iter().filter_map(|limit| limits.find(*limit));
        limits.filter(|limit| limit.is_bound() && limit.counted.is_by_capacity_type())
    }

    /// True if a share limits nodes of this pool.
    fn is_within_share(&self, pool: PoolIx, limits: &IndexVec<LimitIx, Limit>) -> bool {
        let is_bound = |limit: &LimitIx| limits.find(*limit).is_some_and(Limit::is_bound);
        self.limits.of[pool].iter().any(|limit| self.limits.is_share(*limit) && is_bound(limit))
    }

    /// The offerings of a variant that limits by capacity type count; `None` if there is no such limit.
    fn bounded(&self, from: PoolVariant, limits: &IndexVec<LimitIx, Limit>) -> Option<BitSet> {
        let catalog = &self.pools[from.pool].catalog;
        let mut bits = None;
        for limit in self.bounds_by_capacity_type(from.pool, limits) {
            let bits = bits.get_or_insert_with(|| BitSet::none(catalog.offers.len()));
            for offer in (0..catalog.offers.len()).filter(|o| limit.is_counted(catalog, OfferIx::from(*o))) {
                bits.insert(offer);
            }
        }
        bits
    }

    fn tier<'b>(&self, block: &'b Block, now: &[Wanted], limits: &IndexVec<LimitIx, Limit>) -> Tier<'b> {
        let mut variants = BTreeSet::new();
        let mut others = BTreeSet::new();
        for Wanted { local, turn, .. } in now {
            let class = block.classes[*local].class;
            let heavy = self.allowed[class].iter().filter(|a| self.weight(a) == turn.weight);
            variants.extend(heavy.map(|a| a.from));
            others.extend(self.demand.classes[class].requests.iter().map(|(id, _)| *id));
        }
        let [cpu, memory, pods] =
            [ResourceId::CPU, ResourceId::MEMORY, ResourceId::PODS].map(Dimension::Resource);
        for fixed in [cpu, memory, pods] {
            others.remove(&fixed);
        }
        let mut dims = vec![cpu, memory];
        dims.extend(others);
        dims.push(pods);
        let variants: IndexVec<VariantIx, PoolVariant> = variants.into_iter().collect();
        let tables = variants.iter().map(|from| self.table(*from, &dims)).collect();
        let bounded = variants.iter().map(|from| self.bounded(*from, limits)).collect();
        let without_others = if variants.iter().any(|from| self.is_within_share(from.pool, limits)) {
            let is_last = |wanted: &&Wanted| {
                let class = block.classes[wanted.local].class;
                let mut turns = self.allowed[class].iter().flat_map(|allowed| self.turns(allowed, limits));
                turns.all(|turn| turn >= wanted.turn)
            };
            now.iter().filter(is_last).map(|wanted| wanted.local).collect()
        } else {
            BTreeSet::new()
        };
        Tier { variants, dims: dims.into(), tables, bounded, without_others, block }
    }
}
