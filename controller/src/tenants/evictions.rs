//! Evictions of pods that run where they must not, which CroftConfig's `misplaced: Recreate` asks for: on which evidence
//! they rest, which pods are left to the user, and how many leave at once.
//!
//! A pod is misplaced because of a Tenant, a pool or a namespace's labels, and each of these may be missing for a moment:
//! `kubectl replace --force` deletes before it creates, and a CRD that is made anew takes its objects with it. So what
//! follows from a Tenant's absence waits until the absence has lasted ([`Absences`]). What follows from an object that is
//! there is done at once, few pods at a time, and goes on when those are running again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::config::Misplaced;
use croft_policy::{NamespaceTenancy, Tenants};

use super::{
    decide::Action,
    pods::Placement,
    state::{Key, Owner, PodFacts, State},
};

/// A Tenant's absence is evidence once it has lasted this long. `kubectl replace --force` brings it back within seconds,
/// a file that holds a CRD and its objects within the minute.
const CONFIRMED_AFTER: Duration = Duration::from_secs(60);
/// Pods of a namespace, and of an owner, that may be away at once: a tenth, one at least.
const AWAY_PERCENT: usize = 10;
/// By then the watch shows a pod that was evicted as being deleted.
const SHOWS_AFTER: Duration = Duration::from_secs(5);

/// Tenants that are missing, or may be.
#[derive(Debug, Default)]
pub struct Absences {
    /// When the facts were complete for the first time: a Tenant that is missing then may only be missing for a moment.
    begun: Option<Duration>,
    tenants: BTreeMap<String, Absent>,
}

#[derive(Debug)]
struct Absent {
    /// Set by the first decision after it.
    since: Option<Duration>,
    /// The namespaces that were the tenant's.
    namespaces: BTreeSet<String>,
}

impl Absences {
    /// Takes in that the Tenant was deleted whose namespaces these are.
    pub(super) fn begin(&mut self, tenant: &str, namespaces: BTreeSet<String>) {
        self.tenants.insert(tenant.to_owned(), Absent { since: None, namespaces });
    }

    /// Takes in that the Tenant is there.
    pub(super) fn end(&mut self, tenant: &str) {
        self.tenants.remove(tenant);
    }

    /// Forgets absences that are confirmed at `mono` on the monotonic clock.
    pub(super) fn confirm(&mut self, mono: Duration) {
        self.begun.get_or_insert(mono);
        for absent in self.tenants.values_mut() {
            absent.since.get_or_insert(mono);
        }
        let lasts = |since: Duration| mono.saturating_sub(since) < CONFIRMED_AFTER;
        self.tenants.retain(|_, absent| absent.since.is_none_or(lasts));
    }

    /// True if what is known of `namespace` may rest on the absence of a Tenant that is back in a moment.
    pub(super) fn concern(&self, view: &Tenants, namespace: &str, mono: Duration) -> bool {
        let starting = self.begun.is_none_or(|begun| mono.saturating_sub(begun) < CONFIRMED_AFTER);
        starting && matches!(view.tenancy(namespace), NamespaceTenancy::NonTenant)
            || self.tenants.values().any(|absent| absent.namespaces.contains(namespace))
    }
}

/// Evictions that are under way.
#[derive(Debug, Default)]
pub struct Evicted {
    /// When each pod was last asked to leave, by uid.
    asked: BTreeMap<String, Duration>,
    /// Owners, by uid, whose pods were evicted and are not all running again.
    owners: BTreeSet<String>,
}

/// True if the owner certainly makes another pod in place of one that is deleted or evicted. A Job counts the pod as failed
/// and may end with it; of other kinds it is not known.
pub(super) fn recreates(owner: &Owner) -> bool {
    match owner.kind.as_str() {
        "ReplicaSet" | "StatefulSet" => owner.group == "apps",
        "ReplicationController" => owner.group.is_empty(),
        _ => false,
    }
}

/// Pods of a namespace or of an owner.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: usize,
    away: usize,
}

impl Count {
    fn room(self) -> usize {
        (self.all * AWAY_PERCENT / 100).max(1).saturating_sub(self.away)
    }
}

/// The pods that leave now. What keeps others goes into the tenants' conditions.
pub(super) fn due(
    state: &mut State,
    view: &Tenants,
    placement: &mut Placement,
    mono: Duration,
) -> Vec<Action> {
    let mut evicted = std::mem::take(&mut state.evicted);
    evicted.asked.retain(|_, at| mono.saturating_sub(*at) < CONFIRMED_AFTER);
    let mut actions = Vec::new();
    if state.config.misplaced == Misplaced::Recreate {
        let mut namespaces: BTreeMap<&str, Vec<&Key>> = BTreeMap::new();
        for key in &placement.misplaced {
            namespaces.entry(&key.0).or_default().push(key);
        }
        let mut notes = Vec::new();
        for (namespace, misplaced) in namespaces {
            let (some, note) = of_namespace(state, view, &mut evicted, namespace, &misplaced, mono);
            actions.extend(some);
            notes.extend(note.map(|note| (namespace.to_owned(), note)));
        }
        placement.paced.extend(notes);
    }
    state.evicted = evicted;
    actions
}

/// The evictions in one namespace, and why there are no more.
fn of_namespace(
    state: &State,
    view: &Tenants,
    evicted: &mut Evicted,
    namespace: &str,
    misplaced: &[&Key],
    mono: Duration,
) -> (Vec<Action>, Option<String>) {
    if state.absences.concern(view, namespace, mono) {
        let note = format!(
            "evictions in namespace {namespace} wait until its Tenant has been absent for {} s",
            CONFIRMED_AFTER.as_secs()
        );
        return (Vec::new(), Some(note));
    }
    let (mut all, mut owners) = counts(state, evicted, namespace, mono);
    let mut next: Vec<(&Key, &PodFacts, &Owner)> = misplaced
        .iter()
        .filter_map(|key| Some((*key, state.pods.get(*key)?)))
        .filter_map(|(key, pod)| Some((key, pod, pod.owner.as_ref().filter(|owner| recreates(owner))?)))
        .filter(|(_, pod, _)| is_harmful(view, namespace, pod))
        .collect();
    let waiting = next.len();
    // One that a PodDisruptionBudget keeps has its next turn after the others.
    next.sort_by_key(|(key, pod, _)| (evicted.asked.get(&pod.uid).copied(), (*key).clone()));
    let mut actions = Vec::new();
    for (key, pod, owner) in next {
        let is_asked = evicted.asked.get(&pod.uid).is_some_and(|at| mono.saturating_sub(*at) < SHOWS_AFTER);
        let of_owner = owners.entry(owner.uid.as_str()).or_default();
        if is_asked || all.room() == 0 || of_owner.room() == 0 {
            continue;
        }
        all.away += 1;
        of_owner.away += 1;
        evicted.asked.insert(pod.uid.clone(), mono);
        evicted.owners.insert(owner.uid.clone());
        actions.push(Action::Evict { pod: key.clone(), uid: pod.uid.clone() });
    }
    let note = (waiting > 0).then(|| {
        format!(
            "of namespace {namespace} no more than {} pods are evicted at once, and {} are not running again yet",
            (all.all * AWAY_PERCENT / 100).max(1),
            all.away,
        )
    });
    (actions, note)
}

/// The pods of a namespace, and those of each of its owners that are away because they were evicted.
fn counts<'s>(
    state: &'s State,
    evicted: &mut Evicted,
    namespace: &str,
    mono: Duration,
) -> (Count, BTreeMap<&'s str, Count>) {
    let mut owners: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    let from = (namespace.to_owned(), String::new());
    for (_, pod) in state.pods.range(from..).take_while(|((of, _), _)| of == namespace) {
        all.all += 1;
        let Some(owner) = &pod.owner else { continue };
        let count = owners.entry(owner.uid.as_str()).or_default();
        count.all += 1;
        let asked = evicted.asked.get(&pod.uid).is_some_and(|at| mono.saturating_sub(*at) < SHOWS_AFTER);
        count.away += usize::from(pod.deleting || pod.node.is_none() || asked);
    }
    for (owner, count) in &owners {
        if count.away == 0 {
            evicted.owners.remove(*owner);
        } else if evicted.owners.contains(*owner) {
            all.away += count.away;
        }
    }
    (all, owners)
}

/// True if the pod does harm where it is, and has a better place. One of a tenant whose pool is missing could not be made
/// again; and one in a pool that no Tenant names keeps nothing from any tenant: deleting a Tenant moves nothing.
fn is_harmful(view: &Tenants, namespace: &str, pod: &PodFacts) -> bool {
    let rules = view.declarations();
    match view.tenancy(namespace) {
        NamespaceTenancy::Tenant { tenant, .. } => tenant.pools.iter().all(|(_, pool)| pool.is_some()),
        NamespaceTenancy::NonTenant => {
            let pools = pod.node.as_ref().and_then(|node| view.node(node)).map(|pools| &*pools.labelled);
            let named = |pool| rules.tenants().iter().any(|tenant| tenant.may_use(pool));
            pools.into_iter().flatten().any(|pool| named(*pool))
        }
        NamespaceTenancy::Exempt | NamespaceTenancy::Unknown | NamespaceTenancy::TenantUnreadable => false,
    }
}
