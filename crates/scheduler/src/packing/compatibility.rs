//! Compatibility sets: sets of offerings with ids, and what the packing asks of each.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{
    model::bit_set::BitSet,
    packing::{offering_table::Edges, problem::PackingProblem},
};

/// A set of offerings of one variant.
#[derive(Debug)]
struct Mask {
    variant: u32,
    bits: BitSet,
    edges: Arc<Edges>,
}

/// All sets in use. Equal sets have equal ids.
#[derive(Debug, Default)]
pub(crate) struct CompatibilitySets {
    list: Vec<Mask>,
    numbers: FxHashMap<(u32, BitSet), u32>,
    pairs: FxHashMap<(u32, u32), Option<u32>>,
}

#[expect(clippy::indexing_slicing, reason = "compat_set numbers come from this table")]
impl CompatibilitySets {
    /// The id of `bits`; `None` if it is empty.
    pub(crate) fn number(&mut self, problem: &PackingProblem, variant: u32, bits: BitSet) -> Option<u32> {
        if bits.is_empty() {
            return None;
        }
        let key = (variant, bits);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let bits = key.1.clone();
        let edges = problem.variants[variant as usize].table.edges(&bits);
        self.list.push(Mask { variant, bits, edges });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Offerings in both; `None` if the intersection is empty.
    pub(crate) fn and(&mut self, problem: &PackingProblem, a: u32, b: u32) -> Option<u32> {
        if a == b {
            return Some(a);
        }
        let key = (a.min(b), a.max(b));
        if let Some(known) = self.pairs.get(&key) {
            return *known;
        }
        let (x, y) = (&self.list[a as usize], &self.list[b as usize]);
        let both = x.bits.and(&y.bits);
        let variant = x.variant;
        let number = self.number(problem, variant, both);
        self.pairs.insert(key, number);
        number
    }

    pub(crate) fn bits(&self, compat_set: u32) -> &BitSet {
        &self.list[compat_set as usize].bits
    }

    pub(crate) fn contains(&self, compat_set: u32, offer: u32) -> bool {
        self.list[compat_set as usize].bits.contains(offer as usize)
    }

    /// Offerings of the set that no cheaper one dominates, cheapest first.
    pub(crate) fn ladder(&self, compat_set: u32) -> &[u32] {
        &self.list[compat_set as usize].edges.ladder
    }

    /// Offerings that no other one of the set holds.
    pub(crate) fn maximal(&self, compat_set: u32) -> &[u32] {
        &self.list[compat_set as usize].edges.maximal
    }
}
