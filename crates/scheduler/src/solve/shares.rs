//! Shares of a pool in a plan.
//!
//! A share bounds some nodes by what all nodes of the pool are, which is known only once they are planned: it is no limit. So a block is
//! planned without its shares first. If one doesn't hold then, the nodes that it bounds get the limit that the plan's own size gives
//! them, and the block is planned again. A smaller plan may break the share again and gets a lower limit. After a few rounds the limit
//! is what the plan's other nodes allow by themselves: pods that nothing but the bounded nodes can take make each plan smaller than the
//! last. Where that isn't enough the nodes aren't launched at all, by which no share is broken.

use crate::{
    ids::{LimitIx, OfferIx, PoolIx, PoolOffer},
    index_vec::IndexVec,
    model::{
        pool::Pool,
        resources::{CPU, Round, readable},
        share::{Balance, Share, ShareBound, ShareOf},
    },
    packing::{limits::cpu_of, problem::Limit},
    state::{pool::PoolRec, requests::ResourceId},
};

/// Limits are lowered this often before the nodes aren't launched at all.
pub(super) const ROUNDS: usize = 5;

/// A share, and the limit that keeps it in a plan.
#[derive(Debug)]
pub(crate) struct PlannedShare<'a> {
    pub(crate) share: &'a Share,
    /// The templates of its pool.
    pub(crate) members: Vec<PoolIx>,
    /// The nodes of the pool that are there and stay.
    pub(crate) staying: Balance,
    /// The limit of the nodes that the share bounds: its own for a maximum, all others for a minimum.
    pub(crate) limit: LimitIx,
}

/// The percentage that a maximum leaves to other nodes.
fn rest(percent: u32) -> i128 {
    i128::from(100_u32.saturating_sub(percent).max(1))
}

impl PlannedShare<'_> {
    /// True if nodes of this template may be among those that the share bounds.
    pub(super) fn may_bound(&self, pool: &Pool) -> bool {
        match (&self.share.of, self.share.bound) {
            (ShareOf::Template(name), ShareBound::MaxPercent(_)) => pool.template == *name,
            (ShareOf::Template(name), ShareBound::MinNodes(_)) => pool.template != *name,
            (ShareOf::CapacityType(_), _) => true,
        }
    }

    /// Why the share leaves no node for a pod, and what to change.
    pub(super) fn reason(&self, pool: &str) -> String {
        let (said, of, own) = (self.share.of_pool(pool), &self.share.of, self.staying.own);
        match self.share.bound {
            ShareBound::MaxPercent(_) => {
                let cpu = |thousandths| readable(CPU, thousandths, Round::Down);
                let all = self.staying.all().cpu;
                let has = if all > 0 {
                    format!("its nodes have {} now, of which {} are {of}, and ", cpu(all), cpu(own.cpu))
                } else {
                    String::new()
                };
                format!(
                    "{said}: {has}another such node would be too many; let the pod run on \
                     other nodes as well, or raise max in spec.shares"
                )
            }
            ShareBound::MinNodes(_) => {
                let nodes = own.nodes;
                format!(
                    "{said}: {nodes} of its nodes are, and the pod needs another kind; let it run on nodes that are {of} as well, or lower \
                     minNodes in spec.shares"
                )
            }
        }
    }

    /// True if an instance of this offering is one of the share.
    pub(super) fn is_own(&self, rec: &PoolRec, offer: OfferIx) -> bool {
        let capacity_type = rec.catalog.offers.find(offer).map(|offer| offer.capacity);
        self.share.is_about(Some(&rec.pool.template), capacity_type)
    }

    /// The planned nodes of the pool.
    pub(super) fn launched(
        &self,
        pools: &IndexVec<PoolIx, &PoolRec>,
        launches: impl Iterator<Item = PoolOffer>,
    ) -> Balance {
        let mut launched = Balance::default();
        for PoolOffer { pool, offer } in launches.filter(|launch| self.members.contains(&launch.pool)) {
            if let Some(rec) = pools.find(pool) {
                launched.count(self.is_own(rec, offer), cpu_of(&rec.catalog, offer), 1);
            }
        }
        launched
    }

    /// True if the share allows these launches.
    fn allows(&self, launched: Balance) -> bool {
        let bounded = match self.share.bound {
            ShareBound::MaxPercent(_) => launched.own,
            ShareBound::MinNodes(_) => launched.others,
        };
        bounded.nodes == 0 || self.share.holds(self.staying.plus(launched))
    }

    /// Tightens the share's limit for another plan, if these launches break the share. True if they do.
    pub(super) fn tighten(&self, limit: &mut Limit, launched: Balance, round: usize) -> bool {
        if self.allows(launched) {
            return false;
        }
        if round < ROUNDS {
            self.lower(limit, launched, round + 1 == ROUNDS);
        } else {
            limit.nodes = Some(0);
        }
        true
    }

    /// The limit by which the share would hold, were the next plan no smaller; if it is the `last`, were only its other nodes no smaller.
    fn lower(&self, limit: &mut Limit, launched: Balance, last: bool) {
        match self.share.bound {
            ShareBound::MaxPercent(percent) => {
                let after = self.staying.plus(launched);
                let (cpu, whole) =
                    if last { (after.others.cpu, rest(percent)) } else { (after.all().cpu, 100) };
                let most = i64::try_from(i128::from(cpu) * i128::from(percent) / whole).unwrap_or(i64::MAX);
                limit.resources = vec![(ResourceId::CPU, most.saturating_sub(self.staying.own.cpu).max(0))];
            }
            ShareBound::MinNodes(least) => {
                let lacking = i64::from(least).saturating_sub(self.staying.own.nodes).max(0);
                let most = launched.all().nodes.saturating_sub(lacking).min(launched.others.nodes - 1);
                limit.nodes = Some(most.max(0));
            }
        }
    }

    /// What the share leaves for one more node once `launched` are staying.
    pub(super) fn leave(&self, limit: &mut Limit, launched: Balance) {
        let after = self.staying.plus(launched);
        match self.share.bound {
            ShareBound::MaxPercent(percent) => {
                // A node counts for itself and for the whole: own + more <= (all + more) * percent / 100.
                let more = -self.share.bound.excess(after) / rest(percent);
                limit.resources = vec![(ResourceId::CPU, i64::try_from(more.max(0)).unwrap_or(i64::MAX))];
            }
            ShareBound::MinNodes(least) => {
                limit.nodes = (after.own.nodes < i64::from(least)).then_some(0);
            }
        }
    }
}
