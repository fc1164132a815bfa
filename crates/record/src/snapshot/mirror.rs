//! The objects that exist, as far as snapshots hold them.
//!
//! The fields that equal objects share are held once, so that 10,000 pods of a few hundred workloads take a few megabytes.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    sync::Arc,
};

use serde_json::Value;

use super::split::{Parts, split};

/// Names an object: kind, namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectName<'a> {
    /// The kind.
    pub kind: &'a str,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl ObjectName<'_> {
    pub(super) fn key(self) -> String {
        let Self { kind, namespace, name } = self;
        format!("{kind}/{namespace}/{name}")
    }
}

/// The name of a key.
pub(super) fn name_of(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, name)| name)
}

/// An object.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The fields that it shares with others, as JSON.
    pub(super) shared: Arc<str>,
    /// Its own fields, as JSON.
    pub(super) own: Box<str>,
    uid: u64,
    version: u64,
}

/// The objects that exist, and which have changed since the last snapshot.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    objects: BTreeMap<Box<str>, Held>,
    shared: HashSet<Arc<str>>,
    changed: BTreeSet<Box<str>>,
}

impl Mirror {
    /// Takes in an object whose fields were cut by [`super::fields::Fields`]. One of an earlier `version` with the same `uid` is left out,
    /// unless `listed`: after a restored backup versions go back.
    pub fn observe(
        &mut self,
        name: ObjectName<'_>,
        (uid, version): (&str, u64),
        listed: bool,
        object: Value,
    ) {
        let key = name.key();
        let uid = digest(uid);
        let old = self.objects.get(key.as_str());
        if !listed && old.is_some_and(|old| old.uid == uid && old.version > version) {
            return;
        }
        let Parts { shared, own } = split(object, name.name);
        let (shared, own) = (shared.to_string(), own.to_string());
        if let Some(old) = old
            && *old.shared == *shared
            && *old.own == *own
        {
            if let Some(held) = self.objects.get_mut(key.as_str()) {
                (held.uid, held.version) = (uid, version);
            }
            return;
        }
        let shared = match self.shared.get(shared.as_str()) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = shared.into();
                self.shared.insert(Arc::clone(&new));
                new
            }
        };
        let key: Box<str> = key.into();
        self.changed.insert(key.clone());
        if let Some(old) = self.objects.insert(key, Held { shared, own: own.into(), uid, version }) {
            self.forget(&old.shared);
        }
    }

    /// Takes in that an object is gone. With a `uid`, a later object of the same name stays.
    pub fn remove(&mut self, name: ObjectName<'_>, uid: Option<&str>) {
        let key = name.key();
        let Some(held) = self.objects.get(key.as_str()) else { return };
        if uid.is_some_and(|uid| digest(uid) != held.uid) {
            return;
        }
        if let Some((key, held)) = self.objects.remove_entry(key.as_str()) {
            self.forget(&held.shared);
            self.changed.insert(key);
        }
    }

    /// Forgets a shared part that no object has any more: the set and `shared` hold the last two references.
    fn forget(&mut self, shared: &Arc<str>) {
        if Arc::strong_count(shared) <= 2 {
            self.shared.remove(shared);
        }
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// True if nothing has changed since the last snapshot.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }

    /// Bytes of the texts that are held.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let own = self.objects.iter().map(|(key, held)| key.len() + held.own.len());
        own.sum::<usize>() + self.shared.iter().map(|shared| shared.len()).sum::<usize>()
    }

    /// Every object, by key.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Option<&Held>)> {
        self.objects.iter().map(|(key, held)| (&**key, Some(held)))
    }

    /// The objects that have changed since the last snapshot; none for one that is gone.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&str, Option<&Held>)> {
        self.changed.iter().map(|key| (&**key, self.objects.get(key)))
    }

    /// Takes in that a snapshot was made.
    pub(super) fn mark_unchanged(&mut self) {
        self.changed.clear();
    }
}

fn digest(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> ObjectName<'_> {
        ObjectName { kind: "Pod", namespace: "shop", name }
    }

    fn observe(mirror: &mut Mirror, name: &str, (uid, version): (&str, u64), node: &str) {
        let object = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "a": "b"}});
        mirror.observe(pod(name), (uid, version), false, object);
    }

    #[test]
    fn replicas_hold_their_shared_part_once_and_drop_it_with_the_last() {
        let mut mirror = Mirror::default();
        observe(&mut mirror, "web-1", ("u1", 1), "n1");
        observe(&mut mirror, "web-2", ("u2", 1), "n2");
        assert_eq!((mirror.len(), mirror.shared.len()), (2, 1));
        mirror.remove(pod("web-1"), None);
        assert_eq!(mirror.shared.len(), 1);
        mirror.remove(pod("web-2"), None);
        assert_eq!((mirror.len(), mirror.shared.len()), (0, 0));
    }

    #[test]
    fn older_version_and_end_of_an_earlier_object_change_nothing() {
        let mut mirror = Mirror::default();
        observe(&mut mirror, "web-1", ("u1", 5), "n1");
        mirror.mark_unchanged();
        observe(&mut mirror, "web-1", ("u1", 4), "n2");
        observe(&mut mirror, "web-1", ("u1", 6), "n1");
        mirror.remove(pod("web-1"), Some("u0"));
        assert!(mirror.is_unchanged() && mirror.len() == 1);
        mirror.remove(pod("web-1"), Some("u1"));
        assert!(!mirror.is_unchanged() && mirror.is_empty());
    }
}
