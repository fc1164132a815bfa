//! Pods and DaemonSets whose admission the edit changes.

use std::collections::BTreeSet;

use croft_api::{config::Misplaced, convert::policy as convert};
use croft_inspect::{
    admission::{Admission, Outcome},
    simulation::is_created,
};
use croft_manifest::{Input, Origin};
use croft_policy::{Tenants, audit::misplaced, definitions::MIRROR_ANNOTATION, plan_pod, plan_recreated};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt as _;

use super::model::{DaemonSetImpact, PodImpact};

/// Controllers that always replace a pod that is deleted before it has run.
const RECREATING: [&str; 3] = ["ReplicaSet", "StatefulSet", "ReplicationController"];

/// A pending pod compared with its recreation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AdmissionStatus {
    /// Admission would not change it.
    Current,
    /// Recreated, it would be placed in this pool, if in any.
    Outdated(Option<String>),
    /// Admission would deny it.
    Refused(String),
}

fn admission_status(tenants: &Tenants, namespace: &str, pod: &Pod) -> AdmissionStatus {
    let view = convert::pod(pod);
    let planned = plan_pod(tenants, namespace, &view);
    if planned.allowed() && planned.patch.is_empty() {
        return AdmissionStatus::Current;
    }
    let again = if planned.allowed() { planned } else { plan_recreated(tenants, namespace, &view) };
    match &again.denial {
        None => AdmissionStatus::Outdated(again.pool.map(str::to_owned)),
        Some(denial) => AdmissionStatus::Refused(denial.to_string()),
    }
}

fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.kind.as_str())
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty())
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some()
}

/// The effects on the pods of `now`. In `after`, pods that leave their node or lose it are replaced by pending ones, as
/// their controller and admission would recreate them.
pub(super) fn displace(
    now: &Input,
    after: &mut Input,
    admission_before: &Admission,
    admission_after: &Admission,
) -> Vec<PodImpact> {
    let policy = after.configs.first().map_or(Misplaced::default(), |config| config.spec.misplaced);
    let mut impacts = Vec::new();
    let mut again: Vec<(Pod, Origin)> = Vec::new();
    let mut gone: BTreeSet<(String, String)> = BTreeSet::new();
    for pod in now.pods.iter().filter(|pod| is_created(&pod.object) && !is_finished(&pod.object)) {
        if pod.annotations().contains_key(MIRROR_ANNOTATION) {
            continue;
        }
        let key = (pod.namespace().unwrap_or_default(), pod.name_any());
        let lost_node = node(&pod.object)
            .is_some_and(|node| now.nodes.get("", node).is_some() && after.nodes.get("", node).is_none());
        if owner(&pod.object) == Some("DaemonSet") {
            if lost_node {
                gone.insert(key);
            }
            continue;
        }
        let impact = pod_impact(&pod.object, policy, admission_before, admission_after);
        let moves = impact.as_ref().is_some_and(|impact| impact.action != "reported");
        impacts.extend(impact);
        if moves || lost_node {
            again.push((recreated(&pod.object, admission_after), pod.origin.clone()));
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

fn pod_impact(
    pod: &Pod,
    policy: Misplaced,
    admission_before: &Admission,
    admission_after: &Admission,
) -> Option<PodImpact> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.name_any();
    let impact = |action, why| Some(PodImpact { pod: format!("{namespace}/{name}"), action, why });
    let owner = owner(pod);
    if let Some(node) = node(pod) {
        let found = misplaced(admission_after.tenants(), namespace, node);
        if found.is_ok() || !misplaced(admission_before.tenants(), namespace, node).is_ok() {
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
    let status = admission_status(admission_after.tenants(), namespace, pod);
    if status == AdmissionStatus::Current
        || status == admission_status(admission_before.tenants(), namespace, pod)
    {
        return None;
    }
    match status {
        AdmissionStatus::Current => None,
        AdmissionStatus::Refused(why) => {
            impact("reported", format!("is pending, and would be denied: {why}"))
        }
        AdmissionStatus::Outdated(pool) => {
            let why = pool.map_or_else(
                || "is pending, and belongs to no tenant then".to_owned(),
                |pool| format!("is pending, and belongs to pool {pool} then"),
            );
            let recreates = !gated && owner.is_some_and(|kind| RECREATING.contains(&kind));
            impact(if recreates { "recreated" } else { "reported" }, why)
        }
    }
}

/// The pod as its controller and admission would recreate it.
fn recreated(pod: &Pod, admission: &Admission) -> Pod {
    let pod = admission.recreated(pod);
    let admitted = match admission.pod(&pod).outcome {
        Outcome::Changed(planned) => *planned,
        Outcome::Unchanged => pod,
        // Without a phase it counts as one to be created, so that the plan names the refusal.
        Outcome::Denied(_) => return pod,
    };
    // The other admission plugins have changed it before; a snapshot lacks their objects, such as its PriorityClass.
    let status = PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() };
    Pod { status: Some(status), ..admitted }
}

/// The pod as it would be created under `admission`; none if that refuses it.
pub(in crate::commands) fn created_under(pod: Pod, admission: &Admission) -> Option<Pod> {
    let namespace = pod.namespace().unwrap_or_default();
    match admission_status(admission.tenants(), &namespace, &pod) {
        AdmissionStatus::Current => Some(pod),
        AdmissionStatus::Outdated(_) => Some(recreated(&pod, admission)),
        AdmissionStatus::Refused(_) => None,
    }
}

/// DaemonSets whose template changes by the edit.
pub(super) fn daemon_sets(
    now: &Input,
    admission_before: &Admission,
    admission_after: &Admission,
) -> Vec<DaemonSetImpact> {
    let mut impacts = Vec::new();
    for set in now.daemon_sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
        let (before, after) =
            (admission_before.daemon_set(&set.object), admission_after.daemon_set(&set.object));
        let impact = match (before.outcome, after.outcome) {
            (Outcome::Unchanged, Outcome::Changed(_)) => Some((
                "rewritten",
                match &after.pool {
                    Some(pool) => format!("its pods move to pool {pool}, node by node"),
                    None => "its pods are replaced node by node".to_owned(),
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
