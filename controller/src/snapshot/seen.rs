//! When this process first saw what is so, on its monotonic clock.
//!
//! Timestamps in objects come from the API server's clock, an earlier leader's, or the cloud's. Their difference to this
//! process's clock is no age: two clocks may be minutes apart. What is measured here begins anew with each process, so
//! that a wait is longer than asked after a restart, and never shorter.

use std::time::Duration;

use croft_api::NodeClaim;
use jiff::Timestamp;

use super::Snapshot;
use crate::time::Now;

/// When this process first saw each step of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Milestones {
    /// The claim itself.
    pub created: Duration,
    /// Its instance.
    pub launched: Option<Duration>,
    /// Its deletion, from which `terminationGracePeriod` counts.
    pub deleted: Option<Duration>,
}

impl Milestones {
    /// The milestones of `claim`, which follows `old`.
    pub(super) fn of(claim: &NodeClaim, old: Option<(&NodeClaim, Self)>, now: Now) -> Self {
        let instance = |c: &NodeClaim| c.status.as_ref().and_then(|s| s.provider_id.clone());
        let same = old.filter(|(before, _)| before.metadata.uid == claim.metadata.uid);
        let kept = same.map(|(_, known)| known);
        let launched = instance(claim).map(|id| {
            let known = same.filter(|(before, _)| instance(before).as_ref() == Some(&id));
            known.and_then(|(_, known)| known.launched).unwrap_or(now.mono)
        });
        let deleting = claim.metadata.deletion_timestamp.is_some();
        let deleted = deleting.then(|| kept.and_then(|known| known.deleted).unwrap_or(now.mono));
        Self { created: kept.map_or(now.mono, |known| known.created), launched, deleted }
    }
}

/// When the containers of a pod that is being deleted must have ended: its grace period after this process first saw the
/// deletion. `due` is the deletion's own timestamp, which moves when the grace period is shortened.
pub(super) fn ends_by(
    due: Option<Timestamp>,
    grace_seconds: i64,
    old: Option<(Option<Timestamp>, Option<Duration>)>,
    now: Now,
) -> Option<Duration> {
    let due = due?;
    let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
    match old {
        Some((Some(before), Some(known))) if due >= before => Some(known),
        Some((Some(_), Some(known))) => Some(known.min(now.mono.saturating_add(grace))),
        _ => Some(now.mono.saturating_add(grace)),
    }
}

impl Snapshot {
    /// When this process first saw the steps of a claim.
    #[must_use]
    pub fn milestones(&self, claim: &str) -> Milestones {
        self.milestones.get(claim).copied().unwrap_or_default()
    }

    /// The question that was answered by the first of the lists in a row that show the instance.
    #[must_use]
    pub fn listed_since(&self, id: &str) -> Option<Duration> {
        self.listed_since.get(id).copied()
    }
}
