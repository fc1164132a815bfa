//! Events about pods that are due, and the pods that have one: each pod is told once.

use std::collections::BTreeSet;

/// Pods that have their event at a time. A namespace of thousands of pods that becomes a tenant's would fill the decision log, and
/// the condition Isolated of the Tenant counts them all.
const MOST: usize = 100;

/// An event about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Namespace and name of the pod.
    pub pod: (String, String),
    /// Its uid.
    pub uid: String,
    /// What is wrong with its place, and what to do.
    pub note: String,
}

/// The pods that were told, and the events that are to be recorded.
#[derive(Debug, Default)]
pub struct Notices {
    /// Uids.
    told: BTreeSet<String>,
    due: Vec<Notice>,
}

impl Notices {
    /// True if a pod may get an event: it has none yet, and not too many others have.
    pub(super) fn may_tell(&self, uid: &str) -> bool {
        self.told.len() < MOST && !self.told.contains(uid)
    }

    /// Forgets all pods but these.
    pub(super) fn retain(&mut self, present: &BTreeSet<&str>) {
        self.told.retain(|uid| present.contains(uid.as_str()));
    }

    /// Adds an event.
    pub(super) fn push(&mut self, notice: Notice) {
        self.told.insert(notice.uid.clone());
        self.due.push(notice);
    }

    /// The events to record.
    pub(super) fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.due)
    }
}
