//! The memory of the namespaces that this process has let in.

use std::{collections::BTreeSet, time::Duration};

/// No namespace is let in this soon after the start or a takeover: the watch then shows the writes of a former leader.
pub(super) const CAUTION: Duration = Duration::from_secs(2);

/// The namespaces that this process has let in.
#[derive(Debug, Default)]
pub struct LetIn {
    /// The watch may not show the annotation of each yet.
    pub(super) names: BTreeSet<String>,
    /// From when on namespaces may be let in; `None` before the first pass of a leader.
    pub(super) cautious_until: Option<Duration>,
    /// A namespace waits for that.
    pub(super) waits: bool,
}

impl LetIn {
    /// Begins to lead.
    pub(super) fn take_over(&mut self) {
        *self = Self::default();
    }

    /// The next time at which a namespace may be let in without any news.
    pub(super) fn next(&self) -> Option<Duration> {
        self.cautious_until.filter(|_| self.waits)
    }
}
