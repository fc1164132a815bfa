//! Sets of offerings, numbered, with what the packing asks of each.

use rustc_hash::FxHashMap;

use super::Yard;
use crate::bits::Bits;

/// A set of offerings of one variant.
#[derive(Debug)]
struct Mask {
    variant: u32,
    bits: Bits,
    /// Offerings worth taking, cheapest first: each larger in something than every cheaper one.
    ladder: Box<[u32]>,
    /// Offerings that no other one holds.
    maximal: Box<[u32]>,
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
        let (ladder, maximal) = edges(yard, variant, &bits);
        self.list.push(Mask { variant, bits, ladder, maximal });
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

    pub(crate) fn ladder(&self, mask: u32) -> &[u32] {
        &self.list[mask as usize].ladder
    }

    pub(crate) fn maximal(&self, mask: u32) -> &[u32] {
        &self.list[mask as usize].maximal
    }

    pub(crate) fn variant(&self, mask: u32) -> u32 {
        self.list[mask as usize].variant
    }
}

fn holds(a: &[i64], b: &[i64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a >= b)
}

fn edges(yard: &Yard, variant: u32, bits: &Bits) -> (Box<[u32]>, Box<[u32]>) {
    let mut all: Vec<u32> = bits.iter().filter_map(|o| u32::try_from(o).ok()).collect();
    let keyed = yard.variants.get(variant as usize).is_some_and(|v| !v.min_values.is_empty());
    all.sort_by(|a, b| {
        let (x, y) = (yard.row(variant, *a), yard.row(variant, *b));
        yard.cost(variant, *a).cmp(&yard.cost(variant, *b)).then_with(|| y.cmp(x)).then(a.cmp(b))
    });
    let mut ladder: Vec<u32> = Vec::new();
    for offer in &all {
        let row = yard.row(variant, *offer);
        // Larger than the largest so far in something, which most offerings of a ladder are; compare with the
        // latest first, since prices rise with size.
        if keyed || !ladder.iter().rev().any(|kept| holds(yard.row(variant, *kept), row)) {
            ladder.push(*offer);
        }
    }
    let mut maximal: Vec<u32> = Vec::new();
    for offer in ladder.iter().rev() {
        let row = yard.row(variant, *offer);
        if !maximal.iter().any(|kept| holds(yard.row(variant, *kept), row)) {
            maximal.push(*offer);
        }
    }
    (ladder.into(), maximal.into())
}
