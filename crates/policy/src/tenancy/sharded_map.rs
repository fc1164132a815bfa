//! A map by name in shards. A copy shares every shard that isn't written afterwards.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

const SHARDS: usize = 128;

type Shard<T> = HashMap<Arc<str>, T, RandomState>;

/// A map by name. The hash is keyed, since users choose the names.
#[derive(Clone, Debug)]
pub(super) struct ShardedMap<T> {
    hasher: RandomState,
    shards: Box<[Arc<Shard<T>>]>,
}

impl<T> Default for ShardedMap<T> {
    fn default() -> Self {
        let hasher = RandomState::new();
        let shard = Arc::new(HashMap::with_hasher(hasher.clone()));
        Self { hasher, shards: vec![shard; SHARDS].into_boxed_slice() }
    }
}

impl<T: Clone> ShardedMap<T> {
    fn at(&self, name: &str) -> usize {
        // The upper bits select the shard, since the map inside uses the lower ones for its buckets.
        (self.hasher.hash_one(name) >> 40) as usize % SHARDS
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.shards.get(self.at(name))?.get(name)
    }

    /// The name as the map holds it, and its value.
    pub(super) fn get_entry(&self, name: &str) -> Option<(Arc<str>, &T)> {
        let (name, value) = self.shards.get(self.at(name))?.get_key_value(name)?;
        Some((name.clone(), value))
    }

    pub(super) fn insert(&mut self, name: Arc<str>, value: T) {
        let at = self.at(&name);
        if let Some(shard) = self.shards.get_mut(at) {
            Arc::make_mut(shard).insert(name, value);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        let at = self.at(name);
        if let Some(shard) = self.shards.get_mut(at).filter(|s| s.contains_key(name)) {
            Arc::make_mut(shard).remove(name);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.shards.iter().flat_map(|shard| shard.iter().map(|(name, value)| (&**name, value)))
    }
}

impl<T: Clone> FromIterator<(Arc<str>, T)> for ShardedMap<T> {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, T)>>(iter: I) -> Self {
        let mut shards = Self::default();
        iter.into_iter().for_each(|(name, value)| shards.insert(name, value));
        shards
    }
}
