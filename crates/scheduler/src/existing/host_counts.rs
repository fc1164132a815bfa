//! The least count among hosts, against which kube-scheduler holds a hard topology spread over hostnames.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{
    demand::Demand,
    ids::{GroupIx, NodeIx},
    state::{cluster::Cluster, pod_shape::FilterId},
    topology::groups::{Group, Groups, SpreadRule, candidates, is_eligible},
};

/// By group of a spread over hostnames: how many of the compared hosts have how many of its pods.
///
/// kube-scheduler takes the minimum over the nodes that exist and pass the spread's filter
/// (`podtopologyspread/filtering.go`), so two hosts with one pod each take a third pod although `maxSkew` is 1.
/// Instances that the same plan launches are left out: pods planned onto existing nodes wait for nothing, and are
/// bound before an instance registers. From then on the minimum is 0, which constrains only pods that are bound
/// later. Those go to coming nodes and to new instances, which take `maxSkew` pods each and no more, whichever of
/// them registers first.
#[derive(Debug)]
pub(super) struct HostCounts {
    /// Built when a host has `maxSkew` pods already: most never have. `None`: a host that the plan removes is
    /// compared. It exists without pods until those are bound elsewhere, so that the least count is zero.
    by_group: FxHashMap<GroupIx, Option<BTreeMap<i64, u32>>>,
    /// Coming nodes are compared, too.
    with_coming: bool,
}

/// Pods of a group that are planned onto a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedPods {
    pub(super) node: NodeIx,
    /// How many the host had already.
    pub(super) before: i64,
    pub(super) count: i64,
}

impl HostCounts {
    pub(super) fn new(with_coming: bool) -> Self {
        Self { by_group: FxHashMap::default(), with_coming }
    }

    /// The least count among the hosts that are compared when a pod with the spread `rule` is bound to `node`; zero
    /// with fewer hosts than `min_domains`, and for a coming node, which may register after others.
    pub(super) fn least(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        groups: &Groups,
        rule: &SpreadRule,
        node: NodeIx,
    ) -> i64 {
        let group = &groups.list[rule.group];
        let Some(filter) = group.filter.filter(|filter| self.is_compared(cluster, *filter, node)) else {
            return 0;
        };
        if !self.by_group.contains_key(&rule.group) {
            let hosts = self.count(cluster, demand, filter, group);
            self.by_group.insert(rule.group, hosts);
        }
        let Some(Some(hosts)) = self.by_group.get(&rule.group) else { return 0 };
        let number: i64 = hosts.values().map(|number| i64::from(*number)).sum();
        let least = hosts.first_key_value().map_or(0, |(count, _)| *count);
        if number < rule.min_domains { 0 } else { least }
    }

    fn count(
        &self,
        cluster: &Cluster,
        demand: &Demand,
        filter: FilterId,
        group: &Group,
    ) -> Option<BTreeMap<i64, u32>> {
        if demand.gone.iter().any(|node| self.is_compared(cluster, filter, *node)) {
            return None;
        }
        let mut hosts = BTreeMap::new();
        for node in candidates(cluster, &cluster.tables.filters.get(filter).reqs) {
            if self.is_compared(cluster, filter, node) {
                let count = group.nodes.get(&node).map_or(0, |pods| pods.matching);
                *hosts.entry(count).or_default() += 1;
            }
        }
        Some(hosts)
    }

    /// Counts planned pods of a group with that filter.
    pub(super) fn add(
        &mut self,
        cluster: &Cluster,
        group: GroupIx,
        filter: Option<FilterId>,
        planned: PlannedPods,
    ) {
        let PlannedPods { node, before, count } = planned;
        let is_counted = filter.is_some_and(|filter| self.is_compared(cluster, filter, node));
        let Some(Some(hosts)) = self.by_group.get_mut(&group).filter(|_| is_counted) else { return };
        if let Some(number) = hosts.get_mut(&before) {
            *number -= 1;
            if *number == 0 {
                hosts.remove(&before);
            }
        }
        *hosts.entry(before + count).or_default() += 1;
    }

    fn is_compared(&self, cluster: &Cluster, filter: FilterId, node: NodeIx) -> bool {
        let info = cluster.nodes.find(node).and_then(|slot| slot.info.as_ref());
        info.is_some_and(|info| self.with_coming || !info.coming) && is_eligible(cluster, filter, node)
    }
}
