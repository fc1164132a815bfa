//! The packing problem: item types of pods into bins, each bin an instance to launch.
//!
//! A pod comes here after its [topology domains](crate::topology::domains) are decided, so that an item type is a
//! size, a compatibility set per variant, and rules between pods of one host. A bin is *open*: it keeps the set of
//! offerings compatible with all its pods and one witness of them that is large enough; the cheapest is chosen at the
//! end.

use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    ids::{CompatSetIx, GroupIx, ItemTypeIx, LimitIx, OfferIx, PoolVariant, VariantIx},
    index_vec::IndexVec,
    model::catalog::CapacityType,
    packing::{offering_table::Table, rows::Rows},
    state::{
        catalog_index::{CatalogIndex, OfferId},
        interner::Sym,
        requests::{Port, ResourceId},
    },
};

/// A variant of a pool, priced for this search.
#[derive(Debug)]
pub(crate) struct VariantCtx {
    /// Of which pool, and which of its variants.
    pub(crate) from: PoolVariant,
    pub(crate) catalog: Arc<CatalogIndex>,
    /// Room and cost of each offering.
    pub(crate) table: Arc<Table>,
    /// Ports that DaemonSets take on every node.
    pub(crate) ports: Vec<Port>,
    /// Limits that count this variant's instances.
    pub(crate) limits: Vec<LimitIx>,
    pub(crate) min_values: Vec<MinValues>,
}

/// A minValues of a pool's requirement.
#[derive(Debug)]
pub(crate) struct MinValues {
    /// Of each offering; [`Sym::NONE`] without the label.
    pub(crate) values: IndexVec<OfferIx, Sym>,
    /// How many distinct values must remain.
    pub(crate) least: usize,
}

/// Rules between pods on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// Topology groups that count this item type.
    pub(crate) counts: Box<[GroupIx]>,
    /// Topology groups with a maximum per host, this item type's own pods included.
    pub(crate) caps: Box<[(GroupIx, u32)]>,
    /// Groups whose maximum holds in every binding order: required anti-affinity is symmetric, a spread binds
    /// only the later pod.
    pub(crate) apart: Box<[GroupIx]>,
    /// Groups of which a member must be on the host already.
    pub(crate) needs: Box<[GroupIx]>,
    /// The item type may be the first member of the groups in `needs` that have none anywhere.
    pub(crate) may_be_first: bool,
    pub(crate) ports: Box<[Port]>,
    /// At most so many pods of this item type on one host.
    pub(crate) most: u32,
}

/// Pods that the packing can't tell apart.
#[derive(Debug)]
pub(crate) struct ItemType {
    /// (variant, compatibility set).
    pub(crate) options: SmallVec<[(VariantIx, CompatSetIx); 2]>,
    /// `None`: no rules.
    pub(crate) rules: Option<Box<Rules>>,
    pub(crate) count: u32,
    /// The order of packing under a limit, which may leave pods out; zero without one.
    pub(crate) priority: i64,
    /// The priority in kube-scheduler's queue, where host affinity makes it matter which pod is bound first; otherwise zero.
    pub(crate) queue_priority: i32,
}

/// Input of the packing.
#[derive(Debug)]
pub(crate) struct PackingProblem {
    /// Resources per row.
    pub(crate) d: usize,
    pub(crate) variants: IndexVec<VariantIx, VariantCtx>,
    pub(crate) item_types: IndexVec<ItemTypeIx, ItemType>,
    /// Requests of each item type.
    pub(crate) sizes: Rows<ItemTypeIx>,
    /// What is left of the limits for this packing.
    pub(crate) limits: IndexVec<LimitIx, Limit>,
    /// What was left of them before any tier, without those that keep a share: the bound counts these.
    pub(crate) whole_limits: IndexVec<LimitIx, Limit>,
    /// Groups that have a member somewhere already, for [`Rules::needs`].
    pub(crate) present: Vec<GroupIx>,
    /// Groups that some item type requires on its host, sorted.
    pub(crate) host_affinity: Vec<GroupIx>,
}

impl PackingProblem {
    #[inline]
    pub(crate) fn row(&self, variant: VariantIx, offer: OfferIx) -> &[i64] {
        self.variants[variant].table.row(offer)
    }

    #[inline]
    pub(crate) fn size(&self, item_type: ItemTypeIx) -> &[i64] {
        &self.sizes[item_type]
    }

    #[inline]
    pub(crate) fn cost(&self, variant: VariantIx, offer: OfferIx) -> i64 {
        self.variants[variant].table.cost(offer)
    }

    /// True if some limit counts the instances.
    pub(crate) fn has_limits(&self) -> bool {
        self.variants.iter().any(|variant| !variant.limits.is_empty())
    }

    /// True if other tiers have used some of these limits, or a share has made one of them.
    pub(crate) fn has_used_limits(&self) -> bool {
        let mut limits = self.variants.iter().flat_map(|variant| &variant.limits);
        limits.any(|limit| self.limits.find(*limit) != self.whole_limits.find(*limit))
    }

    pub(crate) fn rules(&self, item_type: ItemTypeIx) -> Option<&Rules> {
        self.item_types.find(item_type)?.rules.as_deref()
    }

    /// Item types, largest first: by the first resource (cpu), then the second (memory), and so on. Where limits bind,
    /// priority comes first.
    pub(crate) fn largest_first(&self) -> Vec<ItemTypeIx> {
        let mut order: Vec<ItemTypeIx> = self.item_types.ids().collect();
        order.sort_by(|a, b| {
            let priority = |k: ItemTypeIx| self.item_types.find(k).map_or(0, |item_type| item_type.priority);
            // An item type that requires another one on its host comes after it.
            let needs = |k: ItemTypeIx| self.rules(k).is_some_and(|rules| !rules.needs.is_empty());
            priority(*b)
                .cmp(&priority(*a))
                .then(needs(*a).cmp(&needs(*b)))
                .then_with(|| self.size(*b).cmp(self.size(*a)))
                .then(a.cmp(b))
        });
        order
    }
}

/// How many of `size` fit into `free`. Resources that aren't requested don't count, as in kube-scheduler.
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

/// Pattern of one instance: item types and copies.
pub(crate) type Pattern = SmallVec<[(ItemTypeIx, u32); 4]>;

/// Remainder of one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) nodes: Option<i64>,
    /// Micro-dollars per hour.
    pub(crate) cost: Option<i64>,
    pub(crate) resources: Vec<(ResourceId, i64)>,
    pub(crate) counted: Counted,
}

/// The offerings that a limit counts, of the pools whose limit it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counted {
    #[default]
    All,
    Only(OfferId),
    Of(CapacityType),
    NotOf(CapacityType),
}
