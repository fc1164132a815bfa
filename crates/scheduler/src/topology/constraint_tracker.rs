//! Constraints of other classes that a class respects when it chooses its domain sets.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    state::interner::Sym,
    topology::{
        domains::{Choice, Order, TopologyView},
        groups::{Groups, SpreadRule, Topology},
    },
};

/// Classes with required affinity to another class in their domain or on their host, while no pod exists that
/// they could join.
#[derive(Debug, Default)]
struct Followers {
    /// By class: its followers whose own domain sets don't include all of its.
    of: FxHashMap<usize, SmallVec<[usize; 2]>>,
    /// By follower: its domain sets, and whether a pod that it needs is in one of them.
    list: Vec<(usize, Vec<usize>, bool)>,
}

impl Followers {
    fn new(groups: &Groups, view: &TopologyView, choices: &[Choice]) -> Self {
        let mut result = Self::default();
        let mut needing: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        let cells_of = |choice: &Choice| {
            choice.domain_sets.iter().map(|(domain_set, _)| view.whole(*domain_set)).collect::<Vec<_>>()
        };
        for choice in choices {
            let Some(topology) = groups.of.get(choice.class) else { continue };
            let needs = || topology.near.iter().copied().chain(topology.host_near);
            if choice.domain_sets.is_empty() || needs().next().is_none() {
                continue;
            }
            let domain_sets = cells_of(choice);
            let met =
                needs().any(|g| domain_sets.iter().any(|c| view.at(groups, *c, g).is_some_and(|d| d.0 > 0)));
            for group in needs() {
                needing.entry(group).or_default().push(result.list.len());
            }
            result.list.push((choice.class, domain_sets, met));
        }
        for choice in choices.iter().filter(|_| !needing.is_empty()) {
            let Some(topology) = groups.of.get(choice.class) else { continue };
            let mut followers: SmallVec<[usize; 2]> = SmallVec::new();
            for group in choice.counted.iter().chain(&topology.host_counted) {
                for at in needing.get(group).into_iter().flatten() {
                    let narrower = result.list.get(*at).is_some_and(|(class, domain_sets, met)| {
                        *class != choice.class
                            && !met
                            && choice.domain_sets.iter().any(|(c, _)| !domain_sets.contains(&view.whole(*c)))
                    });
                    if narrower && !followers.contains(at) {
                        followers.push(*at);
                    }
                }
            }
            if !followers.is_empty() {
                result.of.insert(choice.class, followers);
            }
        }
        result
    }

    /// How many followers a pod of `class` in `domain_set` would leave without a place.
    fn left_behind(&self, class: usize, domain_set: usize) -> usize {
        let Some(followers) = self.of.get(&class) else { return 0 };
        let alone = |at: &&usize| {
            self.list
                .get(**at)
                .is_some_and(|(_, domain_sets, met)| !met && !domain_sets.contains(&domain_set))
        };
        followers.iter().filter(alone).count()
    }

    fn placed(&mut self, class: usize, domain_set: usize) {
        for at in self.of.get(&class).into_iter().flatten() {
            if let Some((_, domain_sets, met)) = self.list.get_mut(*at) {
                *met |= domain_sets.contains(&domain_set);
            }
        }
    }
}

/// Spreads that already hold for placed pods: by group and domain, the strictest.
type Held<'a> = FxHashMap<(usize, Sym), (&'a Choice, SpreadRule)>;

/// Where pods with required affinity to a group on their host could have a new host.
#[derive(Debug, Default)]
struct Hosts {
    /// The domain sets where a pod of the group goes to a new instance; `None`: any.
    domain_sets: BTreeSet<Option<usize>>,
    /// Classes of the group without that requirement of their own.
    affinity_targets: Vec<usize>,
}

impl Hosts {
    fn new(groups: &Groups, choices: &[Choice]) -> FxHashMap<usize, Self> {
        let mut result: FxHashMap<usize, Self> =
            groups.of.iter().filter_map(|t| t.host_near).map(|g| (g, Self::default())).collect();
        if result.is_empty() {
            return result;
        }
        for choice in choices {
            let Some(topology) = groups.of.get(choice.class) else { continue };
            for g in topology.host_counted.iter().filter(|g| topology.host_near != Some(**g)) {
                if let Some(hosts) = result.get_mut(g) {
                    hosts.affinity_targets.push(choice.class);
                }
            }
        }
        result
    }
}

/// Constraints of others, while classes choose.
pub(super) struct ConstraintTracker<'a> {
    followers: Followers,
    held: Held<'a>,
    /// By group of some class's anti-affinity: the classes that it repels and that have no domain set yet.
    meant: FxHashMap<usize, Vec<&'a Choice>>,
    /// By class: pods without a domain set yet.
    pub(super) left: FxHashMap<usize, u32>,
    /// A class that would shut out earlier ones comes after them.
    pub(super) yields: bool,
    /// By group that some class needs on its host.
    hosts: FxHashMap<usize, Hosts>,
    /// By class of [`Order::following`]: the classes that it must not come before.
    affinity_seeds: FxHashMap<usize, Vec<usize>>,
    /// The remaining seeds have no place: their followers may come first after all.
    seeds_given_up: bool,
    /// By class with spreads: the domain sets where they hold before any pending pod is placed, if not all
    /// do.
    pub(super) at_once: FxHashMap<usize, Vec<usize>>,
}

impl<'a> ConstraintTracker<'a> {
    pub(super) fn new(groups: &Groups, view: &TopologyView, choices: &'a [Choice], order: &Order) -> Self {
        let mut meant: FxHashMap<usize, Vec<&'a Choice>> = FxHashMap::default();
        for group in choices.iter().filter_map(|c| groups.of.get(c.class)).flat_map(|t| &t.anti) {
            meant.entry(*group).or_default();
        }
        let some = !meant.is_empty();
        for choice in choices.iter().filter(|_| some) {
            for group in &choice.counted {
                if let Some(list) = meant.get_mut(group) {
                    list.push(choice);
                }
            }
        }
        Self {
            followers: Followers::new(groups, view, choices),
            held: Held::default(),
            meant,
            left: choices.iter().map(|c| (c.class, c.count)).collect(),
            yields: true,
            hosts: Hosts::new(groups, choices),
            affinity_seeds: affinity_seeds(groups, choices, order),
            seeds_given_up: false,
            at_once: FxHashMap::default(),
        }
    }

    /// Records that a class goes to no domain set in particular.
    pub(super) fn anywhere(&mut self, class: usize, topology: &Topology) {
        self.left.insert(class, 0);
        self.host(topology, None);
    }

    /// Records where pods of a class go.
    fn host(&mut self, topology: &Topology, domain_set: Option<usize>) {
        if self.hosts.is_empty() {
            return;
        }
        for g in &topology.host_counted {
            if let Some(hosts) = self.hosts.get_mut(g) {
                hosts.domain_sets.insert(domain_set);
            }
        }
    }

    /// True if a pod of the class could have a new host in `domain_set` with an affinity target, or start
    /// one.
    pub(super) fn hosted(&self, groups: &Groups, topology: &Topology, domain_set: usize) -> bool {
        let Some(g) = topology.host_near else { return true };
        let Some(Hosts { domain_sets, affinity_targets }) = self.hosts.get(&g) else { return true };
        let waits = |affinity_target: &usize| self.left.get(affinity_target).is_some_and(|n| *n > 0);
        let none = domain_sets.is_empty() && groups.list.get(g).is_some_and(|group| group.total == 0);
        let first = topology.starts && none && (self.seeds_given_up || !affinity_targets.iter().any(waits));
        first || domain_sets.contains(&None) || domain_sets.contains(&Some(domain_set))
    }

    /// True if a class that could start its domain must follow others that are pending.
    pub(super) fn follows(&self, class: usize) -> bool {
        let waits = |seed: &usize| self.left.get(seed).is_some_and(|n| *n > 0);
        !self.seeds_given_up
            && self.affinity_seeds.get(&class).is_some_and(|affinity_seeds| affinity_seeds.iter().any(waits))
    }

    /// Stops waiting for pending seeds; false if that changes nothing.
    pub(super) fn give_up_seeds(&mut self) -> bool {
        let anybody = !self.affinity_seeds.is_empty() || !self.hosts.is_empty();
        anybody && !std::mem::replace(&mut self.seeds_given_up, true)
    }

    /// True if pods of the class have followers, so that each of them is evaluated again.
    pub(super) fn leads(&self, class: usize) -> bool {
        self.followers.of.contains_key(&class)
    }

    /// How many followers a pod of `class` in `domain_set` would leave without a place.
    pub(super) fn left_behind(&self, class: usize, domain_set: usize) -> usize {
        self.followers.left_behind(class, domain_set)
    }

    /// How many pending pods of others have no domain set left once a pod of the class repels them from the
    /// domains of `domain_set`: of those that come before it, and of all.
    pub(super) fn shut_out(
        &self,
        groups: &Groups,
        view: &TopologyView,
        choice: &Choice,
        topology: &Topology,
        domain_set: usize,
    ) -> (u32, u32) {
        let (mut before, mut all) = (0u32, 0u32);
        for number in &topology.anti {
            let Some(group) = groups.list.get(*number) else { continue };
            let Some(value) = view.value(group, domain_set) else { continue };
            for other in self.meant.get(number).into_iter().flatten() {
                let left = self.left.get(&other.class).copied().unwrap_or(0);
                if other.class == choice.class || left == 0 {
                    continue;
                }
                let held = |c: usize| view.at(groups, c, *number).is_some_and(|d| d.1 > 0);
                let mut open = other.domain_sets.iter().filter(|(c, _)| !held(*c)).peekable();
                if open.peek().is_some() && open.all(|(c, _)| view.value(group, *c) == Some(value)) {
                    all = all.saturating_add(left);
                    if other.class < choice.class {
                        before = before.saturating_add(left);
                    }
                }
            }
        }
        (before, all)
    }

    /// How many spreads of others one more pod of the class in `domain_set` would violate.
    pub(super) fn broken(
        &self,
        groups: &Groups,
        view: &TopologyView,
        choice: &Choice,
        domain_set: usize,
    ) -> usize {
        let breaks = |g: &&usize| {
            let Some(group) = groups.list.get(**g).filter(|group| view.counts(group, domain_set)) else {
                return false;
            };
            let Some(value) = view.value(group, domain_set) else { return false };
            self.held.get(&(**g, value)).is_some_and(|(other, rule)| {
                let count = group.find(value).map_or(0, |d| d.count);
                other.class != choice.class && count + 1 - view.least(groups, other, rule) > rule.max_skew
            })
        };
        if self.held.is_empty() { 0 } else { choice.counted.iter().filter(breaks).count() }
    }

    pub(super) fn placed(
        &mut self,
        groups: &Groups,
        view: &TopologyView,
        choice: &'a Choice,
        topology: &Topology,
        domain_set: usize,
    ) {
        self.followers.placed(choice.class, view.whole(domain_set));
        self.host(topology, Some(view.whole(domain_set)));
        for rule in &topology.spreads {
            let value = groups.list.get(rule.group).and_then(|group| view.value(group, domain_set));
            let Some(value) = value else { continue };
            let held = self.held.entry((rule.group, value)).or_insert((choice, *rule));
            if rule.max_skew < held.1.max_skew {
                *held = (choice, *rule);
            }
        }
    }
}

/// True if pods of `group` may join `choice`, and `choice` doesn't need the group itself.
pub(super) fn is_affinity_seed(groups: &Groups, choice: &Choice, group: usize) -> bool {
    choice.counted.contains(&group) && groups.of.get(choice.class).is_some_and(|t| !t.near.contains(&group))
}

fn affinity_seeds(groups: &Groups, choices: &[Choice], order: &Order) -> FxHashMap<usize, Vec<usize>> {
    let following = choices.iter().filter(|c| order.following.contains(&c.class));
    let of = |choice: &Choice| {
        let near = groups.of.get(choice.class).map_or(&[][..], |t| &t.near);
        let leads = |other: &&Choice| {
            other.class != choice.class
                && other.priority >= choice.priority
                && near.iter().any(|group| is_affinity_seed(groups, other, *group))
        };
        (choice.class, choices.iter().filter(leads).map(|other| other.class).collect())
    };
    following.map(of).collect()
}
