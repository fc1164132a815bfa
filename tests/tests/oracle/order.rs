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
    /// The first three are as in [`ByOrder`].
    Starting,
    KeptOff,
    Forgotten,
    /// Pods without a nomination took the places of its pods, or of pods that then took these.
    Displaced,
    /// Pods are elsewhere than planned that nothing kept there, and its spread counts them, or the order is random.
    Disturbed,
    /// In a random order, its spread counts more pods than its domains hold.
    Overfull,
    /// Its pods were called infeasible because of others, and were bound before those, or after they made room.
    Early,
    /// Its place was kept for another pod when kube-scheduler tried it: that pod's nomination to the node ended with its
    /// binding to another, and kube-scheduler tries nothing again for that but with its sweep every five minutes.
    NotRetried,
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
            && same(term.match_label_keys.as_deref(), &labels(group), &labels(other), true)
            && same(term.mismatch_label_keys.as_deref(), &labels(group), &labels(other), false)
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
    group.namespace == other.namespace && selects(spread, group, &labels(other))
}

/// True if a spread of `group` selects pods with these labels.
fn selects(spread: &TopologySpreadConstraint, group: &Group, others: &BTreeMap<String, String>) -> bool {
    matches(spread.label_selector.as_ref(), others)
        && same(spread.match_label_keys.as_deref(), &labels(group), others, true)
}

/// True if `group` has a required spread that counts the pods of `other`, over `key` or, since a host is in one domain of every
/// key, over any if `key` is the hostname.
fn spreads_over(group: &Group, key: &str, other: &Group) -> bool {
    let is_over = |spread: &TopologySpreadConstraint| spread.topology_key == key || key == HOST;
    spreads(group).iter().any(|spread| is_over(spread) && counts(spread, group, other))
}

/// True if pods of the group must be even with those of `other`, which keep them out if they aren't where they were planned.
pub fn is_even_with(group: &Group, other: &Group) -> bool {
    spreads(group).iter().any(|spread| counts(spread, group, other))
}

/// The domain of a node that a spread of `group` counts.
fn domain<'a>(
    spread: &TopologySpreadConstraint,
    group: &Group,
    nodes: &'a Nodes,
    node: &str,
) -> Option<&'a str> {
    let node = nodes.get(node).filter(|node| is_included(spread, group, node))?;
    label(node, &spread.topology_key)
}

/// By domain of a spread: the pods that it counts and that were running before any was opened.
fn running<'a>(
    scene: &Scene,
    group: &Group,
    spread: &TopologySpreadConstraint,
    nodes: &'a Nodes,
) -> BTreeMap<&'a str, i32> {
    let domains = nodes.keys().filter_map(|node| domain(spread, group, nodes, node));
    let mut counts: BTreeMap<&str, i32> = domains.map(|value| (value, 0)).collect();
    for pod in &scene.running {
        let (metadata, node) = (&pod["metadata"], pod["spec"]["nodeName"].as_str().unwrap_or_default());
        if metadata["namespace"] == group.namespace
            && metadata["deletionTimestamp"].is_null()
            && selects(spread, group, &typed(&metadata["labels"]))
            && let Some(count) = domain(spread, group, nodes, node).and_then(|value| counts.get_mut(value))
        {
            *count += 1;
        }
    }
    counts
}

/// The least of a spread's counts, which is 0 if there are too few domains.
fn least(spread: &TopologySpreadConstraint, counts: impl ExactSizeIterator<Item = i32>) -> i32 {
    let is_few = spread.min_domains.is_some_and(|least| counts.len() < usize::try_from(least).unwrap());
    if is_few { 0 } else { counts.min().unwrap_or(0) }
}

/// By domain of a spread: how many pods that it counts are planned there, and how many of `group`, counted or not.
fn planned<'a, 'h>(
    scene: &Scene,
    group: &Group,
    spread: &TopologySpreadConstraint,
    homes: impl Iterator<Item = (&'h String, &'h String)>,
    nodes: &'a Nodes,
) -> BTreeMap<&'a str, (i32, i32)> {
    let counted = scene.waiting.iter().filter(|other| counts(spread, group, other));
    let counted: BTreeSet<&str> = counted.map(|other| other.name.as_str()).collect();
    let mut result: BTreeMap<&str, (i32, i32)> = BTreeMap::new();
    for (pod, home) in homes {
        let (is_counted, is_own) = (counted.contains(group_of(pod)), group_of(pod) == group.name);
        if let Some(value) = domain(spread, group, nodes, home).filter(|_| is_counted || is_own) {
            let (all, own) = result.entry(value).or_default();
            *all += i32::from(is_counted);
            *own += i32::from(is_own);
        }
    }
    result
}

/// True if a spread may keep pods of the group out of the domain of `home` until others are bound elsewhere, because of pods
/// that run there or are planned there: a nomination doesn't hold before that.
pub fn is_ahead(
    scene: &Scene,
    group: &Group,
    home: &str,
    homes: &BTreeMap<String, String>,
    nodes: &Nodes,
) -> bool {
    spreads(group).iter().filter(|spread| counts(spread, group, group)).any(|spread| {
        let before = running(scene, group, spread, nodes);
        let Some(here) = domain(spread, group, nodes, home) else { return false };
        let planned = planned(scene, group, spread, homes.iter(), nodes);
        let beside = planned.get(here).map_or(0, |(all, own)| all - own);
        let least = least(spread, before.values().copied());
        before.get(here).is_some_and(|count| count + beside + 1 - least > spread.max_skew)
    })
}

/// True if a domain of the group holds more pods than its spread allows once all are bound, and not by those of the group
/// alone: they must come before the others that it counts, themselves counted or not.
/// `homes` are the planned nodes of the pods that were opened.
pub fn is_overfull(scene: &Scene, group: &Group, homes: &BTreeMap<&String, &String>, nodes: &Nodes) -> bool {
    spreads(group).iter().any(|spread| {
        let before = running(scene, group, spread, nodes);
        let homes = homes.iter().map(|(pod, home)| (*pod, *home));
        let planned = planned(scene, group, spread, homes, nodes);
        let all = |value: &str| planned.get(value).map_or(0, |(all, _)| *all);
        let least = least(spread, before.iter().map(|(value, count)| count + all(value)));
        let counts_itself = counts(spread, group, group);
        planned.iter().any(|(value, (all, own))| {
            let room = least + spread.max_skew - before.get(value).copied().unwrap_or(0);
            *own > 0 && *all > room && if counts_itself { *own <= room } else { room >= 0 }
        })
    })
}

/// True if the labels `keys`, where `own` has them, are equal (or not) in `others`.
fn same(
    keys: Option<&[String]>,
    own: &BTreeMap<String, String>,
    others: &BTreeMap<String, String>,
    equal: bool,
) -> bool {
    let mut keys = keys.unwrap_or_default().iter().filter(|key| own.contains_key(*key));
    keys.all(|key| (own.get(key) == others.get(key)) == equal)
}

/// A missing selector matches nothing, an empty one everything.
fn matches(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let selector = selector.map(|selector| Selector::try_from(selector.clone()).unwrap());
    selector.is_some_and(|selector| selector.matches(labels))
}

fn labels(group: &Group) -> BTreeMap<String, String> {
    typed(&group.labels)
}
