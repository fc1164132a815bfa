//! The packing problem: item types of pods into bins, each bin an instance to launch.
//!
//! A pod comes here after its [topology domains](crate::topology::domains) are decided, so that an item type is a
//! size, a compatibility set per variant, and rules between pods of one host. A bin is *open*: it keeps the set of
//! offerings compatible with all its pods and one witness of them that is large enough; the cheapest is chosen at the
//! end.

use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    packing::offering_table::Table,
    state::{catalog_index::CatalogIndex, requests::Port},
};

/// A variant of a pool, priced for this search.
#[derive(Debug)]
pub(crate) struct VariantCtx {
    /// Index of the pool, and of the variant within it.
    pub(crate) pool: usize,
    pub(crate) variant: usize,
    pub(crate) catalog: Arc<CatalogIndex>,
    /// Room and cost of each offering.
    pub(crate) table: Arc<Table>,
    /// Ports that DaemonSets take on every node.
    pub(crate) ports: Vec<Port>,
    /// Limits that count this variant's instances.
    pub(crate) limits: Vec<usize>,
    /// (value of each offering, how many distinct values must remain).
    pub(crate) min_values: Vec<(Vec<u32>, usize)>,
}

/// Rules between pods on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// Topology groups that count this item type.
    pub(crate) counts: Box<[u32]>,
    /// Topology groups with a maximum per host, this item type's own pods included.
    pub(crate) caps: Box<[(u32, u32)]>,
    /// Groups whose maximum holds in every binding order: required anti-affinity is symmetric, a spread binds
    /// only the later pod.
    pub(crate) apart: Box<[u32]>,
    /// Groups of which a member must be on the host already. With `starts` the item type may be the first
    /// member where none exists.
    pub(crate) needs: Box<[u32]>,
    pub(crate) starts: bool,
    pub(crate) ports: Box<[Port]>,
    /// At most so many pods of this item type on one host.
    pub(crate) most: u32,
}

/// Pods that the packing can't tell apart.
#[derive(Debug)]
pub(crate) struct ItemType {
    /// (variant, compatibility set).
    pub(crate) options: SmallVec<[(u32, u32); 2]>,
    /// `None`: no rules.
    pub(crate) rules: Option<Box<Rules>>,
    pub(crate) count: u32,
    /// Zero where no limit makes it matter.
    pub(crate) priority: i32,
}

/// Input of the packing.
#[derive(Debug)]
pub(crate) struct PackingProblem {
    /// Resources per row.
    pub(crate) d: usize,
    pub(crate) variants: Vec<VariantCtx>,
    pub(crate) item_types: Vec<ItemType>,
    /// Requests of each item type, flat.
    pub(crate) sizes: Vec<i64>,
    pub(crate) limits: Vec<Limit>,
    /// Groups that have a member somewhere already, for [`Rules::needs`].
    pub(crate) present: Vec<u32>,
    /// Groups that some item type needs.
    pub(crate) near: Vec<u32>,
}

#[expect(clippy::indexing_slicing, reason = "rows and sizes are made with the tables that number them")]
impl PackingProblem {
    pub(crate) fn row(&self, variant: u32, offer: u32) -> &[i64] {
        self.variants[variant as usize].table.row(offer)
    }

    pub(crate) fn size(&self, item_type: usize) -> &[i64] {
        &self.sizes[item_type * self.d..(item_type + 1) * self.d]
    }

    pub(crate) fn cost(&self, variant: u32, offer: u32) -> i64 {
        self.variants[variant as usize].table.cost[offer as usize]
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

/// Pattern of one instance: (item type, copies).
pub(crate) type Pattern = SmallVec<[(u32, u32); 4]>;

/// Remainder of one limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limit {
    pub(crate) nodes: Option<i64>,
    /// Micro-dollars per hour.
    pub(crate) cost: Option<i64>,
    /// By resource id.
    pub(crate) resources: Vec<(u32, i64)>,
}
