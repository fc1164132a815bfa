//! Pods that are where they mustn't be, or would be.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::convert::policy as convert;
use croft_policy::{NamespaceTenancy, Tenants, Violation, audit::misplaced, plan_pod, plan_recreated};

use super::{
    decide::Action,
    evictions,
    state::{Key, PodFacts, State},
};

/// What is known of the pods of one tenant, or of nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Pods that aren't finished.
    pub(super) pods: i64,
    /// Running outside the tenant's pools.
    pub(super) outside: Vec<String>,
    /// Waiting, and not pinned.
    pub(super) unpinned: Vec<String>,
    /// Pods of others on the nodes of the tenant's pools.
    pub(super) strangers: Vec<String>,
    /// Nodes of the tenant's pools that let others in.
    pub(super) open: Vec<String>,
    /// Those of the pods above that Croft leaves to the user, with their owners.
    pub(super) left: Vec<String>,
    /// The namespaces of the pods above that are bound.
    pub(super) namespaces: BTreeSet<String>,
}

/// Where pods are.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// By tenant.
    pub(super) tenants: BTreeMap<String, Counted>,
    /// How often each rule is broken.
    pub(super) violations: BTreeMap<Violation, i64>,
    /// Running where they mustn't.
    pub(super) misplaced: Vec<Key>,
    /// Why no more of them are evicted, by namespace.
    pub(super) paced: BTreeMap<String, String>,
    /// Waiting, and to be made anew.
    unplaced: Vec<Key>,
}

pub(super) fn look(state: &State, view: &Tenants) -> Placement {
    let mut placement = Placement::default();
    for (key, pod) in &state.pods {
        let ground = view.tenancy(&key.0);
        if let NamespaceTenancy::Tenant { tenant, .. } = ground {
            placement.tenants.entry(tenant.name.to_string()).or_default().pods += 1;
        }
        // Whose a pod is in a namespace that can't be told is no violation, and nothing is done about it.
        if pod.deleting || matches!(ground, NamespaceTenancy::TenantUnreadable) {
            continue;
        }
        if pod.mirror {
            // Its static pod runs wherever the kubelet is told to, and evicting the mirror changes nothing.
            let mirrored = pod.node.as_deref().and_then(|node| misplaced(view, &key.0, node).outside);
            if let Some(tenant) = mirrored {
                let name = format!("{}/{} (a mirror pod)", key.0, key.1);
                *placement.violations.entry(Violation::PodOutside).or_default() += 1;
                placement.tenants.entry(tenant.name.to_string()).or_default().outside.push(name);
            }
            continue;
        }
        match (&pod.node, &pod.waiting) {
            (Some(node), _) => bound(&mut placement, view, key, pod, node),
            (None, Some(waiting)) => {
                let planned = plan_pod(view, &key.0, &convert::pod(waiting));
                let gated = waiting
                    .spec
                    .as_ref()
                    .is_some_and(|s| s.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty()));
                if planned.patch.is_empty() && planned.allowed() {
                    continue;
                }
                let rule =
                    if planned.tenant.is_some() { Violation::PodUnpinned } else { Violation::PodNotKeptOut };
                *placement.violations.entry(rule).or_default() += 1;
                if let Some(tenant) = planned.tenant {
                    let counted = placement.tenants.entry(tenant.to_owned()).or_default();
                    counted.unpinned.push(format!("{}/{}", key.0, key.1));
                    counted.left.extend(left(key, pod));
                }
                // One that is pinned to a pool which its tenant has lost would be refused as it is, and could be bound to
                // the nodes of the tenant that has the pool now; its controller's next one is planned for today's pools.
                let again =
                    || planned.allowed() || plan_recreated(view, &key.0, &convert::pod(waiting)).allowed();
                if !gated && remade(pod) && again() {
                    placement.unplaced.push(key.clone());
                }
            }
            (None, None) => {}
        }
    }
    placement
}

/// True if another pod is certainly made in place of this one. A DaemonSet's pods follow its template, which is planned anew.
fn remade(pod: &PodFacts) -> bool {
    pod.owner.as_ref().is_some_and(evictions::recreates)
}

/// Names a pod that is left to the user, and its owner.
fn left(key: &Key, pod: &PodFacts) -> Option<String> {
    match &pod.owner {
        None => Some(format!("{}/{} without a controller", key.0, key.1)),
        Some(owner) if owner.kind == "DaemonSet" || evictions::recreates(owner) => None,
        Some(owner) => Some(format!("{}/{} of {} {}", key.0, key.1, owner.kind, owner.name)),
    }
}

fn bound(placement: &mut Placement, view: &Tenants, key: &Key, pod: &PodFacts, node: &str) {
    let misplaced = misplaced(view, &key.0, node);
    if misplaced.is_ok() {
        return;
    }
    let name = || format!("{}/{} on node {node}", key.0, key.1);
    if let Some(tenant) = misplaced.outside {
        *placement.violations.entry(Violation::PodOutside).or_default() += 1;
        let counted = placement.tenants.entry(tenant.name.to_string()).or_default();
        counted.outside.push(name());
        counted.left.extend(left(key, pod));
        counted.namespaces.insert(key.0.clone());
    }
    for pool in misplaced.inside {
        *placement.violations.entry(Violation::PodInside).or_default() += 1;
        for owner in view.declarations().tenants().iter().filter(|t| t.may_use(pool)) {
            let counted = placement.tenants.entry(owner.name.to_string()).or_default();
            counted.strangers.push(name());
            counted.left.extend(left(key, pod));
            counted.namespaces.insert(key.0.clone());
        }
    }
    placement.misplaced.push(key.clone());
}

/// Deletions of the pods that wait and are made again right.
pub(super) fn remedies(state: &State, view: &Tenants, placement: &Placement, mono: Duration) -> Vec<Action> {
    let unplaced = placement.unplaced.iter().filter(|key| !state.absences.concern(view, &key.0, mono));
    let found = unplaced.filter_map(|key| Some((key.clone(), state.pods.get(key)?)));
    found.map(|(pod, facts)| Action::Recreate { pod, uid: facts.uid.clone() }).collect()
}
