//! Groups whose place depends on which pod kube-scheduler binds first.
//!
//! A pod that needs affinity to its own kind may be bound anywhere while no pod of that kind is bound, and afterwards only
//! beside one. If pods of another pending group are of that kind, too, no plan holds whichever comes first, and Croft plans for
//! the order in which the others come first.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Affinity, PodAffinityTerm, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::{Selector, SelectorExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    fleet::HOST,
    generate::Scene,
    pods::{Group, NAMESPACES, TEAM, TEAMS},
};

/// Groups of a scene whose pods the order decides.
#[derive(Debug, Default)]
pub struct ByOrder {
    /// May start anywhere, or only beside a pod of another pending group.
    pub starting: BTreeSet<String>,
    /// Are of the kind that a starting group needs, and have a spread over the same domains that counts it: together in one
    /// domain only if they come first.
    pub kept_off: BTreeSet<String>,
    /// Need affinity over a selector of namespaces. If one is tried before the pod that it needs is bound, kube-scheduler tries
    /// it again only with its sweep every five minutes (kubernetes/kubernetes#141953).
    pub forgotten: BTreeSet<String>,
}

impl ByOrder {
    pub fn new(scene: &Scene) -> Self {
        let mut result = Self::default();
        for group in &scene.waiting {
            let terms = terms(group);
            if terms.iter().any(|term| term.namespace_selector.is_some()) {
                result.forgotten.insert(group.name.clone());
            }
            if terms.is_empty() || !needs(&terms, group, group) {
                continue;
            }
            let others = scene.waiting.iter().filter(|other| other.name != group.name);
            for other in others.filter(|other| needs(&terms, group, other)) {
                result.starting.insert(group.name.clone());
                if terms.iter().any(|term| spreads_over(other, &term.topology_key, group)) {
                    result.kept_off.insert(other.name.clone());
                }
            }
        }
        result
    }

    pub fn decides(&self, group: &str) -> bool {
        [&self.starting, &self.kept_off, &self.forgotten].iter().any(|groups| groups.contains(group))
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

/// True if `group` has a required spread that counts the pods of `other`, over `key` or, since a host is in one domain of every
/// key, over any if `key` is the hostname.
fn spreads_over(group: &Group, key: &str, other: &Group) -> bool {
    let spreads: Vec<TopologySpreadConstraint> = typed(&group.spec["topologySpreadConstraints"]);
    group.namespace == other.namespace
        && spreads.iter().any(|spread| {
            spread.when_unsatisfiable == "DoNotSchedule"
                && (spread.topology_key == key || key == HOST)
                && matches(spread.label_selector.as_ref(), &labels(other))
                && same(spread.match_label_keys.as_deref(), group, other, true)
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

/// The value of a type, or the type's default for `null`.
fn typed<T: DeserializeOwned + Default>(value: &Value) -> T {
    serde_json::from_value::<Option<T>>(value.clone()).unwrap().unwrap_or_default()
}
