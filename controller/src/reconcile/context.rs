//! The context of one reconcile pass, which every decider gets.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::Resource;

use crate::{
    action::{Action, Key, UserEvent},
    config::settings::Settings,
    in_flight::InFlight,
    reconcile::breaker::{Breaker, Cause, Stopped},
    solver::Solver,
    state::{Evidence, NodeView, Snapshot},
    time::{Now, earliest},
};

/// The inputs of a pass, beside its settings.
#[derive(Clone, Copy)]
pub struct PassInputs<'a> {
    /// The snapshot of the cluster.
    pub snapshot: &'a Snapshot,
    /// Makes scheduling plans.
    pub solver: &'a Solver,
    /// Times and sizes.
    pub settings: &'a Settings,
    /// In-flight actions and backoff.
    pub in_flight: &'a InFlight,
}

/// One reconcile pass.
pub struct ReconcileContext<'a> {
    /// The snapshot of the cluster.
    pub snapshot: &'a Snapshot,
    /// Answers of the cloud and the API server about single instances and nodes.
    pub evidence: &'a mut Evidence,
    /// Makes scheduling plans.
    pub solver: &'a Solver,
    /// Times and sizes.
    pub settings: &'a Settings,
    /// The time.
    pub now: Now,
    /// True if pending pods are about to be planned.
    pub awaits_plan: bool,
    in_flight: &'a InFlight,
    actions: Vec<Action>,
    locked: BTreeSet<Key>,
    requeue: Option<Duration>,
    list_instances: bool,
    /// Created when it is first needed.
    breaker: Option<Breaker>,
}

impl<'a> ReconcileContext<'a> {
    /// Begins a pass at `now`.
    #[must_use]
    pub fn new(inputs: PassInputs<'a>, evidence: &'a mut Evidence, now: Now) -> Self {
        let PassInputs { snapshot, solver, settings, in_flight } = inputs;
        Self {
            snapshot,
            evidence,
            solver,
            settings,
            now,
            awaits_plan: false,
            in_flight,
            actions: Vec::new(),
            locked: BTreeSet::new(),
            requeue: None,
            list_instances: false,
            breaker: None,
        }
    }

    /// True if an action may start on `key`. No claim is created before the first list of instances: limits also count
    /// the instances that no claim has.
    #[must_use]
    pub fn is_idle(&self, key: &Key) -> bool {
        let known = self.snapshot.instances().is_some() || !matches!(key, Key::CreateClaims(_));
        known && self.in_flight.is_idle(key, self.now.mono) && !self.locked.contains(key)
    }

    /// True while claims are being created for some pool.
    #[must_use]
    pub fn is_creating_claims(&self) -> bool {
        let creates = |key: &Key| matches!(key, Key::CreateClaims(_));
        self.in_flight.any_in_flight(creates) || self.locked.iter().any(creates)
    }

    /// True while claims are being created that a limit counts together with the nodes of `pool`: a plan made without
    /// them could exceed the limit.
    #[must_use]
    pub fn is_limit_in_flight(&self, pool: &str) -> bool {
        let counts =
            |key: &Key| matches!(key, Key::CreateClaims(other) if self.snapshot.share_limit(pool, other));
        self.in_flight.any_in_flight(counts) || self.locked.iter().any(counts)
    }

    /// True if `member`, the name of a claim or the id of an instance, may be removed from `pool` on the evidence
    /// `cause`. Otherwise the breaker is open, and the pool gets an event and a condition.
    pub fn may_remove(&mut self, cause: Cause, pool: &str, member: &str) -> bool {
        let (snapshot, grace) = (self.snapshot, self.settings.orphan_grace);
        let breaker = self.breaker.get_or_insert_with(|| Breaker::new(snapshot, grace));
        if breaker.admit(cause, pool, member) {
            return true;
        }
        let stopped = breaker.stopped(pool).map(Stopped::statement).zip(snapshot.pools().get(pool));
        if let Some((statement, pool)) = stopped {
            self.event(object_reference(&**pool), true, statement.reason, statement.message);
        }
        false
    }

    /// Why the breaker kept nodes of `pool` in this pass, if it did.
    #[must_use]
    pub fn stopped(&self, pool: &str) -> Option<&Stopped> {
        self.breaker.as_ref()?.stopped(pool)
    }

    /// Asks for `action` and its events, unless one of its keys is locked, or the watch may not show yet that it is done: then a
    /// later pass decides again.
    pub fn request(&mut self, action: Action) {
        self.request_or_wait(action);
    }

    /// The same. Returns the keys of an action that can't start before they are free; one that is repeated waits for none.
    pub fn request_or_wait(&mut self, mut action: Action) -> Vec<Key> {
        if self.in_flight.is_repeated(&action, self.now.mono) {
            return Vec::new();
        }
        let keys = action.keys();
        if !keys.iter().all(|key| self.is_idle(key)) {
            return keys;
        }
        if let Action::Write { events, .. } = &mut action {
            self.actions.extend(std::mem::take(events).into_iter().map(Action::RecordEvent));
        }
        self.locked.extend(keys);
        self.actions.push(action);
        Vec::new()
    }

    /// Asks for a fresh list of instances, before its time.
    pub fn request_instance_list(&mut self) {
        self.list_instances = true;
    }

    /// True if a decider asked for a fresh list of instances in this pass.
    #[must_use]
    pub const fn wants_instance_list(&self) -> bool {
        self.list_instances
    }

    /// Asks for another pass `after` from now.
    pub fn requeue_after(&mut self, after: Duration) {
        self.requeue = earliest(self.requeue, Some(self.now.mono.saturating_add(after)));
    }

    /// Asks for another pass at a time on the monotonic clock.
    pub fn requeue_at(&mut self, at: Duration) {
        self.requeue = earliest(self.requeue, Some(at));
    }

    /// The result of `decide`, and the next pass that it asked for: until then, and while nothing changes, `decide`
    /// would give the same result.
    pub fn collect_requeue<T>(&mut self, decide: impl FnOnce(&mut Self) -> T) -> (T, Option<Duration>) {
        let before = self.requeue.take();
        let result = decide(self);
        let asked = self.requeue;
        self.requeue = earliest(before, asked);
        (result, asked)
    }

    /// True once `since` is `span` ago; otherwise asks for another pass then.
    pub fn has_lasted(&mut self, since: Duration, span: Duration) -> bool {
        let left = span.saturating_sub(self.now.mono.saturating_sub(since));
        if left.is_zero() {
            return true;
        }
        self.requeue_after(left);
        false
    }

    /// [`Self::has_lasted`] for a time on the wall clock.
    pub fn is_older(&mut self, since: jiff::Timestamp, span: Duration) -> bool {
        let left = span.saturating_sub(self.now.since(since));
        if left.is_zero() {
            return true;
        }
        self.requeue_after(left);
        false
    }

    /// True if a time on the wall clock has come; otherwise asks for another pass then.
    pub fn has_come(&mut self, at: jiff::Timestamp) -> bool {
        let left = Duration::try_from(at.duration_since(self.now.wall)).unwrap_or(Duration::ZERO);
        if left.is_zero() {
            return true;
        }
        self.requeue_after(left);
        false
    }

    /// Records an Event about an object.
    pub fn event(&mut self, regarding: ObjectReference, warning: bool, reason: &'static str, note: String) {
        self.actions.push(Action::RecordEvent(UserEvent { regarding, warning, reason: reason.into(), note }));
    }

    /// Records an Event with the reason and the message of a condition.
    pub fn event_from_condition(&mut self, regarding: ObjectReference, condition: &Condition) {
        self.actions.push(Action::RecordEvent(UserEvent::warning(
            regarding,
            condition.reason.clone(),
            condition.message.clone(),
        )));
    }

    /// The actions asked for, and when the next pass is due.
    #[must_use]
    pub fn finish(self) -> (Vec<Action>, Option<Duration>) {
        (self.actions, self.requeue)
    }
}

/// Names an object in an Event.
#[must_use]
pub fn object_reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}

/// A reference to a node, for an event about it.
#[must_use]
pub fn node_reference(name: &str, node: &NodeView) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(node.uid.to_string()),
        ..ObjectReference::default()
    }
}
