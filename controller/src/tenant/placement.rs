//! Pods that are bound to a wrong node, or could be.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::convert::policy as convert;
use croft_policy::{
    NamespaceTenancy, Tenants, Violation,
    audit::{misplaced, open_pools},
    plan_pod, plan_recreated,
};

use crate::{
    action::Action,
    kube_api::{Target, Verb},
    tenant::state::{ObjectName, Owner, PodFacts, State},
};

/// The pods of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Pods that aren't finished.
    pub(super) pods: i64,
    /// Pods bound to nodes outside the tenant's pools.
    pub(super) outside: Vec<String>,
    /// Pending pods that aren't pinned.
    pub(super) unpinned: Vec<String>,
    /// Pods of other tenants, and non-tenant pods, on nodes of the tenant's pools.
    pub(super) non_tenant_pods: Vec<String>,
    /// Nodes of the tenant's pools that admit other pods.
    pub(super) open: Vec<String>,
    /// The pods above that Croft leaves to the user, with their owners.
    pub(super) left: Vec<String>,
    /// The namespaces of the bound pods above.
    pub(super) namespaces: BTreeSet<String>,
}

/// The placement of all pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// By tenant.
    pub(super) tenants: BTreeMap<String, Counted>,
    /// The number of violations of each rule.
    pub(super) violations: BTreeMap<Violation, i64>,
    /// Pods bound to a wrong node.
    pub(super) misplaced: Vec<ObjectName>,
    /// By pool, the waiting pods that could be bound to its nodes and aren't its own: it takes no node until they are gone.
    pub(super) open: BTreeMap<String, Vec<String>>,
    /// By namespace, why no more pods are evicted.
    pub(super) eviction_notes: BTreeMap<String, String>,
    /// Pending pods to be recreated.
    to_recreate: Vec<ObjectName>,
    /// Pending pods that lack what admission adds today, and that Croft doesn't recreate.
    pub(super) waiting: Vec<ObjectName>,
}

pub(super) fn classify(state: &State, view: &Tenants) -> Placement {
    let mut placement = Placement::default();
    for (key, pod) in &state.pods {
        let tenancy = view.tenancy(&key.0);
        if let Some(tenant) = tenancy.tenant() {
            placement.tenants.entry(tenant.name.to_string()).or_default().pods += 1;
        }
        // The tenant of an unreadable namespace is unknown: its pods are no violation, and nothing is done about
        // them.
        if pod.deleting || matches!(tenancy, NamespaceTenancy::TenantUnreadable) {
            continue;
        }
        if pod.mirror {
            // A static pod runs wherever its kubelet is told to, and evicting the mirror pod has no effect.
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
                let scheduling = convert::pod(waiting);
                let planned = plan_pod(view, &key.0, &scheduling);
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
                // A pod that is pinned to a pool which its tenant has lost would be refused today. It could be
                // bound to nodes of the pool's present tenant, so its controller recreates it for the tenant's
                // present pools.
                if view.declarations().is_active() {
                    for pool in open_pools(view, &key.0, &scheduling) {
                        placement
                            .open
                            .entry(pool.name.to_string())
                            .or_default()
                            .push(format!("{}/{}", key.0, key.1));
                    }
                }
                let again = || planned.allowed() || plan_recreated(view, &key.0, &scheduling).allowed();
                if !gated && is_recreated(pod) && again() {
                    placement.to_recreate.push(key.clone());
                } else {
                    placement.waiting.push(key.clone());
                }
            }
            (None, None) => {}
        }
    }
    placement
}

/// Returns true if the pod's controller certainly recreates it. A DaemonSet's pods follow its template, which is
/// planned again.
fn is_recreated(pod: &PodFacts) -> bool {
    pod.owner.as_deref().is_some_and(Owner::recreates_pods)
}

/// The name of a pod that is left to the user, with its owner.
fn left(key: &ObjectName, pod: &PodFacts) -> Option<String> {
    match &pod.owner {
        None => Some(format!("{}/{} without a controller", key.0, key.1)),
        Some(owner) if owner.kind == "DaemonSet" || owner.recreates_pods() => None,
        Some(owner) => Some(format!("{}/{} of {} {}", key.0, key.1, owner.kind, owner.name)),
    }
}

fn bound(placement: &mut Placement, view: &Tenants, key: &ObjectName, pod: &PodFacts, node: &str) {
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
            counted.non_tenant_pods.push(name());
            counted.left.extend(left(key, pod));
            counted.namespaces.insert(key.0.clone());
        }
    }
    placement.misplaced.push(key.clone());
}

/// Deletions of pending pods that are recreated on the right pools.
pub(super) fn recreations(
    state: &State,
    view: &Tenants,
    placement: &Placement,
    mono: Duration,
) -> Vec<Action> {
    let to_recreate =
        placement.to_recreate.iter().filter(|key| !state.absences.may_affect(view, &key.0, mono));
    let deletion = |(namespace, name): &ObjectName, pod: &PodFacts| {
        let verb = Verb::Delete { uid: pod.uid.clone(), grace_seconds: None };
        Action::write_once(Target::Pod(namespace.clone(), name.clone()), verb)
    };
    to_recreate.filter_map(|key| Some(deletion(key, state.pods.get(key)?))).collect()
}
