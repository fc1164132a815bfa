//! Pods that were opened, and whether the order of binding explains those that are pending.

use std::collections::{BTreeMap, BTreeSet};

use croft_scheduler::{Plan, Unschedulable};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::{
    fleet::{Nodes, node},
    generate::Scene,
    opening::Opening,
    order::{ByOrder, Reason, is_ahead, is_even_with, is_overfull},
    pods::{Group, group_of, key, typed},
};

/// By group and node: how many pods fewer are bound there than were planned; negative if there are more.
type Missing<'a> = BTreeMap<&'a str, BTreeMap<&'a str, i64>>;

fn missing<'a>(
    scene: &Scene,
    opened: impl Iterator<Item = (&'a String, &'a String)>,
    bound: &'a BTreeMap<String, String>,
) -> Missing<'a> {
    let mut groups = Missing::new();
    for (pod, home) in opened {
        *groups.entry(group_of(pod)).or_default().entry(home).or_default() += 1;
    }
    let waited = |pod: &str| scene.waiting.iter().any(|group| group.name == group_of(pod));
    for (pod, node) in bound.iter().filter(|(pod, _)| waited(pod)) {
        *groups.entry(group_of(pod)).or_default().entry(node).or_default() -= 1;
    }
    groups
}

/// The groups that have fewer pods bound than were planned.
fn pending<'m, 'a>(groups: &'m Missing<'a>) -> impl Iterator<Item = (&'a str, &'m BTreeMap<&'a str, i64>)> {
    let all = groups.iter().map(|(name, nodes)| (*name, nodes));
    all.filter(|(_, nodes)| nodes.values().sum::<i64>() > 0)
}

/// The pods that were opened so far, and what keeps them in their places.
pub struct Opened<'a> {
    pub scene: &'a Scene,
    opening: Opening,
    /// The planned node of each pod.
    pub homes: &'a BTreeMap<String, String>,
    /// Nodes that are there.
    pub nodes: Nodes,
    pub nominated: BTreeSet<String>,
    /// Pods that a limit left out of the plan.
    pub limited: BTreeSet<String>,
    pub by_order: ByOrder,
}

impl<'a> Opened<'a> {
    /// No pod is nominated yet.
    pub fn new(scene: &'a Scene, opening: Opening, plan: &Plan, homes: &'a BTreeMap<String, String>) -> Self {
        Self {
            scene,
            opening,
            homes,
            nodes: by_name(&scene.nodes).collect(),
            nominated: BTreeSet::new(),
            limited: limited(plan),
            by_order: ByOrder::new(scene, homes),
        }
    }

    /// The pending pods of these names, as they were created.
    pub fn pods_of(&self, names: &BTreeSet<String>) -> Vec<Value> {
        let all = self.scene.waiting.iter().flat_map(Group::pods);
        all.filter(|pod| names.contains(key(pod).1)).collect()
    }

    /// True if `pod` is bound, and more pods of its group than were planned.
    pub fn is_surplus(&self, pod: &str, bound: &BTreeMap<String, String>) -> bool {
        let of_group =
            |pods: &BTreeMap<String, String>| pods.keys().filter(|p| group_of(p) == group_of(pod)).count();
        bound.contains_key(pod) && of_group(bound) > of_group(self.homes)
    }

    /// How many pods are bound as planned.
    pub fn at_home(&self, bound: &BTreeMap<String, String>) -> usize {
        let groups = missing(self.scene, self.homes.iter(), bound);
        let elsewhere: i64 = groups.values().flat_map(BTreeMap::values).filter(|n| **n > 0).sum();
        self.homes.len() - usize::try_from(elsewhere).unwrap()
    }

    /// The groups of `pods`, with their planned nodes, that have pending pods, if each of them misses some on a node that
    /// was kept for a nominated pod, which is bound to another.
    pub fn kept_out(
        &self,
        pods: &BTreeMap<&String, &String>,
        bound: &BTreeMap<String, String>,
    ) -> Option<BTreeSet<String>> {
        let groups = missing(self.scene, pods.iter().map(|(pod, home)| (*pod, *home)), bound);
        let given_up = |pod: &String| {
            let (home, node) = (self.homes.get(pod)?, bound.get(pod)?);
            (home != node).then_some(home.as_str())
        };
        let given_up: BTreeSet<&str> = self.nominated.iter().filter_map(given_up).collect();
        let is_kept_out =
            |nodes: &BTreeMap<&str, i64>| nodes.iter().any(|(node, n)| *n > 0 && given_up.contains(node));
        pending(&groups).map(|(name, nodes)| is_kept_out(nodes).then(|| name.to_owned())).collect()
    }

    /// The groups of `pods`, with their planned nodes, that have pending pods, if the order of binding decided about each of them.
    pub fn decided_by_order(
        &self,
        pods: &BTreeMap<&String, &String>,
        bound: &BTreeMap<String, String>,
    ) -> Option<BTreeMap<String, Reason>> {
        let groups = missing(self.scene, pods.iter().map(|(pod, home)| (*pod, *home)), bound);
        let has_more = |pod: &str, node: &str| {
            groups.get(group_of(pod)).and_then(|nodes| nodes.get(node)).is_some_and(|n| *n < 0)
        };
        let elsewhere = || bound.iter().filter(|(pod, node)| has_more(pod, node));
        let mut strays: BTreeSet<(&str, &str)> = elsewhere()
            .filter(|(pod, node)| self.is_stray(pod, node))
            .map(|(pod, node)| (group_of(pod), node.as_str()))
            .collect();
        let mut taken: BTreeSet<&str> = strays.iter().map(|(_, node)| *node).collect();
        // A pod that lost its place to one of them takes what it finds, too.
        loop {
            let is_displaced = |pod: &String, node: &String| {
                self.homes.get(pod).is_some_and(|home| home != node && taken.contains(home.as_str()))
            };
            let displaced = elsewhere().filter(|(pod, node)| is_displaced(pod, node));
            let displaced: Vec<(&str, &str)> =
                displaced.map(|(pod, node)| (group_of(pod), node.as_str())).collect();
            let known = strays.len();
            taken.extend(displaced.iter().map(|(_, node)| *node));
            strays.extend(displaced);
            if strays.len() == known {
                break;
            }
        }
        let stray = |group: &&Group| strays.iter().any(|(name, _)| *name == group.name);
        let stray: Vec<&Group> = self.scene.waiting.iter().filter(stray).collect();
        let is_random = self.opening == Opening::Shuffled;
        let each = pending(&groups).map(|(name, nodes)| {
            let group = self.scene.waiting.iter().find(|group| group.name == name)?;
            let reason = if let Some(reason) = self.by_order.reason(name) {
                reason
            } else if are_displaced(group, nodes, &taken) {
                Reason::Displaced
            } else if is_random && is_overfull(self.scene, group, pods, &self.nodes) {
                Reason::Overfull
            } else if is_random && !strays.is_empty() || stray.iter().any(|other| is_even_with(group, other))
            {
                // They may keep others out of whole domains.
                Reason::Disturbed
            } else {
                return None;
            };
            Some((name.to_owned(), reason))
        });
        each.collect::<Option<BTreeMap<String, Reason>>>().filter(|groups| !groups.is_empty())
    }

    /// True for a pod elsewhere than planned that nothing kept there: kube-scheduler chooses the node of a pod without a
    /// nomination, also of one that a limit left out of the plan, of one that needs pods that may be bound after it or that its
    /// spread keeps out until others are bound, and with a random order that of any pod.
    fn is_stray(&self, pod: &str, node: &String) -> bool {
        let is_random = self.opening == Opening::Shuffled;
        let Some(home) = self.homes.get(pod) else { return is_random || self.limited.contains(pod) };
        let name = group_of(pod);
        let group = self.scene.waiting.iter().find(|group| group.name == name);
        let is_kept = self.nominated.contains(pod)
            && !self.by_order.hasty.contains(name)
            && !group.is_some_and(|group| is_ahead(self.scene, group, home, self.homes, &self.nodes));
        home != node && (is_random || !is_kept)
    }
}

/// True if no more pods of the group are pending than lost their places on nodes that others have `taken`, or if those that
/// did keep out the rest.
fn are_displaced(group: &Group, nodes: &BTreeMap<&str, i64>, taken: &BTreeSet<&str>) -> bool {
    let lost = nodes.iter().filter(|(node, n)| **n > 0 && taken.contains(*node)).map(|(_, n)| n);
    let lost: i64 = lost.sum();
    nodes.values().sum::<i64>() <= lost || lost > 0 && is_even_with(group, group)
}

/// The nodes that come before a turn: none, the coming ones, the planned ones.
pub fn nodes_of_turn(scene: &Scene, plan: &Plan, turn: i32) -> Vec<Value> {
    match turn {
        0 => Vec::new(),
        1 => {
            let coming = scene.coming.iter();
            coming.map(|c| node(&c.claim, c.labels.clone(), &c.taints, &c.allocatable)).collect()
        }
        _ => {
            let planned = plan.instances.iter();
            planned.map(|m| node(&m.name, m.labels.clone(), &m.taints, &m.allocatable)).collect()
        }
    }
}

/// Nodes and their names.
pub fn by_name(nodes: &[Value]) -> impl Iterator<Item = (String, Node)> {
    nodes.iter().map(|node| (key(node).1.to_owned(), typed(node)))
}

/// The pods that a limit left out.
fn limited(plan: &Plan) -> BTreeSet<String> {
    let is_limited = |u: &&Unschedulable| u.reasons.iter().any(|r| r.reason.is_limit());
    plan.unschedulable.iter().filter(is_limited).map(|u| u.pod.name.to_string()).collect()
}
