//! A block, solved tier by tier: pods go to the heaviest pool that can take them; what its limits leave out goes to the next
//! tier.

use std::collections::BTreeSet;

use crate::{
    ids::{LimitIx, LocalClassIx, PoolVariant, VariantIx},
    index_vec::IndexVec,
    model::plan::{ReasonKind, Relaxed},
    packing::problem::Limit,
    solve::{
        block::{Block, Context, LeftOutPods, Solved},
        shares::ROUNDS,
        tier_packing::{Tier, TierDomains, Unplaced, Wanted},
    },
    state::{attachments::Dimension, requests::ResourceId},
};

impl Context<'_> {
    /// Solves one block within the shares of its pools: see [`shares`](crate::solve::shares).
    pub(crate) fn solve(&self, block: Block) -> Solved {
        let shares = &self.limits.shares;
        let mut limits = self.limits.left.clone();
        let (mut steps, mut round) = (0, 0);
        loop {
            let mut solved = self.solve_within(block.clone(), &limits);
            steps += solved.steps;
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
        let mut weights: BTreeSet<i32> = BTreeSet::new();
        for pods in &block.classes {
            weights.extend(self.allowed[pods.class].iter().map(|a| self.weight(a)));
        }
        if weights.len() > 1 {
            out.relaxed.insert(Relaxed::Weight);
        }
        // Each class starts with its heaviest pool; the rest falls to its next lighter one.
        let mut ceiling: IndexVec<LocalClassIx, i32> = IndexVec::filled(i32::MAX, block.classes.len());
        let mut blame: IndexVec<LocalClassIx, Option<ReasonKind>> =
            IndexVec::filled(None, block.classes.len());
        while !waiting.is_empty() {
            let mut now: Vec<Wanted> = Vec::new();
            for (local, count) in waiting.drain(..) {
                let class = block.classes[local].class;
                let weight = self.allowed[class]
                    .iter()
                    .map(|a| self.weight(a))
                    .filter(|w| *w < ceiling[local] || ceiling[local] == i32::MAX)
                    .max();
                match weight {
                    Some(weight) => now.push(Wanted { local, count, weight }),
                    None => out.left.push(LeftOutPods { class, count, reason: blame[local] }),
                }
            }
            if now.is_empty() {
                break;
            }
            let heaviest = now.iter().map(|wanted| wanted.weight).max();
            let too_early =
                |wanted: &mut Wanted| deferred.contains(&wanted.local) && Some(wanted.weight) < heaviest;
            waiting.extend(now.extract_if(.., too_early).map(|wanted| (wanted.local, wanted.count)));
            let packed = self.pack_tier(&self.tier(&block, &now), &now, &limits);
            out.add(packed.solved);
            limits = packed.limits;
            // Counts of placed pods stay with the groups for the next tier.
            block.groups = packed.groups;
            tiers.push(packed.domains);
            for Unplaced { local, count, reason } in packed.left {
                if let Some(wanted) = now.iter().find(|wanted| wanted.local == local) {
                    ceiling[local] = wanted.weight;
                }
                blame[local] = blame[local].or(reason);
                if ceiling[local] == i32::MIN {
                    let class = block.classes[local].class;
                    out.left.push(LeftOutPods { class, count, reason: blame[local] });
                } else if let Some((_, rest)) = waiting.iter_mut().find(|(other, _)| *other == local) {
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

    fn tier<'b>(&self, block: &'b Block, now: &[Wanted]) -> Tier<'b> {
        let mut variants = BTreeSet::new();
        let mut others = BTreeSet::new();
        for Wanted { local, weight, .. } in now {
            let class = block.classes[*local].class;
            let heavy = self.allowed[class].iter().filter(|a| self.weight(a) == *weight);
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
        Tier { variants, dims: dims.into(), tables, block }
    }
}
