//! Events about pods that were there before their Tenant or its pools, and that Croft leaves where they are.

use std::{collections::BTreeSet, time::Duration};

use croft_api::{config::Misplaced, convert::policy as convert};
use croft_policy::{
    Tenants,
    audit::{self, Recreation},
};
use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    action::{Action, UserEvent},
    definitions::events::MISPLACED,
    tenant::{
        placement::Placement,
        state::{ObjectName, Owner, PodFacts, State},
    },
};

/// The events that are due: about pods that are misplaced, and that Croft doesn't move by itself.
pub(super) fn events(
    state: &mut State,
    view: &Tenants,
    placement: &Placement,
    mono: Duration,
) -> Vec<Action> {
    let mut notices = std::mem::take(&mut state.notices);
    let is_evicted = |pod: &PodFacts| {
        state.config.misplaced == Misplaced::Recreate
            && pod.owner.as_deref().is_some_and(Owner::recreates_pods)
    };
    let bound = placement.misplaced.iter().filter_map(|key| Some((key, state.pods.get(key)?)));
    let waiting = placement.waiting.iter().filter_map(|key| Some((key, state.pods.get(key)?)));
    let stay: Vec<(&ObjectName, &PodFacts)> =
        bound.filter(|(_, pod)| !is_evicted(pod)).chain(waiting).collect();
    let present: BTreeSet<&str> = stay.iter().map(|(_, pod)| pod.uid.as_str()).collect();
    notices.retain(&present);
    let mut actions = Vec::new();
    for (key, pod) in stay {
        // A Tenant that is being replaced is absent for a moment.
        if notices.may_tell(&pod.uid)
            && !state.absences.may_affect(view, &key.0, mono)
            && let Some(note) = note(view, key, pod)
        {
            notices.tell(&pod.uid);
            let regarding = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(key.0.clone()),
                name: Some(key.1.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectReference::default()
            };
            actions.push(Action::RecordEvent(UserEvent::warning(regarding, MISPLACED, note)));
        }
    }
    state.notices = notices;
    actions
}

/// What `croft audit` says of the pod, but for the pools of others: the reader may be a person of one tenant.
fn note(view: &Tenants, (namespace, name): &ObjectName, facts: &PodFacts) -> Option<String> {
    let recreation = if facts.owner.is_some() { Recreation::Controller } else { Recreation::None };
    let bound;
    let pod = match &facts.waiting {
        Some(waiting) => &**waiting,
        None => {
            bound = Pod {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                spec: Some(PodSpec { node_name: facts.node.clone(), ..PodSpec::default() }),
                status: None,
            };
            &bound
        }
    };
    let found = audit::pod_in_own_words(view, namespace, &convert::pod(pod), recreation);
    found.first().map(|what| format!("it {what}"))
}
