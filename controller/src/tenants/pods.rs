//! Pods that are where they mustn't be, or would be.

use std::collections::BTreeMap;

use croft_api::{config::Misplaced, convert::policy as convert};
use croft_policy::{
    Ground, Tenants,
    audit::{Broken, misplaced},
    plan_pod,
};

use super::{
    decide::Action,
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
}

/// Where pods are.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// By tenant.
    pub(super) tenants: BTreeMap<String, Counted>,
    /// How often each rule is broken.
    pub(super) violations: BTreeMap<Broken, i64>,
    /// Running where they mustn't.
    misplaced: Vec<Key>,
    /// Waiting, and to be made anew.
    unplaced: Vec<Key>,
}

pub(super) fn look(state: &State, view: &Tenants) -> Placement {
    let mut placement = Placement::default();
    for (key, pod) in &state.pods {
        let ground = view.ground(&key.0);
        if let Ground::Tenant { tenant, .. } = ground {
            placement.tenants.entry(tenant.name.to_string()).or_default().pods += 1;
        }
        if pod.mirror || pod.deleting {
            continue;
        }
        match (&pod.node, &pod.waiting) {
            (Some(node), _) => bound(&mut placement, view, key, node),
            (None, Some(waiting)) => {
                let planned = plan_pod(view, &key.0, &convert::pod(waiting));
                // A refusal can't be mended by making the pod anew, nor a change of mind about a gated one.
                let gated = waiting
                    .spec
                    .as_ref()
                    .is_some_and(|s| s.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty()));
                if planned.patch.is_empty() && planned.allowed() {
                    continue;
                }
                let rule = if planned.tenant.is_some() { Broken::PodUnpinned } else { Broken::PodNotKeptOut };
                *placement.violations.entry(rule).or_default() += 1;
                if let Some(tenant) = planned.tenant {
                    let counted = placement.tenants.entry(tenant.to_owned()).or_default();
                    counted.unpinned.push(format!("{}/{}", key.0, key.1));
                }
                if planned.allowed() && !gated && remade(pod) {
                    placement.unplaced.push(key.clone());
                }
            }
            (None, None) => {}
        }
    }
    placement
}

/// A DaemonSet's pods follow its template, which is planned anew.
fn remade(pod: &PodFacts) -> bool {
    pod.owner.as_ref().is_some_and(|(kind, _)| kind != "DaemonSet")
}

fn bound(placement: &mut Placement, view: &Tenants, key: &Key, node: &str) {
    let misplaced = misplaced(view, &key.0, node);
    if misplaced.is_right() {
        return;
    }
    let name = || format!("{}/{} on node {node}", key.0, key.1);
    if let Some(tenant) = misplaced.outside {
        *placement.violations.entry(Broken::PodOutside).or_default() += 1;
        placement.tenants.entry(tenant.name.to_string()).or_default().outside.push(name());
    }
    for pool in misplaced.inside {
        *placement.violations.entry(Broken::PodInside).or_default() += 1;
        for owner in view.rules().tenants().iter().filter(|t| t.may_use(pool)) {
            placement.tenants.entry(owner.name.to_string()).or_default().strangers.push(name());
        }
    }
    placement.misplaced.push(key.clone());
}

/// What puts them right.
pub(super) fn remedies(state: &State, placement: &Placement) -> Vec<Action> {
    let target = |key: &Key| state.pods.get(key).map(|pod| (key.clone(), pod));
    let unplaced = placement.unplaced.iter().filter_map(target);
    let mut actions: Vec<Action> =
        unplaced.map(|(pod, facts)| Action::Recreate { pod, uid: facts.uid.clone() }).collect();
    if state.config.misplaced == Misplaced::Recreate {
        let misplaced = placement.misplaced.iter().filter_map(target).filter(|(_, pod)| remade(pod));
        actions.extend(misplaced.map(|(pod, facts)| Action::Evict { pod, uid: facts.uid.clone() }));
    }
    actions
}
