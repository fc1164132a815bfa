//! Events: deduplicated and rate-limited, so that they never delay other writes to the API server.

use std::{
    collections::{BTreeMap, VecDeque},
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
/// Queued events beyond this are dropped, the oldest first.
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
    queue: VecDeque<UserEvent>,
    /// Events that wait for their delay, in the order of its end.
    delayed: VecDeque<(Duration, UserEvent)>,
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
            self.delayed.push_back((mono.saturating_add(delay), event));
            if self.delayed.len() > MAX_QUEUED {
                self.delayed.pop_front();
            }
            return;
        }
        self.queue.push_back(event);
        if self.queue.len() > MAX_QUEUED {
            self.queue.pop_front();
        }
    }

    /// Events to write now, and when more are due. `is_over` tells which delayed events no longer hold.
    pub fn due(
        &mut self,
        mono: Duration,
        is_over: impl Fn(&UserEvent) -> bool,
    ) -> (Vec<UserEvent>, Option<Duration>) {
        self.delayed.retain(|(_, event)| !is_over(event));
        while let Some((_, event)) = self.delayed.pop_front_if(|(at, _)| *at <= mono) {
            self.queue.push_back(event);
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
            let Some(event) = self.queue.pop_front() else { break };
            self.tokens -= 1_000;
            due.push(event);
        }
        let paced =
            (!self.queue.is_empty()).then(|| mono + Duration::from_millis(1_000 / u64::from(PER_SECOND)));
        (due, earliest(paced, self.delayed.front().map(|(at, _)| *at)))
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
