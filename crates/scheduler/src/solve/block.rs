//! A block: classes and pools that share constraints with each other and with no other block; its input and its result.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Options,
    demand::{ClassPods, Demand},
    existing::cache::SolveCache,
    ids::{ClassIx, LocalClassIx, OfferIx, PoolIx, PoolOffer, PoolVariant},
    index_vec::IndexVec,
    model::plan::ReasonKind,
    packing::offering_table::Table,
    solve::limits::Limits,
    state::{
        attachments::Dimension,
        catalog_index::OfferSet,
        cluster::Cluster,
        pool::{PoolRec, Variant},
    },
    topology::{
        domains::{CountedDomains, Item, OpenedDomain, note_domains},
        groups::BlockGroups,
    },
};

/// Offerings of one variant of a pool that a class may use, available or not.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    pub(crate) from: PoolVariant,
    pub(crate) bits: Arc<OfferSet>,
}

/// Input that all blocks share.
pub(crate) struct Context<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) options: &'a Options,
    pub(crate) demand: &'a Demand,
    pub(crate) pools: IndexVec<PoolIx, &'a PoolRec>,
    /// By class.
    pub(crate) allowed: IndexVec<ClassIx, Vec<Allowed>>,
    pub(crate) limits: Limits<'a>,
    pub(super) cache: &'a SolveCache,
    /// Domains that the plan opens, where some spread counts domains that its own pods can't open.
    pub(crate) opened: Arc<[OpenedDomain]>,
    pub(crate) cancel: &'a (dyn Fn() -> bool + Sync),
}

/// Classes and pools that share constraints.
#[derive(Clone, Default)]
pub(crate) struct Block {
    /// The classes with their unplaced pods, in order.
    pub(crate) classes: IndexVec<LocalClassIx, ClassPods>,
    pub(crate) groups: BlockGroups,
}

/// An instance of the plan, before it is named.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) from: PoolVariant,
    pub(crate) offer: OfferIx,
    pub(crate) bits: OfferSet,
    pub(crate) table: Arc<Table>,
    pub(crate) dims: Arc<[Dimension]>,
    /// By dimension.
    pub(crate) used: Vec<i64>,
    pub(crate) content: Vec<Item<ClassIx>>,
    pub(crate) limited: bool,
}

impl Launch {
    pub(crate) const fn pool_offer(&self) -> PoolOffer {
        PoolOffer { pool: self.from.pool, offer: self.offer }
    }
}

/// Pods of a class that get no place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftOutPods {
    pub(crate) class: ClassIx,
    pub(crate) count: u32,
    /// The constraint that kept them out, if it is known.
    pub(crate) reason: Option<ReasonKind>,
}

/// The launches of a block, and its pods without a place.
#[derive(Debug, Default)]
pub(crate) struct Solved {
    pub(crate) launches: Vec<Launch>,
    pub(crate) left: Vec<LeftOutPods>,
    pub(crate) counted_domains: CountedDomains,
    pub(crate) bound: i64,
    pub(crate) relaxed: BTreeSet<crate::model::plan::Relaxed>,
    /// Some pods may use pools of several weights.
    pub(crate) has_weights: bool,
    /// Some pods may use pools of one weight in several turns.
    pub(crate) has_turns: bool,
    pub(crate) steps: u64,
    pub(crate) cut_short: bool,
}

impl Solved {
    pub(super) fn add(&mut self, mut tier: Self) {
        self.launches.append(&mut tier.launches);
        self.left.append(&mut tier.left);
        for (scope, domains) in tier.counted_domains {
            note_domains(&mut self.counted_domains, scope, domains);
        }
        self.bound = self.bound.saturating_add(tier.bound);
        self.relaxed.append(&mut tier.relaxed);
        self.steps += tier.steps;
        self.cut_short |= tier.cut_short;
    }
}

impl Context<'_> {
    /// A variant, and its pool.
    pub(crate) fn variant(&self, from: PoolVariant) -> (&PoolRec, &Variant) {
        let rec = self.pools[from.pool];
        (rec, &rec.variants[from.variant])
    }

    /// The weight of the pool of an offering.
    pub(super) fn weight(&self, allowed: &Allowed) -> i32 {
        self.pools[allowed.from.pool].pool.weight
    }
}
