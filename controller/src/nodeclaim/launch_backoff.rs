//! Launch backoff: pools whose nodes never register launch less and less, until a launch succeeds or the pool is edited.
//!
//! ```text
//!   nodes register ──▶ no limit on launches
//!        ▲   │ a node doesn't register
//!        │   ▼
//!        │  hold: nothing is launched for 30 s, twice as long each round, at most so many rounds an hour
//!        │   │ over
//!        │   ▼
//!        └─ probe: one launch; no other until its node registers, or the next round begins
//! ```
//!
//! Failures are counted in the pool's status before the NodeClaim is deleted, so that no restart forgets them. Launches in
//! flight are not counted, and launches that were in flight together are one round: a large scale-up isn't held for the
//! few instances of it that fail while others register. Offerings that failed are left out for longer than the pool, so
//! that a probe tries another. A pause of the pool is no edit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    NodeClaim, TenantPool,
    condition::{REGISTERED, Statement},
    hash::hash,
    pool::{LaunchBackoff, OfferingBackoff},
};
use croft_scheduler::{CapacityType, PlannedInstance};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::{
    action::{Action, Key},
    config::settings::Settings,
    definitions::{conditions as reasons, keys},
    kube_api::{Call, Target, Verb},
    merge_patch,
    nodeclaim::{
        conditions::is_instance_going,
        rounds::{HOUR, add, creation_time, exponential, is_counted, is_counting, next_launch},
        template_backoff,
    },
    reconcile::ReconcileContext,
    state::{LaunchHold, Snapshot, has_condition, instance_of},
    time::{Now, earliest},
};

/// An offering is left out for so many times the pool's backoff.
const OFFERING_TIMES: u32 = 4;
/// Hexadecimal digits of a pool's edit hash: programs that read numbers as floating-point ones read it exactly.
const EDIT_HASH_DIGITS: usize = 13;
/// Offerings that a status lists; the oldest are dropped first.
const OFFERINGS: usize = 50;

/// The launch backoff in a pool's status, unless the pool or its class was edited since.
fn current_backoff<'a>(snapshot: &Snapshot, pool: &'a TenantPool) -> Option<&'a LaunchBackoff> {
    let backoff = pool.status.as_ref()?.launch_backoff.as_ref()?;
    let edited = (backoff.pool_generation, backoff.class_generation) != generations(snapshot, pool);
    (!edited).then_some(backoff)
}

/// A number that changes with the pool's spec, and not when the pool is paused or resumed: that is no remedy for failed
/// launches, as an edit may be.
#[must_use]
pub fn edit_hash(pool: &TenantPool) -> i64 {
    let mut spec = pool.spec.clone();
    spec.disruption.paused = None;
    let text = serde_json::to_string(&spec).unwrap_or_default();
    i64::from_str_radix(&hash(&[text.as_str()], EDIT_HASH_DIGITS), 16).unwrap_or_default()
}

/// The edit hash of the pool and the generation of its class.
fn generations(snapshot: &Snapshot, pool: &TenantPool) -> (i64, i64) {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    // `pool` may be narrowed to one of its templates.
    let whole = snapshot.pools().get(name).map_or(pool, |whole| &**whole);
    let of_classes = snapshot.classes_of(name).filter_map(|class| class.object.metadata.generation);
    // Of several classes the sum: an edit of any of them makes it grow.
    let of_classes = of_classes.fold(0i64, i64::saturating_add);
    (edit_hash(whole), of_classes)
}

/// Claims of a pool that are launched or about to be, and have no node yet.
fn in_flight_claims<'a>(snapshot: &'a Snapshot, pool: &str) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    let claims = snapshot.claims_of_pool(pool).map(|(_, claim)| claim);
    claims.filter(|claim| !has_condition(claim, REGISTERED) && claim.metadata.deletion_timestamp.is_none())
}

/// Sets the launch holds of pools and offerings whose launches failed. Returns when the next backoff ends.
pub fn set_launch_holds(snapshot: &mut Snapshot, now: Now) -> Option<Duration> {
    let mut wake = None;
    let mut held: BTreeMap<String, LaunchHold> = BTreeMap::new();
    for (pool, template, until) in snapshot.resting_templates(now.mono) {
        wake = earliest(wake, Some(until));
        held.entry(pool).or_default().templates.insert(template);
    }
    let mut is_over = |until: &Time| {
        let left = Duration::try_from(until.0.duration_since(now.wall)).unwrap_or(Duration::ZERO);
        if !left.is_zero() {
            wake = earliest(wake, Some(now.mono.saturating_add(left)));
        }
        left.is_zero()
    };
    for (name, pool) in snapshot.pools() {
        let Some(backoff) = current_backoff(snapshot, pool) else { continue };
        let mut one = held.remove(name).unwrap_or_default();
        if backoff.rounds > 0 {
            let waits = !is_over(&backoff.until);
            if waits || in_flight_claims(snapshot, name).next().is_some() {
                one.why = Some(describe(backoff, waits));
            }
        }
        for offering in &backoff.offerings {
            let waits = !is_over(&offering.until);
            let is_probed = || in_flight_claims(snapshot, name).any(|claim| may_be(claim, offering));
            if waits || is_probed() {
                one.offerings.insert(offering_key(offering));
            }
        }
        for failed in template_backoff::of_images_in_use(snapshot, pool, backoff) {
            let waits = !is_over(&failed.until);
            // One that is counted tells nothing more: the breaker may keep it for long, and its node takes what it can.
            let mut tried = template_backoff::uninitialized(snapshot, name, failed);
            if waits || tried.any(|claim| !is_listed_as_counted(backoff, claim)) {
                template_backoff::hold(&mut one, failed, waits);
            }
        }
        if one != LaunchHold::default() {
            held.insert(name.clone(), one);
        }
    }
    snapshot.set_launch_holds(held);
    wake
}

fn is_listed_as_counted(backoff: &LaunchBackoff, claim: &NodeClaim) -> bool {
    claim.metadata.name.as_ref().is_some_and(|name| backoff.counted.contains(name))
}

fn offering_key(offering: &OfferingBackoff) -> (String, String, CapacityType) {
    let capacity_type = CapacityType::parse(&offering.capacity_type).unwrap_or_default();
    (offering.instance_type.clone(), offering.zone.clone(), capacity_type)
}

fn may_be(claim: &NodeClaim, offering: &OfferingBackoff) -> bool {
    claim.spec.capacity_type == offering.capacity_type
        && claim.spec.zones.contains(&offering.zone)
        && claim.spec.instance_types.contains(&offering.instance_type)
}

fn describe(backoff: &LaunchBackoff, waits: bool) -> String {
    let next = if waits {
        format!("the next launch is tried after {}", backoff.until.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    } else {
        "one launch at a time is tried until a node registers".to_owned()
    };
    format!(
        "in {} rounds of launches no node registered (last: {}); {next}",
        backoff.rounds, backoff.instance
    )
}

/// The planned instances of a pool that may be launched now: one while the pool probes, and one of each offering
/// and each template that failed before. The others are planned again once the outcome is known.
pub(crate) fn limit_probes<'m>(
    snapshot: &Snapshot,
    pool: &TenantPool,
    instances: Vec<&'m PlannedInstance>,
) -> Vec<&'m PlannedInstance> {
    let Some(backoff) = current_backoff(snapshot, pool) else { return instances };
    let most = if backoff.rounds > 0 { 1 } else { usize::MAX };
    let mut probed = BTreeSet::new();
    let failed: BTreeSet<_> = backoff.offerings.iter().map(offering_key).collect();
    let (mut probed_templates, mut failed_templates) = (BTreeSet::new(), BTreeSet::new());
    for failed in template_backoff::of_images_in_use(snapshot, pool, backoff) {
        failed_templates.insert(failed.template.as_str());
    }
    let mut admitted = instances;
    admitted.retain(|instance| {
        let offering = (instance.instance_type.clone(), instance.zone.clone(), instance.capacity_type);
        let template = instance.template.as_str();
        (!failed.contains(&offering) || probed.insert(offering))
            && (!failed_templates.contains(template) || probed_templates.insert(template))
    });
    admitted.truncate(most);
    admitted
}

/// True if a type failed in the zone and capacity type of a planned instance: then it is no alternative.
pub(crate) fn has_failed(
    snapshot: &Snapshot,
    pool: &TenantPool,
    instance: &PlannedInstance,
    instance_type: &str,
) -> bool {
    current_backoff(snapshot, pool).is_some_and(|backoff| {
        backoff.offerings.iter().any(|failed| {
            failed.instance_type == instance_type
                && failed.zone == instance.zone
                && failed.capacity_type == instance.capacity_type.as_str()
        })
    })
}

/// The rounds of launches before a launch now; none while the pool's nodes register.
pub(crate) fn rounds_before_launch(snapshot: &Snapshot, pool: &TenantPool) -> Option<String> {
    let backoff = current_backoff(snapshot, pool).filter(|backoff| backoff.rounds > 0)?;
    Some(backoff.rounds.to_string())
}

/// The edit hash of the pool and the generation of its class, recorded on new claims.
pub(crate) fn launched_for(snapshot: &Snapshot, pool: &TenantPool) -> String {
    let (pool, class) = generations(snapshot, pool);
    format!("{pool}/{class}")
}

/// True if neither the pool nor its class was edited since the claim was created.
pub(crate) fn is_launched_for(snapshot: &Snapshot, pool: &TenantPool, claim: &NodeClaim) -> bool {
    let launched = claim.metadata.annotations.as_ref().and_then(|a| a.get(keys::LAUNCHED_FOR));
    launched.is_none_or(|launched| *launched == launched_for(snapshot, pool))
}

fn rounds_before(claim: &NodeClaim) -> i32 {
    let probe = claim.metadata.annotations.as_ref().and_then(|a| a.get(keys::LAUNCH_PROBE));
    probe.and_then(|text| text.parse().ok()).unwrap_or(0)
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
    /// with what it lacks. Clears the backoff of pools where a node registered or was initialized, or that were edited.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, overdue: &BTreeMap<String, String>) {
        let snapshot = ctx.snapshot;
        let mut late = template_backoff::uncounted(ctx, overdue);
        let mut failed: BTreeMap<&str, Vec<(&String, &Arc<NodeClaim>)>> = BTreeMap::new();
        for (name, claim) in snapshot.dirty_claims() {
            if has_failed_to_register(ctx, name, claim) && !is_counted(ctx, name, claim) {
                failed.entry(&claim.spec.pool).or_default().push((name, claim));
            }
        }
        for (name, pool) in snapshot.pools() {
            let old = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
            let failed = failed.remove(name.as_str()).unwrap_or_default();
            let late = late.remove(name.as_str()).unwrap_or_default();
            if old.is_none() && failed.is_empty() && late.is_empty()
                || !is_counting(pool)
                || !ctx.is_idle(&Key::Pool(name.clone()))
            {
                continue;
            }
            let mut new = current_backoff(snapshot, pool).cloned().unwrap_or_default();
            (new.pool_generation, new.class_generation) = generations(snapshot, pool);
            new.counted.extend(failed.iter().map(|(name, _)| (*name).clone()));
            new.counted.extend(late.iter().map(|late| late.name.to_owned()));
            // A launch before an edit says nothing about launches after it.
            let same_generation = failed.iter().filter(|(_, claim)| is_launched_for(snapshot, pool, claim));
            for (_, claim) in same_generation {
                record_failure(&mut new, claim, ctx.settings, ctx.now);
            }
            for late in late.iter().filter(|late| is_launched_for(snapshot, pool, late.claim)) {
                template_backoff::record(&mut new, late, ctx.settings, ctx.now.wall);
            }
            template_backoff::clear_recovered(&mut new, snapshot, name, pool, ctx.now.wall);
            clear_recovered(&mut new, snapshot, name, ctx.now.wall);
            new.counted.retain(|claim| snapshot.claims().contains_key(claim));
            let failures = new.offerings.len() + new.templates.len() + new.counted.len();
            let is_over = new.rounds == 0 && failures == 0;
            let new = (!is_over).then_some(new);
            let Some(patch) =
                merge_patch::diff_of(&json!({"launchBackoff": old}), &json!({"launchBackoff": new}))
            else {
                continue;
            };
            self.unregistered = self.unregistered.saturating_add(failed.len() as u64);
            self.uninitialized = self.uninitialized.saturating_add(late.len() as u64);
            ctx.request(Action::Write {
                key: Key::Pool(name.clone()),
                call: Call {
                    target: Target::Pool(name.clone()),
                    verb: Verb::PatchStatus(json!({
                        "metadata": {"uid": pool.metadata.uid, "resourceVersion": pool.metadata.resource_version},
                        "status": patch,
                    })),
                },
                requeue_after: Duration::ZERO,
            });
        }
    }
}

/// Counts a launch whose node didn't register.
fn record_failure(backoff: &mut LaunchBackoff, claim: &NodeClaim, settings: &Settings, now: Now) {
    let status = claim.status.as_ref();
    if let Some(id) = status.and_then(|status| status.provider_id.clone()) {
        backoff.instance = id;
    }
    let round = rounds_before(claim).saturating_add(1);
    if round > backoff.rounds {
        backoff.rounds = round;
        backoff.since = Time(creation_time(claim));
        backoff.ended.push(Time(now.wall));
        let wait = exponential(settings.launch_backoff, backoff.rounds);
        backoff.until = next_launch(&mut backoff.ended, wait, settings, now.wall);
    } else if round == backoff.rounds {
        backoff.since = Time(backoff.since.0.min(creation_time(claim)));
    }
    if let Some(status) = status
        && let (Some(instance_type), Some(zone)) = (&status.instance_type, &status.zone)
    {
        let offering = OfferingBackoff {
            instance_type: instance_type.clone(),
            zone: zone.clone(),
            capacity_type: claim.spec.capacity_type.clone(),
            failures: 0,
            until: Time(now.wall),
            since: Time(creation_time(claim)),
        };
        record_offering_failure(backoff, offering, creation_time(claim), settings, now.wall);
    }
}

fn record_offering_failure(
    backoff: &mut LaunchBackoff,
    new: OfferingBackoff,
    created: Timestamp,
    settings: &Settings,
    now: Timestamp,
) {
    let at = backoff.offerings.iter().position(|known| offering_key(known) == offering_key(&new));
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

/// Clears failures that a later registration disproves, and those that are long over.
fn clear_recovered(backoff: &mut LaunchBackoff, snapshot: &Snapshot, pool: &str, now: Timestamp) {
    let registered =
        || snapshot.claims_of_pool(pool).map(|(_, c)| c).filter(|claim| has_condition(claim, REGISTERED));
    if backoff.rounds > 0 && registered().any(|claim| creation_time(claim) >= backoff.since.0) {
        backoff.rounds = 0;
        backoff.ended.clear();
    }
    backoff.offerings.retain(|failed| {
        let same = |claim: &Arc<NodeClaim>| {
            let status = claim.status.as_ref();
            status.is_some_and(|status| {
                status.instance_type.as_deref() == Some(&failed.instance_type)
                    && status.zone.as_deref() == Some(&failed.zone)
                    && claim.spec.capacity_type == failed.capacity_type
            })
        };
        let works = registered().any(|claim| same(claim) && creation_time(claim) >= failed.since.0);
        !works && now.duration_since(failed.until.0) < HOUR
    });
}

/// The condition about launches whose node didn't register or wasn't initialized in time; none while nodes come.
pub(crate) fn registration_condition(ctx: &ReconcileContext<'_>, pool: &TenantPool) -> Option<Statement> {
    let backoff = current_backoff(ctx.snapshot, pool)?;
    let (reason, what) = if backoff.rounds > 0 {
        (reasons::NODES_NOT_REGISTERING, describe(backoff, backoff.until.0 > ctx.now.wall))
    } else if let Some(statement) = template_backoff::statement(ctx, pool, backoff) {
        return Some(statement);
    } else {
        let first = backoff.offerings.last()?;
        let what = format!(
            "{} instance types launched nodes that didn't register, last {} in {} ({}); they are left out for a while",
            backoff.offerings.len(),
            first.instance_type,
            first.zone,
            first.capacity_type,
        );
        (reasons::OFFERINGS_NOT_REGISTERING, what)
    };
    let message = format!(
        "{what}; after {} s without a node an instance is terminated. See the instance's console output, the class's image \
         and user data, its network, and the permission of its role to join the cluster. An edit of the pool or of its class launches \
         at once",
        ctx.settings.registration_timeout.as_secs(),
    );
    Some(Statement { kind: reasons::NODE_REGISTRATION_HEALTHY, status: Some(false), reason, message })
}
