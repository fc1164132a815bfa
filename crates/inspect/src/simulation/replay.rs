//! A recorded time on virtual time: pods come and go as they were recorded, and nodes follow the settings.
//!
//! ```text
//!   snapshot ──pods, settings──▶ Replay ◀──nodes── the step before
//!                                  │ pending pods get a place, as planned
//!                                  │ every few minutes one search, by what budgets and consolidateAfter let go then
//!                                  ▼
//!                                Totals: dollars, evictions, pending pods
//! ```
//!
//! Launches, evictions and the ends of pods take no time, and nothing is interrupted, expires, drifts or is ended by hand. A pod that
//! was evicted while it was recorded is one that ends and another that comes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{TenantPool, definitions::DISRUPTED_TAINT, duration, pool::Provisioner};
use croft_manifest::{Input, InputError, Sourced};
use croft_policy::definitions::{MIRROR_ANNOTATION, UNREGISTERED_TAINT};
use croft_scheduler::{InstanceType, Options, PodKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt as _;

use super::{
    eligibility::time_of,
    schedules::{Scheduled, put_in_force},
    settle::{Settling, register_coming},
    totals::{MILLIS_PER_HOUR, Totals, is_provisioned},
};
use crate::{
    inventory::node_of,
    node_index::NodeIndex,
    workload::{controller, is_active},
};

/// From a search that removed something to the next: about as long as a replacement takes to boot and a node to drain.
const WHILE_IT_FINDS: SignedDuration = SignedDuration::from_mins(5);
/// From a search that found nothing to the next, if no snapshot comes before.
const AT_REST: SignedDuration = SignedDuration::from_mins(15);

/// Where a pod runs.
#[derive(Clone, Debug)]
struct Placement {
    node: String,
    since: Timestamp,
    /// Two pods of a StatefulSet have the same name, one after the other.
    created: Option<Timestamp>,
}

/// A cluster under one set of settings.
pub struct Replay {
    types: Arc<[InstanceType]>,
    options: Options,
    input: Input,
    at: Timestamp,
    search_at: Timestamp,
    /// The pools with schedules, as they are declared.
    declared: Vec<Sourced<TenantPool>>,
    /// When the next schedule begins or ends.
    schedule_at: Option<Timestamp>,
    placed: BTreeMap<PodKey, Placement>,
    /// When pods last came to a node or left it.
    changed: BTreeMap<String, Timestamp>,
    totals: Totals,
    evicted: usize,
    /// Pods without a place.
    pending: usize,
    /// Pods that admission refuses under these settings, though they were recorded.
    refused: usize,
    pending_millis: i128,
    warnings: Vec<String>,
}

impl Replay {
    /// Begins with the nodes of `input`, of which an edit of the first snapshot, `recorded`, may have removed some.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn begin(
        recorded: &Input,
        mut input: Input,
        types: Arc<[InstanceType]>,
        options: Options,
    ) -> Result<Self, InputError> {
        let at = time_of(&input);
        register_coming(&mut input, &types);
        settle_nodes(&mut input);
        let had_node = |(key, pod): &(PodKey, &Pod)| {
            let before = recorded.pods.get(&key.namespace, &key.name);
            node_of(pod).is_none() && before.is_some_and(|before| node_of(before).is_some())
        };
        let evicted = pods(&input).filter(had_node).count();
        let mut totals = Totals::begin(recorded);
        totals.observe(&input);
        let placed = pods(&input).filter_map(|(key, pod)| {
            let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
            let since = started.map_or(at, |time| time.0);
            Some((key, Placement { node: node_of(pod)?.to_owned(), since, created: created(pod) }))
        });
        let mut replay = Self {
            placed: placed.collect(),
            totals,
            types,
            options,
            input,
            at,
            search_at: at,
            declared: Vec::new(),
            schedule_at: None,
            changed: BTreeMap::new(),
            evicted,
            pending: 0,
            refused: 0,
            pending_millis: 0,
            warnings: Vec::new(),
        };
        replay.place()?;
        Ok(replay)
    }

    /// Goes on to the time of the next snapshot, and takes in its pods and settings. `admit` is the admission of pods that come:
    /// none for a refused one.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn advance(&mut self, next: Input, admit: &dyn Fn(Pod) -> Option<Pod>) -> Result<(), InputError> {
        self.run_until(time_of(&next))?;
        self.follow(next, admit);
        self.place()
    }

    /// Lets time pass without another snapshot.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn run_until(&mut self, until: Timestamp) -> Result<(), InputError> {
        while self.at < until {
            if self.schedule_at.is_some_and(|at| at <= self.at) {
                self.place()?;
            }
            if self.search_at <= self.at {
                let mut settling = self.settling();
                let used = settling.consolidate_now(&self.changed)?;
                self.take(settling);
                self.search_at = self.next_search(i32::try_from(used).unwrap_or(i32::MAX));
            }
            let next =
                [Some(self.search_at), self.schedule_at].into_iter().flatten().fold(until, Timestamp::min);
            let lasted = next.duration_since(self.at);
            self.totals.add(&self.input, &self.types, lasted);
            let pods = i128::try_from(self.pending.saturating_add(self.refused)).unwrap_or(i128::MAX);
            self.pending_millis = self.pending_millis.saturating_add(pods.saturating_mul(lasted.as_millis()));
            self.at = next;
        }
        Ok(())
    }

    /// The sums so far.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Pods that consolidation moved, and those that the edit did.
    #[must_use]
    pub const fn evicted(&self) -> usize {
        self.evicted
    }

    /// Pods without a place, times hours.
    #[must_use]
    pub fn pending_hours(&self) -> f64 {
        self.pending_millis as f64 / MILLIS_PER_HOUR as f64
    }

    /// Warnings of the last plan for pending pods.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// When to search again, after one that used the disruption budgets up so many times: each time takes the same. A search that
    /// found nothing is repeated when the next node has waited for its pool's consolidateAfter.
    fn next_search(&self, used: i32) -> Timestamp {
        if used > 0 {
            return after(self.at, WHILE_IT_FINDS.saturating_mul(used));
        }
        let index = NodeIndex::new(&self.input);
        let due = self.changed.iter().filter_map(|(name, at)| {
            let node = self.input.nodes.get("", name)?;
            let wait = index.pool_of(node)?.spec.disruption.consolidate_after();
            let wait = SignedDuration::try_from(duration::parse(wait).ok().flatten()?).ok()?;
            Some(after(*at, wait)).filter(|due| *due > self.at)
        });
        due.min().map_or_else(|| after(self.at, AT_REST), |due| due.min(after(self.at, AT_REST)))
    }

    fn settling(&mut self) -> Settling {
        let mut input = std::mem::take(&mut self.input);
        input.recorded_at = Some(self.at);
        for Sourced { object, origin } in std::mem::take(&mut self.declared) {
            input.pools.put(object, origin);
        }
        let Scheduled { declared, until, .. } = put_in_force(&mut input);
        (self.declared, self.schedule_at) = (declared, until);
        Settling::new(input, Arc::clone(&self.types), self.options.clone())
    }

    /// Gives pending pods a place.
    fn place(&mut self) -> Result<(), InputError> {
        let mut settling = self.settling();
        settling.place_pending()?;
        self.warnings = settling.warnings().to_vec();
        self.take(settling);
        self.search_at = self.at;
        Ok(())
    }

    fn take(&mut self, settling: Settling) {
        self.evicted = self.evicted.saturating_add(settling.evicted());
        let denied = settling.denied().iter().map(|denied| denied.pods.len());
        self.pending = denied.sum::<usize>().saturating_add(settling.unschedulable().len());
        self.input = settling.into_input();
        self.totals.observe(&self.input);
        self.note_changes();
    }

    /// Replaces pods and settings by those of `next`, whose pods run where they ran in this cluster.
    fn follow(&mut self, mut next: Input, admit: &dyn Fn(Pod) -> Option<Pod>) {
        let before = std::mem::take(&mut self.input);
        self.declared.clear();
        let (foreign, own) = {
            let index = NodeIndex::new(&next);
            let foreign = next.nodes.iter().filter(|node| !is_provisioned(&index, node));
            let foreign: BTreeSet<String> = foreign.map(|node| node.name_any()).collect();
            let own = before.nodes.iter().filter(|node| is_provisioned(&index, node));
            (foreign, own.cloned().collect::<Vec<_>>())
        };
        next.nodes.retain(|node| foreign.contains(&node.name_any()));
        next.claims.retain(|_| false);
        for Sourced { object, origin } in own {
            next.nodes.put(object, origin);
        }
        for Sourced { object, origin } in before.claims.iter().cloned() {
            let pool = next.pools.get("", &object.spec.pool);
            if pool.is_some_and(|pool| pool.spec.provisioner == Provisioner::Croft) {
                next.claims.put(object, origin);
            }
        }
        self.refused = 0;
        for Sourced { object: mut pod, origin } in std::mem::take(&mut next.pods).iter().cloned() {
            let is_there = |placement: &&Placement| {
                placement.created == created(&pod) && next.nodes.get("", &placement.node).is_some()
            };
            match self.placed.get(&key(&pod)).filter(is_there) {
                Some(placement) => run_on(&mut pod, &placement.node, placement.since),
                None if node_of(&pod).is_some_and(|node| foreign.contains(node)) => {}
                None => {
                    pod.spec.get_or_insert_default().node_name = None;
                    let Some(admitted) = admit(pod) else {
                        self.refused = self.refused.saturating_add(1);
                        continue;
                    };
                    pod = admitted;
                    // A pod without a phase would be admitted again, by plugins whose objects aren't recorded.
                    pod.status =
                        Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
                }
            }
            next.pods.put(pod, origin);
        }
        self.input = next;
        self.totals.observe(&self.input);
    }

    /// Notes at which nodes pods have come or gone, and since when each pod runs.
    fn note_changes(&mut self) {
        let mut placed = BTreeMap::new();
        let mut came = Vec::new();
        for (key, pod) in pods(&self.input) {
            let Some(node) = node_of(pod) else { continue };
            let old = self.placed.remove(&key);
            let stays = old.filter(|old| {
                let is_same = old.node == node && old.created == created(pod);
                if !is_same {
                    self.changed.insert(old.node.clone(), self.at);
                }
                is_same
            });
            let placement = stays.unwrap_or_else(|| {
                self.changed.insert(node.to_owned(), self.at);
                came.push(key.clone());
                Placement { node: node.to_owned(), since: self.at, created: created(pod) }
            });
            placed.insert(key, placement);
        }
        for gone in std::mem::replace(&mut self.placed, placed).into_values() {
            self.changed.insert(gone.node, self.at);
        }
        self.changed.retain(|node, _| self.input.nodes.get("", node).is_some());
        for key in came {
            let Some(found) = self.input.pods.get(&key.namespace, &key.name) else { continue };
            let (mut pod, origin) = (found.object.clone(), found.origin.clone());
            if let Some(node) = node_of(&pod).map(str::to_owned) {
                run_on(&mut pod, &node, self.at);
            }
            self.input.pods.put(pod, origin);
        }
    }
}

/// Makes nodes ready that were booting or being drained in the first snapshot: nothing later would end that.
fn settle_nodes(input: &mut Input) {
    let index = NodeIndex::new(input);
    let own: Vec<_> = input.nodes.iter().filter(|node| is_provisioned(&index, node)).cloned().collect();
    for Sourced { object: mut node, origin } in own {
        for condition in node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
            if condition.type_ == "Ready" {
                condition.status = "True".to_owned();
            }
        }
        if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
            taints.retain(|taint| {
                let key = taint.key.as_str();
                let passing = [UNREGISTERED_TAINT, DISRUPTED_TAINT];
                !key.starts_with("node.kubernetes.io/") && !passing.contains(&key)
            });
        }
        input.nodes.put(node, origin);
    }
}

/// Leaves out of a snapshot what a replay makes itself: pods of DaemonSets, for which every node keeps room, and the state of
/// PodDisruptionBudgets, which follows from the pods.
pub fn keep_demand(input: &mut Input) {
    input.pods.retain(|pod| {
        let owner = controller(&pod.metadata).map(|owner| owner.kind.as_str());
        is_active(pod)
            && !matches!(owner, Some("DaemonSet" | "Node"))
            && !pod.annotations().contains_key(MIRROR_ANNOTATION)
    });
    for Sourced { object: mut budget, origin } in std::mem::take(&mut input.budgets).iter().cloned() {
        budget.status = None;
        input.budgets.put(budget, origin);
    }
}

fn pods(input: &Input) -> impl Iterator<Item = (PodKey, &Pod)> {
    input.pods.iter().map(|pod| (key(pod), &pod.object))
}

fn key(pod: &Pod) -> PodKey {
    PodKey::new(&pod.namespace().unwrap_or_default(), &pod.name_any())
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn run_on(pod: &mut Pod, node: &str, since: Timestamp) {
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    pod.status = Some(PodStatus {
        phase: Some("Running".to_owned()),
        start_time: Some(Time(since)),
        ..PodStatus::default()
    });
}

fn after(at: Timestamp, pause: SignedDuration) -> Timestamp {
    at.checked_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "replay_test.rs"]
mod tests;
