//! Objects that were seen deleted.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use crate::time::Now;

/// No answer takes this long; longer memory would only cost space.
const KEPT: Duration = Duration::from_secs(60);

/// Uids of objects that were seen deleted: an answer that was sent before and arrives after must not
/// bring them back.
#[derive(Debug, Default)]
pub(super) struct Graves {
    uids: BTreeSet<Box<str>>,
    order: VecDeque<(Duration, Box<str>)>,
}

impl Graves {
    pub(super) fn holds(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    /// A fresh list shows it: after a restore from a backup it is there again, and so is what is told of it.
    pub(super) fn exhume(&mut self, uid: &str) {
        self.uids.remove(uid);
    }

    pub(super) fn bury(&mut self, uid: Box<str>, now: Now) {
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
