//! Objects whose newest version can't be decoded in full: an earlier valid version stays in force.

use std::collections::BTreeMap;

use crate::cluster::change::Kind;

/// The UID of each object of which a valid version is in force, and the error of each whose newest version is invalid.
#[derive(Debug, Default)]
pub(crate) struct InvalidObjects {
    in_force: BTreeMap<(Kind, String), String>,
    errors: BTreeMap<(Kind, String), String>,
}

impl InvalidObjects {
    /// Records the error of the newest version of an object, if it has one. True if an earlier version of the same object
    /// is in force and stays so.
    pub(crate) fn keep(&mut self, kind: Kind, name: &str, uid: &str, error: Option<String>) -> bool {
        let key = (kind, name.to_owned());
        let Some(error) = error else {
            self.errors.remove(&key);
            self.in_force.insert(key, uid.to_owned());
            return false;
        };
        let keeps_earlier = self.in_force.get(&key).is_some_and(|in_force| in_force == uid);
        if !keeps_earlier {
            self.in_force.remove(&key);
        }
        if self.errors.get(&key) != Some(&error) {
            tracing::warn!(
                ?kind,
                name,
                error,
                earlier_version_in_force = keeps_earlier,
                "an object can't be decoded in full"
            );
            self.errors.insert(key, error);
        }
        keeps_earlier
    }

    /// Removes a deleted object.
    pub(crate) fn forget(&mut self, kind: Kind, name: &str) {
        let key = (kind, name.to_owned());
        self.in_force.remove(&key);
        self.errors.remove(&key);
    }

    /// The names of invalid objects of a kind.
    pub(crate) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.errors.keys().filter(move |(of, _)| *of == kind).map(|(_, name)| name.as_str())
    }

    /// The number of invalid objects.
    pub(crate) fn count(&self) -> usize {
        self.errors.len()
    }
}
