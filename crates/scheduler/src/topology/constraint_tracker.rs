//! Constraints of other classes that a class respects when it chooses its domain sets.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    ids::{DomainSetIx, GroupIx, LocalClassIx},
    state::interner::Sym,
    topology::{
        domains::{Choice, Order, TopologyView},
        groups::{BlockGroups, SpreadRule, Topology},
    },
};

/// A class with required affinity.
#[derive(Debug)]
struct Follower {
    class: LocalClassIx,
    /// Its domain sets.
    domain_sets: Vec<DomainSetIx>,
    /// A pod that it needs is in one of them.
    met: bool,
}

/// Classes with required affinity to another class in their domain or on their host, while no pod exists that
/// they could join.
#[derive(Debug, Default)]
struct Followers {
    /// By class: positions in `list` of its followers whose own domain sets don't include all of its.
    of: FxHashMap<LocalClassIx, SmallVec<[usize; 2]>>,
    list: Vec<Follower>,
}

impl Followers {
    fn new(groups: &BlockGroups, view: &TopologyView, choices: &[Choice]) -> Self {
        let mut result = Self::default();
        let mut needing: FxHashMap<GroupIx, Vec<usize>> = FxHashMap::default();
        let cells_of = |choice: &Choice| {
            choice.domain_sets.iter().map(|(domain_set, _)| view.whole(*domain_set)).collect::<Vec<_>>()
        };
        for choice in choices {
            let Some(topology) = groups.of.find(choice.class) else { continue };
            let needs = || topology.affinity.iter().copied().chain(topology.host_affinity);
            if choice.domain_sets.is_empty() || needs().next().is_none() {
                continue;
            }
            let domain_sets = cells_of(choice);
            let met =
                needs().any(|g| domain_sets.iter().any(|c| view.pod_counts(groups, *c, g).is_some_and(|pods| pods.matching > 0)));
            for group in needs() {
                needing.entry(group).or_default().push(result.list.len());
            }
            result.list.push(Follower { class: choice.class, domain_sets, met });
        }
        for choice in choices.iter().filter(|_| !needing.is_empty()) {
            let Some(topology) = groups.of.find(choice.class) else { continue };
            let mut followers: SmallVec<[usize; 2]> = SmallVec::new();
            for group in choice.counting_groups.iter().chain(&topology.host_matching_groups) {
                for at in needing.get(group).into_iter().flatten() {
                    let narrower = result.list.get(*at).is_some_and(|follower| {
                        let elsewhere = |c: &DomainSetIx| !follower.domain_sets.contains(&view.whole(*c));
                        follower.class != choice.class
                            && !follower.met
                            && choice.domain_sets.iter().any(|(c, _)| elsewhere(c))
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
    fn left_behind(&self, class: LocalClassIx, domain_set: DomainSetIx) -> usize {
        let Some(followers) = self.of.get(&class) else { return 0 };
        let alone =
            |at: &&usize| self.list.get(**at).is_some_and(|f| !f.met && !f.domain_sets.contains(&domain_set));
        followers.iter().filter(alone).count()
    }

    fn placed(&mut self, class: LocalClassIx, domain_set: DomainSetIx) {
        for at in self.of.get(&class).into_iter().flatten() {
            if let Some(follower) = self.list.get_mut(*at) {
                follower.met |= follower.domain_sets.contains(&domain_set);
            }
        }
    }
}

/// Spreads that already hold for placed pods: by group and domain, the strictest.
type Held<'a> = FxHashMap<(GroupIx, Sym), (&'a Choice, SpreadRule)>;

/// Where pods with required affinity to a group on their host could have a new host.
#[derive(Debug, Default)]
struct Hosts {
    /// The domain sets where a pod of the group goes, or may go, to a new instance.
    domain_sets: BTreeSet<DomainSetIx>,
    /// Classes of the group without that requirement of their own, and their priorities.
    affinity_targets: Vec<(LocalClassIx, i32)>,
}

impl Hosts {
    fn new(groups: &BlockGroups, choices: &[Choice]) -> FxHashMap<GroupIx, Self> {
        let mut result: FxHashMap<GroupIx, Self> =
            groups.of.iter().filter_map(|t| t.host_affinity).map(|g| (g, Self::default())).collect();
        if result.is_empty() {
            return result;
        }
        for choice in choices {
            let Some(topology) = groups.of.find(choice.class) else { continue };
            for g in topology.host_matching_groups.iter().filter(|g| topology.host_affinity != Some(**g)) {
                if let Some(hosts) = result.get_mut(g) {
                    hosts.affinity_targets.push((choice.class, choice.priority));
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
    /// By group of some class's anti-affinity: the classes that it repels.
    meant: FxHashMap<GroupIx, Vec<&'a Choice>>,
    /// By group of some class's anti-affinity: the classes that have it.
    repelling: FxHashMap<GroupIx, Vec<&'a Choice>>,
    /// By class: pods without a domain set yet.
    pub(super) left: FxHashMap<LocalClassIx, u32>,
    /// A class that would shut out earlier ones comes after them.
    pub(super) yields: bool,
    /// By group that some class needs on its host.
    hosts: FxHashMap<GroupIx, Hosts>,
    /// By class of [`Order::following`]: the classes that it must not come before.
    affinity_seeds: FxHashMap<LocalClassIx, Vec<LocalClassIx>>,
    /// The remaining seeds have no place: their followers may come first after all.
    seeds_given_up: bool,
    /// By class with spreads: the domain sets where they hold before any pending pod is placed, if not all
    /// do.
    pub(super) at_once: FxHashMap<LocalClassIx, Vec<DomainSetIx>>,
}

impl<'a> ConstraintTracker<'a> {
    pub(super) fn new(
        groups: &BlockGroups,
        view: &TopologyView,
        choices: &'a [Choice],
        order: &Order,
    ) -> Self {
        let mut repelling: FxHashMap<GroupIx, Vec<&'a Choice>> = FxHashMap::default();
        for choice in choices {
            for group in groups.of.find(choice.class).into_iter().flat_map(|t| &t.anti_affinity) {
                repelling.entry(*group).or_default().push(choice);
            }
        }
        let mut meant: FxHashMap<GroupIx, Vec<&'a Choice>> =
            repelling.keys().map(|group| (*group, Vec::new())).collect();
        let some = !meant.is_empty();
        for choice in choices.iter().filter(|_| some) {
            for group in &choice.counting_groups {
                if let Some(list) = meant.get_mut(group) {
                    list.push(choice);
                }
            }
        }
        Self {
            followers: Followers::new(groups, view, choices),
            held: Held::default(),
            meant,
            repelling,
            left: choices.iter().map(|c| (c.class, c.count)).collect(),
            yields: true,
            hosts: Hosts::new(groups, choices),
            affinity_seeds: affinity_seeds(groups, choices, order),
            seeds_given_up: false,
            at_once: FxHashMap::default(),
        }
    }

    /// Records that a class may go to any of its domain sets.
    pub(super) fn anywhere(&mut self, view: &TopologyView, choice: &Choice, topology: &Topology) {
        self.left.insert(choice.class, 0);
        for (domain_set, _) in &choice.domain_sets {
            self.host(topology, view.whole(*domain_set));
        }
    }

    /// Records where pods of a class go.
    fn host(&mut self, topology: &Topology, domain_set: DomainSetIx) {
        if self.hosts.is_empty() {
            return;
        }
        for g in &topology.host_matching_groups {
            if let Some(hosts) = self.hosts.get_mut(g) {
                hosts.domain_sets.insert(domain_set);
            }
        }
    }

    /// True if a pod of the class could have a new host in `domain_set` with an affinity target, or start one: it is bound
    /// before targets of a lower priority.
    pub(super) fn hosted(
        &self,
        groups: &BlockGroups,
        (choice, topology): (&Choice, &Topology),
        domain_set: DomainSetIx,
    ) -> bool {
        let Some(g) = topology.host_affinity else { return true };
        let Some(Hosts { domain_sets, affinity_targets }) = self.hosts.get(&g) else { return true };
        let waits = |(affinity_target, priority): &(LocalClassIx, i32)| {
            *priority >= choice.priority && self.left.get(affinity_target).is_some_and(|n| *n > 0)
        };
        let none = domain_sets.is_empty() && groups.list.find(g).is_some_and(|group| group.total == 0);
        let first =
            topology.may_be_first && none && (self.seeds_given_up || !affinity_targets.iter().any(waits));
        first || domain_sets.contains(&domain_set)
    }

    /// True if a class that could start its domain must follow others that are pending.
    pub(super) fn follows(&self, class: LocalClassIx) -> bool {
        let waits = |seed: &LocalClassIx| self.left.get(seed).is_some_and(|n| *n > 0);
        !self.seeds_given_up
            && self.affinity_seeds.get(&class).is_some_and(|affinity_seeds| affinity_seeds.iter().any(waits))
    }

    /// Stops waiting for pending seeds; false if that changes nothing.
    pub(super) fn give_up_seeds(&mut self) -> bool {
        let anybody = !self.affinity_seeds.is_empty() || !self.hosts.is_empty();
        anybody && !std::mem::replace(&mut self.seeds_given_up, true)
    }

    /// True if pods of the class have followers, so that each of them is evaluated again.
    pub(super) fn leads(&self, class: LocalClassIx) -> bool {
        self.followers.of.contains_key(&class)
    }

    /// How many followers a pod of `class` in `domain_set` would leave without a place.
    pub(super) fn left_behind(&self, class: LocalClassIx, domain_set: DomainSetIx) -> usize {
        self.followers.left_behind(class, domain_set)
    }

    /// True if pods of the class keep others out of domains by some anti-affinity.
    pub(super) fn may_shut_out(&self, choice: &Choice, topology: &Topology) -> bool {
        !topology.anti_affinity.is_empty()
            || choice.counting_groups.iter().any(|group| self.repelling.contains_key(group))
    }

    /// How many pending pods of others have no domain set left once a pod of the class is in the domains of `domain_set`,
    /// since it repels them or they repel it: of those that come before it, and of all.
    pub(super) fn shut_out(
        &self,
        groups: &BlockGroups,
        view: &TopologyView,
        choice: &Choice,
        topology: &Topology,
        domain_set: DomainSetIx,
    ) -> (u32, u32) {
        let (mut before, mut all) = (0u32, 0u32);
        let mut add = |others: Option<&Vec<&Choice>>, number: GroupIx| {
            let Some(group) = groups.list.find(number) else { return };
            let Some(value) = view.value(group, domain_set) else { return };
            for other in others.into_iter().flatten() {
                let left = self.left.get(&other.class).copied().unwrap_or(0);
                if other.class == choice.class || left == 0 {
                    continue;
                }
                let Some(rules) = groups.of.find(other.class) else { continue };
                let is_open = |c: DomainSetIx| !is_kept_off(groups, view, c, rules);
                let mut open = other.domain_sets.iter().filter(|(c, _)| is_open(*c)).peekable();
                if open.peek().is_some() && open.all(|(c, _)| view.value(group, *c) == Some(value)) {
                    all = all.saturating_add(left);
                    if other.class < choice.class {
                        before = before.saturating_add(left);
                    }
                }
            }
        };
        for number in &topology.anti_affinity {
            add(self.meant.get(number), *number);
        }
        for number in &choice.counting_groups {
            add(self.repelling.get(number), *number);
        }
        (before, all)
    }

    /// How many spreads of others one more pod of the class in `domain_set` would violate.
    pub(super) fn broken(
        &self,
        groups: &BlockGroups,
        view: &TopologyView,
        choice: &Choice,
        domain_set: DomainSetIx,
    ) -> usize {
        let breaks = |g: &&GroupIx| {
            let Some(group) = groups.list.find(**g).filter(|group| view.counts(group, domain_set)) else {
                return false;
            };
            let Some(value) = view.value(group, domain_set) else { return false };
            self.held.get(&(**g, value)).is_some_and(|(other, rule)| {
                let count = group.count_in(Some(value));
                other.class != choice.class && count + 1 - view.least(groups, other, rule) > rule.max_skew
            })
        };
        if self.held.is_empty() { 0 } else { choice.counting_groups.iter().filter(breaks).count() }
    }

    pub(super) fn placed(
        &mut self,
        groups: &BlockGroups,
        view: &TopologyView,
        choice: &'a Choice,
        topology: &Topology,
        domain_set: DomainSetIx,
    ) {
        self.followers.placed(choice.class, view.whole(domain_set));
        self.host(topology, view.whole(domain_set));
        for rule in &topology.spreads {
            let value = groups.list.find(rule.group).and_then(|group| view.value(group, domain_set));
            let Some(value) = value else { continue };
            let held = self.held.entry((rule.group, value)).or_insert((choice, *rule));
            if rule.max_skew < held.1.max_skew {
                *held = (choice, *rule);
            }
        }
    }
}

/// True if some anti-affinity keeps one more pod of a class out of the domain set.
pub(super) fn is_kept_off(
    groups: &BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    topology: &Topology,
) -> bool {
    topology.anti_affinity.iter().any(|g| view.pod_counts(groups, domain_set, *g).is_some_and(|pods| pods.matching > 0))
        || topology.matching_groups.iter().any(|g| view.pod_counts(groups, domain_set, *g).is_some_and(|pods| pods.repelling > 0))
}

/// True if pods of `group` may join `choice`, and `choice` doesn't need the group itself.
pub(super) fn is_affinity_seed(groups: &BlockGroups, choice: &Choice, group: GroupIx) -> bool {
    choice.counting_groups.contains(&group)
        && groups.of.find(choice.class).is_some_and(|t| !t.affinity.contains(&group))
}

fn affinity_seeds(
    groups: &BlockGroups,
    choices: &[Choice],
    order: &Order,
) -> FxHashMap<LocalClassIx, Vec<LocalClassIx>> {
    let following = choices.iter().filter(|c| order.following.contains(&c.class));
    let of = |choice: &Choice| {
        let near = groups.of.find(choice.class).map_or(&[][..], |t| &t.affinity);
        let leads = |other: &&Choice| {
            other.class != choice.class
                && other.priority >= choice.priority
                && near.iter().any(|group| is_affinity_seed(groups, other, *group))
        };
        (choice.class, choices.iter().filter(leads).map(|other| other.class).collect())
    };
    following.map(of).collect()
}
