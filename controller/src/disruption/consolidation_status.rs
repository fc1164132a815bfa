//! The condition `Consolidatable` of claims: why each node stays or is removed.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{
    NodeClaim,
    condition::{CONSOLIDATABLE, Statement, set},
};
use croft_disruption::eligibility::ConsolidationStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    action::Key,
    nodeclaim::{conditions::find_condition, writes::status_action},
    reconcile::ReconcileContext,
};

/// At most 20 status writes per pass, so that other actions are not delayed.
const WRITES_PER_PASS: usize = 20;
/// For so long after a write, a message alone isn't written, and another reason only once it lasts: on a busy node pods,
/// prices and names change more often than any user reads.
const RESTS_FOR: Duration = Duration::from_secs(1_800);
/// A transient status is written once the condition has been wrong for this long.
const LASTS_AFTER: Duration = Duration::from_secs(120);
/// Another reason soon after a write, for as long as the condition has been wrong: on nodes whose pods come and go, reasons
/// take turns every few minutes.
const CHANGES_AFTER: Duration = Duration::from_secs(600);

/// The statuses, and which of them are written. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub struct ConsolidationStatuses {
    statuses: BTreeMap<String, ConsolidationStatus>,
    /// Claims whose condition may differ from their status, and when each is compared next: a message that changed on every
    /// node isn't compared in every pass meanwhile.
    unwritten: BTreeMap<String, Duration>,
    /// When a claim's condition was last written.
    written: BTreeMap<String, Duration>,
    /// Since when a claim's condition has been wrong, if that is to last before it is written.
    wrong_since: BTreeMap<String, Duration>,
    /// Claims by status and reason; reasons that occurred once stay with 0.
    counts: BTreeMap<(bool, &'static str), usize>,
    /// The number of claims when they were counted; none if statuses have changed since.
    counted: Option<usize>,
}

impl ConsolidationStatuses {
    pub(crate) fn set(&mut self, claim: &str, status: ConsolidationStatus) {
        let known = self.statuses.get(claim);
        if known != Some(&status) || !self.written.contains_key(claim) {
            self.statuses.insert(claim.to_owned(), status);
            self.unwritten.insert(claim.to_owned(), Duration::ZERO);
            self.counted = None;
        }
    }

    /// Nodes by status and reason.
    pub fn counts(&self) -> impl Iterator<Item = (bool, &'static str, usize)> {
        self.counts.iter().map(|((consolidatable, reason), count)| (*consolidatable, *reason, *count))
    }

    /// The status of a claim's node.
    #[must_use]
    pub fn status(&self, claim: &str) -> Option<&ConsolidationStatus> {
        self.statuses.get(claim)
    }

    fn count(&mut self, claims: usize) {
        self.counted = Some(claims);
        self.counts.values_mut().for_each(|count| *count = 0);
        for status in self.statuses.values() {
            *self.counts.entry((status.consolidatable, status.reason)).or_default() += 1;
        }
    }

    /// Writes the conditions that differ from their status.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>) {
        let snapshot = ctx.snapshot;
        if self.counted != Some(snapshot.claims().len()) {
            self.statuses.retain(|name, _| snapshot.claims().contains_key(name));
            self.written.retain(|name, _| snapshot.claims().contains_key(name));
            self.wrong_since.retain(|name, _| snapshot.claims().contains_key(name));
            self.count(snapshot.claims().len());
        }
        let (mut left, mut waits) = (WRITES_PER_PASS, false);
        let now = ctx.now.mono;
        let due = self.unwritten.iter().filter(|(_, at)| **at <= now);
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let (Some(claim), Some(status)) = (snapshot.claims().get(&name), self.statuses.get(&name)) else {
                self.unwritten.remove(&name);
                continue;
            };
            let change = change(claim, status);
            if change == Change::None || claim.metadata.deletion_timestamp.is_some() {
                self.written.entry(name.clone()).or_insert(now);
                self.unwritten.remove(&name);
                self.wrong_since.remove(&name);
                continue;
            }
            let rests = self.written.get(&name).map(|at| at.saturating_add(RESTS_FOR)).filter(|at| *at > now);
            if let (Change::Message, Some(at)) = (&change, rests) {
                self.wrong_since.remove(&name);
                self.unwritten.insert(name, at);
                continue;
            }
            let lasts_after = match rests {
                Some(_) => CHANGES_AFTER,
                None if status.is_transient() => LASTS_AFTER,
                None => Duration::ZERO,
            };
            let since = *self.wrong_since.entry(name.clone()).or_insert(now);
            let at = since.saturating_add(lasts_after);
            if at > now {
                self.unwritten.insert(name, at);
                continue;
            }
            if left == 0 || !ctx.is_idle(&Key::Claim(name.clone())) {
                waits = true;
                continue;
            }
            left -= 1;
            write(ctx, &name, claim, status);
            self.unwritten.remove(&name);
            self.wrong_since.remove(&name);
            self.written.insert(name, now);
        }
        if waits {
            ctx.requeue_after(Duration::from_secs(1));
        }
        if let Some(at) = self.unwritten.values().filter(|at| **at > now).min() {
            ctx.requeue_at(*at);
        }
    }
}

fn write(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim, status: &ConsolidationStatus) {
    let mut new = claim.status.clone().unwrap_or_default();
    let statement = Statement {
        kind: CONSOLIDATABLE,
        status: Some(status.consolidatable),
        reason: status.reason,
        message: status.message.clone(),
    };
    set(&mut new.conditions, statement, claim.metadata.generation, Time(ctx.now.wall));
    if let Some(action) = status_action(name, claim, &new) {
        ctx.request(action);
    }
}

/// How a condition differs from the status.
#[derive(PartialEq, Eq)]
enum Change {
    None,
    Message,
    Reason,
}

fn change(claim: &NodeClaim, status: &ConsolidationStatus) -> Change {
    let condition = claim.status.as_ref().and_then(|s| find_condition(s, CONSOLIDATABLE));
    let Some(condition) = condition else { return Change::Reason };
    if (condition.status == "True") != status.consolidatable || condition.reason != status.reason {
        Change::Reason
    } else if condition.message != status.message {
        Change::Message
    } else {
        Change::None
    }
}

#[cfg(test)]
mod tests {
    use croft_disruption::eligibility::{REASONS, TRANSIENT};
    use croft_scheduler::{Price, consolidation::Rejection};

    use crate::definitions::conditions;

    #[test]
    fn each_reason_that_counts_as_passing_is_one_that_is_written() {
        let rejections = [
            Rejection::PodsUnschedulable(String::new()),
            Rejection::NoSaving { elsewhere: None },
            Rejection::BelowMinSavings { saves: Price::ZERO, needs: Price::ZERO },
            Rejection::SchedulerWouldNotFit,
            Rejection::PoolShare(String::new()),
            Rejection::FewSpotOptions(0),
            Rejection::ReceivesPods,
            Rejection::Busy,
            Rejection::Budget,
            Rejection::NotTried,
        ];
        let mut written: Vec<&str> = rejections.iter().map(Rejection::reason).collect();
        written.extend(REASONS.iter().map(|(reason, _)| *reason));
        written.extend(conditions::REASONS.iter().map(|reason| reason.name));
        for reason in TRANSIENT {
            assert!(written.contains(reason), "{reason}");
        }
    }
}
