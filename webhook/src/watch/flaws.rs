//! Objects that can't be read: what was in force of them stays in force.

use std::collections::BTreeMap;

use super::Kind;

/// The uid of each object as it is in force, and what is wrong with those whose newest version isn't.
#[derive(Debug, Default)]
pub(super) struct Flaws {
    in_force: BTreeMap<(Kind, String), String>,
    wrong: BTreeMap<(Kind, String), String>,
}

impl Flaws {
    /// Takes in what is wrong with the newest version of an object. True if an earlier version of the same object is in
    /// force and has to stay so.
    pub(super) fn keep(&mut self, kind: Kind, name: &str, uid: &str, wrong: Option<String>) -> bool {
        let key = (kind, name.to_owned());
        let Some(wrong) = wrong else {
            self.wrong.remove(&key);
            self.in_force.insert(key, uid.to_owned());
            return false;
        };
        let keeps = self.in_force.get(&key).is_some_and(|held| held == uid);
        if !keeps {
            self.in_force.remove(&key);
        }
        if self.wrong.get(&key) != Some(&wrong) {
            tracing::warn!(
                ?kind,
                name,
                wrong,
                earlier_version_in_force = keeps,
                "an object can't be read in full"
            );
            self.wrong.insert(key, wrong);
        }
        keeps
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&mut self, kind: Kind, name: &str) {
        let key = (kind, name.to_owned());
        self.in_force.remove(&key);
        self.wrong.remove(&key);
    }

    /// The objects of a kind with something wrong.
    pub(super) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.wrong.keys().filter(move |(of, _)| *of == kind).map(|(_, name)| name.as_str())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.wrong.len()
    }
}
