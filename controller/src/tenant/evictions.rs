//! Evictions of misplaced pods, for `misplaced: Recreate` of the CroftConfig: the evidence that they need, the pods
//! that are left to the user, and the number of concurrent evictions.
//!
//! A pod is misplaced because of a Tenant, a pool or the labels of a namespace, and each of them may be absent for
//! a moment: `kubectl replace --force` deletes before it creates, and deleting a CRD deletes its objects. So
//! evictions that follow from the absence of a Tenant wait until the absence is confirmed ([`super::absences`]). Evictions
//! that follow from present objects start at once, few pods at a time, and continue when those are running again.

use std::{collections::BTreeMap, time::Duration};

use croft_api::config::Misplaced;
use croft_policy::{NamespaceTenancy, Tenants};

use crate::{
    action::Action,
    kube_api::{Target, Verb},
    tenant::{
        absences::ABSENCE_CONFIRMED_AFTER,
        placement::Placement,
        state::{Evictions, ObjectName, Owner, PodFacts, State},
    },
};

/// The share of a namespace's pods, and of an owner's pods, that may be unavailable at once; one pod at least.
const UNAVAILABLE_PERCENT: usize = 10;
/// The watch shows the deletion of an evicted pod within this time.
const WATCH_DELAY: Duration = Duration::from_secs(5);

/// Pods of a namespace or of an owner.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: usize,
    unavailable: usize,
}

impl Count {
    fn room(self) -> usize {
        (self.all * UNAVAILABLE_PERCENT / 100).max(1).saturating_sub(self.unavailable)
    }
}

/// The evictions that are due. The reasons for waiting go into the conditions of the tenants.
pub(super) fn due(
    state: &mut State,
    view: &Tenants,
    placement: &mut Placement,
    mono: Duration,
) -> Vec<Action> {
    let mut evicted = std::mem::take(&mut state.evicted);
    evicted.requested.retain(|_, at| mono.saturating_sub(*at) < ABSENCE_CONFIRMED_AFTER);
    let mut actions = Vec::new();
    if state.config.misplaced == Misplaced::Recreate {
        let mut namespaces: BTreeMap<&str, Vec<&ObjectName>> = BTreeMap::new();
        for key in &placement.misplaced {
            namespaces.entry(&key.0).or_default().push(key);
        }
        let mut notes = Vec::new();
        for (namespace, misplaced) in namespaces {
            let (some, note) = evictions_in(state, view, &mut evicted, namespace, &misplaced, mono);
            actions.extend(some);
            notes.extend(note.map(|note| (namespace.to_owned(), note)));
        }
        placement.eviction_notes.extend(notes);
    }
    state.evicted = evicted;
    actions
}

/// The evictions of one namespace, and the reason why there are no more.
fn evictions_in(
    state: &State,
    view: &Tenants,
    evicted: &mut Evictions,
    namespace: &str,
    misplaced: &[&ObjectName],
    mono: Duration,
) -> (Vec<Action>, Option<String>) {
    if state.absences.may_affect(view, namespace, mono) {
        let note = format!(
            "evictions in namespace {namespace} wait until its Tenant has been absent for {} s",
            ABSENCE_CONFIRMED_AFTER.as_secs()
        );
        return (Vec::new(), Some(note));
    }
    let (mut all, mut owners) = count_pods(state, evicted, namespace, mono);
    let mut next: Vec<(&ObjectName, &PodFacts, &Owner)> = misplaced
        .iter()
        .filter_map(|key| Some((*key, state.pods.get(*key)?)))
        .filter_map(|(key, pod)| {
            Some((key, pod, pod.owner.as_deref().filter(|owner| owner.recreates_pods())?))
        })
        .filter(|(_, pod, _)| needs_eviction(view, namespace, pod))
        .collect();
    let pending = next.len();
    // Pods that a PodDisruptionBudget blocks are tried after the others.
    next.sort_by_key(|(key, pod, _)| (evicted.requested.get(&pod.uid).copied(), (*key).clone()));
    let mut actions = Vec::new();
    for (key, pod, owner) in next {
        let is_requested =
            evicted.requested.get(&pod.uid).is_some_and(|at| mono.saturating_sub(*at) < WATCH_DELAY);
        let of_owner = owners.entry(owner.uid.as_str()).or_default();
        if is_requested || all.room() == 0 || of_owner.room() == 0 {
            continue;
        }
        all.unavailable += 1;
        of_owner.unavailable += 1;
        evicted.requested.insert(pod.uid.clone(), mono);
        evicted.owners.insert(owner.uid.clone());
        let target = Target::Pod(key.0.clone(), key.1.clone());
        actions.push(Action::write_once(target, Verb::Evict { uid: pod.uid.clone() }));
    }
    let note = (pending > 0).then(|| {
        format!(
            "of namespace {namespace} no more than {} pods are evicted at once, and {} are not running again yet",
            (all.all * UNAVAILABLE_PERCENT / 100).max(1),
            all.unavailable,
        )
    });
    (actions, note)
}

/// Counts the pods of a namespace, and per owner the pods that are unavailable because of evictions.
fn count_pods<'s>(
    state: &'s State,
    evicted: &mut Evictions,
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
        let requested =
            evicted.requested.get(&pod.uid).is_some_and(|at| mono.saturating_sub(*at) < WATCH_DELAY);
        count.unavailable += usize::from(pod.deleting || pod.node.is_none() || requested);
    }
    for (owner, count) in &owners {
        if count.unavailable == 0 {
            evicted.owners.remove(*owner);
        } else if evicted.owners.contains(*owner) {
            all.unavailable += count.unavailable;
        }
    }
    (all, owners)
}

/// Returns true if the pod violates isolation where it is and can run elsewhere. A pod whose tenant lacks a pool
/// couldn't be recreated. A pod in a pool that no Tenant names violates nothing: deleting a Tenant moves no pod.
fn needs_eviction(view: &Tenants, namespace: &str, pod: &PodFacts) -> bool {
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
