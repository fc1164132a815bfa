//! Interning: equal values get equal small ids.

use std::{borrow::Borrow, hash::Hash, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{ids::ids, index_vec::IndexVec, model::bit_set::BitSet};

/// Assigns ids of type `I` to distinct values in order of arrival, and reuses those of removed values.
#[derive(Debug)]
pub(crate) struct Interner<I, T: ?Sized> {
    ids: FxHashMap<Arc<T>, I>,
    /// The value of a freed id stays here until the id is reused.
    values: IndexVec<I, Arc<T>>,
    free: Vec<I>,
}

impl<I, T: ?Sized> Default for Interner<I, T> {
    fn default() -> Self {
        Self { ids: FxHashMap::default(), values: IndexVec::default(), free: Vec::new() }
    }
}

impl<I: Clone, T: ?Sized> Clone for Interner<I, T> {
    fn clone(&self) -> Self {
        Self { ids: self.ids.clone(), values: self.values.clone(), free: self.free.clone() }
    }
}

impl<I, T> Interner<I, T>
where
    I: Copy + Eq + From<usize> + Into<usize>,
    T: ?Sized + Eq + Hash,
{
    /// The id of `value`, existing or new.
    pub(crate) fn id<V>(&mut self, value: V) -> I
    where
        V: Borrow<T> + Into<Arc<T>>,
    {
        if let Some(id) = self.ids.get(value.borrow()) {
            return *id;
        }
        let value: Arc<T> = value.into();
        let reused = self.free.pop().and_then(|id| Some((id, self.values.find_mut(id)?)));
        let id = match reused {
            Some((id, slot)) => {
                *slot = Arc::clone(&value);
                id
            }
            None => self.values.push(Arc::clone(&value)),
        };
        self.ids.insert(value, id);
        id
    }

    /// Frees the ids that aren't in `live`.
    pub(crate) fn keep(&mut self, live: &BitSet<I>) {
        for (id, value) in self.values.enumerate() {
            if !live.contains(id) && self.ids.get(&**value) == Some(&id) {
                self.ids.remove(&**value);
                self.free.push(id);
            }
        }
    }

    /// Number of values with an id.
    pub(crate) fn known(&self) -> usize {
        self.ids.len()
    }

    /// The id of `value`, if it has one.
    pub(crate) fn find(&self, value: &T) -> Option<I> {
        self.ids.get(value).copied()
    }

    /// The value of an id of this interner.
    pub(crate) fn get(&self, id: I) -> &T {
        &self.values[id]
    }

    /// Above every id in use.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

ids! {
    /// An interned string.
    Sym
}

/// All interned strings: label keys and values, names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols(pub(crate) Interner<Sym, str>);

impl Symbols {
    pub(crate) fn sym(&mut self, text: &str) -> Sym {
        match self.0.find(text) {
            Some(sym) => sym,
            None => self.0.id(Arc::<str>::from(text)),
        }
    }

    pub(crate) fn find(&self, text: &str) -> Option<Sym> {
        self.0.find(text)
    }

    pub(crate) fn text(&self, sym: Sym) -> &str {
        self.0.get(sym)
    }
}

/// The namespace and the name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NamespacedName {
    pub(crate) namespace: Sym,
    pub(crate) name: Sym,
}

/// Labels, sorted by key.
pub(crate) type Labels = Box<[(Sym, Sym)]>;

/// The value of `key`.
pub(crate) fn label(labels: &[(Sym, Sym)], key: Sym) -> Option<Sym> {
    labels.binary_search_by_key(&key, |(k, _)| *k).ok().and_then(|index| labels.get(index)).map(|(_, v)| *v)
}

/// Interns a map of labels.
pub(crate) fn labels<'a>(
    symbols: &mut Symbols,
    map: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Labels {
    let mut result: Vec<_> = map.into_iter().map(|(k, v)| (symbols.sym(k), symbols.sym(v))).collect();
    result.sort_unstable();
    result.into()
}
