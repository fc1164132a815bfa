//! Ids as types: each indexes the lists of one kind of thing, and the compiler refuses any other id there.
//!
//! An id is made by adding to its list or by enumerating it, a list keeps its entries as long as the ids are in use, and lists
//! of the same things are made together and are equally long: see [`IndexVec`](crate::index_vec::IndexVec).

/// Defines ids, each with its documentation: here those of lists, beside each table those of its values.
macro_rules! ids {
    ($($(#[$doc:meta])+ $name:ident)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);

        impl $name {
            /// Below every id, where a range of pairs starts.
            #[allow(dead_code, reason = "not every id is ranged over")]
            pub(crate) const LEAST: Self = Self(0);
            /// Above every id, where a range of pairs ends; no list is as long.
            #[allow(dead_code, reason = "not every id is ranged over")]
            pub(crate) const NONE: Self = Self(u32::MAX);
        }

        impl From<usize> for $name {
            #[inline]
            fn from(number: usize) -> Self {
                u32::try_from(number).map_or(Self::NONE, Self)
            }
        }

        impl From<$name> for usize {
            #[inline]
            fn from(id: $name) -> Self {
                id.0 as Self
            }
        }

        impl From<$name> for u64 {
            #[inline]
            fn from(id: $name) -> Self {
                Self::from(id.0)
            }
        }
    )+};
}
pub(crate) use ids;

ids! {
    /// A node or a coming node.
    NodeIx
    /// A pod.
    PodIx
    /// A class of pending pods.
    ClassIx
    /// A class within its block.
    LocalClassIx
    /// A topology group: of the whole run, or within its block.
    GroupIx
    /// A domain set of a tier.
    DomainSetIx
    /// A pool of the run.
    PoolIx
    /// A variant within its pool.
    PoolVariantIx
    /// A variant of a tier, and of its packing problem.
    VariantIx
    /// A block of a solve.
    BlockIx
    /// A class with required affinity, among those of a tier.
    FollowerIx
    /// A member of a block: a class, pool, limit or group.
    MemberIx
    /// An item type of a packing problem.
    ItemTypeIx
    /// An instance type considered for a packing problem.
    BinTypeIx
    /// An instance of a packing.
    BinIx
    /// A compatibility set of a packing problem.
    CompatSetIx
    /// An instance type of a catalogue.
    InstanceTypeIx
    /// An offering of a catalogue.
    OfferIx
    /// The offerings of one combination of domains, among those of a catalogue.
    DomainOffersIx
    /// A row of an offering table.
    RowIx
    /// A row of the master problem of column generation.
    MasterRowIx
    /// A limit of the linear relaxation.
    LimitRowIx
    /// A column of the master problem of column generation.
    ColumnIx
    /// A limit: of a pool, a Tenant or the cluster.
    LimitIx
    /// A share of a pool.
    ShareIx
    /// A DaemonSet that runs on a variant.
    DaemonIx
    /// A candidate of a consolidation, within the list that it was chosen from.
    CandidateIx
    /// A new instance of a plan.
    InstanceIx
}

/// An offering of a pool's catalogue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolOffer {
    pub(crate) pool: PoolIx,
    pub(crate) offer: OfferIx,
}

/// A variant of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PoolVariant {
    pub(crate) pool: PoolIx,
    pub(crate) variant: PoolVariantIx,
}
