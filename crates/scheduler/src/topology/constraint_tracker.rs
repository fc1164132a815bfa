//! Constraints of other classes that a class respects when it chooses its domain sets.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    ids::{DomainSetIx, FollowerIx, GroupIx, LocalClassIx},
    index_vec::IndexVec,
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
    /// The wholes of the domain sets that it may choose.
    domain_sets: Vec<DomainSetIx>,
    /// A matching pod is in one of them.
    is_satisfied: bool,
}

/// Classes with required affinity to another class in their domain or on their host, while no pod exists that
/// they could join.
#[derive(Debug, Default)]
struct Followers {
    /// By class: its followers whose own domain sets don't include all of its.
    of: FxHashMap<LocalClassIx, SmallVec<[FollowerIx; 2]>>,
    list: IndexVec<FollowerIx, Follower>,
}

impl Followers {
    fn new(groups: &BlockGroups, view: &TopologyView, choices: &[Choice]) -> Self {
        let mut result = Self::default();
        let mut by_group: FxHashMap<GroupIx, Vec<FollowerIx>> = FxHashMap::default();
        let whole_domain_sets = |choice: &Choice| {
            choice.domain_sets.iter().map(|(domain_set, _)| view.whole(*domain_set)).collect::<Vec<_>>()
        };
        for choice in choices {
            let Some(topology) = groups.of.find(choice.class) else { continue };
            let affinity = || topology.affinity.iter().copied().chain(topology.host_affinity);
            if choice.domain_sets.is_empty() || affinity().next().is_none() {
                continue;
            }
            let domain_sets = whole_domain_sets(choice);
            let is_satisfied = affinity().any(|g| {
                domain_sets
                    .iter()
                    .any(|c| view.pod_counts(groups, *c, g).is_some_and(|pods| pods.matching > 0))
            });
            let follower = result.list.push(Follower { class: choice.class, domain_sets, is_satisfied });
            for group in affinity() {
                by_group.entry(group).or_default().push(follower);
            }
        }
        for choice in choices.iter().filter(|_| !by_group.is_empty()) {
            let Some(topology) = groups.of.find(choice.class) else { continue };
            let mut followers: SmallVec<[FollowerIx; 2]> = SmallVec::new();
            for group in choice.counting_groups.iter().chain(&topology.host_matching_groups) {
                for ix in by_group.get(group).into_iter().flatten() {
                    let follower = &result.list[*ix];
                    let is_elsewhere = |c: &DomainSetIx| !follower.domain_sets.contains(&view.whole(*c));
                    let may_miss = follower.class != choice.class
                        && !follower.is_satisfied
                        && choice.domain_sets.iter().any(|(c, _)| is_elsewhere(c));
                    if may_miss && !followers.contains(ix) {
                        followers.push(*ix);
                    }
                }
            }
            if !followers.is_empty() {
                result.of.insert(choice.class, followers);
            }
        }
        result
    }

    /// How many followers of `class` without a matching pod in reach can't go to `domain_set`.
    fn followers_without_domain(&self, class: LocalClassIx, domain_set: DomainSetIx) -> usize {
        let Some(followers) = self.of.get(&class) else { return 0 };
        let has_no_domain =
            |follower: &&Follower| !follower.is_satisfied && !follower.domain_sets.contains(&domain_set);
        followers.iter().map(|ix| &self.list[*ix]).filter(has_no_domain).count()
    }

    /// Marks the followers of `class` that may go to `domain_set`.
    fn record_placement(&mut self, class: LocalClassIx, domain_set: DomainSetIx) {
        for ix in self.of.get(&class).into_iter().flatten() {
            let follower = &mut self.list[*ix];
            follower.is_satisfied |= follower.domain_sets.contains(&domain_set);
        }
    }
}

/// Spreads of placed pods, which later pods must not violate: by group and domain, the strictest.
type PlacedSpreads<'a> = FxHashMap<(GroupIx, Sym), (&'a Choice, SpreadRule)>;

/// Where pods with required affinity to a group on their host could have a new host.
#[derive(Debug, Default)]
struct HostCandidates {
    /// The domain sets where a pod of the group goes, or may go, to a new instance.
    domain_sets: BTreeSet<DomainSetIx>,
    /// Classes of the group without that requirement of their own, and their priorities.
    affinity_targets: Vec<(LocalClassIx, i32)>,
}

impl HostCandidates {
    fn new(groups: &BlockGroups, choices: &[Choice]) -> FxHashMap<GroupIx, Self> {
        let mut result: FxHashMap<GroupIx, Self> =
            groups.of.iter().filter_map(|t| t.host_affinity).map(|g| (g, Self::default())).collect();
        if result.is_empty() {
            return result;
        }
        for choice in choices {
            let Some(topology) = groups.of.find(choice.class) else { continue };
            for g in topology.host_matching_groups.iter().filter(|g| topology.host_affinity != Some(**g)) {
                if let Some(candidates) = result.get_mut(g) {
                    candidates.affinity_targets.push((choice.class, choice.priority));
                }
            }
        }
        result
    }
}

/// Pending pods that a placement would leave without a domain set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExcludedPods {
    /// Of classes that come before the placed one in kube-scheduler's queue.
    pub(super) earlier: u32,
    /// Of all classes.
    pub(super) all: u32,
}

/// Constraints of others, while classes choose.
pub(super) struct ConstraintTracker<'a> {
    followers: Followers,
    placed_spreads: PlacedSpreads<'a>,
    /// By group of some class's anti-affinity: the classes that the group counts.
    repelled: FxHashMap<GroupIx, Vec<&'a Choice>>,
    /// By group of some class's anti-affinity: the classes that have it.
    repelling: FxHashMap<GroupIx, Vec<&'a Choice>>,
    /// By class: pods without a domain set yet.
    pub(super) pending: FxHashMap<LocalClassIx, u32>,
    /// No class takes a domain set for now that would leave pods of earlier classes without one.
    pub(super) defers_exclusion: bool,
    /// By group of [`Topology::host_affinity`].
    host_candidates: FxHashMap<GroupIx, HostCandidates>,
    /// By class of [`Order::seed_followers`]: the classes that it must not come before.
    affinity_seeds: FxHashMap<LocalClassIx, Vec<LocalClassIx>>,
    /// The remaining seeds have no place: their followers may come first after all.
    seeds_given_up: bool,
    /// By class with spreads: the domain sets where they hold before any pending pod is placed, if not all
    /// do.
    pub(super) ready_domain_sets: FxHashMap<LocalClassIx, Vec<DomainSetIx>>,
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
        let mut repelled: FxHashMap<GroupIx, Vec<&'a Choice>> =
            repelling.keys().map(|group| (*group, Vec::new())).collect();
        let has_anti_affinity = !repelled.is_empty();
        for choice in choices.iter().filter(|_| has_anti_affinity) {
            for group in &choice.counting_groups {
                if let Some(list) = repelled.get_mut(group) {
                    list.push(choice);
                }
            }
        }
        Self {
            followers: Followers::new(groups, view, choices),
            placed_spreads: PlacedSpreads::default(),
            repelled,
            repelling,
            pending: choices.iter().map(|c| (c.class, c.count)).collect(),
            defers_exclusion: true,
            host_candidates: HostCandidates::new(groups, choices),
            affinity_seeds: affinity_seeds(groups, choices, order),
            seeds_given_up: false,
            ready_domain_sets: FxHashMap::default(),
        }
    }

    /// Records that a class may go to any of its domain sets.
    pub(super) fn record_unconstrained(&mut self, view: &TopologyView, choice: &Choice, topology: &Topology) {
        self.pending.insert(choice.class, 0);
        for (domain_set, _) in &choice.domain_sets {
            self.record_host_candidate(topology, view.whole(*domain_set));
        }
    }

    /// Records that pods of a class go to a new instance in `domain_set`, or may.
    fn record_host_candidate(&mut self, topology: &Topology, domain_set: DomainSetIx) {
        if self.host_candidates.is_empty() {
            return;
        }
        for g in &topology.host_matching_groups {
            if let Some(candidates) = self.host_candidates.get_mut(g) {
                candidates.domain_sets.insert(domain_set);
            }
        }
    }

    /// True if a pod of the class could have a new host in `domain_set` with an affinity target, or start one: it is bound
    /// before targets of a lower priority.
    pub(super) fn has_host_candidate(
        &self,
        groups: &BlockGroups,
        choice: &Choice,
        topology: &Topology,
        domain_set: DomainSetIx,
    ) -> bool {
        let Some(g) = topology.host_affinity else { return true };
        let Some(HostCandidates { domain_sets, affinity_targets }) = self.host_candidates.get(&g) else {
            return true;
        };
        let may_precede = |(affinity_target, priority): &(LocalClassIx, i32)| {
            *priority >= choice.priority && self.pending.get(affinity_target).is_some_and(|n| *n > 0)
        };
        let has_no_target =
            domain_sets.is_empty() && groups.list.find(g).is_some_and(|group| group.total == 0);
        let is_first = topology.may_be_first
            && has_no_target
            && (self.seeds_given_up || !affinity_targets.iter().any(may_precede));
        is_first || domain_sets.contains(&domain_set)
    }

    /// True if a class that could start its domain must follow others that are pending.
    pub(super) fn must_follow_seeds(&self, class: LocalClassIx) -> bool {
        let is_pending = |seed: &LocalClassIx| self.pending.get(seed).is_some_and(|n| *n > 0);
        !self.seeds_given_up
            && self
                .affinity_seeds
                .get(&class)
                .is_some_and(|affinity_seeds| affinity_seeds.iter().any(is_pending))
    }

    /// Stops waiting for pending seeds; false if that changes nothing.
    pub(super) fn give_up_seeds(&mut self) -> bool {
        let has_waiting_class = !self.affinity_seeds.is_empty() || !self.host_candidates.is_empty();
        has_waiting_class && !std::mem::replace(&mut self.seeds_given_up, true)
    }

    /// True if pods of the class have followers, so that each of them is evaluated again.
    pub(super) fn has_followers(&self, class: LocalClassIx) -> bool {
        self.followers.of.contains_key(&class)
    }

    /// How many followers of `class` without a matching pod in reach can't go to `domain_set`.
    pub(super) fn followers_without_domain(&self, class: LocalClassIx, domain_set: DomainSetIx) -> usize {
        self.followers.followers_without_domain(class, domain_set)
    }

    /// True if pods of the class keep others out of domains by some anti-affinity.
    pub(super) fn may_exclude_others(&self, choice: &Choice, topology: &Topology) -> bool {
        !topology.anti_affinity.is_empty()
            || choice.counting_groups.iter().any(|group| self.repelling.contains_key(group))
    }

    /// Pending pods of others that have no domain set left once a pod of the class is in the domains of `domain_set`, since
    /// required anti-affinity of either keeps them apart.
    pub(super) fn excluded_pods(
        &self,
        groups: &BlockGroups,
        view: &TopologyView,
        choice: &Choice,
        topology: &Topology,
        domain_set: DomainSetIx,
    ) -> ExcludedPods {
        let mut excluded = ExcludedPods::default();
        let mut add = |others: Option<&Vec<&Choice>>, number: GroupIx| {
            let Some(group) = groups.list.find(number) else { return };
            let Some(value) = view.value(group, domain_set) else { return };
            for other in others.into_iter().flatten() {
                let pending = self.pending.get(&other.class).copied().unwrap_or(0);
                if other.class == choice.class || pending == 0 {
                    continue;
                }
                let Some(rules) = groups.of.find(other.class) else { continue };
                let is_open = |c: DomainSetIx| !is_repelled(groups, view, c, rules);
                let mut open = other.domain_sets.iter().filter(|(c, _)| is_open(*c)).peekable();
                if open.peek().is_some() && open.all(|(c, _)| view.value(group, *c) == Some(value)) {
                    excluded.all = excluded.all.saturating_add(pending);
                    if other.class < choice.class {
                        excluded.earlier = excluded.earlier.saturating_add(pending);
                    }
                }
            }
        };
        for number in &topology.anti_affinity {
            add(self.repelled.get(number), *number);
        }
        for number in &choice.counting_groups {
            add(self.repelling.get(number), *number);
        }
        excluded
    }

    /// How many spreads of others one more pod of the class in `domain_set` would violate.
    pub(super) fn violated_spreads(
        &self,
        groups: &BlockGroups,
        view: &TopologyView,
        choice: &Choice,
        domain_set: DomainSetIx,
    ) -> usize {
        let is_violated = |g: &&GroupIx| {
            let Some(group) = groups.list.find(**g).filter(|group| view.is_counted(group, domain_set)) else {
                return false;
            };
            let Some(value) = view.value(group, domain_set) else { return false };
            self.placed_spreads.get(&(**g, value)).is_some_and(|(other, rule)| {
                let count = group.count_in(Some(value));
                other.class != choice.class && count + 1 - view.min_count(groups, other, rule) > rule.max_skew
            })
        };
        if self.placed_spreads.is_empty() {
            0
        } else {
            choice.counting_groups.iter().filter(is_violated).count()
        }
    }

    /// Records the constraints that a placed pod of the class puts on later ones.
    pub(super) fn record_placement(
        &mut self,
        groups: &BlockGroups,
        view: &TopologyView,
        choice: &'a Choice,
        topology: &Topology,
        domain_set: DomainSetIx,
    ) {
        self.followers.record_placement(choice.class, view.whole(domain_set));
        self.record_host_candidate(topology, view.whole(domain_set));
        for rule in &topology.spreads {
            let value = groups.list.find(rule.group).and_then(|group| view.value(group, domain_set));
            let Some(value) = value else { continue };
            let strictest = self.placed_spreads.entry((rule.group, value)).or_insert((choice, *rule));
            if rule.max_skew < strictest.1.max_skew {
                *strictest = (choice, *rule);
            }
        }
    }
}

/// True if some anti-affinity keeps one more pod of a class out of the domain set.
pub(super) fn is_repelled(
    groups: &BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    topology: &Topology,
) -> bool {
    topology
        .anti_affinity
        .iter()
        .any(|g| view.pod_counts(groups, domain_set, *g).is_some_and(|pods| pods.matching > 0))
        || topology
            .matching_groups
            .iter()
            .any(|g| view.pod_counts(groups, domain_set, *g).is_some_and(|pods| pods.repelling > 0))
}

/// True if pods with affinity to `group` may join those of `choice`, which don't have that affinity themselves.
pub(super) fn is_affinity_seed(groups: &BlockGroups, choice: &Choice, group: GroupIx) -> bool {
    choice.counting_groups.contains(&group)
        && groups.of.find(choice.class).is_some_and(|t| !t.affinity.contains(&group))
}

/// By class of [`Order::seed_followers`]: the classes whose pods may be bound before its first one and that it must be beside.
fn affinity_seeds(
    groups: &BlockGroups,
    choices: &[Choice],
    order: &Order,
) -> FxHashMap<LocalClassIx, Vec<LocalClassIx>> {
    let followers = choices.iter().filter(|c| order.seed_followers.contains(&c.class));
    let seeds_of = |choice: &Choice| {
        let affinity = groups.of.find(choice.class).map_or(&[][..], |t| &t.affinity);
        let is_seed = |other: &&Choice| {
            other.class != choice.class
                && other.priority >= choice.priority
                && affinity.iter().any(|group| is_affinity_seed(groups, other, *group))
        };
        (choice.class, choices.iter().filter(is_seed).map(|other| other.class).collect())
    };
    followers.map(seeds_of).collect()
}
