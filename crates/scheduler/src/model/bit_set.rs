//! Sets of small integers as bits.

/// A set of indices below a fixed size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BitSet(Box<[u64]>);

impl BitSet {
    /// The empty set over `size` indices.
    pub(crate) fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)].into())
    }

    /// The set of all `size` indices.
    pub(crate) fn all(size: usize) -> Self {
        let mut words = vec![u64::MAX; size.div_ceil(64)];
        if !size.is_multiple_of(64)
            && let Some(last) = words.last_mut()
        {
            *last = (1u64 << (size % 64)) - 1;
        }
        Self(words.into())
    }

    pub(crate) fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= b;
        }
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    pub(crate) fn take_away(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= !b;
        }
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// The indices, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_as_sets() {
        let mut a = BitSet::none(130);
        for i in [0, 63, 64, 129] {
            a.insert(i);
        }
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(BitSet::all(130).iter().count(), 130);
        assert_eq!(BitSet::all(128).iter().count(), 128);
        assert_eq!(BitSet::all(130).and(&a), a);
        assert!(!a.contains(1) && a.contains(129) && !a.contains(1000));
        let mut b = BitSet::none(130);
        assert!(b.is_empty() && !a.intersects(&b));
        b.unite(&a);
        b.intersect(&BitSet::all(64));
        assert_eq!(a, {
            let mut c = BitSet::none(130);
            c.unite(&a);
            c
        });
    }
}
