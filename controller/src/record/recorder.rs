//! The recorder: the engine tells it of plans, actions, results and claims.

use std::time::Duration;

use croft_scheduler::PodKey;

use super::{
    buffer::{Buffer, RecordCounts},
    decisions::{self, Facts},
    ledger::ClosedCosts,
    nodes::Nodes,
};
use crate::{
    action::{Action, UserEvent},
    kube_api::Change,
    provisioning::planning::RunSummary,
    record_store::ResumedRecord,
    state::{BoundPod, Snapshot},
    time::Now,
};

/// Keeps the decision log of one process. Off until [`Self::start`].
#[derive(Debug, Default)]
pub struct Recorder {
    buffer: Buffer,
    nodes: Nodes,
}

impl Recorder {
    /// Records from now on, as the process `identity`.
    pub fn start(&mut self, identity: &str) {
        self.buffer.start(identity);
    }

    /// Counts of entries.
    #[must_use]
    pub const fn counts(&self) -> &RecordCounts {
        self.buffer.counts()
    }

    /// The costs of the hours that this process closed.
    #[must_use]
    pub const fn costs(&self) -> &ClosedCosts {
        self.buffer.costs()
    }

    /// Begins to lead: another process may have written since.
    pub fn take_over(&mut self, now: Now) {
        self.nodes = Nodes::default();
        self.buffer.take_over(now);
    }

    /// Takes in a change of an object, for snapshots.
    pub(crate) fn observe_change(&mut self, change: &Change) {
        self.buffer.observe_change(change);
    }

    /// The read or write of the store that is due now.
    pub fn due(&mut self, now: Now) -> Option<Action> {
        self.buffer.due(now)
    }

    /// When the next write is due, on the monotonic clock.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Duration> {
        self.buffer.next_due(now)
    }

    /// The write of everything that waits.
    pub fn write(&mut self, now: Now) -> Option<Action> {
        self.buffer.write(now)
    }

    /// Takes in that a write has succeeded, with the new versions of its slots.
    pub fn observe_written(&mut self, written: Vec<(usize, String)>, now: Now) {
        self.buffer.observe_written(written, now);
    }

    /// Takes in that a write has failed: what of it arrived is read again.
    pub fn observe_unwritten(&mut self) {
        self.buffer.observe_unwritten();
    }

    /// Takes in what the store holds.
    pub fn observe_read(&mut self, mut resumed: ResumedRecord, now: Now) {
        self.nodes.resume(resumed.last_at, std::mem::take(&mut resumed.open_claims));
        self.buffer.observe_read(resumed, now);
    }

    /// Records a scheduling run and the pods that it leaves pending, if they differ from the last run's.
    pub(crate) fn observe_run(&mut self, facts: &Facts<'_>, run: &RunSummary, events: &[UserEvent]) {
        if self.buffer.is_on() {
            decisions::observe_run(&mut self.buffer, facts, run, events);
        }
    }

    /// Records an action that is about to start.
    pub(crate) fn observe_action(&mut self, facts: &Facts<'_>, action: &Action) {
        if self.buffer.is_on() {
            decisions::observe_action(&mut self.buffer, facts, action);
        }
    }

    /// Records that the API server accepted the eviction of a pod.
    pub(crate) fn observe_eviction(&mut self, facts: &Facts<'_>, pod: &PodKey) {
        decisions::observe_eviction(&mut self.buffer, facts, pod);
    }

    /// Records that the API server refused the eviction of a pod.
    pub(crate) fn observe_blocked_eviction(&mut self, facts: &Facts<'_>, pod: &PodKey, why: &str) {
        decisions::observe_blocked_eviction(&mut self.buffer, facts, pod, why);
    }

    /// Records pods that were bound to the nodes that were launched for them.
    pub(crate) fn observe_bound(&mut self, facts: &Facts<'_>, bound: &[BoundPod]) {
        decisions::observe_bound(&mut self.buffer, facts, bound);
    }

    /// Takes in instances that are going, each with the time in seconds at which that began, if the cloud says so.
    pub(crate) fn observe_going<'i>(
        &mut self,
        snapshot: &Snapshot,
        going: impl IntoIterator<Item = (&'i str, Option<i64>)>,
        now: Now,
    ) {
        if self.buffer.is_on() {
            self.nodes.observe_going(snapshot, going, now);
        }
    }

    /// Records what has changed about claims since the last pass.
    pub(crate) fn observe_claims(&mut self, facts: &Facts<'_>) {
        if self.buffer.is_open() {
            self.nodes.observe(&mut self.buffer, facts.snapshot, facts.tenancy, facts.now);
        }
    }
}
