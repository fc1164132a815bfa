//! Decisions: pure functions from the picture, the time and what is under way to actions.
//!
//! ```text
//!   provision    pods without a place          -> claims
//!   apart        plans that panic              -> the pods that make them panic are left out
//!   standing     pools of a fixed size         -> claims, deleted
//!   lifecycle    claims                        -> launched, registered, initialized
//!   termination  claims being deleted          -> drained, looked at, terminated, confirmed, released
//!   disrupt      nodes not worth their price   -> replaced, then their claims deleted
//!   empty        nodes without work            -> cordoned, then their claims deleted (called by disrupt)
//!   instances    instances in doubt            -> described by id, tagged again
//!   interrupt    machines about to be taken    -> replaced, or drained at once
//!   orphans      machines, claims, nodes alone -> terminated, adopted, deleted
//!   pools        TenantPools                   -> status, finalizer
//!   classes      EC2NodeClasses                -> status, offers
//!   config       the CroftConfig               -> status
//!   backoff      nodes that don't register     -> counted, launches held back
//! ```
//!
//! All are level-based: they look at what is, never at what happened, so that a restart at any moment loses
//! nothing. [`Memory`] holds only since when something has been so; losing it makes waits start anew.

pub mod apart;
pub mod backoff;
pub mod breaker;
pub mod classes;
pub mod conditions;
pub mod config;
pub mod disrupt;
pub mod empty;
pub mod findings;
pub mod instances;
pub mod interrupt;
pub mod lifecycle;
pub mod nodes;
pub mod orphans;
pub mod places;
pub mod pools;
pub mod provision;
pub mod requirements;
pub mod standing;
pub mod termination;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::NodeClaim;
use croft_cloud::MachineState;
use croft_scheduler::PodKey;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::Resource;

use self::breaker::{Breaker, Cause, Stopped};
use crate::{
    action::{Action, Key, Notice},
    flights::Flights,
    settings::Settings,
    snapshot::Snapshot,
    time::{Now, earliest},
};

/// Since when what is so has been so, on the monotonic clock.
#[derive(Debug, Default)]
pub struct Memory {
    /// Claims whose node was found to be as it should be, and the version of the node then.
    pub kept: BTreeMap<String, (Arc<NodeClaim>, u64)>,
    /// Claims whose node lacks labels that it should have.
    pub relabelled_since: BTreeMap<String, Duration>,
    /// Nodes without work.
    pub empty_since: BTreeMap<String, Duration>,
    /// Nodes that are cordoned and not yet given up.
    pub cordoned_since: BTreeMap<String, Duration>,
    /// Nodes that the last plan put pods on, and until when that keeps them from being empty.
    pub expected_until: BTreeMap<String, Duration>,
    /// What the cloud said of instances that were asked for by id.
    pub answers: instances::Answers,
    /// Registered claims whose Node the API server didn't have when it was asked.
    pub nodeless_at: BTreeMap<String, Duration>,
    /// Machines that were asked to go, and how far they are.
    pub terminations: BTreeMap<String, MachineState>,
    /// Claims to be released whose launch wasn't answered and of which no machine was found.
    pub machineless_since: BTreeMap<String, Duration>,
    /// Claims whose node has no pods left, but volumes.
    pub drained_since: BTreeMap<String, Duration>,
    /// Claims being deleted whose node takes no more pods.
    pub closed_since: BTreeMap<String, Duration>,
    /// Claims, and instances without one, of which the API server said then that nothing is on them.
    pub vacant_at: BTreeMap<String, Duration>,
    /// Claims whose node is open and that planned pods still wait for.
    pub open_since: BTreeMap<String, Duration>,
    /// Why a pod can't be evicted.
    pub blocked: BTreeMap<PodKey, String>,
    /// Since when no Tenant has named a pool that is being deleted.
    pub unnamed_since: BTreeMap<String, Duration>,
    /// When each pool's status was last looked at.
    pub pool_looked: BTreeMap<String, pools::Looked>,
    /// When each class was last resolved and last asked for offers, and the generation that was resolved.
    pub class_asked: BTreeMap<String, classes::Asked>,
    /// News about machines that isn't handled yet.
    pub news: interrupt::News,
    /// Claims of whose nodes the provider knows what they really have.
    pub observed: BTreeSet<String>,
    /// What was found out about pools' offerings.
    pub supplies: pools::supply::Supplies,
    /// What was tried for pools of a fixed size.
    pub standing: standing::Tried,
    /// What is left out of plans because it makes them panic.
    pub apart: apart::Apart,
    /// Launches whose node didn't register, counted for the metrics.
    pub unregistered: u64,
    /// What was last said of the CroftConfig.
    pub config: config::Looked,
    /// Places that kube-scheduler doesn't give.
    pub places: places::Places,
    /// What disruption remembers.
    pub disruption: disrupt::Memory,
    /// When the machines were last listed.
    pub listed: Option<Duration>,
    /// The list, and the number of changes of claims, at which no machine was without a claim.
    pub alone_looked: Option<(Duration, u64)>,
    /// When what launches left behind was last removed.
    pub swept: Option<Duration>,
    /// Set while garbage collection would remove suspiciously much; says what.
    pub collection_stopped: Option<String>,
}

/// One round of decisions.
pub struct Round<'a> {
    /// The picture.
    pub snapshot: &'a Snapshot,
    /// Times and sizes.
    pub settings: &'a Settings,
    /// The time.
    pub now: Now,
    /// Pods have come that are about to be planned.
    pub awaits_plan: bool,
    flights: &'a Flights,
    actions: Vec<Action>,
    taken: BTreeSet<Key>,
    wake: Option<Duration>,
    /// Counted when it is first asked.
    breaker: Option<Breaker>,
}

impl<'a> Round<'a> {
    /// Begins a round.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, settings: &'a Settings, flights: &'a Flights, now: Now) -> Self {
        Self {
            snapshot,
            settings,
            now,
            awaits_plan: false,
            flights,
            actions: Vec::new(),
            taken: BTreeSet::new(),
            wake: None,
            breaker: None,
        }
    }

    /// True if an action may start on `key`. Nobody makes claims before the machines have been listed once: limits
    /// count those that no claim has, too.
    #[must_use]
    pub fn is_idle(&self, key: &Key) -> bool {
        let known = self.snapshot.machines.0.is_some() || !matches!(key, Key::Plan(_));
        known && self.flights.is_idle(key, self.now.mono) && !self.taken.contains(key)
    }

    /// True while claims are made for some pool, or names for them reserved.
    #[must_use]
    pub fn is_planning(&self) -> bool {
        let plans = |key: &Key| matches!(key, Key::Plan(_));
        self.flights.any_flying(plans) || self.taken.iter().any(plans)
    }

    /// True if `member`, the name of a claim or the id of an instance, may be removed from `pool` on the evidence
    /// `cause`: few enough nodes are out. Otherwise the pool says so by a condition and an event.
    pub fn may_remove(&mut self, cause: Cause, pool: &str, member: &str) -> bool {
        let (snapshot, grace) = (self.snapshot, self.settings.orphan_grace);
        let breaker = self.breaker.get_or_insert_with(|| Breaker::new(snapshot, grace));
        if breaker.admit(cause, pool, member) {
            return true;
        }
        let told = breaker.stopped(pool).map(Stopped::statement).zip(snapshot.pools.get(pool));
        if let Some((said, pool)) = told {
            self.tell(reference(&**pool), true, said.reason, said.message);
        }
        false
    }

    /// Why the breaker held nodes of `pool` back in this round, if it did.
    #[must_use]
    pub fn stopped(&self, pool: &str) -> Option<&Stopped> {
        self.breaker.as_ref()?.stopped(pool)
    }

    /// True while claims are being created that a limit counts together with the nodes of `pool`: a plan made without
    /// them could launch more than the limit allows.
    #[must_use]
    pub fn is_limit_in_flight(&self, pool: &str) -> bool {
        let counts = |key: &Key| matches!(key, Key::Plan(other) if self.snapshot.share_limit(pool, other));
        self.flights.any_flying(counts) || self.taken.iter().any(counts)
    }

    /// How many times in a row an action on `key` has failed.
    #[must_use]
    pub fn failures(&self, key: &Key) -> u32 {
        self.flights.failures(key)
    }

    /// Asks for `action`, unless something holds what it needs: then a later round decides again.
    pub fn act(&mut self, action: Action) {
        let keys = action.keys();
        if keys.iter().all(|key| self.is_idle(key)) {
            self.taken.extend(keys);
            self.actions.push(action);
        }
    }

    /// Asks to be woken `after` from now.
    pub fn wake_in(&mut self, after: Duration) {
        self.wake = earliest(self.wake, Some(self.now.mono.saturating_add(after)));
    }

    /// Asks to be woken at a moment on the monotonic clock.
    pub fn wake_at(&mut self, at: Duration) {
        self.wake = earliest(self.wake, Some(at));
    }

    /// What `decide` comes to, and when it asks to be woken: what it looked at needs no look before then, unless
    /// something changes.
    pub fn wakes_of<T>(&mut self, decide: impl FnOnce(&mut Self) -> T) -> (T, Option<Duration>) {
        let before = self.wake.take();
        let result = decide(self);
        let asked = self.wake;
        self.wake = earliest(before, asked);
        (result, asked)
    }

    /// True once `since` is `span` ago; otherwise asks to be woken then.
    pub fn has_lasted(&mut self, since: Duration, span: Duration) -> bool {
        let left = span.saturating_sub(self.now.mono.saturating_sub(since));
        if left.is_zero() {
            return true;
        }
        self.wake_in(left);
        false
    }

    /// The same for a time on the wall clock.
    pub fn is_older(&mut self, since: jiff::Timestamp, span: Duration) -> bool {
        let left = span.saturating_sub(self.now.since(since));
        if left.is_zero() {
            return true;
        }
        self.wake_in(left);
        false
    }

    /// Tells a user.
    pub fn tell(&mut self, about: ObjectReference, warning: bool, reason: &'static str, note: String) {
        self.actions.push(Action::Tell(Notice { about, warning, reason: reason.into(), note }));
    }

    /// Tells a user what a condition says, in its own words.
    pub fn repeat(&mut self, about: ObjectReference, condition: &Condition) {
        let notice = Notice {
            about,
            warning: true,
            reason: condition.reason.clone().into(),
            note: condition.message.clone(),
        };
        self.actions.push(Action::Tell(notice));
    }

    /// What was asked for, and when to look again.
    #[must_use]
    pub fn finish(self) -> (Vec<Action>, Option<Duration>) {
        (self.actions, self.wake)
    }
}

/// Names an object in an event.
#[must_use]
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}
