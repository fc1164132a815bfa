//! Events: what users are told, each thing once, and never faster than the API server should have to take.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

use crate::{
    action::Notice,
    names,
    seam::{Call, Target, Verb},
    time::earliest,
};

/// The same sentence about the same object isn't repeated for this long.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// Events that may be written at once, and how many more become due in a second.
const BURST: u32 = 20;
const PER_SECOND: u32 = 10;
/// Waiting events beyond this are dropped, the oldest first: what was true long ago helps nobody.
const WAITING: usize = 2_000;
/// What is usually over soon is told only if it isn't over by then: a pod that is bound needs no word about what it
/// waited for, and the API server is busiest when many are bound.
const SOON_OVER: (&str, Duration) = (NOMINATED, Duration::from_secs(1));
/// Reason of the event that says which claim a pod waits for.
pub const NOMINATED: &str = "Nominated";
/// Where events about cluster-scoped objects go.
const DEFAULT_NAMESPACE: &str = "default";
const CONTROLLER: &str = "croft.dev/controller";

/// Decides which notices become events, and when.
#[derive(Debug, Default)]
pub struct Recorder {
    said: BTreeMap<String, Duration>,
    waiting: VecDeque<Notice>,
    /// Told once they are due, in the order of that.
    patient: VecDeque<(Duration, Notice)>,
    /// Thousandths of an event.
    tokens: u32,
    refilled: Option<Duration>,
    pruned: Duration,
}

impl Recorder {
    /// Takes a notice, unless the same was taken lately.
    pub fn tell(&mut self, notice: Notice, mono: Duration) {
        let about = &notice.about;
        let key = names::hash(
            &[
                about.uid.as_deref().unwrap_or_default(),
                about.kind.as_deref().unwrap_or_default(),
                about.name.as_deref().unwrap_or_default(),
                &notice.reason,
                &notice.note,
            ],
            24,
        );
        if self.said.get(&key).is_some_and(|at| mono.saturating_sub(*at) < REPEAT_AFTER) {
            return;
        }
        if mono.saturating_sub(self.pruned) > REPEAT_AFTER {
            self.said.retain(|_, at| mono.saturating_sub(*at) < REPEAT_AFTER);
            self.pruned = mono;
        }
        self.said.insert(key, mono);
        let (soon_over, patience) = SOON_OVER;
        if notice.reason == soon_over {
            self.patient.push_back((mono.saturating_add(patience), notice));
            if self.patient.len() > WAITING {
                self.patient.pop_front();
            }
            return;
        }
        self.waiting.push_back(notice);
        if self.waiting.len() > WAITING {
            self.waiting.pop_front();
        }
    }

    /// Notices that may be written now, and when there will be more. `is_over` says which aren't true any more of those
    /// that are soon over.
    pub fn due(
        &mut self,
        mono: Duration,
        is_over: impl Fn(&Notice) -> bool,
    ) -> (Vec<Notice>, Option<Duration>) {
        self.patient.retain(|(_, notice)| !is_over(notice));
        while let Some((_, notice)) = self.patient.pop_front_if(|(at, _)| *at <= mono) {
            self.waiting.push_back(notice);
        }
        self.waiting.retain(|notice| notice.reason != SOON_OVER.0 || !is_over(notice));
        let full = BURST * 1_000;
        let passed = self.refilled.map_or(u128::from(full), |at| mono.saturating_sub(at).as_millis());
        let fresh = u32::try_from(passed).unwrap_or(u32::MAX).saturating_mul(PER_SECOND);
        self.tokens =
            if self.refilled.is_none() { full } else { self.tokens.saturating_add(fresh).min(full) };
        self.refilled = Some(mono);
        let mut due = Vec::new();
        while self.tokens >= 1_000 {
            let Some(notice) = self.waiting.pop_front() else { break };
            self.tokens -= 1_000;
            due.push(notice);
        }
        let paced =
            (!self.waiting.is_empty()).then(|| mono + Duration::from_millis(1_000 / u64::from(PER_SECOND)));
        (due, earliest(paced, self.patient.front().map(|(at, _)| *at)))
    }
}

/// The call that writes `notice`.
#[must_use]
pub fn write(notice: &Notice, now: Timestamp, identity: &str) -> Call {
    let about: &ObjectReference = &notice.about;
    let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let name = about.name.as_deref().unwrap_or_default();
    let uid = about.uid.as_deref().unwrap_or_default();
    let suffix = names::hash(&[uid, &notice.reason, &notice.note, &now.to_string()], 16);
    // The name's own limit is 253: a pod's may use all of it.
    let stem: String = name.chars().take(230).collect();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{suffix}")),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(notice.reason.to_string()),
        event_time: Some(MicroTime(now)),
        note: Some(notice.note.clone()),
        reason: Some(notice.reason.to_string()),
        regarding: Some(about.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(identity.to_owned()),
        type_: Some(if notice.warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    };
    let object = serde_json::to_value(&event).unwrap_or_default();
    Call { target: Target::Event(namespace.to_owned()), verb: Verb::Create(object) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(name: &str, note: &str) -> Notice {
        Notice {
            about: ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() },
            warning: true,
            reason: "Reason".into(),
            note: note.to_owned(),
        }
    }

    #[test]
    fn a_thing_is_said_once_until_it_is_old() {
        let mut recorder = Recorder::default();
        for second in 0..5 {
            recorder.tell(notice("a", "x"), Duration::from_secs(second));
        }
        recorder.tell(notice("a", "y"), Duration::from_secs(5));
        assert_eq!(recorder.due(Duration::from_secs(5), |_| false).0.len(), 2);
        recorder.tell(notice("a", "x"), Duration::from_secs(601));
        assert_eq!(recorder.due(Duration::from_secs(601), |_| false).0.len(), 1);
    }

    #[test]
    fn many_are_paced() {
        let mut recorder = Recorder::default();
        for n in 0..100 {
            recorder.tell(notice("a", &n.to_string()), Duration::ZERO);
        }
        let (first, wake) = recorder.due(Duration::ZERO, |_| false);
        assert_eq!(first.len(), 20);
        assert_eq!(wake, Some(Duration::from_millis(100)));
        assert_eq!(recorder.due(Duration::from_millis(100), |_| false).0.len(), 1);
        assert_eq!(recorder.due(Duration::from_millis(1_100), |_| false).0.len(), 10);
    }

    #[test]
    fn what_is_over_by_then_is_never_told() {
        let mut recorder = Recorder::default();
        for name in ["bound", "waits"] {
            recorder.tell(Notice { reason: NOMINATED.into(), ..notice(name, "x") }, Duration::ZERO);
        }
        recorder.tell(notice("bound", "something else"), Duration::ZERO);
        let is_over = |notice: &Notice| notice.about.name.as_deref() == Some("bound");
        let (told, wake) = recorder.due(Duration::ZERO, is_over);
        assert_eq!((told.len(), told[0].reason.as_ref()), (1, "Reason"));
        assert_eq!(wake, Some(SOON_OVER.1));
        let (told, wake) = recorder.due(SOON_OVER.1, is_over);
        assert_eq!(told.iter().map(|n| n.about.name.as_deref()).collect::<Vec<_>>(), [Some("waits")]);
        assert_eq!(wake, None);
    }
}
