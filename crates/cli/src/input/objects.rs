//! Objects of one kind, each once.

use std::ops::Deref;

use kube::{Resource, ResourceExt as _};
use rustc_hash::FxHashMap;

use super::Origin;

/// An object and where it was read.
#[derive(Clone, Debug)]
pub struct Sourced<T> {
    /// The object, defaulted.
    pub object: T,
    /// Where it was read.
    pub origin: Origin,
}

impl<T> Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

/// Objects of one kind in the order of their first appearance.
#[derive(Clone, Debug)]
pub struct Objects<T> {
    list: Vec<Sourced<T>>,
    /// Namespace and name to place in `list`.
    places: FxHashMap<(String, String), usize>,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self { list: Vec::new(), places: FxHashMap::default() }
    }
}

impl<T> Deref for Objects<T> {
    type Target = [Sourced<T>];

    fn deref(&self) -> &[Sourced<T>] {
        &self.list
    }
}

impl<'a, T> IntoIterator for &'a Objects<T> {
    type Item = &'a Sourced<T>;
    type IntoIter = std::slice::Iter<'a, Sourced<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl<T: Resource> Objects<T> {
    /// Puts `object` in, in the place of an earlier one of that name: a second `apply` is an update. Answers
    /// where the earlier one was.
    pub fn put(&mut self, object: T, origin: Origin) -> Option<Origin> {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        match self.places.get(&key).and_then(|place| self.list.get_mut(*place)) {
            Some(old) => {
                let earlier = std::mem::replace(old, Sourced { object, origin });
                Some(earlier.origin)
            }
            None => {
                self.places.insert(key, self.list.len());
                self.list.push(Sourced { object, origin });
                None
            }
        }
    }

    /// Keeps the objects that `keep` says, in their order.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.list.retain(|one| keep(&one.object));
        let key = |one: &Sourced<T>| (one.object.namespace().unwrap_or_default(), one.object.name_any());
        self.places = self.list.iter().enumerate().map(|(place, one)| (key(one), place)).collect();
    }

    /// The object of that name; `namespace` is empty for cluster-scoped kinds.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Sourced<T>> {
        let place = self.places.get(&(namespace.to_owned(), name.to_owned()))?;
        self.list.get(*place)
    }
}
