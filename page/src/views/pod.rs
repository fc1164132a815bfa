//! One pod: why it is where it is, or why it is pending and what would help.

use croft_inspect::Outlook;
use croft_record::entry::{Entry, EntryKind};
use jiff::Timestamp;
use serde::Serialize;

use super::{entries, pool::NodeView};
use crate::{
    access::Scope,
    cluster::log::Log,
    model::facts::{Model, PodFacts},
};

/// A pod with everything about it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodDetail {
    /// The version of the model.
    pub version: u64,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pod as it is now; none if it is gone.
    pub pod: Option<PodFacts>,
    /// Its node.
    pub node: Option<NodeView>,
    /// Why it is on this node, in a sentence.
    pub here: Option<String>,
    /// Of a pending pod, its place in a plan that is made now, or the reasons for none; none while too much else is computed.
    pub outlook: Option<Outlook>,
    /// Its life in the log, in order.
    pub timeline: Vec<Entry>,
}

/// A pod, also one that is gone and that the log still knows; none if there is none that `scope` sees.
#[must_use]
pub fn view(model: &Model, log: &Log, scope: &Scope, namespace: &str, name: &str) -> Option<PodDetail> {
    if !scope.sees_namespace(namespace) {
        return None;
    }
    let pod = model.pods.get(&format!("{namespace}/{name}"));
    let timeline = entries::of_pod(log, model, scope, (namespace, name), model.at);
    if pod.is_none() && timeline.is_empty() {
        return None;
    }
    let node = pod.and_then(|pod| model.nodes.get(pod.node.as_ref()?));
    let node = node.filter(|node| scope.sees_nodes_of(model, node.info.pool.as_deref()));
    let its_node = node.map(|node| (node.info.claim.as_deref().unwrap_or_default(), node.since));
    let here = pod.zip(its_node).map(|(pod, node)| why_here(pod, node, &timeline));
    Some(PodDetail {
        version: model.version,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        pod: pod.cloned(),
        node: node.map(|node| NodeView::new(model, scope, node)),
        here,
        outlook: None,
        timeline,
    })
}

/// Why a pod is on its node, which is given by its NodeClaim and since when it is there. `timeline` has the entries about the pod.
fn why_here(pod: &PodFacts, (claim, node_since): (&str, Option<i64>), timeline: &[Entry]) -> String {
    if pod.workload.starts_with("DaemonSet/") {
        return "It is here since its DaemonSet runs a pod on each node that it selects.".to_owned();
    }
    // A pod of a StatefulSet has the name of the one before it.
    let of_it = timeline.iter().filter(|entry| pod.since.is_none_or(|since| entry.at >= since));
    let created = of_it.clone().rfind(|entry| entry.kind == EntryKind::Create);
    let bound = of_it.clone().rfind(|entry| entry.kind == EntryKind::Bound);
    let Some(created) = created else {
        let at = pod.started.map(|at| format!(" at {}", moment(at))).unwrap_or_default();
        let was_there = node_since.zip(pod.since).is_some_and(|(node, pod)| node <= pod);
        let node_since = node_since.filter(|_| was_there).map(moment);
        return match node_since {
            Some(since) => {
                format!("kube-scheduler placed it{at} on this node, which was there since {since}.")
            }
            None => format!("kube-scheduler placed it{at} on this node; the log names no launch for it."),
        };
    };
    let of_claim = format!("NodeClaim {} was requested for it", created.claim_name());
    let at = moment(created.at);
    if created.claim_name() != claim {
        return format!("{of_claim} at {at}, but this node had room for it first.");
    }
    let others = match created.pods.len().saturating_sub(1) {
        0 => String::new(),
        1 => " and another pod".to_owned(),
        others => format!(" and {others} other pods"),
    };
    let bound = bound.map(|bound| format!(", and it was bound here {}", bound.message)).unwrap_or_default();
    format!("This node was launched for it: {of_claim}{others} at {at}{bound}.")
}

/// A time in a sentence, as the browser's part writes it.
fn moment(millis: i64) -> String {
    Timestamp::from_millisecond(millis).unwrap_or_default().strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use croft_record::entry::ObjectRef;

    use super::*;

    fn entry(at: i64, kind: EntryKind, claim: &str, pods: &[&str]) -> Entry {
        Entry {
            object: ObjectRef::cluster("NodeClaim", claim),
            pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
            ..Entry::new(at, kind)
        }
    }

    #[test]
    fn a_pod_is_here_since_its_node_was_launched_for_it_had_room_or_is_selected() {
        let pod = PodFacts { since: Some(5_000), started: Some(9_000), ..PodFacts::default() };
        let node = ("claim-1", Some(1_000));
        let there = "kube-scheduler placed it at 1970-01-01 00:00:09Z on this node, which was there since 1970-01-01 00:00:01Z.";
        assert_eq!(why_here(&pod, node, &[]), there);
        let of_the_last_one = entry(4_000, EntryKind::Create, "claim-1", &["n/p"]);
        assert_eq!(why_here(&pod, node, &[of_the_last_one]), there);
        let created = entry(6_000, EntryKind::Create, "claim-1", &["n/p", "n/q", "n/r"]);
        let bound = Entry { message: "after 4 s".to_owned(), ..entry(9_000, EntryKind::Bound, "", &[]) };
        assert_eq!(
            why_here(&pod, node, &[created.clone(), bound]),
            "This node was launched for it: NodeClaim claim-1 was requested for it and 2 other pods at 1970-01-01 00:00:06Z, and it was bound here after 4 s."
        );
        assert_eq!(
            why_here(&pod, ("claim-2", Some(1_000)), &[created]),
            "NodeClaim claim-1 was requested for it at 1970-01-01 00:00:06Z, but this node had room for it first."
        );
        let daemon = PodFacts { workload: "DaemonSet/agent".to_owned(), ..pod };
        assert!(why_here(&daemon, node, &[]).contains("its DaemonSet"));
    }
}
