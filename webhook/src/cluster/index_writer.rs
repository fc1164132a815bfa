//! The only writer of the index: applies changes, and keeps what can't be decoded as it was.

use std::{
    collections::{BTreeMap, HashSet},
    mem,
    sync::Arc,
    time::Instant,
};

use croft_policy::{
    Index,
    model::{CONFIG_ABSENCE, Config, SINGLETON},
    replica_status::ObservedGenerations,
    stored::Decoded,
};

use crate::cluster::{
    change::{Change, Item, KINDS, Kind},
    invalid_objects::InvalidObjects,
};

/// The index, and the state of its watches.
pub(crate) struct IndexWriter {
    /// Croft's own namespace.
    namespace: String,
    pub(crate) index: Index,
    /// The names of a list that isn't complete yet.
    partial_lists: [Option<HashSet<Arc<str>>>; KINDS],
    /// The kinds of which one list has been complete.
    synced: [bool; KINDS],
    /// UID and generation of each Tenant, by name.
    generations: BTreeMap<Arc<str>, (String, i64)>,
    pub(crate) invalid: InvalidObjects,
    /// The index has changed since the last snapshot.
    pub(crate) dirty: bool,
    /// The time at which changes are applied.
    pub(crate) now: Instant,
    /// The time since which the CroftConfig is absent; the last one stays in force for a while.
    pub(crate) config_absent_since: Option<Instant>,
    has_config: bool,
}

impl IndexWriter {
    /// An empty index of a Croft that is installed in `namespace`.
    pub(crate) fn new(namespace: String, now: Instant) -> Self {
        let mut index = Index::new();
        index.set_config(Config::installed_in(&namespace));
        Self {
            namespace,
            now,
            config_absent_since: None,
            has_config: false,
            index,
            partial_lists: Default::default(),
            synced: [false; KINDS],
            generations: Default::default(),
            invalid: InvalidObjects::default(),
            dirty: false,
        }
    }

    /// True once every kind has been listed.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.iter().all(|listed| *listed)
    }

    /// The names of objects in the index that `listed` lacks.
    fn unlisted(&self, kind: Kind, listed: &HashSet<Arc<str>>) -> Vec<String> {
        fn missing<'n>(names: impl Iterator<Item = &'n str>, listed: &HashSet<Arc<str>>) -> Vec<String> {
            names.filter(|name| !listed.contains(*name)).map(str::to_owned).collect()
        }
        match kind {
            Kind::Tenant => missing(self.index.tenant_names(), listed),
            Kind::Pool => missing(self.index.pool_names().chain(self.invalid.names(kind)), listed),
            Kind::Config => missing([SINGLETON].into_iter(), listed),
            Kind::Namespace => missing(self.index.namespace_names(), listed),
            Kind::Node => missing(self.index.node_names(), listed),
        }
    }

    /// The generation of each Tenant in the index.
    pub(crate) fn observed_generations(&self) -> ObservedGenerations {
        let mut observed = ObservedGenerations::default();
        for (uid, generation) in self.generations.values() {
            observed.insert(uid, *generation);
        }
        observed
    }

    /// Applies an event.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::ListStarted(kind) => {
                if let Some(names) = self.partial_lists.get_mut(kind as usize) {
                    *names = Some(HashSet::new());
                }
            }
            Change::Upserted(kind, item) => {
                let name = self.upsert(*item);
                if let Some(Some(names)) = self.partial_lists.get_mut(kind as usize) {
                    names.insert(name);
                }
                self.dirty = true;
            }
            Change::Deleted(kind, name) => self.remove(kind, &name),
            Change::ListCompleted(kind) => {
                let Some(Some(names)) = self.partial_lists.get_mut(kind as usize).map(Option::take) else {
                    return;
                };
                for name in self.unlisted(kind, &names) {
                    self.remove(kind, &name);
                }
                if let Some(listed) = self.synced.get_mut(kind as usize) {
                    // The first list counts as a change, however empty.
                    self.dirty |= !mem::replace(listed, true);
                }
            }
        }
    }

    fn upsert(&mut self, item: Item) -> Arc<str> {
        match item {
            Item::Tenant { tenant: Decoded { object, error }, uid, generation } => {
                let name: Arc<str> = Arc::from(object.name.as_str());
                // An earlier valid version stays in force, and the generation counts as observed.
                if !self.invalid.keep(Kind::Tenant, &name, &uid, error) {
                    self.index.upsert_tenant(object);
                }
                self.generations.insert(Arc::clone(&name), (uid, generation));
                name
            }
            Item::Pool { pool: Decoded { object, error }, uid } => {
                let name: Arc<str> = object.name.as_str().into();
                let is_valid = error.is_none();
                let keeps_earlier = self.invalid.keep(Kind::Pool, &name, &uid, error);
                if is_valid {
                    self.index.upsert_pool(object);
                } else if !keeps_earlier {
                    // Pods that would go there are refused, as with a pool that doesn't exist.
                    self.index.remove_pool(&name);
                }
                name
            }
            Item::Config { name, settings } => {
                if name == SINGLETON {
                    (self.config_absent_since, self.has_config) = (None, true);
                    let Decoded { object, error } = settings.decode(&self.namespace);
                    self.invalid.keep(Kind::Config, &name, "", error);
                    self.index.set_config(object);
                }
                name.into()
            }
            Item::Namespace(namespace) => self.index.upsert_namespace(&namespace),
            Item::TerminatingNamespace(name) => {
                self.index.remove_namespace(&name);
                name.into()
            }
            Item::Node(node) => self.index.upsert_node(&node),
        }
    }

    /// Returns to the defaults once the CroftConfig has been absent for long enough.
    pub(crate) fn confirm_absence(&mut self) {
        let lasted = |since| self.now.saturating_duration_since(since) >= CONFIG_ABSENCE;
        if self.config_absent_since.is_some_and(lasted) {
            (self.config_absent_since, self.has_config) = (None, false);
            self.index.set_config(Config::installed_in(&self.namespace));
            self.dirty = true;
        }
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        self.dirty = true;
        self.invalid.forget(kind, name);
        match kind {
            Kind::Tenant => {
                self.generations.remove(name);
                self.index.remove_tenant(name);
            }
            Kind::Pool => self.index.remove_pool(name),
            Kind::Config if name == SINGLETON && self.has_config => {
                self.config_absent_since.get_or_insert(self.now);
            }
            Kind::Config => {}
            Kind::Namespace => self.index.remove_namespace(name),
            Kind::Node => self.index.remove_node(name),
        }
    }
}

#[cfg(test)]
#[path = "index_writer_test.rs"]
mod tests;
