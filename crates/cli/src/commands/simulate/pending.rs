//! Pods that stay pending, grouped by reason.

use std::{collections::BTreeSet, sync::Arc};

use croft_inspect::{
    admission::Admission,
    simulation::{DENIED, Simulation},
};
use croft_manifest::{Input, InputError};
use croft_policy::NamespaceTenancy;
use croft_scheduler::{PodKey, Reason, ReasonKind};

/// Pending pods with equal reasons.
#[derive(Debug)]
pub(super) struct PendingGroup {
    pub(super) pods: Vec<PodKey>,
    pub(super) reasons: Vec<PendingReason>,
}

/// Pending pods grouped by equal reasons, in the order of the plan.
pub(super) fn pending_groups(simulation: &Simulation, input: &Input) -> Vec<PendingGroup> {
    let mut pools: Vec<&str> = input.pools.iter().filter_map(|p| p.metadata.name.as_deref()).collect();
    pools.sort_unstable();
    if pools.is_empty() {
        pools.push("");
    }
    let mut groups: Vec<PendingGroup> = Vec::new();
    for denied in &simulation.denied {
        let in_pool = |pool: &&str| PendingReason {
            pool: (*pool).to_owned(),
            reason: DENIED.to_owned(),
            detail: denied.refusal.clone(),
        };
        groups.push(PendingGroup { pods: denied.pods.clone(), reasons: pools.iter().map(in_pool).collect() });
    }
    let mut last: Option<Arc<[Reason]>> = None;
    for left in &simulation.plan.unschedulable {
        let same = last.as_ref().is_some_and(|l| Arc::ptr_eq(l, &left.reasons) || **l == *left.reasons);
        if same && let Some(group) = groups.last_mut() {
            group.pods.push(left.pod.clone());
            continue;
        }
        last = Some(Arc::clone(&left.reasons));
        groups.push(PendingGroup {
            pods: vec![left.pod.clone()],
            reasons: left.reasons.iter().map(PendingReason::from).collect(),
        });
    }
    groups
}

/// The namespaces of pending pods that belong to no tenant, where the taints of pools alone keep the pods off: the reasons name taints,
/// and no toleration is the remedy.
///
/// # Errors
/// A Tenant whose selector can't be read.
pub(super) fn namespaces_without_tenant<'g>(
    groups: &'g [PendingGroup],
    input: &Input,
) -> Result<BTreeSet<&'g str>, InputError> {
    let is_taint = |reason: &PendingReason| reason.reason == ReasonKind::TaintNotTolerated.as_str();
    let is_kept_off = |group: &&PendingGroup| !group.reasons.is_empty() && group.reasons.iter().all(is_taint);
    let kept_off = groups.iter().filter(is_kept_off);
    let mut namespaces: BTreeSet<&str> =
        kept_off.flat_map(|group| &group.pods).map(|pod| &*pod.namespace).collect();
    if !namespaces.is_empty() {
        let admission = Admission::new(input)?;
        namespaces.retain(|name| matches!(admission.tenants().tenancy(name), NamespaceTenancy::NonTenant));
    }
    Ok(namespaces)
}

/// Why a pod isn't placed in one pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct PendingReason {
    pub(super) pool: String,
    pub(super) reason: String,
    pub(super) detail: String,
}

impl From<&Reason> for PendingReason {
    fn from(reason: &Reason) -> Self {
        Self { pool: reason.pool.clone(), reason: reason.reason.to_string(), detail: reason.detail.clone() }
    }
}
