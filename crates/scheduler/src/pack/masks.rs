//! Sets of offerings, numbered, with what the packing asks of each.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Edges, Yard};
use crate::bits::Bits;

/// A set of offerings of one variant.
#[derive(Debug)]
struct Mask {
    variant: u32,
    bits: Bits,
    edges: Arc<Edges>,
}

/// All sets in use. Equal sets have equal numbers.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    list: Vec<Mask>,
    numbers: FxHashMap<(u32, Bits), u32>,
    pairs: FxHashMap<(u32, u32), Option<u32>>,
}

#[expect(clippy::indexing_slicing, reason = "mask numbers come from this table")]
impl Masks {
    /// The number of `bits`; `None` if it is empty.
    pub(crate) fn number(&mut self, yard: &Yard, variant: u32, bits: Bits) -> Option<u32> {
        if bits.is_empty() {
            return None;
        }
        let key = (variant, bits);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let bits = key.1.clone();
        let edges = yard.variants[variant as usize].table.edges(&bits);
        self.list.push(Mask { variant, bits, edges });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Offerings in both; `None` if there is none.
    pub(crate) fn and(&mut self, yard: &Yard, a: u32, b: u32) -> Option<u32> {
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
        let number = self.number(yard, variant, both);
        self.pairs.insert(key, number);
        number
    }

    pub(crate) fn bits(&self, mask: u32) -> &Bits {
        &self.list[mask as usize].bits
    }

    pub(crate) fn contains(&self, mask: u32, offer: u32) -> bool {
        self.list[mask as usize].bits.contains(offer as usize)
    }

    /// Offerings worth taking, cheapest first.
    pub(crate) fn ladder(&self, mask: u32) -> &[u32] {
        &self.list[mask as usize].edges.ladder
    }

    /// Offerings that no other one holds.
    pub(crate) fn maximal(&self, mask: u32) -> &[u32] {
        &self.list[mask as usize].edges.maximal
    }
}
