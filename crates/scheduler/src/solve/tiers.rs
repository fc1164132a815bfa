//! A block, solved tier by tier: pods go to the heaviest pool that can take them; what its limits leave out goes to the next
//! tier.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::{
    ids::{ClassIx, LimitIx, LocalClassIx, OfferIx, PoolIx, PoolVariant, VariantIx},
    index_vec::IndexVec,
    model::plan::{ReasonKind, Relaxed},
    packing::problem::Limit,
    solve::{
        block::{Allowed, Block, Context, Launch, LeftOutPods, Solved},
        shares::{PlannedShare, ROUNDS},
        tier_packing::{Tier, TierClass, TierDomains, Turn, Unplaced},
    },
    state::{attachments::Dimension, catalog_index::OfferSet, requests::ResourceId},
};

/// By pool, the offerings that the limit of a share counts; none of a pool without such a limit.
type Bounded = FxHashMap<PoolIx, OfferSet>;

/// True if a share bounds some of these offerings.
fn has_bounded(allowed: &Allowed, bounded: &Bounded) -> bool {
    bounded.get(&allowed.from.pool).is_some_and(|bounded| bounded.intersects(&allowed.bits))
}

/// True if some of these offerings are bounded by no share.
fn has_unbounded(allowed: &Allowed, bounded: &Bounded) -> bool {
    bounded.get(&allowed.from.pool).is_none_or(|bounded| {
        let mut others = OfferSet::clone(&allowed.bits);
        others.take_away(bounded);
        !others.is_empty()
    })
}

/// The bound of a plan that keeps its shares by limits, made after one without these limits, whose bound was `of_first`.
///
/// Its own bound is the sum over turns. How it divides the pods between weights is given; how it divides them between the turns of one
/// weight isn't, and there the first plan's bound is that of all pods together, for that plan's weights and domains.
fn bound_within_shares(solved: &Solved, of_first: i64) -> i64 {
    let mut items = solved.launches.iter().flat_map(|launch| &launch.content);
    if !solved.has_turns {
        solved.bound
    } else if solved.has_weights || !solved.left.is_empty() || items.any(|item| item.domain_set.is_some()) {
        0
    } else {
        of_first
    }
}

impl Context<'_> {
    /// Solves one block within the shares of its pools: see [`shares`](crate::solve::shares).
    pub(crate) fn solve(&self, block: Block) -> Solved {
        let shares = self.shares_of(&block);
        if shares.is_empty() {
            return self.solve_within(block, &self.limits.left);
        }
        let mut limits = self.limits.left.clone();
        let (mut steps, mut round, mut of_first) = (0, 0, 0);
        loop {
            let mut solved = self.solve_within(block.clone(), &limits);
            steps += solved.steps;
            if round == 0 {
                of_first = solved.bound;
            }
            let mut is_kept = true;
            for share in &shares {
                let launches = solved.launches.iter().map(Launch::pool_offer);
                let launched = share.launched(&self.pools, launches);
                if let Some(limit) = limits.find_mut(share.limit) {
                    is_kept &= !share.tighten(limit, launched, round);
                }
            }
            // Once limits aren't lowered any more, each round bars the nodes of one share at least.
            if is_kept || round > ROUNDS + shares.len() {
                solved.steps = steps;
                if round > 0 {
                    solved.bound = bound_within_shares(&solved, of_first);
                    solved.relaxed.insert(Relaxed::Limits);
                }
                return solved;
            }
            round += 1;
        }
    }

    /// The shares of the pools that a block's pods may use.
    fn shares_of(&self, block: &Block) -> Vec<&PlannedShare<'_>> {
        if self.limits.shares.is_empty() {
            return Vec::new();
        }
        let allowed = block.classes.iter().flat_map(|pods| &self.allowed[pods.class]);
        let pools: BTreeSet<PoolIx> = allowed.map(|allowed| allowed.from.pool).collect();
        let is_own = |share: &&PlannedShare<'_>| share.members.iter().any(|pool| pools.contains(pool));
        self.limits.shares.iter().filter(is_own).collect()
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
        let bounded = self.bounded(&block, &limits);
        let mut turns = block.classes.iter().flat_map(|pods| self.turns(pods.class, &bounded));
        out.has_turns = !bounded.is_empty() && turns.any(|turn| !turn.bounded);
        out.has_weights = block.classes.iter().any(|pods| {
            let mut weights = self.allowed[pods.class].iter().map(|a| self.weight(a));
            weights.next().is_some_and(|first| weights.any(|other| other != first))
        });
        // Each class starts with its heaviest pool; the rest falls to its next lighter one.
        let mut ceiling: IndexVec<LocalClassIx, Option<Turn>> = IndexVec::filled(None, block.classes.len());
        let mut blame: IndexVec<LocalClassIx, Option<ReasonKind>> =
            IndexVec::filled(None, block.classes.len());
        while !waiting.is_empty() {
            let mut classes: Vec<TierClass> = Vec::new();
            for (local, count) in waiting.drain(..) {
                let class = block.classes[local].class;
                let turn = self
                    .turns(class, &bounded)
                    .filter(|turn| ceiling[local].is_none_or(|ceiling| *turn < ceiling))
                    .max();
                match turn {
                    Some(turn) => classes.push(TierClass { local, count, turn }),
                    None => out.left.push(LeftOutPods { class, count, reason: blame[local] }),
                }
            }
            if classes.is_empty() {
                break;
            }
            let first = classes.iter().map(|wanted| wanted.turn).max();
            let too_early =
                |wanted: &mut TierClass| deferred.contains(&wanted.local) && Some(wanted.turn) < first;
            waiting.extend(classes.extract_if(.., too_early).map(|wanted| (wanted.local, wanted.count)));
            let packed = self.pack_tier(&self.tier(&block, &classes, &limits, &bounded), &classes, &limits);
            out.add(packed.solved);
            limits = packed.limits;
            // Counts of placed pods stay with the groups for the next tier.
            block.groups = packed.groups;
            tiers.push(packed.domains);
            for Unplaced { local, count, reason } in packed.left {
                if let Some(wanted) = classes.iter().find(|wanted| wanted.local == local) {
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

    /// The turns of a class, in no order and some of them more than once.
    fn turns(&self, class: ClassIx, bounded: &Bounded) -> impl Iterator<Item = Turn> {
        let all = &self.allowed[class];
        all.iter().flat_map(move |allowed| {
            let weight = self.weight(allowed);
            let later = !bounded.is_empty()
                && has_unbounded(allowed, bounded)
                && all.iter().any(|other| self.weight(other) == weight && has_bounded(other, bounded));
            [true, false]
                .into_iter()
                .take(if later { 2 } else { 1 })
                .map(move |bounded| Turn { weight, bounded })
        })
    }

    /// The offerings that limits of shares count, by pool of the block's classes.
    fn bounded(&self, block: &Block, limits: &IndexVec<LimitIx, Limit>) -> Bounded {
        let mut bounded = Bounded::default();
        if self.limits.shares.is_empty() {
            return bounded;
        }
        for allowed in block.classes.iter().flat_map(|pods| &self.allowed[pods.class]) {
            let pool = allowed.from.pool;
            if bounded.contains_key(&pool) {
                continue;
            }
            let catalog = &self.pools[pool].catalog;
            let of_shares = self.limits.of[pool].iter().filter(|limit| self.limits.is_share(**limit));
            for limit in of_shares.filter_map(|limit| limits.find(*limit)).filter(|limit| limit.is_bound()) {
                let bits = bounded.entry(pool).or_insert_with(|| OfferSet::none(catalog.offers.len()));
                let is_counted = |offer: &OfferIx| limit.is_counted(catalog, *offer);
                catalog.offers.ids().filter(is_counted).for_each(|offer| bits.insert(offer));
            }
        }
        bounded
    }

    fn tier<'b>(
        &self,
        block: &'b Block,
        classes: &[TierClass],
        limits: &IndexVec<LimitIx, Limit>,
        bounded: &Bounded,
    ) -> Tier<'b> {
        let mut variants = BTreeSet::new();
        let mut others = BTreeSet::new();
        for TierClass { local, turn, .. } in classes {
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
        let is_bound = |limit: &LimitIx| limits.find(*limit).is_some_and(Limit::is_bound);
        let is_limited = variants.iter().any(|from| self.limits.of[from.pool].iter().any(is_bound));
        let without_others = if variants.iter().any(|from| bounded.contains_key(&from.pool)) {
            let is_last = |wanted: &&TierClass| {
                let class = block.classes[wanted.local].class;
                self.turns(class, bounded).all(|turn| turn >= wanted.turn)
            };
            classes.iter().filter(is_last).map(|wanted| wanted.local).collect()
        } else {
            BTreeSet::new()
        };
        let bounded = variants.iter().map(|from| bounded.get(&from.pool).cloned()).collect();
        Tier { variants, dims: dims.into(), tables, bounded, is_limited, without_others, block }
    }
}
