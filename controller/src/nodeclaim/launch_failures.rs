//! Failed launches: nodes that don't register or aren't initialized in time are counted in their pool's status, before the
//! NodeClaim is deleted, so that no restart forgets them.
//!
//! Launches in flight are not counted, and launches that were in flight together are one round: a large scale-up isn't held
//! for the few instances of it that fail while others come. A failure before an edit of the pool or its class says nothing
//! about launches after it; a pause of the pool is no edit. What follows from the counts: [`launch_backoff`](super::launch_backoff).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    NodeClaim, TenantPool,
    condition::{INITIALIZED, REGISTERED},
    pool::{LaunchBackoff, NodeStage, OfferingBackoff, Provisioner, TemplateBackoff},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::{
    action::{Action, Key},
    config::settings::Settings,
    kube_api::{Target, Verb},
    merge_patch,
    nodeclaim::{
        conditions::is_instance_going,
        launch_backoff::{
            as_written, awaited, condition_of, generations, in_use, is_launched_for, offering_key,
            template_of,
        },
    },
    reconcile::ReconcileContext,
    state::{Snapshot, has_condition, instance_of},
};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// The longest backoff, in first backoffs.
const MAX_TIMES: u32 = 20;
/// An offering is left out for so many times the template's backoff.
const OFFERING_TIMES: u32 = 4;
/// A template whose nodes aren't initialized rests for so many times the backoff after its first round: that a node won't be
/// initialized takes a quarter of an hour to learn, for which it is paid.
const INITIALIZATION_TIMES: u32 = 10;
/// Offerings that a status lists; the oldest are dropped first.
const OFFERINGS: usize = 50;

/// A claim whose node didn't come.
struct Failure<'a> {
    name: &'a str,
    claim: &'a Arc<NodeClaim>,
    stage: NodeStage,
    /// The instance, or what its node lacks.
    last: &'a str,
}

/// True if a claim whose node didn't register, or wasn't initialized in time, is counted in the pool's status, or need not
/// be: then it may be deleted.
pub(super) fn is_counted(ctx: &ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> bool {
    let Some(pool) = ctx.snapshot.pools().get(&claim.spec.pool) else { return true };
    let backoff = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
    !is_counting(pool) || backoff.is_some_and(|backoff| backoff.counted.iter().any(|counted| counted == name))
}

/// True if failed launches of the pool are counted.
fn is_counting(pool: &TenantPool) -> bool {
    pool.metadata.deletion_timestamp.is_none() && pool.spec.provisioner == Provisioner::Croft
}

/// True if the claim's instance was launched and its node won't register: the timeout is over, or the cloud says
/// that the instance is going.
fn has_failed_to_register(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> bool {
    let Some(id) = instance_of(claim) else { return false };
    if has_condition(claim, REGISTERED)
        || claim.metadata.deletion_timestamp.is_some()
        || ctx.snapshot.node_of(claim).is_some()
    {
        return false;
    }
    let launched = ctx.snapshot.milestones(name).launched.unwrap_or(ctx.now.mono);
    ctx.has_lasted(launched, ctx.settings.registration_timeout)
        || is_instance_going(claim)
        || ctx.evidence.is_going(id)
}

/// Counts launches whose node didn't register, or wasn't initialized in time.
#[derive(Debug, Default)]
pub struct LaunchFailures {
    unregistered: u64,
    uninitialized: u64,
}

impl LaunchFailures {
    /// Launches whose node didn't register, since the process started.
    #[must_use]
    pub const fn unregistered(&self) -> u64 {
        self.unregistered
    }

    /// Nodes that weren't initialized in time, since the process started.
    #[must_use]
    pub const fn uninitialized(&self) -> u64 {
        self.uninitialized
    }

    /// Counts launches whose node didn't register, and those of `overdue` claims, whose node wasn't initialized in time,
    /// with what it lacks. Ends the backoff of templates whose node came, and of pools that were edited.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, overdue: &BTreeMap<String, String>) {
        let snapshot = ctx.snapshot;
        let mut failed = find_failures(ctx, overdue);
        for (name, pool) in snapshot.pools() {
            let old = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
            let failed = failed.remove(name.as_str()).unwrap_or_default();
            if old.is_none() && failed.is_empty()
                || !is_counting(pool)
                || !ctx.is_idle(&Key::Pool(name.clone()))
            {
                continue;
            }
            let now = generations(snapshot, pool);
            let current = old.filter(|old| (old.pool_generation, old.class_generation) == now);
            let mut new = current.cloned().unwrap_or_default();
            (new.pool_generation, new.class_generation) = now;
            new.counted.extend(failed.iter().map(|failure| failure.name.to_owned()));
            let launched_for = as_written(now);
            for failure in failed.iter().filter(|failure| is_launched_for(&launched_for, failure.claim)) {
                record(&mut new, failure, ctx.settings, ctx.now.wall);
            }
            clear_recovered(&mut new, snapshot, pool, ctx.now.wall);
            new.counted.retain(|claim| snapshot.claims().contains_key(claim));
            let is_over = new.offerings.is_empty() && new.templates.is_empty() && new.counted.is_empty();
            let new = (!is_over).then_some(new);
            let Some(patch) =
                merge_patch::diff_of(&json!({"launchBackoff": old}), &json!({"launchBackoff": new}))
            else {
                continue;
            };
            let late = failed.iter().filter(|failure| failure.stage == NodeStage::Initialization).count();
            self.uninitialized = self.uninitialized.saturating_add(late as u64);
            self.unregistered = self.unregistered.saturating_add((failed.len() - late) as u64);
            ctx.request(Action::write(
                Target::Pool(name.clone()),
                Verb::PatchStatus(json!({
                    "metadata": {"uid": pool.metadata.uid, "resourceVersion": pool.metadata.resource_version},
                    "status": patch,
                })),
            ));
        }
    }
}

/// Claims whose node didn't register, and of the `overdue` ones those whose node wasn't initialized, as far as they aren't
/// counted yet, by pool.
fn find_failures<'c: 'f, 'f>(
    ctx: &mut ReconcileContext<'c>,
    overdue: &'f BTreeMap<String, String>,
) -> BTreeMap<&'f str, Vec<Failure<'f>>> {
    let snapshot = ctx.snapshot;
    let mut failed: BTreeMap<&str, Vec<Failure<'_>>> = BTreeMap::new();
    for (name, claim) in snapshot.dirty_claims() {
        if has_failed_to_register(ctx, name, claim) && !is_counted(ctx, name, claim) {
            let id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
            let (stage, last) = (NodeStage::Registration, id.unwrap_or_default());
            failed.entry(&claim.spec.pool).or_default().push(Failure { name, claim, stage, last });
        }
    }
    for (name, missing) in overdue {
        if let Some(claim) = snapshot.claims().get(name)
            && !has_condition(claim, INITIALIZED)
            && !is_counted(ctx, name, claim)
        {
            let stage = NodeStage::Initialization;
            failed.entry(&claim.spec.pool).or_default().push(Failure { name, claim, stage, last: missing });
        }
    }
    failed
}

/// Counts a failure. One that was launched before the last round ended belongs to that round, or to an earlier one.
fn record(backoff: &mut LaunchBackoff, failure: &Failure<'_>, settings: &Settings, now: Timestamp) {
    let Failure { claim, stage, last, .. } = *failure;
    let image = match stage {
        // Whether an image is to blame isn't known before a node of it shows anything.
        NodeStage::Registration => "",
        NodeStage::Initialization => image_of(claim),
    };
    let (template, created) = (template_of(claim), creation_time(claim));
    let same = |one: &TemplateBackoff| one.template == template && one.stage == stage && one.image == image;
    let at = backoff.templates.iter().position(same);
    let mut entry = at.map_or_else(
        || TemplateBackoff {
            template: template.to_owned(),
            stage,
            image: image.to_owned(),
            rounds: 0,
            ended: Vec::new(),
            until: Time(now),
            since: Time(created),
            last: String::new(),
        },
        |at| backoff.templates.remove(at),
    );
    last.clone_into(&mut entry.last);
    let mut ends = entry.ended.iter().rev();
    let (is_new, is_of_last) =
        (ends.next().is_none_or(|end| created >= end.0), ends.next().is_none_or(|end| created >= end.0));
    if is_new {
        entry.rounds = entry.rounds.saturating_add(1);
        entry.since = Time(created);
        entry.ended.push(Time(now));
        let wait = wait_after(stage, entry.rounds, settings);
        entry.until = next_launch(&mut entry.ended, wait, settings, now);
    } else if is_of_last {
        entry.since = Time(entry.since.0.min(created));
    }
    backoff.templates.push(entry);
    if stage == NodeStage::Registration {
        record_offering(backoff, claim, settings, now);
    }
}

fn wait_after(stage: NodeStage, rounds: i32, settings: &Settings) -> Duration {
    match stage {
        // A single node may have a broken device.
        NodeStage::Initialization if rounds > 1 => {
            let first = settings.launch_backoff.saturating_mul(INITIALIZATION_TIMES);
            exponential(first, rounds.saturating_sub(1))
        }
        _ => exponential(settings.launch_backoff, rounds),
    }
}

/// Leaves out the offering of a launch whose node didn't register.
fn record_offering(backoff: &mut LaunchBackoff, claim: &NodeClaim, settings: &Settings, now: Timestamp) {
    let Some(status) = &claim.status else { return };
    let (Some(instance_type), Some(zone)) = (&status.instance_type, &status.zone) else { return };
    let created = creation_time(claim);
    let new = OfferingBackoff {
        template: template_of(claim).to_owned(),
        instance_type: instance_type.clone(),
        zone: zone.clone(),
        capacity_type: claim.spec.capacity_type.clone(),
        failures: 0,
        until: Time(now),
        since: Time(created),
    };
    let same =
        |known: &OfferingBackoff| known.template == new.template && offering_key(known) == offering_key(&new);
    let at = backoff.offerings.iter().position(same);
    let mut entry = at.map_or(new, |at| backoff.offerings.remove(at));
    if entry.failures == 0 || created > entry.since.0 {
        entry.failures = entry.failures.saturating_add(1);
        entry.since = Time(created);
        let first = settings.launch_backoff.saturating_mul(OFFERING_TIMES);
        entry.until = Time(add(now, exponential(first, entry.failures)));
    }
    backoff.offerings.push(entry);
    let surplus = backoff.offerings.len().saturating_sub(OFFERINGS);
    backoff.offerings.drain(..surplus);
}

/// Clears failures that a later node of the same template disproves, those of templates and images that are no longer
/// launched, and those that are long over.
fn clear_recovered(backoff: &mut LaunchBackoff, snapshot: &Snapshot, pool: &TenantPool, now: Timestamp) {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let came = |template: &str, stage: NodeStage, since: &Time, is_same: &dyn Fn(&NodeClaim) -> bool| {
        snapshot.claims_of_pool(name).any(|(_, claim)| {
            has_condition(claim, condition_of(stage))
                && template_of(claim) == template
                && creation_time(claim) >= since.0
                && is_same(claim)
        })
    };
    let usable: Vec<TemplateBackoff> = in_use(snapshot, pool, backoff).cloned().collect();
    backoff.templates = usable;
    backoff.templates.retain(|failed| {
        let works = came(&failed.template, failed.stage, &failed.since, &|claim| {
            failed.image.is_empty() || image_of(claim) == failed.image
        });
        let is_tried = || awaited(snapshot, name, &failed.template, failed.stage).next().is_some();
        !works && (now.duration_since(failed.until.0) < HOUR || is_tried())
    });
    backoff.offerings.retain(|failed| {
        let works = came(&failed.template, NodeStage::Registration, &failed.since, &|claim| {
            claim.spec.capacity_type == failed.capacity_type
                && claim.status.as_ref().is_some_and(|status| {
                    status.instance_type.as_deref() == Some(&failed.instance_type)
                        && status.zone.as_deref() == Some(&failed.zone)
                })
        });
        !works && now.duration_since(failed.until.0) < HOUR
    });
}

fn image_of(claim: &NodeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.image_id.as_deref()).unwrap_or_default()
}

fn creation_time(claim: &NodeClaim) -> Timestamp {
    claim.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// When the next launch may be: `wait` from now, and when the last hour has fewer rounds than the maximum. Of the rounds that
/// `ended`, those of the last hour are kept.
fn next_launch(ended: &mut Vec<Time>, wait: Duration, settings: &Settings, now: Timestamp) -> Time {
    ended.retain(|ended| now.duration_since(ended.0) < HOUR);
    let after = add(now, wait);
    let most = usize::try_from(settings.unregistered_launches_per_hour.max(1)).unwrap_or(usize::MAX);
    let oldest = ended.len().checked_sub(most).and_then(|at| ended.get(at));
    let within = oldest.map_or(after, |oldest| oldest.0.checked_add(HOUR).unwrap_or(after));
    Time(after.max(within))
}

/// `first`, doubled with every further time.
fn exponential(first: Duration, times: i32) -> Duration {
    let doublings = u32::try_from(times.saturating_sub(1)).unwrap_or(0).min(16);
    first.saturating_mul(1 << doublings).min(first.saturating_mul(MAX_TIMES))
}

fn add(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(SignedDuration::try_from(span).unwrap_or(HOUR)).unwrap_or(Timestamp::MAX)
}
