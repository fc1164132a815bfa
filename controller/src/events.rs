//! Events: deduplicated and rate-limited, so that they never delay other writes to the API server. Namespaces take turns, so that
//! one with many events neither delays nor drops another's.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    time::Duration,
};

use croft_api::hash::hash;
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

use crate::{
    action::UserEvent,
    definitions::events::NOMINATED,
    kube_api::{Call, Target, Verb},
    time::earliest,
};

/// The same note about the same object isn't repeated for this long.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// Events that may be written at once, and the rate per second.
const BURST: u32 = 20;
const PER_SECOND: u32 = 10;
/// Queued events beyond this are dropped, the oldest of the namespace with the most.
const MAX_QUEUED: usize = 2_000;
/// Events of this reason are written only if they still hold after this time: a bound pod needs no event about the
/// claim that it waited for, and the API server is busiest when many pods are bound.
const DELAYED: (&str, Duration) = (NOMINATED, Duration::from_secs(1));
/// Namespace of events about cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";
const CONTROLLER: &str = "croft.dev/controller";

/// Decides which events are written, and when.
#[derive(Debug, Default)]
pub struct EventRecorder {
    recorded: BTreeMap<String, Duration>,
    queue: Turns,
    /// Events that wait for their delay, of each namespace in the order of its end.
    delayed: Turns,
    /// In thousandths of an event.
    tokens: u32,
    refilled: Option<Duration>,
    pruned: Duration,
}

impl EventRecorder {
    /// Takes in an event, unless the same one was taken in lately.
    pub fn record(&mut self, event: UserEvent, mono: Duration) {
        let regarding = &event.regarding;
        let key = hash(
            &[
                regarding.uid.as_deref().unwrap_or_default(),
                regarding.kind.as_deref().unwrap_or_default(),
                regarding.name.as_deref().unwrap_or_default(),
                &event.reason,
                &event.note,
            ],
            24,
        );
        if self.recorded.get(&key).is_some_and(|at| mono.saturating_sub(*at) < REPEAT_AFTER) {
            return;
        }
        if mono.saturating_sub(self.pruned) > REPEAT_AFTER {
            self.recorded.retain(|_, at| mono.saturating_sub(*at) < REPEAT_AFTER);
            self.pruned = mono;
        }
        self.recorded.insert(key, mono);
        let (reason, delay) = DELAYED;
        if event.reason == reason {
            self.delayed.push(mono.saturating_add(delay), event);
        } else {
            self.queue.push(mono, event);
        }
    }

    /// Events to write now, and when more are due. `is_over` tells which delayed events no longer hold.
    pub fn due(
        &mut self,
        mono: Duration,
        is_over: impl Fn(&UserEvent) -> bool,
    ) -> (Vec<UserEvent>, Option<Duration>) {
        self.delayed.retain(|event| !is_over(event));
        for event in self.delayed.take_due(mono) {
            self.queue.push(mono, event);
        }
        self.queue.retain(|event| event.reason != DELAYED.0 || !is_over(event));
        let full = BURST * 1_000;
        let passed = self.refilled.map_or(u128::from(full), |at| mono.saturating_sub(at).as_millis());
        let fresh = u32::try_from(passed).unwrap_or(u32::MAX).saturating_mul(PER_SECOND);
        self.tokens =
            if self.refilled.is_none() { full } else { self.tokens.saturating_add(fresh).min(full) };
        self.refilled = Some(mono);
        let mut due = Vec::new();
        while self.tokens >= 1_000 {
            let Some(event) = self.queue.pop() else { break };
            self.tokens -= 1_000;
            due.push(event);
        }
        let paced =
            (!self.queue.is_empty()).then(|| mono + Duration::from_millis(1_000 / u64::from(PER_SECOND)));
        (due, earliest(paced, self.delayed.next()))
    }
}

/// Events with a time, by the namespace of the object that they are about; that of cluster-scoped objects is empty.
#[derive(Debug, Default)]
struct Turns {
    /// No queue is empty.
    by_namespace: BTreeMap<String, VecDeque<(Duration, UserEvent)>>,
    /// The namespace whose turn it was.
    last: String,
    len: usize,
}

impl Turns {
    fn push(&mut self, at: Duration, event: UserEvent) {
        let namespace = event.regarding.namespace.clone().unwrap_or_default();
        self.by_namespace.entry(namespace).or_default().push_back((at, event));
        self.len += 1;
        if self.len > MAX_QUEUED {
            let longest = self.by_namespace.iter().max_by_key(|(_, queue)| queue.len());
            if let Some(longest) = longest.map(|(namespace, _)| namespace.clone()) {
                self.pop_of(&longest);
            }
        }
    }

    /// The oldest event of the namespace whose turn it is.
    fn pop(&mut self) -> Option<UserEvent> {
        let after = (Bound::Excluded(self.last.as_str()), Bound::Unbounded);
        let next =
            self.by_namespace.range::<str, _>(after).next().or_else(|| self.by_namespace.iter().next());
        self.last = next?.0.clone();
        self.pop_of(&self.last.clone())
    }

    fn pop_of(&mut self, namespace: &str) -> Option<UserEvent> {
        let queue = self.by_namespace.get_mut(namespace)?;
        let (_, event) = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.by_namespace.remove(namespace);
        }
        Some(event)
    }

    /// Takes the events whose time has come.
    fn take_due(&mut self, mono: Duration) -> Vec<UserEvent> {
        let mut due = Vec::new();
        for queue in self.by_namespace.values_mut() {
            while let Some((_, event)) = queue.pop_front_if(|(at, _)| *at <= mono) {
                due.push(event);
            }
        }
        self.settle();
        due
    }

    fn retain(&mut self, keep: impl Fn(&UserEvent) -> bool) {
        for queue in self.by_namespace.values_mut() {
            queue.retain(|(_, event)| keep(event));
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.by_namespace.retain(|_, queue| !queue.is_empty());
        self.len = self.by_namespace.values().map(VecDeque::len).sum();
    }

    /// The earliest time of an event.
    fn next(&self) -> Option<Duration> {
        self.by_namespace.values().filter_map(|queue| queue.front()).map(|(at, _)| *at).min()
    }

    fn is_empty(&self) -> bool {
        self.by_namespace.is_empty()
    }
}

/// The call that writes an event.
#[must_use]
pub fn event_call(event: &UserEvent, now: Timestamp, identity: &str) -> Call {
    let regarding: &ObjectReference = &event.regarding;
    let namespace = regarding.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let name = regarding.name.as_deref().unwrap_or_default();
    let uid = regarding.uid.as_deref().unwrap_or_default();
    let suffix = hash(&[uid, &event.reason, &event.note, &now.to_string()], 16);
    // A name has at most 253 characters, and a pod's name may use all of them.
    let stem: String = name.chars().take(230).collect();
    let object = Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{suffix}")),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(event.reason.to_string()),
        event_time: Some(MicroTime(now)),
        // The API server accepts 1 kB.
        note: Some(event.note.chars().take(1_000).collect()),
        reason: Some(event.reason.to_string()),
        regarding: Some(regarding.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(identity.to_owned()),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    };
    let object = serde_json::to_value(&object).unwrap_or_default();
    Call { target: Target::Event(namespace.to_owned()), verb: Verb::Create(object) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, note: &str) -> UserEvent {
        UserEvent {
            regarding: ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() },
            warning: true,
            reason: "Reason".into(),
            note: note.to_owned(),
        }
    }

    #[test]
    fn an_event_is_recorded_once_until_it_is_old() {
        let mut recorder = EventRecorder::default();
        for second in 0..5 {
            recorder.record(event("a", "x"), Duration::from_secs(second));
        }
        recorder.record(event("a", "y"), Duration::from_secs(5));
        assert_eq!(recorder.due(Duration::from_secs(5), |_| false).0.len(), 2);
        recorder.record(event("a", "x"), Duration::from_secs(601));
        assert_eq!(recorder.due(Duration::from_secs(601), |_| false).0.len(), 1);
    }

    #[test]
    fn many_events_are_rate_limited() {
        let mut recorder = EventRecorder::default();
        for n in 0..100 {
            recorder.record(event("a", &n.to_string()), Duration::ZERO);
        }
        let (first, wake) = recorder.due(Duration::ZERO, |_| false);
        assert_eq!(first.len(), 20);
        assert_eq!(wake, Some(Duration::from_millis(100)));
        assert_eq!(recorder.due(Duration::from_millis(100), |_| false).0.len(), 1);
        assert_eq!(recorder.due(Duration::from_millis(1_100), |_| false).0.len(), 10);
    }

    fn within(namespace: &str, note: usize) -> UserEvent {
        let mut event = event("a", &note.to_string());
        event.regarding.namespace = Some(namespace.to_owned());
        event
    }

    #[test]
    fn namespaces_take_turns_and_the_one_with_the_most_loses_what_is_too_much() {
        let mut recorder = EventRecorder::default();
        for note in 0..15 {
            recorder.record(within("quiet", note), Duration::ZERO);
        }
        for note in 0..3_000 {
            recorder.record(within("loud", note), Duration::ZERO);
        }
        recorder.record(event("node", "x"), Duration::ZERO);
        let count = |due: &[UserEvent], of: Option<&str>| {
            due.iter().filter(|event| event.regarding.namespace.as_deref() == of).count()
        };
        let (first, _) = recorder.due(Duration::ZERO, |_| false);
        assert_eq!([Some("loud"), Some("quiet"), None].map(|of| count(&first, of)), [10, 9, 1]);
        let (second, _) = recorder.due(Duration::from_secs(2), |_| false);
        assert_eq!(count(&second, Some("quiet")), 6, "none of its events is dropped");
        assert_eq!(recorder.queue.len, MAX_QUEUED - 40);
    }

    #[test]
    fn a_delayed_event_that_no_longer_holds_is_dropped() {
        let mut recorder = EventRecorder::default();
        for name in ["bound", "waits"] {
            recorder.record(UserEvent { reason: NOMINATED.into(), ..event(name, "x") }, Duration::ZERO);
        }
        recorder.record(event("bound", "something else"), Duration::ZERO);
        let is_over = |event: &UserEvent| event.regarding.name.as_deref() == Some("bound");
        let (written, wake) = recorder.due(Duration::ZERO, is_over);
        assert_eq!((written.len(), written[0].reason.as_ref()), (1, "Reason"));
        assert_eq!(wake, Some(DELAYED.1));
        let (written, wake) = recorder.due(DELAYED.1, is_over);
        assert_eq!(written.iter().map(|n| n.regarding.name.as_deref()).collect::<Vec<_>>(), [Some("waits")]);
        assert_eq!(wake, None);
    }
}
