//! Entries about NodeClaims and their nodes: conditions, deletion, end, and the state of each node from time to time.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{
    NodeClaim,
    condition::{CONSOLIDATABLE, INITIALIZED, LAUNCHED},
};
use croft_policy::Tenants;
use croft_record::{
    entry::{Entry, EntryKind, InstanceFacts, ObjectRef, Usage},
    payer::{Payer, Purpose, Share},
};
use croft_scheduler::{CapacityType, PodKey, resources};

use super::buffer::{Buffer, REPEAT_AFTER, digest};
use crate::{
    state::{NodeView, PodView, Snapshot, has_condition, instance_of, price},
    time::Now,
};

/// Between two looks at the state of every node.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Between two entries about the changed state of one node.
const STATE_AFTER: Duration = Duration::from_secs(600);
/// Clocks of two leaders may differ by this much.
const CLOCK_SKEW_MILLIS: i64 = 10_000;

/// The recorded facts of each NodeClaim.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: BTreeMap<String, Known>,
    /// Conditions that changed before this are in the log already, in milliseconds since 1970.
    since: Option<i64>,
    /// True once every claim has been looked at since the store was read.
    compared: bool,
    /// Claims whose instance began to terminate, and when, that the log may not have yet.
    ended: BTreeMap<String, i64>,
    /// The snapshot's count of changes when ends were last looked for.
    changes: Option<u64>,
    state_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct Known {
    node: String,
    pool: String,
    tenants: Vec<String>,
    deleting: bool,
    ended: bool,
    /// The resourceVersion of the claim that was looked at last.
    version: Option<String>,
    /// Digest of the state that was recorded last, and when.
    state: Option<(u64, Duration)>,
}

impl Nodes {
    /// Takes in what the log knows: a claim that it shows and that doesn't exist has ended meanwhile.
    pub(super) fn resume(&mut self, last_at: Option<i64>, open_claims: Vec<Entry>) {
        if self.compared {
            // A write has failed; this process knows the claims.
            return;
        }
        self.since = last_at.map(|at| at.saturating_sub(CLOCK_SKEW_MILLIS));
        for Entry { object, node, pool, tenants, kind, .. } in open_claims {
            let ended = kind == EntryKind::Ended;
            let deleting = ended || kind == EntryKind::Deleting;
            let known = Known { node, pool, tenants, deleting, ended, version: None, state: None };
            self.known.entry(object.name).or_insert(known);
        }
    }
}

/// The tenants that name `pool`.
pub(super) fn tenants_of_pool(snapshot: &Snapshot, pool: &str) -> Vec<String> {
    snapshot.tenants_of_pool(pool).map(|(name, _)| name.clone()).collect()
}

/// The claims of instances by their ids; of two for one instance the first by name.
pub(super) fn claims_by_instance(snapshot: &Snapshot) -> BTreeMap<&str, &String> {
    let mut claims = BTreeMap::new();
    for (name, claim) in snapshot.claims() {
        if let Some(id) = instance_of(claim) {
            claims.entry(id).or_insert(name);
        }
    }
    claims
}

/// An entry about a claim, with its node, pool, tenants and price.
pub(super) fn claim_entry(
    snapshot: &Snapshot,
    name: &str,
    claim: &NodeClaim,
    kind: EntryKind,
    now: Now,
) -> Entry {
    let node = claim.status.as_ref().and_then(|status| status.node_name.clone()).unwrap_or_default();
    Entry {
        object: ObjectRef::cluster("NodeClaim", name),
        node,
        pool: claim.spec.pool.clone(),
        tenants: tenants_of_pool(snapshot, &claim.spec.pool),
        ..Entry::new(now.wall.as_millisecond(), kind)
    }
}

impl Nodes {
    /// Takes in instances that are going, each with the time in seconds at which that began, if the cloud says so.
    pub(super) fn observe_going<'i>(
        &mut self,
        snapshot: &Snapshot,
        going: impl IntoIterator<Item = (&'i str, Option<i64>)>,
        now: Now,
    ) {
        let mut going = going.into_iter().peekable();
        if going.peek().is_none() {
            return;
        }
        let claims = claims_by_instance(snapshot);
        for (id, ended_at) in going {
            if let Some(name) = claims.get(id).copied() {
                // Whole seconds are charged.
                let at = ended_at.unwrap_or(now.wall.as_second());
                self.ended.entry(name.clone()).or_insert(at.saturating_mul(1_000));
            }
        }
    }

    /// Records what has changed about claims since the last pass.
    pub(super) fn observe(&mut self, buffer: &mut Buffer, snapshot: &Snapshot, tenancy: &Tenants, now: Now) {
        if std::mem::replace(&mut self.compared, true) {
            for (name, claim) in snapshot.dirty_claims() {
                self.observe_claim(buffer, snapshot, (name, claim), None, now);
            }
        } else {
            let since = self.since;
            for (name, claim) in snapshot.claims() {
                self.observe_claim(buffer, snapshot, (name, claim), since, now);
            }
        }
        self.observe_instance_ends(buffer, snapshot, now);
        if self.changes.replace(snapshot.claim_changes()) != Some(snapshot.claim_changes()) {
            self.observe_ends(buffer, snapshot, now);
        }
        // A list comes first: an instance that ended without a leader has no state since.
        let is_due = self.state_at.is_none_or(|at| now.mono.saturating_sub(at) >= LOOK_EVERY);
        if is_due && snapshot.instances().is_some() {
            self.state_at = Some(now.mono);
            self.observe_states(buffer, snapshot, tenancy, now);
        }
    }

    /// Records the conditions of a claim that changed, but for those that changed before `since`.
    fn observe_claim(
        &mut self,
        buffer: &mut Buffer,
        snapshot: &Snapshot,
        (name, claim): (&str, &NodeClaim),
        since: Option<i64>,
        now: Now,
    ) {
        let version = &claim.metadata.resource_version;
        if self.known.get(name).is_some_and(|known| known.version.is_some() && known.version == *version) {
            return;
        }
        let status = claim.status.as_ref();
        for condition in status.map(|status| status.conditions.as_slice()).unwrap_or_default() {
            // `Ready` sums up the others.
            if condition.type_ == "Ready" {
                continue;
            }
            let key = format!("NodeClaim/{name}/{}", condition.type_);
            let reason = format!("{}{}", condition.status, condition.reason);
            let news = buffer.is_news(key, &reason, &condition.message, now);
            let known = since.is_some_and(|since| condition.last_transition_time.0.as_millisecond() < since);
            if news && !known {
                let entry = Entry {
                    condition: format!("{}={}", condition.type_, condition.status),
                    reason: condition.reason.clone(),
                    message: condition.message.clone(),
                    price: micros(claim),
                    instance: instance(snapshot, claim).filter(|_| condition.type_ == LAUNCHED),
                    ..claim_entry(snapshot, name, claim, EntryKind::Condition, now)
                };
                buffer.push(entry, now);
            }
        }
        let known = self.known.entry(name.to_owned()).or_default();
        known.version.clone_from(version);
        let node = status.and_then(|status| status.node_name.as_deref()).unwrap_or_default();
        if known.pool.is_empty() || known.node != node {
            node.clone_into(&mut known.node);
            known.pool.clone_from(&claim.spec.pool);
            known.tenants = tenants_of_pool(snapshot, &claim.spec.pool);
        }
        if claim.metadata.deletion_timestamp.is_some() && !std::mem::replace(&mut known.deleting, true) {
            buffer.push(claim_entry(snapshot, name, claim, EntryKind::Deleting, now), now);
        }
    }

    /// Records the instances that began to terminate.
    fn observe_instance_ends(&mut self, buffer: &mut Buffer, snapshot: &Snapshot, now: Now) {
        for (name, at) in std::mem::take(&mut self.ended) {
            let Some(claim) = snapshot.claims().get(&name) else { continue };
            let known = self.known.entry(name.clone()).or_default();
            if !std::mem::replace(&mut known.ended, true) {
                let facts = instance(snapshot, claim).map(|facts| InstanceFacts { ended: Some(at), ..facts });
                let entry = claim_entry(snapshot, &name, claim, EntryKind::Ended, now);
                buffer.push(Entry { instance: facts, ..entry }, now);
            }
        }
    }

    fn observe_ends(&mut self, buffer: &mut Buffer, snapshot: &Snapshot, now: Now) {
        let known = &mut self.known;
        let ended: Vec<(String, Known)> =
            known.extract_if(.., |name, _| !snapshot.claims().contains_key(name)).collect();
        for (name, Known { node, pool, tenants, .. }) in ended {
            let object = ObjectRef::cluster("NodeClaim", &name);
            let gone = Entry::new(now.wall.as_millisecond(), EntryKind::Gone);
            buffer.push(Entry { object, node, pool, tenants, ..gone }, now);
        }
    }

    /// Records the state of each node that differs from the recorded one, or was recorded long ago.
    fn observe_states(&mut self, buffer: &mut Buffer, snapshot: &Snapshot, tenancy: &Tenants, now: Now) {
        for (name, claim) in snapshot.claims() {
            let Some((node, view)) = snapshot.node_of(claim).filter(|_| has_condition(claim, INITIALIZED))
            else {
                continue;
            };
            if self.known.get(name).is_some_and(|known| known.ended) {
                continue;
            }
            let there: Vec<(&PodKey, &PodView)> =
                snapshot.pods_on(node).filter(|(_, pod)| !pod.traits.finished).collect();
            let works = there.iter().filter(|(_, pod)| !pod.traits.daemon && !pod.traits.mirror);
            let pods: Vec<String> = works.map(|(key, _)| key.to_string()).collect();
            let spare = snapshot.headroom_on(node).chain(snapshot.headroom_on(name));
            let usage = usage(snapshot, tenancy, view, &there, (&claim.spec.pool, spare));
            let held = claim.status.as_ref().and_then(|status| {
                status.conditions.iter().find(|condition| condition.type_ == CONSOLIDATABLE)
            });
            let entry = Entry {
                price: micros(claim),
                condition: held.map(|c| format!("{}={}", c.type_, c.status)).unwrap_or_default(),
                reason: held.map(|c| c.reason.clone()).unwrap_or_default(),
                message: held.map(|c| c.message.clone()).unwrap_or_default(),
                pods,
                instance: instance(snapshot, claim),
                usage: Some(usage),
                ..claim_entry(snapshot, name, claim, EntryKind::State, now)
            };
            let shares = entry.usage.as_ref().map(|usage| &usage.shares);
            let state = digest(&(&entry.pods, entry.price, &entry.condition, &entry.reason, shares));
            let known = self.known.entry(name.clone()).or_default();
            let due = known.state.is_none_or(|(recorded, at)| {
                let age = now.mono.saturating_sub(at);
                age >= REPEAT_AFTER || (recorded != state && age >= STATE_AFTER)
            });
            if due {
                known.state = Some((state, now.mono));
                buffer.push(entry, now);
            }
        }
    }
}

/// The price of a claim's instance, in millionths of a dollar per hour.
fn micros(claim: &NodeClaim) -> Option<i64> {
    price(claim).map(|price| price.micros())
}

/// The instance of a claim, once it is launched.
fn instance(snapshot: &Snapshot, claim: &NodeClaim) -> Option<InstanceFacts> {
    let status = claim.status.as_ref()?;
    let of = |field: &Option<String>| field.clone().unwrap_or_default();
    Some(InstanceFacts {
        id: instance_of(claim)?.to_owned(),
        instance_type: of(&status.instance_type),
        zone: of(&status.zone),
        capacity_type: of(&status.capacity_type),
        template: claim.template().unwrap_or_default().to_owned(),
        launched: status.launch_time.as_ref().map(|at| at.0.as_millisecond()),
        ended: None,
        list_price: list_price(snapshot, claim),
    })
}

/// The on-demand price of a reserved instance, in millionths of a dollar per hour.
fn list_price(snapshot: &Snapshot, claim: &NodeClaim) -> Option<i64> {
    let status = claim.status.as_ref()?;
    if status.capacity_type.as_deref() != Some(CapacityType::Reserved.as_str()) {
        return None;
    }
    let types = snapshot.classes().get(&claim.spec.node_class_ref.name)?.types.as_ref()?;
    let kind = types.iter().find(|kind| status.instance_type.as_deref() == Some(kind.name.as_str()))?;
    let offerings = kind.offerings.iter().filter(|offering| offering.capacity_type == CapacityType::OnDemand);
    offerings.filter_map(|offering| offering.price).map(|price| price.micros()).min()
}

/// The allocatable resources of a node, and the requests of its pods by workload; `spare` are a pool's headroom pods there.
fn usage<'s>(
    snapshot: &Snapshot,
    tenancy: &Tenants,
    node: &NodeView,
    pods: &[(&PodKey, &PodView)],
    (pool, spare): (&str, impl Iterator<Item = &'s PodKey>),
) -> Usage {
    let amount = |amount: i64| u64::try_from(amount).unwrap_or(0);
    let mut requests: BTreeMap<(Payer, Purpose), (u64, u64)> = BTreeMap::new();
    for (key, pod) in pods {
        let Some((cpu, memory)) = snapshot.cluster().requests(key) else { continue };
        let tenant = tenancy.tenancy(&key.namespace).tenant();
        let tenant = tenant.map(|tenant| tenant.name.to_string()).unwrap_or_default();
        let payer =
            Payer { tenant, namespace: key.namespace.to_string(), workload: pod.workload.to_string() };
        let purpose =
            if pod.traits.daemon || pod.traits.mirror { Purpose::DaemonSets } else { Purpose::Used };
        let sum = requests.entry((payer, purpose)).or_default();
        *sum = (sum.0.saturating_add(amount(cpu)), sum.1.saturating_add(amount(memory)));
    }
    for key in spare {
        let Some((cpu, memory)) = snapshot.cluster().requests(key) else { continue };
        let tenant = match tenants_of_pool(snapshot, pool).as_slice() {
            [only] => only.clone(),
            _ => String::new(),
        };
        let payer = Payer { tenant, ..Payer::default() };
        let sum = requests.entry((payer, Purpose::Headroom)).or_default();
        *sum = (sum.0.saturating_add(amount(cpu)), sum.1.saturating_add(amount(memory)));
    }
    let share =
        |((payer, purpose), (cpu_millis, memory_bytes))| Share { payer, purpose, cpu_millis, memory_bytes };
    Usage {
        cpu_millis: amount(node.allocatable.get(resources::CPU)),
        memory_bytes: amount(node.allocatable.get(resources::MEMORY)),
        shares: requests.into_iter().map(share).collect(),
    }
}
