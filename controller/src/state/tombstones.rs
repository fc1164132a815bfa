//! Tombstones of deleted objects: a response that was sent before a deletion and arrives after it must not restore the
//! object.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use crate::time::Now;

/// Every response arrives within this time.
const KEPT: Duration = Duration::from_secs(60);

/// Uids of deleted objects.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    uids: BTreeSet<Box<str>>,
    order: VecDeque<(Duration, Box<str>)>,
}

impl Tombstones {
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    /// Removes a tombstone, since a fresh list shows the object: it exists again after a restore from a backup.
    pub(super) fn remove(&mut self, uid: &str) {
        self.uids.remove(uid);
    }

    pub(super) fn insert(&mut self, uid: Box<str>, now: Now) {
        if uid.is_empty() {
            return;
        }
        while let Some((at, _)) = self.order.front() {
            if now.mono.saturating_sub(*at) < KEPT {
                break;
            }
            if let Some((_, old)) = self.order.pop_front() {
                self.uids.remove(&old);
            }
        }
        if self.uids.insert(uid.clone()) {
            self.order.push_back((now.mono, uid));
        }
    }
}
