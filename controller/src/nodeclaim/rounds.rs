//! Rounds of launches that failed: which are counted in the pool's status, and how long the next one waits.

use std::time::Duration;

use croft_api::{NodeClaim, TenantPool, pool::Provisioner};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{config::settings::Settings, reconcile::ReconcileContext};

pub(super) const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// The longest backoff, in first backoffs.
const MAX_TIMES: u32 = 20;

/// True if a claim whose node didn't register, or wasn't initialized in time, is counted in the pool's status, or need not
/// be: then it may be deleted.
pub(crate) fn is_counted(ctx: &ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> bool {
    let Some(pool) = ctx.snapshot.pools().get(&claim.spec.pool) else { return true };
    let backoff = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
    !is_counting(pool) || backoff.is_some_and(|backoff| backoff.counted.iter().any(|counted| counted == name))
}

/// True if failed launches of the pool are counted.
pub(super) fn is_counting(pool: &TenantPool) -> bool {
    pool.metadata.deletion_timestamp.is_none() && pool.spec.provisioner == Provisioner::Croft
}

pub(super) fn creation_time(claim: &NodeClaim) -> Timestamp {
    claim.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// When the next launch may be: `wait` from now, and when the last hour has fewer rounds than the maximum. Of the rounds that
/// `ended`, those of the last hour are kept.
pub(super) fn next_launch(
    ended: &mut Vec<Time>,
    wait: Duration,
    settings: &Settings,
    now: Timestamp,
) -> Time {
    ended.retain(|ended| now.duration_since(ended.0) < HOUR);
    let after = add(now, wait);
    let most = usize::try_from(settings.unregistered_launches_per_hour.max(1)).unwrap_or(usize::MAX);
    let oldest = ended.len().checked_sub(most).and_then(|at| ended.get(at));
    let within = oldest.map_or(after, |oldest| oldest.0.checked_add(HOUR).unwrap_or(after));
    Time(after.max(within))
}

/// `first`, doubled with every further time.
pub(super) fn exponential(first: Duration, times: i32) -> Duration {
    let doublings = u32::try_from(times.saturating_sub(1)).unwrap_or(0).min(16);
    first.saturating_mul(1 << doublings).min(first.saturating_mul(MAX_TIMES))
}

pub(super) fn add(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(SignedDuration::try_from(span).unwrap_or(HOUR)).unwrap_or(Timestamp::MAX)
}
