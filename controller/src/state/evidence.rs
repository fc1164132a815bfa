//! Answers of the cloud and the API server about single instances and nodes, in answer to the controller's own requests.
//!
//! Deciders rest irreversible actions on this evidence, and not on lists or watches, which may lag or be filtered.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_cloud::{CloudInstance, InstanceState, Terminated, instance_id};

use super::{snapshot::Snapshot, views::instance_of};

/// How long EC2 shows terminated instances, about. An id that is unknown although the instance was shown or launched within
/// this time is one of another account, whose credentials are here by mistake.
pub(super) const SHOWN_FOR: Duration = Duration::from_hours(1);

/// The evidence. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub struct Evidence {
    descriptions: BTreeMap<String, Description>,
    /// Until when the cloud shows each instance: [`SHOWN_FOR`] after it last was alive.
    shown_until: BTreeMap<String, Duration>,
    /// Instances whose termination was requested, and their state.
    terminations: BTreeMap<String, InstanceState>,
    /// Claims, and instances without a claim, for which the API server had no pod that must leave, and when.
    no_pods: BTreeMap<String, Duration>,
    /// Registered claims whose Node the API server didn't have, and when.
    no_node: BTreeMap<String, Duration>,
}

/// The cloud's answer when an instance was described by its id.
#[derive(Debug)]
struct Description {
    /// When the last request was sent.
    requested: Duration,
    /// The instance; `None` if the account and region don't have the id.
    instance: Option<CloudInstance>,
    /// The first request in a row with that answer.
    unknown_since: Option<Duration>,
}

impl Evidence {
    /// Takes in the description of `ids` that was requested at `requested`.
    pub fn observe_descriptions(&mut self, requested: Duration, ids: Vec<String>, found: Vec<CloudInstance>) {
        let mut found: BTreeMap<String, CloudInstance> =
            found.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
        for id in ids {
            let instance = found.remove(&id);
            let before = self.descriptions.get(&id).and_then(|known| known.unknown_since);
            let unknown_since = instance.is_none().then(|| before.unwrap_or(requested));
            if instance.as_ref().is_some_and(|instance| instance.state.is_alive()) {
                self.observe_alive(&id, requested, Duration::ZERO);
            }
            self.descriptions.insert(id, Description { requested, instance, unknown_since });
        }
    }

    /// Takes in the last list of instances, and drops evidence about objects that are gone.
    pub fn observe_list(&mut self, snapshot: &Snapshot) {
        self.retain_known(snapshot);
        let Some(list) = snapshot.instances() else { return };
        let requested = list.asked.mono;
        self.shown_until.retain(|_, until| requested < *until);
        for instance in list.instances.values().filter(|instance| instance.state.is_alive()) {
            self.observe_alive(&instance.id, requested, Duration::ZERO);
        }
        // Another process may have launched them.
        for claim in snapshot.claims().values() {
            let launched = claim.status.as_ref().and_then(|status| status.launch_time.as_ref());
            if let (Some(id), Some(launched)) = (instance_of(claim), launched) {
                self.observe_alive(id, requested, list.asked.since(launched.0));
            }
        }
    }

    /// Takes in the launch of a claim's instance.
    pub fn observe_launch(&mut self, snapshot: &Snapshot, claim: &str, at: Duration) {
        if let Some(id) = snapshot.claims().get(claim).and_then(|claim| instance_of(claim)) {
            self.observe_alive(id, at, Duration::ZERO);
        }
    }

    /// Records that the cloud had the instance of this id, not going, `ago` before `at`.
    fn observe_alive(&mut self, id: &str, at: Duration, ago: Duration) {
        let left = SHOWN_FOR.saturating_sub(ago);
        if left.is_zero() {
            return;
        }
        let until = at.saturating_add(left);
        match self.shown_until.get_mut(id) {
            Some(known) => *known = until.max(*known),
            None => drop(self.shown_until.insert(id.to_owned(), until)),
        }
    }

    /// Takes in the progress of terminations. Returns the ids of the instances that are terminated.
    pub fn observe_terminations(&mut self, instances: Vec<Terminated>) -> Vec<String> {
        let mut terminated = Vec::new();
        for instance in instances {
            if instance.state == InstanceState::Terminated {
                terminated.push(instance.id.clone());
            }
            self.terminations.insert(instance.id, instance.state);
        }
        terminated
    }

    /// Records that the API server had no pod that must leave for `subject`, a claim or an instance, at `at`.
    pub fn observe_no_pods(&mut self, subject: String, at: Duration) {
        self.no_pods.insert(subject, at);
    }

    /// Records that the API server had no Node of `claim` at `at`.
    pub fn observe_no_node(&mut self, claim: String, at: Duration) {
        self.no_node.insert(claim, at);
    }

    /// Drops what the API server said of pods. After a restore from a backup it was said of another past.
    pub fn forget_pods(&mut self) {
        self.no_pods.clear();
    }

    /// Drops what the API server said of the pods of one claim.
    pub fn forget_pods_of(&mut self, claim: &str) {
        self.no_pods.remove(claim);
    }

    /// Drops what the API server said of the Node of `claim`.
    pub fn forget_node_of(&mut self, claim: &str) {
        self.no_node.remove(claim);
    }

    /// Drops the description of an instance.
    pub fn forget_description(&mut self, id: &str) {
        self.descriptions.remove(id);
    }

    fn retain_known(&mut self, snapshot: &Snapshot) {
        let claimed: BTreeSet<&str> =
            snapshot.claims().values().filter_map(|claim| instance_of(claim)).collect();
        let lost: BTreeSet<&str> =
            snapshot.lost_claims().filter_map(|(claim, _)| instance_of(claim)).collect();
        let listed = snapshot.instances();
        let is_listed = |id: &str| listed.is_some_and(|list| list.instances.contains_key(id));
        self.terminations
            .retain(|id, _| claimed.contains(id.as_str()) || lost.contains(id.as_str()) || is_listed(id));
        let of_nodes: BTreeSet<&str> = snapshot
            .nodes()
            .values()
            .filter_map(|node| node.provider_id.as_deref())
            .map(instance_id)
            .collect();
        let is_named = |id: &str| claimed.contains(id) || lost.contains(id) || of_nodes.contains(id);
        self.descriptions.retain(|id, _| is_named(id));
        self.no_node.retain(|claim, _| snapshot.claims().contains_key(claim));
        self.no_pods.retain(|subject, _| snapshot.claims().contains_key(subject) || is_listed(subject));
    }

    /// The instance as it was last described, if the cloud has it.
    #[must_use]
    pub fn described(&self, id: &str) -> Option<&CloudInstance> {
        self.descriptions.get(id)?.instance.as_ref()
    }

    /// When the description of an instance was last requested.
    #[must_use]
    pub fn description_requested(&self, id: &str) -> Option<Duration> {
        self.descriptions.get(id).map(|description| description.requested)
    }

    /// True if the instance is in doubt, so that its description is held.
    #[must_use]
    pub fn is_in_doubt(&self, id: &str) -> bool {
        self.descriptions.contains_key(id)
    }

    /// True if the instance was not described within `every`.
    #[must_use]
    pub fn is_description_due(&self, id: &str, now: Duration, every: Duration) -> bool {
        self.descriptions.get(id).is_none_or(|known| now >= known.requested.saturating_add(every))
    }

    /// True if the termination of the instance met an unknown id.
    #[must_use]
    pub fn is_termination_unknown(&self, id: &str) -> bool {
        self.terminations.get(id) == Some(&InstanceState::Unknown)
    }

    /// True if the cloud said of this id that the instance is stopping, stopped, shutting down or terminated.
    #[must_use]
    pub fn is_going(&self, id: &str) -> bool {
        self.terminations.get(id).is_some_and(|state| state.is_going())
            || self.described_state(id).is_some_and(InstanceState::is_going)
    }

    /// True if the cloud said of this id that the instance is terminated.
    #[must_use]
    pub fn is_terminated(&self, id: &str) -> bool {
        self.is_termination_confirmed(id) || self.described_state(id) == Some(InstanceState::Terminated)
    }

    /// True if a requested termination was confirmed.
    #[must_use]
    pub fn is_termination_confirmed(&self, id: &str) -> bool {
        self.terminations.get(id) == Some(&InstanceState::Terminated)
    }

    /// True if every description within `grace` said that the id is unknown, and the cloud hasn't shown the instance for as
    /// long as it would show a terminated one.
    #[must_use]
    pub fn is_unknown_for(&self, id: &str, grace: Duration) -> bool {
        let shown = self.shown_until.get(id);
        self.descriptions.get(id).is_some_and(|known| {
            known.unknown_since.is_some_and(|since| known.requested >= since.saturating_add(grace))
                && shown.is_none_or(|until| known.requested >= *until)
        })
    }

    /// When the API server last had no pod that must leave for `subject`, a claim or an instance.
    #[must_use]
    pub fn no_pods_at(&self, subject: &str) -> Option<Duration> {
        self.no_pods.get(subject).copied()
    }

    /// True if the API server had no Node of `claim`.
    #[must_use]
    pub fn has_no_node(&self, claim: &str) -> bool {
        self.no_node.contains_key(claim)
    }

    fn described_state(&self, id: &str) -> Option<InstanceState> {
        let description = self.descriptions.get(id)?;
        Some(description.instance.as_ref().map_or(InstanceState::Unknown, |instance| instance.state))
    }
}
