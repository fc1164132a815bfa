//! Objects of one kind, unique by namespace and name.

use std::ops::Deref;

use kube::{Resource, ResourceExt as _};
use rustc_hash::FxHashMap;

use crate::origin::Origin;

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
    /// Namespace and name to index in `list`.
    index: FxHashMap<(String, String), usize>,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self { list: Vec::new(), index: FxHashMap::default() }
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
    /// Inserts `object`, or replaces the one of the same namespace and name, as a second `kubectl apply` would.
    ///
    /// Returns where the replaced one was read.
    pub fn put(&mut self, object: T, origin: Origin) -> Option<Origin> {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        match self.index.get(&key).and_then(|at| self.list.get_mut(*at)) {
            Some(old) => {
                let earlier = std::mem::replace(old, Sourced { object, origin });
                Some(earlier.origin)
            }
            None => {
                self.index.insert(key, self.list.len());
                self.list.push(Sourced { object, origin });
                None
            }
        }
    }

    /// Removes the object of that name; the last object takes its place in the order.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        let Some(at) = self.index.remove(&(namespace.to_owned(), name.to_owned())) else { return };
        if at >= self.list.len() {
            return;
        }
        self.list.swap_remove(at);
        if let Some(moved) = self.list.get(at) {
            let key = (moved.object.namespace().unwrap_or_default(), moved.object.name_any());
            self.index.insert(key, at);
        }
    }

    /// Keeps the objects for which `keep` returns true, in their order.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.list.retain(|one| keep(&one.object));
        let key = |one: &Sourced<T>| (one.object.namespace().unwrap_or_default(), one.object.name_any());
        self.index = self.list.iter().enumerate().map(|(at, one)| (key(one), at)).collect();
    }

    /// Changes every object. Namespace and name must stay as they are.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&mut T)) {
        self.list.iter_mut().for_each(|one| change(&mut one.object));
    }

    /// The object of that name; `namespace` is empty for cluster-scoped kinds.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Sourced<T>> {
        let at = self.index.get(&(namespace.to_owned(), name.to_owned()))?;
        self.list.get(*at)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::api::ObjectMeta;

    use super::*;

    #[test]
    fn removed_objects_are_gone_and_the_others_are_found() {
        let mut objects: Objects<Namespace> = Objects::default();
        for name in ["a", "b", "c"] {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            objects.put(namespace, Origin { file: "f".into(), line: 0 });
        }
        objects.remove("", "a");
        objects.remove("", "unknown");
        let found = ["a", "b", "c"].map(|name| objects.get("", name).map(|one| one.name_any()));
        assert_eq!(found, [None, Some("b".to_owned()), Some("c".to_owned())]);
        objects.remove("", "c");
        objects.remove("", "b");
        assert!(objects.is_empty());
    }
}
