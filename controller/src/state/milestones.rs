//! When this process first observed each step of a claim or pod, on its monotonic clock.
//!
//! Timestamps in objects come from the clock of the API server, an earlier leader or the cloud, which may differ from
//! this process's clock by minutes. Times observed here start anew with each process, so a wait may be longer than asked
//! after a restart, and is never shorter.

use std::time::Duration;

use croft_api::NodeClaim;
use jiff::Timestamp;

use crate::time::Now;

/// When this process first observed each step of a claim.
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
    /// The milestones of `claim`, given those of its earlier version `old`.
    pub(super) fn observed(claim: &NodeClaim, old: Option<(&NodeClaim, Self)>, now: Now) -> Self {
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

/// When the containers of a pod that is being deleted must have ended: its grace period after this process first
/// observed the deletion. `due` is the deletion timestamp, which moves when the grace period is shortened.
pub(super) fn ends_by(
    due: Option<Timestamp>,
    grace_seconds: i64,
    old: Option<(Option<Timestamp>, Option<Duration>)>,
    now: Now,
) -> Option<Duration> {
    let due = due?;
    let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
    match old {
        Some((Some(before), Some(known))) if due == before => Some(known),
        Some((Some(before), Some(known))) if due < before => Some(known.min(now.mono.saturating_add(grace))),
        // A timestamp moves to a later time only by a restored backup, in which the pod wasn't being deleted yet.
        _ => Some(now.mono.saturating_add(grace)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        let wall = Timestamp::from_second(1_780_000_000 + i64::try_from(seconds).unwrap()).unwrap();
        Now { wall, mono: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_pod_ends_by_its_first_deletion_unless_a_restored_backup_undid_that() {
        let due = |seconds: u64| Some(at(seconds).wall);
        let first = ends_by(due(130), 30, None, at(100));
        assert_eq!(first, Some(Duration::from_secs(130)));
        let again = |deletion, grace, now| ends_by(due(deletion), grace, Some((due(130), first)), at(now));
        assert_eq!(again(130, 30, 120), first, "another version of the pod");
        assert_eq!(again(115, 5, 110), Some(Duration::from_secs(115)), "a shorter grace period");
        assert_eq!(again(330, 30, 300), Some(Duration::from_secs(330)), "deleted again after a restore");
    }
}
