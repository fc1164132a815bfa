//! Vectors that only ids of one type index.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
    slice, vec,
};

/// A vector of `T`, each with an id of type `I`.
///
/// `list[id]` panics if there is no such entry, as a slice does. It is for ids that were made by this list, or by another
/// list of the same things that is as long; [`find`](Self::find) is for any other. It has no `Deref` to a slice and no
/// method `get`, by which numbers without a type would be let in, and Clippy would want an exception wherever an id is used.
#[derive(Clone, Debug)]
pub(crate) struct IndexVec<I, T> {
    list: Vec<T>,
    id: PhantomData<I>,
}

impl<I: From<usize> + Into<usize>, T> IndexVec<I, T> {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), id: PhantomData }
    }

    /// `count` entries of `value`.
    pub(crate) fn filled(value: T, count: usize) -> Self
    where
        T: Clone,
    {
        Self::from(vec![value; count])
    }

    /// Adds an entry, and returns its id.
    pub(crate) fn push(&mut self, value: T) -> I {
        self.list.push(value);
        I::from(self.list.len() - 1)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.list.pop()
    }

    /// Removes an entry; the last one gets its id.
    pub(crate) fn swap_remove(&mut self, id: I) -> T {
        self.list.swap_remove(id.into())
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The entry of an id, if there is one.
    #[inline]
    pub(crate) fn find(&self, id: I) -> Option<&T> {
        self.list.get(id.into())
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, id: I) -> Option<&mut T> {
        self.list.get_mut(id.into())
    }

    /// The id of the first entry that fulfils `is_it`.
    pub(crate) fn position(&self, is_it: impl FnMut(&T) -> bool) -> Option<I> {
        self.list.iter().position(is_it).map(I::from)
    }

    /// The id of the entry with `key`, in a list that is sorted by it.
    pub(crate) fn search<K: Ord>(&self, key: &K, key_of: impl FnMut(&T) -> K) -> Option<I> {
        self.list.binary_search_by_key(key, key_of).ok().map(I::from)
    }

    /// All ids, in order.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = I> + use<I, T> {
        (0..self.list.len()).map(I::from)
    }

    /// The id that the next entry will have.
    pub(crate) fn next_id(&self) -> I {
        I::from(self.list.len())
    }

    #[inline]
    pub(crate) fn iter(&self) -> slice::Iter<'_, T> {
        self.list.iter()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> slice::IterMut<'_, T> {
        self.list.iter_mut()
    }

    /// Ids and entries.
    pub(crate) fn enumerate(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        self.list.iter().enumerate().map(|(number, value)| (I::from(number), value))
    }

    /// Ids and entries from `first` on.
    pub(crate) fn enumerate_from(&self, first: I) -> impl Iterator<Item = (I, &T)> {
        self.list.iter().enumerate().skip(first.into()).map(|(number, value)| (I::from(number), value))
    }

    /// Ids and entries.
    pub(crate) fn enumerate_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.list.iter_mut().enumerate().map(|(number, value)| (I::from(number), value))
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.list
    }

    pub(crate) fn sort_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        self.list.sort_by_cached_key(key);
    }
}

#[expect(clippy::indexing_slicing, reason = "an id of the list's own type, see `IndexVec`")]
impl<I: Into<usize>, T> Index<I> for IndexVec<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.list[id.into()]
    }
}

#[expect(clippy::indexing_slicing, reason = "an id of the list's own type, see `IndexVec`")]
impl<I: Into<usize>, T> IndexMut<I> for IndexVec<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.list[id.into()]
    }
}

impl<I, T> Default for IndexVec<I, T> {
    fn default() -> Self {
        Self { list: Vec::new(), id: PhantomData }
    }
}

impl<I, T: PartialEq> PartialEq for IndexVec<I, T> {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl<I, T> From<Vec<T>> for IndexVec<I, T> {
    fn from(list: Vec<T>) -> Self {
        Self { list, id: PhantomData }
    }
}

impl<I, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<L: IntoIterator<Item = T>>(list: L) -> Self {
        Self::from(Vec::from_iter(list))
    }
}

impl<I, T> Extend<T> for IndexVec<I, T> {
    fn extend<L: IntoIterator<Item = T>>(&mut self, list: L) {
        self.list.extend(list);
    }
}

impl<I, T> IntoIterator for IndexVec<I, T> {
    type Item = T;
    type IntoIter = vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a, I, T> IntoIterator for &'a IndexVec<I, T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut IndexVec<I, T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter_mut()
    }
}
