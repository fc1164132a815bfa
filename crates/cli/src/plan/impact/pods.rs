//! Pods and DaemonSets: what admission would make of them now, and what of that is new.

use croft_api::{config::Misplaced, convert::policy as convert};
use croft_policy::{
    Tenants, audit::misplaced, definitions::MIRROR_ANNOTATION, lost_pins, plan_pod, plan_recreated,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{DaemonSetImpact, PodImpact};
use crate::{
    admission::{Gate, Outcome},
    input::{Input, Origin},
    simulate::is_created,
};

/// Controllers that surely make another pod when one of theirs is deleted before it has run.
const RECREATING: [&str; 3] = ["ReplicaSet", "StatefulSet", "ReplicationController"];

/// What admission says of a waiting pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// It is as it would be made now.
    Right,
    /// Made again, it would go to this pool, if to any.
    Outdated(Option<String>),
    /// It would be refused.
    Refused(String),
}

fn standing(tenants: &Tenants, namespace: &str, pod: &Pod) -> Standing {
    let view = convert::pod(pod);
    let planned = plan_pod(tenants, namespace, &view);
    if planned.allowed() && planned.patch.is_empty() {
        return Standing::Right;
    }
    let again = if planned.allowed() { planned } else { plan_recreated(tenants, namespace, &view) };
    match &again.denial {
        None => Standing::Outdated(again.pool.map(str::to_owned)),
        Some(denial) => Standing::Refused(denial.to_string()),
    }
}

fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.kind.as_str())
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty())
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some()
}

/// What becomes of the pods of `now`. In `after` those that leave their node, or whose node is gone, wait for a place, as
/// admission would make them again.
pub(super) fn displace(now: &Input, after: &mut Input, was: &Gate, is: &Gate) -> Vec<PodImpact> {
    let policy = after.configs.first().map_or(Misplaced::default(), |config| config.spec.misplaced);
    let mut impacts = Vec::new();
    let mut again: Vec<(Pod, Origin)> = Vec::new();
    let mut gone: Vec<(String, String)> = Vec::new();
    for pod in now.pods.iter().filter(|pod| is_created(&pod.object) && !is_over(&pod.object)) {
        if pod.annotations().contains_key(MIRROR_ANNOTATION) {
            continue;
        }
        let key = (pod.namespace().unwrap_or_default(), pod.name_any());
        let lost_node = node(&pod.object)
            .is_some_and(|node| now.nodes.get("", node).is_some() && after.nodes.get("", node).is_none());
        if owner(&pod.object) == Some("DaemonSet") {
            if lost_node {
                gone.push(key);
            }
            continue;
        }
        let impact = judge(&pod.object, &key, policy, was, is);
        let moves = impact.as_ref().is_some_and(|impact| impact.action != "reported");
        impacts.extend(impact);
        if moves || lost_node {
            again.push((made_again(&pod.object, &key.0, is), pod.origin.clone()));
        }
    }
    after.pods.retain(|pod| {
        let key = (pod.namespace().unwrap_or_default(), pod.name_any());
        !gone.contains(&key)
    });
    for (pod, origin) in again {
        after.pods.put(pod, origin);
    }
    impacts
}

fn judge(
    pod: &Pod,
    (namespace, name): &(String, String),
    policy: Misplaced,
    was: &Gate,
    is: &Gate,
) -> Option<PodImpact> {
    let impact = |action, why| Some(PodImpact { pod: format!("{namespace}/{name}"), action, why });
    let owner = owner(pod);
    if let Some(node) = node(pod) {
        let found = misplaced(is.tenants(), namespace, node);
        if found.is_ok() || !misplaced(was.tenants(), namespace, node).is_ok() {
            return None;
        }
        let why = match found.outside {
            Some(tenant) => {
                format!(
                    "runs on node {node}, outside the pools of tenant {} ({})",
                    tenant.name,
                    tenant.pool_names()
                )
            }
            None => format!("runs on node {node} of a pool that its namespace may not use"),
        };
        let evicts = policy == Misplaced::Recreate && owner.is_some();
        return impact(if evicts { "evicted" } else { "reported" }, why);
    }
    let gated = pod.spec.as_ref().is_some_and(|s| s.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty()));
    let stands = standing(is.tenants(), namespace, pod);
    if stands == Standing::Right || stands == standing(was.tenants(), namespace, pod) {
        return None;
    }
    match stands {
        Standing::Right => None,
        Standing::Refused(why) => impact("reported", format!("waits, and would be refused: {why}")),
        Standing::Outdated(pool) => {
            let why = pool.map_or_else(
                || "waits, and belongs to no tenant then".to_owned(),
                |pool| format!("waits, and belongs to pool {pool} then"),
            );
            let recreates = !gated && owner.is_some_and(|kind| RECREATING.contains(&kind));
            impact(if recreates { "recreated" } else { "reported" }, why)
        }
    }
}

/// The pod as its controller and admission would make it again.
fn made_again(pod: &Pod, namespace: &str, gate: &Gate) -> Pod {
    let mut pod = pod.clone();
    let lost = lost_pins(gate.tenants(), namespace, &convert::pod(&pod).spec);
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
        if let Some(selector) = &mut spec.node_selector {
            selector.retain(|key, _| !lost.contains(key));
        }
    }
    pod.status = None;
    match gate.pod(&pod).outcome {
        Outcome::Changed(planned) => *planned,
        Outcome::Unchanged | Outcome::Denied(_) => pod,
    }
}

/// DaemonSets whose template the edit changes.
pub(super) fn daemon_sets(now: &Input, was: &Gate, is: &Gate) -> Vec<DaemonSetImpact> {
    let mut impacts = Vec::new();
    for set in now.daemon_sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
        let (before, after) = (was.daemon_set(&set.object), is.daemon_set(&set.object));
        let impact = match (before.outcome, after.outcome) {
            (Outcome::Unchanged, Outcome::Changed(_)) => Some((
                "rewritten",
                match &after.pool {
                    Some(pool) => format!("its pods are planned for pool {pool}, and replaced node by node"),
                    None => "its pods are planned again, and replaced node by node".to_owned(),
                },
            )),
            (Outcome::Unchanged | Outcome::Changed(_), Outcome::Denied(why)) => Some(("refused", why)),
            _ => None,
        };
        let name = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
        impacts.extend(impact.map(|(action, why)| DaemonSetImpact { daemon_set: name, action, why }));
    }
    impacts
}
