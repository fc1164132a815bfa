//! Sets of ids as bits.

use std::marker::PhantomData;

/// A set of ids of type `I` below a fixed size: that of the list that they index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BitSet<I> {
    words: Box<[u64]>,
    id: PhantomData<I>,
}

impl<I: From<usize> + Into<usize>> BitSet<I> {
    const fn of_words(words: Box<[u64]>) -> Self {
        Self { words, id: PhantomData }
    }

    /// The empty set over `size` ids.
    pub(crate) fn none(size: usize) -> Self {
        Self::of_words(vec![0; size.div_ceil(64)].into())
    }

    /// The set of all `size` ids.
    pub(crate) fn all(size: usize) -> Self {
        let mut words = vec![u64::MAX; size.div_ceil(64)];
        if !size.is_multiple_of(64)
            && let Some(last) = words.last_mut()
        {
            *last = (1u64 << (size % 64)) - 1;
        }
        Self::of_words(words.into())
    }

    pub(crate) fn insert(&mut self, id: I) {
        let index: usize = id.into();
        if let Some(word) = self.words.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    pub(crate) fn contains(&self, id: I) -> bool {
        let index: usize = id.into();
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a &= b;
        }
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a |= b;
        }
    }

    pub(crate) fn take_away(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a &= !b;
        }
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        Self::of_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// The ids, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = I> + '_ {
        self.words.iter().enumerate().flat_map(|(number, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(I::from(number * 64 + bit))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_as_sets() {
        let mut a = BitSet::<usize>::none(130);
        for i in [0, 63, 64, 129] {
            a.insert(i);
        }
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(BitSet::<usize>::all(130).iter().count(), 130);
        assert_eq!(BitSet::<usize>::all(128).iter().count(), 128);
        assert_eq!(BitSet::<usize>::all(130).and(&a), a);
        assert!(!a.contains(1) && a.contains(129) && !a.contains(1000));
        let mut b = BitSet::none(130);
        assert!(b.is_empty() && !a.intersects(&b));
        b.unite(&a);
        b.intersect(&BitSet::<usize>::all(64));
        assert_eq!(a, {
            let mut c = BitSet::none(130);
            c.unite(&a);
            c
        });
    }
}
