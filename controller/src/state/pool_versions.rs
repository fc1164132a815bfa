//! A version per pool that grows with every change that concerns the pool.

use std::collections::BTreeMap;

/// The versions.
#[derive(Debug, Default)]
pub(super) struct PoolVersions {
    count: u64,
    /// The count at the last change that concerned every pool.
    all: u64,
    pools: BTreeMap<String, u64>,
}

impl PoolVersions {
    pub(super) fn get(&self, pool: &str) -> u64 {
        self.all.max(self.pools.get(pool).copied().unwrap_or(0))
    }

    pub(super) fn bump_all(&mut self) {
        self.count += 1;
        self.all = self.count;
    }

    pub(super) fn bump(&mut self, pool: &str) {
        self.count += 1;
        match self.pools.get_mut(pool) {
            Some(count) => *count = self.count,
            None => {
                self.pools.insert(pool.to_owned(), self.count);
            }
        }
    }

    pub(super) fn forget(&mut self, pool: &str) {
        self.pools.remove(pool);
    }
}
