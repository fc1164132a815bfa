//! Launches whose node never registers: fewer and fewer of them, until one succeeds or somebody edits the pool.
//!
//! ```text
//!   nodes register ──▶ no limit on launches
//!        ▲   │ a node doesn't
//!        │   ▼
//!        │  held: nothing is launched for 30 s, twice as long each round, at most so many rounds an hour
//!        │   │ over
//!        │   ▼
//!        └─ probe: one launch; no other until its node registers, or doesn't and the next round begins
//! ```
//!
//! What is counted is in the pool's status before the NodeClaim goes, so that no restart forgets it. Launches under way
//! are not counted, and those that were under way together are one round: a large scale-up isn't held for the few
//! instances of it that fail while others register. The instance types that failed are left out for longer than the pool,
//! so that a probe tries another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    NodeClaim, TenantPool,
    condition::{REGISTERED, Statement},
    pool::{LaunchBackoff, OfferingBackoff, Provisioner},
};
use croft_scheduler::{CapacityType, Machine};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{Memory, Round, instances, interrupt};
use crate::{
    action::{Action, Key},
    merge, names,
    seam::{Call, Target, Verb},
    settings::Settings,
    snapshot::{Held, Snapshot, is},
    time::{Now, earliest},
};

/// The condition of a pool whose nodes don't register, as the usual provisioner calls it.
const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// An offering is left out for so many times as long as the pool.
const OFFERING_TIMES: u32 = 4;
/// The longest backoff, in first backoffs.
const LONGEST_TIMES: u32 = 20;
/// Offerings that a status lists; the oldest are forgotten first.
const OFFERINGS: usize = 50;

/// What a pool's status says of its launches, as long as neither the pool nor its class was edited since.
fn of<'a>(snapshot: &Snapshot, pool: &'a TenantPool) -> Option<&'a LaunchBackoff> {
    let backoff = pool.status.as_ref()?.launch_backoff.as_ref()?;
    let edited = (backoff.pool_generation, backoff.class_generation) != generations(snapshot, pool);
    (!edited).then_some(backoff)
}

fn generations(snapshot: &Snapshot, pool: &TenantPool) -> (i64, i64) {
    let class = snapshot.class_of(pool).and_then(|class| snapshot.classes.get(class));
    let class = class.and_then(|class| class.object.metadata.generation);
    (pool.metadata.generation.unwrap_or_default(), class.unwrap_or_default())
}

/// Claims of a pool that are launched or about to be, and have no node yet.
fn in_flight<'a>(snapshot: &'a Snapshot, pool: &str) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    let claims = snapshot.claims_of_pool(pool).map(|(_, claim)| claim);
    claims.filter(|claim| !is(claim, REGISTERED) && claim.metadata.deletion_timestamp.is_none())
}

/// Holds back the pools and offerings whose launches failed; answers when the next backoff ends.
pub fn hold(snapshot: &mut Snapshot, now: Now) -> Option<Duration> {
    let mut wake = None;
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    let mut is_over = |until: &Time| {
        let left = Duration::try_from(until.0.duration_since(now.wall)).unwrap_or(Duration::ZERO);
        if !left.is_zero() {
            wake = earliest(wake, Some(now.mono.saturating_add(left)));
        }
        left.is_zero()
    };
    for (name, pool) in &snapshot.pools {
        let Some(backoff) = of(snapshot, pool) else { continue };
        let mut one = Held::default();
        if backoff.rounds > 0 {
            let waits = !is_over(&backoff.until);
            if waits || in_flight(snapshot, name).next().is_some() {
                one.why = Some(why(backoff, waits));
            }
        }
        for offering in &backoff.offerings {
            let waits = !is_over(&offering.until);
            let probed = || in_flight(snapshot, name).any(|claim| may_be(claim, offering));
            if waits || probed() {
                one.offerings.insert(key(offering));
            }
        }
        if one != Held::default() {
            held.insert(name.clone(), one);
        }
    }
    snapshot.hold(held);
    wake
}

fn key(offering: &OfferingBackoff) -> (String, String, CapacityType) {
    let capacity_type = CapacityType::parse(&offering.capacity_type).unwrap_or_default();
    (offering.instance_type.clone(), offering.zone.clone(), capacity_type)
}

fn may_be(claim: &NodeClaim, offering: &OfferingBackoff) -> bool {
    claim.spec.capacity_type == offering.capacity_type
        && claim.spec.zones.contains(&offering.zone)
        && claim.spec.instance_types.contains(&offering.instance_type)
}

fn why(backoff: &LaunchBackoff, waits: bool) -> String {
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

/// Leaves of a pool's planned machines those that may be launched now: one, while the pool probes; and one of each
/// offering that failed before. The others are planned again when it is known how that went.
pub(super) fn admit<'m>(
    snapshot: &Snapshot,
    pool: &TenantPool,
    machines: Vec<&'m Machine>,
) -> Vec<&'m Machine> {
    let Some(backoff) = of(snapshot, pool) else { return machines };
    let most = if backoff.rounds > 0 { 1 } else { usize::MAX };
    let mut probed = BTreeSet::new();
    let failed: BTreeSet<_> = backoff.offerings.iter().map(key).collect();
    let mut admitted = machines;
    admitted.retain(|machine| {
        let offering = (machine.instance_type.clone(), machine.zone.clone(), machine.capacity_type);
        !failed.contains(&offering) || probed.insert(offering)
    });
    admitted.truncate(most);
    admitted
}

/// True if a type failed where `machine` is to be launched: it is no alternative to another.
pub(super) fn has_failed(
    snapshot: &Snapshot,
    pool: &TenantPool,
    machine: &Machine,
    instance_type: &str,
) -> bool {
    of(snapshot, pool).is_some_and(|backoff| {
        backoff.offerings.iter().any(|failed| {
            failed.instance_type == instance_type
                && failed.zone == machine.zone
                && failed.capacity_type == machine.capacity_type.as_str()
        })
    })
}

/// The rounds of launches before one that is made now; none while the pool's nodes register.
pub(super) fn probe(snapshot: &Snapshot, pool: &TenantPool) -> Option<String> {
    let backoff = of(snapshot, pool).filter(|backoff| backoff.rounds > 0)?;
    Some(backoff.rounds.to_string())
}

/// What a claim made now is launched for: the generations of the pool and its class.
pub(super) fn launched_for(snapshot: &Snapshot, pool: &TenantPool) -> String {
    let (pool, class) = generations(snapshot, pool);
    format!("{pool}/{class}")
}

/// True if neither the pool nor its class was edited since the claim was made.
pub(super) fn is_launched_for(snapshot: &Snapshot, pool: &TenantPool, claim: &NodeClaim) -> bool {
    let launched = claim.metadata.annotations.as_ref().and_then(|a| a.get(names::LAUNCHED_FOR));
    launched.is_none_or(|launched| *launched == launched_for(snapshot, pool))
}

fn rounds_before(claim: &NodeClaim) -> i32 {
    let probe = claim.metadata.annotations.as_ref().and_then(|a| a.get(names::LAUNCH_PROBE));
    probe.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// True if a claim whose node didn't register is counted, or nobody counts it: then it may go.
pub(super) fn is_counted(round: &Round<'_>, name: &str, claim: &NodeClaim) -> bool {
    let Some(pool) = round.snapshot.pools.get(&claim.spec.pool) else { return true };
    let backoff = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
    !counts(pool) || backoff.is_some_and(|backoff| backoff.counted.iter().any(|counted| counted == name))
}

fn counts(pool: &TenantPool) -> bool {
    pool.metadata.deletion_timestamp.is_none() && pool.spec.provisioner == Provisioner::Croft
}

/// True if the claim's instance was launched and its node won't come: it had its time, or the cloud says that the instance
/// is going.
fn has_failed_to_register(round: &mut Round<'_>, memory: &Memory, name: &str, claim: &NodeClaim) -> bool {
    let Some(id) = instances::instance_of(claim) else { return false };
    if is(claim, REGISTERED)
        || claim.metadata.deletion_timestamp.is_some()
        || round.snapshot.node_of(claim).is_some()
    {
        return false;
    }
    let launched = round.snapshot.milestones(name).launched.unwrap_or(round.now.mono);
    round.has_lasted(launched, round.settings.registration_timeout)
        || interrupt::is_gone(claim)
        || instances::is_going(memory, id)
}

/// Counts launches whose node didn't register, and forgets those of pools where one did or that were edited.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let mut failed: BTreeMap<&str, Vec<(&String, &Arc<NodeClaim>)>> = BTreeMap::new();
    for (name, claim) in snapshot.restless() {
        if has_failed_to_register(round, memory, name, claim) && !is_counted(round, name, claim) {
            failed.entry(&claim.spec.pool).or_default().push((name, claim));
        }
    }
    for (name, pool) in &snapshot.pools {
        let old = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
        let failed = failed.remove(name.as_str()).unwrap_or_default();
        if old.is_none() && failed.is_empty() || !counts(pool) || !round.is_idle(&Key::Pool(name.clone())) {
            continue;
        }
        let mut new = of(snapshot, pool).cloned().unwrap_or_default();
        (new.pool_generation, new.class_generation) = generations(snapshot, pool);
        new.counted.extend(failed.iter().map(|(name, _)| (*name).clone()));
        // What was launched before an edit says nothing of what is launched after it.
        let of_today = failed.iter().filter(|(_, claim)| is_launched_for(snapshot, pool, claim));
        for (_, claim) in of_today {
            count(&mut new, claim, round.settings, round.now);
        }
        forgive(&mut new, snapshot, name, round.now.wall);
        new.counted.retain(|claim| snapshot.claims.contains_key(claim));
        let is_over = new.rounds == 0 && new.offerings.is_empty() && new.counted.is_empty();
        let new = (!is_over).then_some(new);
        let Some(patch) = merge::diff_of(&json!({"launchBackoff": old}), &json!({"launchBackoff": new}))
        else {
            continue;
        };
        memory.unregistered = memory.unregistered.saturating_add(failed.len() as u64);
        round.act(Action::Write {
            key: Key::Pool(name.clone()),
            call: Call {
                target: Target::Pool(name.clone()),
                verb: Verb::PatchStatus(json!({
                    "metadata": {"uid": pool.metadata.uid, "resourceVersion": pool.metadata.resource_version},
                    "status": patch,
                })),
            },
            rest: Duration::ZERO,
        });
    }
}

fn created(claim: &NodeClaim) -> Timestamp {
    claim.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// Takes in a launch whose node didn't register.
fn count(backoff: &mut LaunchBackoff, claim: &NodeClaim, settings: &Settings, now: Now) {
    let status = claim.status.as_ref();
    if let Some(id) = status.and_then(|status| status.provider_id.clone()) {
        backoff.instance = id;
    }
    let round = rounds_before(claim).saturating_add(1);
    if round > backoff.rounds {
        backoff.rounds = round;
        backoff.since = Time(created(claim));
        backoff.ended.push(Time(now.wall));
        backoff.until = next_launch(backoff, settings, now.wall);
    } else if round == backoff.rounds {
        backoff.since = Time(backoff.since.0.min(created(claim)));
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
            since: Time(created(claim)),
        };
        fail(backoff, offering, created(claim), settings, now.wall);
    }
}

/// When the pool may launch again: after its backoff, and when the last hour has had fewer rounds than it may.
fn next_launch(backoff: &mut LaunchBackoff, settings: &Settings, now: Timestamp) -> Time {
    backoff.ended.retain(|ended| now.duration_since(ended.0) < HOUR);
    let after = later(now, grown(settings.launch_backoff, backoff.rounds));
    let most = usize::try_from(settings.unregistered_per_hour.max(1)).unwrap_or(usize::MAX);
    let oldest = backoff.ended.len().checked_sub(most).and_then(|at| backoff.ended.get(at));
    let within = oldest.map_or(after, |oldest| oldest.0.checked_add(HOUR).unwrap_or(after));
    Time(after.max(within))
}

fn fail(
    backoff: &mut LaunchBackoff,
    new: OfferingBackoff,
    created: Timestamp,
    settings: &Settings,
    now: Timestamp,
) {
    let at = backoff.offerings.iter().position(|known| key(known) == key(&new));
    let mut entry = at.map_or(new, |at| backoff.offerings.remove(at));
    if entry.failures == 0 || created > entry.since.0 {
        entry.failures = entry.failures.saturating_add(1);
        entry.since = Time(created);
        let first = settings.launch_backoff.saturating_mul(OFFERING_TIMES);
        entry.until = Time(later(now, grown(first, entry.failures)));
    }
    backoff.offerings.push(entry);
    let surplus = backoff.offerings.len().saturating_sub(OFFERINGS);
    backoff.offerings.drain(..surplus);
}

/// `first`, twice as long with every further time.
fn grown(first: Duration, times: i32) -> Duration {
    let doublings = u32::try_from(times.saturating_sub(1)).unwrap_or(0).min(16);
    first.saturating_mul(1 << doublings).min(first.saturating_mul(LONGEST_TIMES))
}

fn later(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(SignedDuration::try_from(span).unwrap_or(HOUR)).unwrap_or(Timestamp::MAX)
}

/// Forgets what a node that has registered since disproves, and what is long over.
fn forgive(backoff: &mut LaunchBackoff, snapshot: &Snapshot, pool: &str, now: Timestamp) {
    let registered = || snapshot.claims_of_pool(pool).map(|(_, c)| c).filter(|claim| is(claim, REGISTERED));
    if backoff.rounds > 0 && registered().any(|claim| created(claim) >= backoff.since.0) {
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
        let works = registered().any(|claim| same(claim) && created(claim) >= failed.since.0);
        !works && now.duration_since(failed.until.0) < HOUR
    });
}

/// What a pool says of launches whose node didn't register; nothing while all is well.
pub(super) fn statement(round: &Round<'_>, pool: &TenantPool) -> Option<Statement> {
    let backoff = of(round.snapshot, pool)?;
    let (reason, what) = if backoff.rounds > 0 {
        ("NodesNotRegistering", why(backoff, backoff.until.0 > round.now.wall))
    } else {
        let first = backoff.offerings.last()?;
        let what = format!(
            "{} instance types launched nodes that didn't register, last {} in {} ({}); they are left out for a while",
            backoff.offerings.len(),
            first.instance_type,
            first.zone,
            first.capacity_type,
        );
        ("OfferingsNotRegistering", what)
    };
    let message = format!(
        "{what}; after {} s without a node an instance is terminated. See the instance's console output, the class's image \
         and user data, its network, and what lets its role join the cluster. An edit of the pool or of its class launches \
         at once",
        round.settings.registration_timeout.as_secs(),
    );
    Some(Statement { kind: NODE_REGISTRATION_HEALTHY, status: Some(false), reason, message })
}
