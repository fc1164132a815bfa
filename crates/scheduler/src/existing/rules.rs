//! Constraints between running or planned pods and one more pod on an existing node.

use smallvec::SmallVec;

use crate::{
    demand::ClassPods,
    existing::room::Place,
    ids::{ClassIx, GroupIx, NodeIx},
    state::{cluster::Cluster, interner::Sym},
    topology::groups::{Groups, SpreadRule, node_domain},
};

/// True if pods of `class` need a pod of `affinity_target` on their host.
fn needs_one_of(groups: &Groups, class: ClassIx, affinity_target: ClassIx) -> bool {
    groups.of[class]
        .host_affinity
        .is_some_and(|g| groups.of[affinity_target].host_matching_groups.contains(&g))
}

/// Spreads over hosts of the pods planned onto a node.
fn spreads_of<'a>(groups: &'a Groups, place: &'a Place) -> impl Iterator<Item = &'a SpreadRule> {
    place.content.iter().flat_map(|pods| &groups.of[pods.class].host_spreads)
}

/// How many more pods the rules between pods of one host allow; more may be allowed once those are placed.
/// `least` returns the least count of a spread's group among the hosts that kube-scheduler compares.
pub(super) fn host_room(
    cluster: &Cluster,
    groups: &Groups,
    number: ClassIx,
    place: &Place,
    mut least: impl FnMut(&SpreadRule) -> i64,
) -> u32 {
    let topology = &groups.of[number];
    let node = place.node;
    let mut most = i64::from(u32::MAX);
    let pods = |g: GroupIx| groups.list[g].nodes.get(&node).copied().unwrap_or_default();
    // The minimum matters only on hosts that have `max_skew` pods already.
    let mut skew_left = |rule: &SpreadRule| {
        let left = rule.max_skew - pods(rule.group).matching;
        if left > 0 { left } else { left.saturating_add(least(rule)) }
    };
    // A pod that needs an affinity target there is bound after the only one, so that the target's own spread
    // doesn't constrain it; a second target could be bound in between.
    let after = topology.host_affinity.filter(|g| pods(*g).matching == 1);
    let before = |class: ClassIx| after.is_some_and(|g| groups.of[class].host_matching_groups.contains(&g));
    for ClassPods { class, .. } in &place.content {
        let crowded = |rule: &SpreadRule| skew_left(rule) < 0;
        if needs_one_of(groups, *class, number) && spreads_of(groups, place).any(crowded) {
            return 0;
        }
    }
    for g in &topology.host_matching_groups {
        if pods(*g).repelling > 0 {
            return 0;
        }
    }
    for ClassPods { class, .. } in place.content.iter().filter(|pods| !before(pods.class)) {
        let rules = groups.of[*class].host_spreads.iter();
        for rule in rules.filter(|rule| topology.host_matching_groups.contains(&rule.group)) {
            most = most.min(skew_left(rule));
        }
    }
    for g in &topology.host_anti_affinity {
        if pods(*g).matching > 0 {
            return 0;
        }
        if topology.host_matching_groups.contains(g) {
            most = most.min(1);
        }
    }
    for rule in &topology.host_spreads {
        let group = &groups.list[rule.group];
        // A host without the label is no domain and not allowed; a coming one will have it.
        let coming = || cluster.nodes[node].info.as_ref().is_some_and(|i| i.coming);
        if node_domain(cluster, node, group.key).is_none() && !coming() {
            return 0;
        }
        let left = skew_left(rule);
        if rule.own {
            most = most.min(left);
        } else if left < 0 {
            return 0;
        }
    }
    if let Some(g) = topology.host_affinity {
        let is_first = topology.may_be_first && groups.list[g].total == 0;
        if pods(g).matching == 0 && !is_first {
            return 0;
        }
        if is_first {
            most = most.min(1);
        }
    }
    u32::try_from(most.max(0)).unwrap_or(u32::MAX)
}

/// True if one more pod of the class may come into the node's domains.
pub(super) fn is_domain_open(cluster: &Cluster, groups: &Groups, number: ClassIx, node: NodeIx) -> bool {
    let topology = &groups.of[number];
    let domain = |g: GroupIx| node_domain(cluster, node, groups.list[g].key);
    let values: SmallVec<[Option<Sym>; 2]> = topology.spreads.iter().map(|rule| domain(rule.group)).collect();
    if !is_within_skew(groups, number, &values) {
        return false;
    }
    if !topology.affinity.is_empty() {
        let all = topology.affinity.iter().chain(&topology.host_affinity);
        let is_first = topology.may_be_first && all.clone().all(|g| groups.list[*g].total == 0);
        for g in &topology.affinity {
            let Some(value) = domain(*g) else { return false };
            if !groups.list[*g].admits_affinity(value, is_first) {
                return false;
            }
        }
    }
    let counted_domain = |g: &GroupIx| domain(*g).and_then(|v| groups.list[*g].find(v));
    topology.anti_affinity.iter().all(|g| counted_domain(g).is_none_or(|d| d.pods.matching == 0))
        && topology.matching_groups.iter().all(|g| counted_domain(g).is_none_or(|d| d.pods.repelling == 0))
}

/// True if one more pod of the class keeps its spreads in the domains `values`, one for each of them.
pub(super) fn is_within_skew(groups: &Groups, number: ClassIx, values: &[Option<Sym>]) -> bool {
    groups.of[number].spreads.iter().zip(values).all(|(rule, value)| {
        let count = groups.list[rule.group].count_in(*value);
        value.is_some() && count + i64::from(rule.own) - groups.min_count_now(rule) <= rule.max_skew
    })
}
