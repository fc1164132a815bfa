//! Small numbers for large values, so that a state of the search is a few bytes.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, RwLock},
};

/// Values by number.
#[derive(Debug)]
pub struct Interner<T> {
    inner: RwLock<Numbered<T>>,
}

/// The number of each value, and the values in their order.
type Numbered<T> = (HashMap<Arc<T>, u32>, Vec<Arc<T>>);

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { inner: RwLock::default() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The number of `value`.
    pub fn id(&self, value: T) -> u32 {
        if let Some(id) = self.inner.read().expect("no search panicked").0.get(&value) {
            return *id;
        }
        let mut inner = self.inner.write().expect("no search panicked");
        let (ids, values) = &mut *inner;
        let next = u32::try_from(values.len()).expect("there are fewer values");
        let value = Arc::new(value);
        let id = *ids.entry(value.clone()).or_insert(next);
        if id == next {
            values.push(value);
        }
        id
    }

    /// The value of a number.
    pub fn get(&self, id: u32) -> Arc<T> {
        self.inner.read().expect("no search panicked").1[id as usize].clone()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.inner.read().expect("no search panicked").1.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Results that are computed once.
#[derive(Debug)]
pub struct Memo<K, V> {
    known: RwLock<HashMap<K, V>>,
}

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self { known: RwLock::default() }
    }
}

impl<K: Eq + Hash, V: Clone> Memo<K, V> {
    /// The value of `key`.
    pub fn get(&self, key: K, compute: impl FnOnce() -> V) -> V {
        if let Some(value) = self.known.read().expect("no search panicked").get(&key) {
            return value.clone();
        }
        let value = compute();
        self.known.write().expect("no search panicked").entry(key).or_insert(value).clone()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.known.read().expect("no search panicked").len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
