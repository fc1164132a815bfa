//! Groups whose place depends on which pod kube-scheduler binds first.
//!
//! A pod that needs affinity to its own kind may be bound anywhere while no pod of that kind is bound, and afterwards only
//! beside one. If pods of another pending group are of that kind, too, no plan holds whichever comes first, and Croft plans for
//! the order in which the others come first.
//!
//! A spread keeps out pods that come after those that it counts, while these go anywhere. If all have no place together in
//! the domains, Croft plans for the order in which the spread's own pods come first.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Affinity, PodAffinityTerm, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::{Selector, SelectorExt as _};

use super::{
    fleet::{HOST, Nodes},
    generate::Scene,
    inclusion::{is_included, label},
    pods::{Group, NAMESPACES, TEAM, TEAMS, group_of, priority, typed},
};

/// Why the order of binding decides about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Starting,
    KeptOff,
    Forgotten,
    /// Pods without a nomination took the places of its pods.
    Displaced,
    /// In a random order, pods are elsewhere than planned.
    Disturbed,
    /// In a random order, its spread counts more pods than its domains hold.
    Overfull,
    /// Its pods were called infeasible since others come first, and came before those.
    Early,
}

/// Groups of a scene whose pods the order decides.
#[derive(Debug, Default)]
pub struct ByOrder {
    /// May start anywhere, or only beside a pod of another pending group.
    pub starting: BTreeSet<String>,
    /// Are of the kind that a starting group needs, and have a spread over the same domains that counts it: together in one
    /// domain only if they come first.
    pub kept_off: BTreeSet<String>,
    /// Need affinity over a selector of namespaces to another pending group. If one is tried before the pod that it needs is
    /// bound, kube-scheduler tries it again only with its sweep every five minutes (kubernetes/kubernetes#141953).
    pub forgotten: BTreeSet<String>,
    /// Need affinity to a pending group that may be bound after them, of the same priority or a lower one: they go to the first
    /// of its pods that is bound, before their own nodes have one, and into the room of the next.
    pub hasty: BTreeSet<String>,
}

impl ByOrder {
    /// `homes` are the planned nodes of pods: no other pod is bound.
    pub fn new(scene: &Scene, homes: &BTreeMap<String, String>) -> Self {
        let planned: BTreeSet<&str> = homes.keys().map(|pod| group_of(pod)).collect();
        let mut result = Self::default();
        for group in &scene.waiting {
            let terms = terms(group);
            if terms.is_empty() {
                continue;
            }
            let others = scene.waiting.iter().filter(|other| other.name != group.name);
            let needed: Vec<&Group> = others
                .filter(|other| planned.contains(other.name.as_str()) && needs(&terms, group, other))
                .collect();
            let is_empty = |selector: &LabelSelector| {
                selector.match_labels.is_none() && selector.match_expressions.is_none()
            };
            let mut selectors = terms.iter().filter_map(|term| term.namespace_selector.as_ref());
            if !needed.is_empty() && selectors.any(|selector| !is_empty(selector)) {
                result.forgotten.insert(group.name.clone());
            }
            if needed.iter().any(|other| priority(&other.spec) <= priority(&group.spec)) {
                result.hasty.insert(group.name.clone());
            }
            if !needs(&terms, group, group) {
                continue;
            }
            for other in needed {
                result.starting.insert(group.name.clone());
                if terms.iter().any(|term| spreads_over(other, &term.topology_key, group)) {
                    result.kept_off.insert(other.name.clone());
                }
            }
        }
        result
    }

    /// Why the order decides about the group, whichever domains the plan has.
    pub fn reason(&self, group: &str) -> Option<Reason> {
        let by_reason = [
            (&self.starting, Reason::Starting),
            (&self.kept_off, Reason::KeptOff),
            (&self.forgotten, Reason::Forgotten),
        ];
        by_reason.iter().find(|(groups, _)| groups.contains(group)).map(|(_, reason)| *reason)
    }
}

/// Required pod affinity terms.
fn terms(group: &Group) -> Vec<PodAffinityTerm> {
    let affinity: Affinity = typed(&group.spec["affinity"]);
    let pods = affinity.pod_affinity.unwrap_or_default();
    pods.required_during_scheduling_ignored_during_execution.unwrap_or_default()
}

/// True if `other` satisfies all terms of `group`: only such pods count.
fn needs(terms: &[PodAffinityTerm], group: &Group, other: &Group) -> bool {
    terms.iter().all(|term| {
        in_reach(term, group, other)
            && matches(term.label_selector.as_ref(), &labels(other))
            && same(term.match_label_keys.as_deref(), group, other, true)
            && same(term.mismatch_label_keys.as_deref(), group, other, false)
    })
}

fn in_reach(term: &PodAffinityTerm, group: &Group, other: &Group) -> bool {
    let names = term.namespaces.as_deref().unwrap_or_default();
    let is_selected =
        |team: &str| matches(term.namespace_selector.as_ref(), &[(TEAM.to_owned(), team.to_owned())].into());
    let selected =
        NAMESPACES.iter().zip(TEAMS).any(|(name, team)| *name == other.namespace && is_selected(team));
    let own = names.is_empty() && term.namespace_selector.is_none() && group.namespace == other.namespace;
    names.iter().any(|name| name == other.namespace) || selected || own
}

/// Required topology spread constraints.
fn spreads(group: &Group) -> Vec<TopologySpreadConstraint> {
    let all: Vec<TopologySpreadConstraint> = typed(&group.spec["topologySpreadConstraints"]);
    all.into_iter().filter(|spread| spread.when_unsatisfiable == "DoNotSchedule").collect()
}

/// True if a spread of `group` counts the pods of `other`.
fn counts(spread: &TopologySpreadConstraint, group: &Group, other: &Group) -> bool {
    group.namespace == other.namespace
        && matches(spread.label_selector.as_ref(), &labels(other))
        && same(spread.match_label_keys.as_deref(), group, other, true)
}

/// True if `group` has a required spread that counts the pods of `other`, over `key` or, since a host is in one domain of every
/// key, over any if `key` is the hostname.
fn spreads_over(group: &Group, key: &str, other: &Group) -> bool {
    let is_over = |spread: &TopologySpreadConstraint| spread.topology_key == key || key == HOST;
    spreads(group).iter().any(|spread| is_over(spread) && counts(spread, group, other))
}

/// True if pods of the group must be even with each other: those that lose their places keep others out.
pub fn is_even(group: &Group) -> bool {
    spreads(group).iter().any(|spread| counts(spread, group, group))
}

/// True if a spread of the group counts more pods than the domains that they go to can hold whatever the order, and not by
/// those of the group alone: a domain that none of them goes to keeps its count, and no other may have `maxSkew` more.
/// `homes` are the planned nodes of the pods that were opened.
pub fn is_overfull(scene: &Scene, group: &Group, homes: &BTreeMap<&String, &String>, nodes: &Nodes) -> bool {
    spreads(group).iter().filter(|spread| spread.match_label_keys.is_none()).any(|spread| {
        let domain = |node: &str| {
            let node = nodes.get(node).filter(|node| is_included(spread, group, node))?;
            label(node, &spread.topology_key)
        };
        let mut before: BTreeMap<&str, i32> =
            nodes.keys().filter_map(|node| domain(node)).map(|value| (value, 0)).collect();
        for pod in &scene.running {
            let (metadata, node) = (&pod["metadata"], pod["spec"]["nodeName"].as_str().unwrap_or_default());
            if metadata["namespace"] == group.namespace
                && metadata["deletionTimestamp"].is_null()
                && matches(spread.label_selector.as_ref(), &typed(&metadata["labels"]))
                && let Some(count) = domain(node).and_then(|value| before.get_mut(value))
            {
                *count += 1;
            }
        }
        let counted: BTreeSet<&str> = scene
            .waiting
            .iter()
            .filter(|other| counts(spread, group, other))
            .map(|other| other.name.as_str())
            .collect();
        // By domain: pods that count, and those of the group among them.
        let mut planned: BTreeMap<&str, (i32, i32)> = BTreeMap::new();
        for (pod, home) in homes.iter().filter(|(pod, _)| counted.contains(group_of(pod))) {
            if let Some(value) = domain(home) {
                let (all, own) = planned.entry(value).or_default();
                *all += 1;
                *own += i32::from(group_of(pod) == group.name);
            }
        }
        let is_few = spread.min_domains.is_some_and(|least| before.len() < usize::try_from(least).unwrap());
        let kept = before.iter().filter(|(value, _)| !planned.contains_key(*value)).map(|(_, count)| *count);
        let least = if is_few { Some(0) } else { kept.min() };
        least.is_some_and(|least| {
            let room =
                planned.keys().map(|value| least + spread.max_skew - before.get(value).copied().unwrap_or(0));
            let room: i32 = room.sum();
            let (all, own) = planned.values().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
            all > room && own <= room
        })
    })
}

/// True if the labels `keys`, where `group` has them, are equal (or not) in `other`.
fn same(keys: Option<&[String]>, group: &Group, other: &Group, equal: bool) -> bool {
    let (own, theirs) = (labels(group), labels(other));
    let mut keys = keys.unwrap_or_default().iter().filter(|key| own.contains_key(*key));
    keys.all(|key| (own.get(key) == theirs.get(key)) == equal)
}

/// A missing selector matches nothing, an empty one everything.
fn matches(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let selector = selector.map(|selector| Selector::try_from(selector.clone()).unwrap());
    selector.is_some_and(|selector| selector.matches(labels))
}

fn labels(group: &Group) -> BTreeMap<String, String> {
    typed(&group.labels)
}
