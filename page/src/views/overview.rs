//! All tenants and pools, pending pods, violations, and the last hour.

use std::collections::BTreeMap;

use croft_record::entry::Entry;
use serde::Serialize;

use super::{
    entries::{self, Selection},
    pool::{CostView, PoolRow, nodes_of},
};
use crate::{
    access::Scope,
    cluster::log::Log,
    model::facts::{Model, PodFacts, ready},
};

/// Pods that each list names.
const PODS: usize = 100;
/// Groups of pending pods.
const GROUPS: usize = 100;
/// Pods that a group names.
const PODS_OF_GROUP: usize = 10;
/// Entries of the last hour.
const ENTRIES: usize = 60;
const HOUR_MILLIS: i64 = 3_600_000;

/// A tenant as a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// Its pools, the default first.
    pub pools: Vec<String>,
    /// The namespaces that the reader may see.
    pub namespaces: usize,
    /// The reader's pods.
    pub pods: usize,
    /// Of these, the pending ones.
    pub pending: usize,
    /// Of these, the ones with a placement violation.
    pub violations: usize,
    /// The nodes of its pools.
    pub nodes: usize,
    /// The cost of these nodes.
    pub cost: CostView,
    /// The condition Ready.
    pub ready: String,
}

/// The rows of the tenants that `scope` sees.
#[must_use]
pub fn tenant_rows(model: &Model, scope: &Scope) -> Vec<TenantRow> {
    let mut rows: Vec<TenantRow> = Vec::new();
    for (name, tenant) in model.tenants.iter().filter(|(name, _)| scope.sees_tenant(model, name)) {
        let pools = || tenant.pools.iter().filter_map(|pool| model.pools.get(pool));
        let nodes = || pools().flat_map(|pool| nodes_of(model, pool));
        rows.push(TenantRow {
            name: name.clone(),
            pools: tenant.pools.clone(),
            namespaces: tenant.namespaces.iter().filter(|one| scope.sees_namespace(one)).count(),
            pods: 0,
            pending: 0,
            violations: 0,
            nodes: nodes().count(),
            cost: CostView::of(nodes().map(|node| &node.info)),
            ready: ready(&tenant.conditions),
        });
    }
    for pod in model.pods.values().filter(|pod| scope.sees_namespace(&pod.namespace)) {
        let Some(tenant) = &pod.tenant else { continue };
        let found = rows.binary_search_by(|row| row.name.as_str().cmp(tenant));
        let Some(row) = found.ok().and_then(|at| rows.get_mut(at)) else { continue };
        row.pods += 1;
        row.pending += usize::from(pod.node.is_none());
        row.violations += usize::from(!pod.violations.is_empty());
    }
    rows
}

/// Pending pods of one workload for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingGroup {
    /// Their namespace.
    pub namespace: String,
    /// The tenant of the namespace.
    pub tenant: Option<String>,
    /// Kind and name of their controller; empty for pods without one, each of which is a group.
    pub workload: String,
    /// Why they are pending, when that was last recorded.
    pub reason: String,
    /// The same as a sentence, of the first pod.
    pub message: String,
    /// How many they are.
    pub count: usize,
    /// Names of the first ones.
    pub pods: Vec<String>,
    /// CPU that they request together.
    pub cpu: i64,
    /// Memory that they request together.
    pub memory: i64,
    /// Since when the oldest one is there.
    pub since: Option<i64>,
}

/// Pods by workload and reason, the largest group first.
#[must_use]
pub fn group<'m>(pods: impl Iterator<Item = &'m PodFacts>) -> Vec<PendingGroup> {
    let mut groups: BTreeMap<(&str, &str, &str), PendingGroup> = BTreeMap::new();
    for pod in pods {
        let owner = if pod.workload.is_empty() { &pod.name } else { &pod.workload };
        let key = (pod.namespace.as_str(), owner.as_str(), pod.reason.as_str());
        let group = groups.entry(key).or_insert_with(|| PendingGroup {
            namespace: pod.namespace.clone(),
            tenant: pod.tenant.clone(),
            workload: pod.workload.clone(),
            reason: pod.reason.clone(),
            message: pod.message.clone(),
            ..PendingGroup::default()
        });
        group.count += 1;
        group.cpu = group.cpu.saturating_add(pod.cpu);
        group.memory = group.memory.saturating_add(pod.memory);
        group.since = [group.since, pod.since].into_iter().flatten().min();
        if group.pods.len() < PODS_OF_GROUP {
            group.pods.push(pod.name.clone());
        }
    }
    let mut groups: Vec<PendingGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups.truncate(GROUPS);
    groups
}

/// The rows of the first view.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rows {
    /// The version of the model.
    pub version: u64,
    /// The time of the model.
    pub at: i64,
    /// Tenants.
    pub tenants: Vec<TenantRow>,
    /// Pools.
    pub pools: Vec<PoolRow>,
    /// The cost of all nodes of these pools.
    pub cost: CostView,
    /// Pending pods by workload and reason, at most 100 groups.
    pub pending_groups: Vec<PendingGroup>,
    /// Pods with a placement violation, at most 100.
    pub violations: Vec<PodFacts>,
}

/// The first view.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Tenants, pools and pods.
    #[serde(flatten)]
    pub rows: Rows,
    /// The decisions of the last hour, the newest first.
    pub changes: Vec<Entry>,
}

/// The first view for `scope`.
#[must_use]
pub fn view(model: &Model, log: &Log, scope: &Scope, now: i64) -> Overview {
    let selection =
        Selection { from: now.saturating_sub(HOUR_MILLIS), to: now, limit: ENTRIES, ..Selection::default() };
    Overview { rows: rows(model, scope), changes: entries::decisions(log, model, scope, &selection) }
}

/// The rows of the first view for `scope`.
#[must_use]
pub fn rows(model: &Model, scope: &Scope) -> Rows {
    let seen = || model.pods.values().filter(|pod| scope.sees_namespace(&pod.namespace));
    let pools = || model.pools.iter().filter(|(name, _)| scope.sees_pool(model, name));
    let nodes = pools().flat_map(|(_, pool)| nodes_of(model, pool));
    // Pods that belong to no tenant aren't Croft's unless they break a rule.
    let pending = seen().filter(|pod| pod.node.is_none() && pod.tenant.is_some());
    Rows {
        version: model.version,
        at: model.at,
        tenants: tenant_rows(model, scope),
        pools: pools().map(|(name, pool)| PoolRow::new(model, scope, name, pool)).collect(),
        cost: CostView::of(nodes.map(|node| &node.info)),
        pending_groups: group(pending),
        violations: seen().filter(|pod| !pod.violations.is_empty()).take(PODS).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, workload: &str, reason: &str, since: i64) -> PodFacts {
        PodFacts {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            workload: workload.to_owned(),
            reason: reason.to_owned(),
            since: Some(since),
            cpu: 500,
            ..PodFacts::default()
        }
    }

    #[test]
    fn pending_pods_are_grouped_by_workload_and_reason_and_single_ones_stay_alone() {
        let mut pods: Vec<PodFacts> = (0..12)
            .map(|number| pod(&format!("web-{number:02}"), "ReplicaSet/web", "PoolLimit", 100 - number))
            .collect();
        pods.push(pod("web-new", "ReplicaSet/web", "", 7));
        pods.extend(["one", "two"].map(|name| pod(name, "", "PoolLimit", 8)));
        let groups = group(pods.iter());
        let shown: Vec<(&str, &str, usize)> = groups
            .iter()
            .map(|group| (group.workload.as_str(), group.reason.as_str(), group.count))
            .collect();
        assert_eq!(
            shown,
            [
                ("ReplicaSet/web", "PoolLimit", 12),
                ("ReplicaSet/web", "", 1),
                ("", "PoolLimit", 1),
                ("", "PoolLimit", 1)
            ]
        );
        assert_eq!((groups[0].pods.len(), groups[0].cpu, groups[0].since), (PODS_OF_GROUP, 6_000, Some(89)));
    }
}
