//! Compatibility sets: sets of offerings with ids, and what the packing asks of each.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{
    ids::{CompatSetIx, OfferIx, VariantIx},
    index_vec::IndexVec,
    packing::{offering_table::Edges, problem::PackingProblem},
    state::catalog_index::OfferSet,
};

/// A set of offerings of one variant.
#[derive(Debug)]
struct CompatSet {
    variant: VariantIx,
    bits: OfferSet,
    edges: Arc<Edges>,
}

/// All sets in use. Equal sets have equal ids.
#[derive(Debug, Default)]
pub(crate) struct CompatibilitySets {
    list: IndexVec<CompatSetIx, CompatSet>,
    numbers: FxHashMap<(VariantIx, OfferSet), CompatSetIx>,
    pairs: FxHashMap<(CompatSetIx, CompatSetIx), Option<CompatSetIx>>,
}

impl CompatibilitySets {
    /// The id of `bits`; `None` if it is empty.
    pub(crate) fn number(
        &mut self,
        problem: &PackingProblem,
        variant: VariantIx,
        bits: OfferSet,
    ) -> Option<CompatSetIx> {
        if bits.is_empty() {
            return None;
        }
        let key = (variant, bits);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let bits = key.1.clone();
        let edges = problem.variants[variant].table.edges(&bits);
        let number = self.list.push(CompatSet { variant, bits, edges });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Offerings in both; `None` if the intersection is empty.
    pub(crate) fn and(
        &mut self,
        problem: &PackingProblem,
        a: CompatSetIx,
        b: CompatSetIx,
    ) -> Option<CompatSetIx> {
        if a == b {
            return Some(a);
        }
        let key = (a.min(b), a.max(b));
        if let Some(known) = self.pairs.get(&key) {
            return *known;
        }
        let (x, y) = (&self.list[a], &self.list[b]);
        let both = x.bits.and(&y.bits);
        let variant = x.variant;
        let number = self.number(problem, variant, both);
        self.pairs.insert(key, number);
        number
    }

    pub(crate) fn bits(&self, compat_set: CompatSetIx) -> &OfferSet {
        &self.list[compat_set].bits
    }

    pub(crate) fn contains(&self, compat_set: CompatSetIx, offer: OfferIx) -> bool {
        self.list[compat_set].bits.contains(offer)
    }

    /// Offerings of the set that no cheaper one dominates, cheapest first.
    pub(crate) fn ladder(&self, compat_set: CompatSetIx) -> &[OfferIx] {
        &self.list[compat_set].edges.ladder
    }

    /// Offerings that no other one of the set holds.
    pub(crate) fn maximal(&self, compat_set: CompatSetIx) -> &[OfferIx] {
        &self.list[compat_set].edges.maximal
    }
}
