//! Interning: equal values get equal small ids.

use std::{borrow::Borrow, hash::Hash, sync::Arc};

use rustc_hash::FxHashMap;

use crate::model::bit_set::BitSet;

/// Assigns ids to distinct values in order of arrival, and reuses those of removed values.
#[derive(Debug)]
pub(crate) struct Interner<T: ?Sized> {
    ids: FxHashMap<Arc<T>, u32>,
    /// The value of a freed id stays here until the id is reused.
    values: Vec<Arc<T>>,
    free: Vec<u32>,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { ids: FxHashMap::default(), values: Vec::new(), free: Vec::new() }
    }
}

impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Self { ids: self.ids.clone(), values: self.values.clone(), free: self.free.clone() }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// The id of `value`, existing or new.
    pub(crate) fn id<V>(&mut self, value: V) -> u32
    where
        V: Borrow<T> + Into<Arc<T>>,
    {
        if let Some(id) = self.ids.get(value.borrow()) {
            return *id;
        }
        let value: Arc<T> = value.into();
        let reused = self.free.pop().and_then(|id| Some((id, self.values.get_mut(id as usize)?)));
        let id = match reused {
            Some((id, slot)) => {
                *slot = Arc::clone(&value);
                id
            }
            None => {
                self.values.push(Arc::clone(&value));
                u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.ids.insert(value, id);
        id
    }

    /// Frees the ids that aren't in `live`.
    pub(crate) fn keep(&mut self, live: &BitSet) {
        for (at, value) in self.values.iter().enumerate() {
            let Ok(id) = u32::try_from(at) else { break };
            if !live.contains(at) && self.ids.get(&**value) == Some(&id) {
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
    pub(crate) fn find(&self, value: &T) -> Option<u32> {
        self.ids.get(value).copied()
    }

    /// The value of an id of this interner.
    #[expect(clippy::indexing_slicing, reason = "an id comes from this interner")]
    pub(crate) fn get(&self, id: u32) -> &T {
        &self.values[id as usize]
    }

    /// Above every id in use.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

/// An interned string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sym(pub(crate) u32);

/// All interned strings: label keys and values, names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols(pub(crate) Interner<str>);

impl Symbols {
    pub(crate) fn sym(&mut self, text: &str) -> Sym {
        if let Some(id) = self.0.find(text) {
            return Sym(id);
        }
        Sym(self.0.id(Arc::<str>::from(text)))
    }

    pub(crate) fn find(&self, text: &str) -> Option<Sym> {
        self.0.find(text).map(Sym)
    }

    pub(crate) fn text(&self, sym: Sym) -> &str {
        self.0.get(sym.0)
    }
}

/// Labels, sorted by key.
pub(crate) type Labels = Box<[(Sym, Sym)]>;

/// The value of `key`.
pub(crate) fn label(labels: &[(Sym, Sym)], key: Sym) -> Option<Sym> {
    labels.binary_search_by_key(&key, |(k, _)| *k).ok().and_then(|at| labels.get(at)).map(|(_, v)| *v)
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
