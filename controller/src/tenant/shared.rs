//! One copy for the equal pods of an owner: a large cluster has a hundred thousand pods of a few thousand owners.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// Number of owners below which those without pods aren't looked for.
const SWEEP_FROM: usize = 64;

/// A value that pods have in common, by the uid of their owner.
#[derive(Debug)]
pub(super) struct SharedByOwner<T> {
    held: HashMap<String, Weak<T>>,
    /// Number of owners at which those without pods are forgotten: twice those of the last time, so that each costs the same
    /// however many there are.
    sweep_at: usize,
}

impl<T: PartialEq> SharedByOwner<T> {
    pub(super) fn new() -> Self {
        Self { held: HashMap::new(), sweep_at: SWEEP_FROM }
    }

    /// The held copy if it equals `value`; otherwise `value`, which is held from now on.
    pub(super) fn share(&mut self, owner: &str, value: T) -> Arc<T> {
        if let Some(held) = self.held.get(owner).and_then(Weak::upgrade).filter(|held| **held == value) {
            return held;
        }
        if self.held.len() >= self.sweep_at {
            self.held.retain(|_, held| held.strong_count() > 0);
            self.sweep_at = (2 * self.held.len()).max(SWEEP_FROM);
        }
        let new = Arc::new(value);
        self.held.insert(owner.to_owned(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_of_an_owner_are_one_copy_and_those_without_pods_are_forgotten() {
        let mut shared = SharedByOwner::new();
        let first = shared.share("a", 1);
        assert!(Arc::ptr_eq(&first, &shared.share("a", 1)));
        assert!(!Arc::ptr_eq(&first, &shared.share("b", 1)));
        assert_eq!(*shared.share("a", 2), 2);
        for owner in 0..1_000 {
            shared.share(&owner.to_string(), owner);
        }
        assert!(shared.held.len() <= SWEEP_FROM, "{}", shared.held.len());
    }
}
