//! The pods that have an event: each pod is told once.

use std::collections::BTreeSet;

/// Pods that have their event at a time. A namespace of thousands of pods that becomes a tenant's would fill the decision log, and
/// the condition Isolated of the Tenant counts them all.
const MOST: usize = 100;

/// The uids of pods that were told.
#[derive(Debug, Default)]
pub struct Notices(BTreeSet<String>);

impl Notices {
    /// True if a pod may get an event: it has none yet, and not too many others have.
    pub(super) fn may_tell(&self, uid: &str) -> bool {
        self.0.len() < MOST && !self.0.contains(uid)
    }

    /// Forgets all pods but these.
    pub(super) fn retain(&mut self, present: &BTreeSet<&str>) {
        self.0.retain(|uid| present.contains(uid.as_str()));
    }

    /// Notes that a pod gets its event.
    pub(super) fn tell(&mut self, uid: &str) {
        self.0.insert(uid.to_owned());
    }
}
