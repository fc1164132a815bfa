//! The order in which classes choose their domain sets, and which ones each may have.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    ids::{DomainSetIx, GroupIx, LocalClassIx},
    model::plan::ReasonKind,
    state::interner::Sym,
    topology::{
        constraint_tracker::{ConstraintTracker, ExcludedPods, is_affinity_seed, is_repelled},
        domains::{
            Assignment, Choice, Item, Order, OvertakenPods, SpreadViolation, TopologyView, UnplacedPods,
        },
        groups::{BlockGroups, Topology},
    },
};

/// Spreads that are violated by the final counts: in another binding order their pods would be kept out.
pub(crate) fn spread_violations(
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    items: &[Item],
) -> Vec<SpreadViolation> {
    let by_class: FxHashMap<LocalClassIx, &Choice> = choices.iter().map(|c| (c.class, c)).collect();
    let mut known: FxHashMap<LocalClassIx, SmallVec<[i64; 4]>> = FxHashMap::default();
    let mut result = Vec::new();
    for item in items {
        let Some((choice, topology)) = by_class.get(&item.class).zip(groups.of.find(item.class)) else {
            continue;
        };
        let min_counts =
            known.entry(item.class).or_insert_with(|| min_counts(groups, view, choice, topology));
        for (rule, min_count) in topology.spreads.iter().zip(&*min_counts) {
            let Some(group) = groups.list.find(rule.group) else { continue };
            let Some(value) = item.domain_set.and_then(|domain_set| view.value(group, domain_set)) else {
                continue;
            };
            if group.count_in(Some(value)) - min_count > rule.max_skew {
                result.push(SpreadViolation { class: item.class, group: rule.group, domain: value });
            }
        }
    }
    result
}

/// By class with spreads: the domain sets where they hold before any pending pod is placed, if not all do.
fn ready_domain_sets(
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
) -> FxHashMap<LocalClassIx, Vec<DomainSetIx>> {
    let mut result = FxHashMap::default();
    for choice in choices {
        let Some(topology) = groups.of.find(choice.class).filter(|t| !t.spreads.is_empty()) else { continue };
        let min_counts = min_counts(groups, view, choice, topology);
        let is_ready =
            |domain_set: &DomainSetIx| spreads_hold(groups, view, *domain_set, topology, &min_counts);
        let domain_sets: Vec<DomainSetIx> =
            choice.domain_sets.iter().map(|(domain_set, _)| *domain_set).filter(is_ready).collect();
        if domain_sets.len() < choice.domain_sets.len() {
            result.insert(choice.class, domain_sets);
        }
    }
    result
}

/// Classes whose own affinity terms match them, while no pod matches those terms: a pod of theirs may be the first.
fn possible_starters<'a>(groups: &BlockGroups, choices: &'a [Choice]) -> Vec<&'a Choice> {
    let is_possible_starter = |choice: &&Choice| {
        let Some(topology) = groups.of.find(choice.class) else { return false };
        let has_no_pod = |g: &GroupIx| groups.list.find(*g).is_none_or(|g| g.total == 0);
        topology.may_be_first
            && !topology.affinity.is_empty()
            && topology.affinity.iter().chain(&topology.host_affinity).all(has_no_pod)
    };
    choices.iter().filter(is_possible_starter).collect()
}

/// Classes of `possible_starters` that are placed in a domain without one of their affinity seeds, while seeds that may be bound
/// before them go to other domains.
fn separated_starters(
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    possible_starters: &[&Choice],
    items: &[Item],
) -> Vec<LocalClassIx> {
    let affinity_of = |choice: &Choice| groups.of.find(choice.class).map_or(&[][..], |t| &t.affinity);
    // By group: the domains of its affinity seeds, with the highest priority of those that go there.
    let mut seed_domains: FxHashMap<GroupIx, BTreeMap<Sym, i32>> =
        possible_starters.iter().flat_map(|c| affinity_of(c)).map(|g| (*g, BTreeMap::new())).collect();
    if seed_domains.is_empty() {
        return Vec::new();
    }
    let by_class: FxHashMap<LocalClassIx, &Choice> = choices.iter().map(|c| (c.class, c)).collect();
    for item in items {
        let Some((choice, domain_set)) = by_class.get(&item.class).zip(item.domain_set) else { continue };
        for g in choice.counting_groups.iter().filter(|g| is_affinity_seed(groups, choice, **g)) {
            let Some((domains, group)) = seed_domains.get_mut(g).zip(groups.list.find(*g)) else { continue };
            if let Some(value) = view.value(group, domain_set) {
                let highest = domains.entry(value).or_insert(choice.priority);
                *highest = choice.priority.max(*highest);
            }
        }
    }
    let starters: BTreeMap<LocalClassIx, &Choice> = possible_starters.iter().map(|c| (c.class, *c)).collect();
    let is_separated = |item: &&Item| {
        let Some((choice, domain_set)) = starters.get(&item.class).zip(item.domain_set) else { return false };
        affinity_of(choice).iter().any(|g| {
            let Some((domains, group)) = seed_domains.get(g).zip(groups.list.find(*g)) else { return false };
            // kube-scheduler may bind seeds of this priority first.
            let may_precede = |seed_priority: &i32| *seed_priority >= choice.priority;
            let own_domain = view.value(group, domain_set).and_then(|value| domains.get(&value));
            domains.values().any(may_precede) && !own_domain.is_some_and(may_precede)
        })
    };
    items.iter().filter(is_separated).map(|item| item.class).collect()
}

/// Pods that may be overtaken by those of an earlier class of their priority, to which they have anti-affinity: a spread keeps some
/// of these out of their own domains until the others are bound, and lets them go where those are to be. `before`: the groups
/// without the pods of `assigned`.
pub(crate) fn overtaken_pods(
    before: &BlockGroups,
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    assigned: &Assignment,
) -> Vec<OvertakenPods> {
    let mut result = Vec::new();
    for choice in choices {
        let Some(topology) = groups.of.find(choice.class) else { continue };
        let may_overtake = |other: &&Choice| {
            other.class < choice.class
                && other.priority == choice.priority
                && topology.anti_affinity.iter().any(|g| other.counting_groups.contains(g))
                && groups
                    .of
                    .find(other.class)
                    .is_some_and(|t| !t.spreads.is_empty() && !before.are_nominations_seen(t))
                && assigned.violations.iter().all(|violation| violation.class != other.class)
        };
        let mut earlier = choices.iter().filter(may_overtake).peekable();
        if earlier.peek().is_none() {
            continue;
        }
        let mut without = groups.clone();
        let own = assigned.items.iter().filter(|item| item.class == choice.class);
        let own: Vec<(DomainSetIx, u32)> =
            own.filter_map(|item| Some((item.domain_set?, item.count))).collect();
        for (domain_set, count) in &own {
            count_placement(&mut without, view, *domain_set, choice, topology, -i64::from(*count));
            // Their nodes open it whether or not they are bound.
            for g in &choice.counting_groups {
                let Some(group) = without.list.find_mut(*g) else { continue };
                if let Some(value) =
                    view.value(group, *domain_set).filter(|_| view.is_counted(group, *domain_set))
                {
                    group.domain(value).exists = true;
                }
            }
        }
        let violations = spread_violations(&without, view, choices, &assigned.items);
        for other in earlier.filter(|other| violations.iter().any(|violation| violation.class == other.class))
        {
            let Some(rules) = groups.of.find(other.class) else { continue };
            let min_counts = min_counts(&without, view, other, rules);
            let open = own.iter().filter(|(at, _)| spreads_hold(&without, view, *at, rules, &min_counts));
            result.extend(open.map(|(domain_set, _)| OvertakenPods {
                class: choice.class,
                domain_set: *domain_set,
                earlier: other.class,
            }));
        }
    }
    result
}

/// The classes in the order in which they choose, highest priority first.
fn choosing_order<'a>(groups: &BlockGroups, choices: &'a [Choice], order: &Order) -> Vec<&'a Choice> {
    let mut sequence: Vec<&Choice> = choices.iter().collect();
    // Anti-affinity chooses first, then affinity, then classes that are only counted; spreads come last, when
    // the counts are known.
    sequence.sort_by_key(|c| {
        let kind = groups.of.find(c.class).map_or(0, |t| {
            if !t.anti_affinity.is_empty() {
                0
            } else if !t.affinity.is_empty() {
                1
            } else if t.spreads.is_empty() {
                2
            } else {
                3
            }
        });
        let kind = if order.is_queue_order { 0 } else { kind };
        (Reverse(c.priority), order.last_classes.contains(&c.class), kind)
    });
    sequence
}

/// Pods of a class without a domain set yet.
#[derive(Clone, Copy)]
struct WaitingPods<'a> {
    choice: &'a Choice,
    count: u32,
}

/// Decides the domain set of every pod in `choices`.
pub(crate) fn decide(
    groups: &mut BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    order: &Order,
) -> Assignment {
    let mut out = Assignment::default();
    let possible_starters = possible_starters(groups, choices);
    let Order { last_classes, is_queue_order, .. } = order;
    let mut tracker = ConstraintTracker::new(groups, view, choices, order);
    tracker.ready_domain_sets = ready_domain_sets(groups, view, choices);
    let mut waiting: Vec<WaitingPods<'_>> = choosing_order(groups, choices, order)
        .into_iter()
        .map(|choice| WaitingPods { choice, count: choice.count })
        .collect();
    // The last classes also wait for those that choose in a later round, unless these find no place.
    let mut last_classes_wait = true;
    loop {
        let mut next_round: Vec<WaitingPods<'_>> = Vec::new();
        let (mut progress, mut postponed) = (false, false);
        for of_one_priority in waiting.chunk_by(|a, b| a.choice.priority == b.choice.priority) {
            let mut this_pass = of_one_priority.to_vec();
            for may_defer in [true, false] {
                tracker.defers_exclusion = may_defer && !is_queue_order;
                if !may_defer && postponed {
                    // Last classes of this priority or a higher one are still to choose.
                    next_round.append(&mut this_pass);
                }
                for WaitingPods { choice, count } in std::mem::take(&mut this_pass) {
                    let Some(topology) = groups.of.find(choice.class).cloned() else { continue };
                    let chooses_before = |other: &WaitingPods<'_>| {
                        other.count > 0 && !last_classes.contains(&other.choice.class)
                    };
                    if last_classes_wait
                        && last_classes.contains(&choice.class)
                        && next_round.iter().any(chooses_before)
                    {
                        next_round.push(WaitingPods { choice, count });
                        postponed = true;
                        continue;
                    }
                    if !topology.needs_domain() {
                        out.items.push(Item { class: choice.class, domain_set: None, count });
                        tracker.record_unconstrained(view, choice, &topology);
                        progress = true;
                        continue;
                    }
                    let left = place_with_dependents(
                        groups,
                        view,
                        WaitingPods { choice, count },
                        &mut next_round,
                        &mut tracker,
                        &mut out,
                    );
                    progress |= left < count;
                    if left == 0 {
                        continue;
                    }
                    if may_defer && tracker.may_exclude_others(choice, &topology) {
                        this_pass.push(WaitingPods { choice, count: left });
                    } else {
                        if !topology.spreads.is_empty() {
                            out.spread_blocked.insert(choice.class);
                        }
                        next_round.push(WaitingPods { choice, count: left });
                    }
                }
            }
        }
        next_round.retain(|pods| pods.count > 0);
        waiting = next_round;
        if !progress && postponed {
            last_classes_wait = false;
        } else if waiting.is_empty() || !progress && !tracker.give_up_seeds() {
            break;
        }
    }
    out.unplaced = waiting
        .into_iter()
        .filter_map(|WaitingPods { choice, count }| {
            let reason = unplaced_reason(groups, view, choice)?;
            Some(UnplacedPods { class: choice.class, count, reason })
        })
        .collect();
    out.violations = spread_violations(groups, view, choices, &out.items);
    out.separated_starters = separated_starters(groups, view, choices, &possible_starters, &out.items);
    out
}

/// The constraint that keeps the rest of a class out.
fn unplaced_reason(groups: &BlockGroups, view: &TopologyView, choice: &Choice) -> Option<ReasonKind> {
    let topology = groups.of.find(choice.class)?;
    let min_counts = min_counts(groups, view, choice, topology);
    let mut reasons = choice.domain_sets.iter().filter_map(|(domain_set, _)| {
        violated_constraint(groups, view, *domain_set, topology, &min_counts, true)
    });
    let otherwise = topology.host_affinity.map_or(ReasonKind::TopologySpread, |_| ReasonKind::PodAffinity);
    Some(reasons.next().unwrap_or(otherwise))
}

/// By spread of the class: kube-scheduler's global minimum, from which the skew is measured.
fn min_counts(
    groups: &BlockGroups,
    view: &TopologyView,
    choice: &Choice,
    topology: &Topology,
) -> SmallVec<[i64; 4]> {
    topology.spreads.iter().map(|rule| view.min_count(groups, choice, rule)).collect()
}

/// Gives as many of `pods` as possible their domain sets. A pod of `waiting` with required affinity or a spread is
/// retried as soon as a pod that counts for it is placed, as in kube-scheduler. Returns how many of the class found none.
fn place_with_dependents<'a>(
    groups: &mut BlockGroups,
    view: &TopologyView,
    pods: WaitingPods<'a>,
    waiting: &mut [WaitingPods<'a>],
    tracker: &mut ConstraintTracker<'a>,
    out: &mut Assignment,
) -> u32 {
    let WaitingPods { choice, count } = pods;
    let Some(topology) = groups.of.find(choice.class).cloned() else { return count };
    let mut left = count;
    while left > 0 {
        let is_dependent = |other: &&mut WaitingPods<'_>| {
            let class = other.choice.class;
            other.count > 0 && class < choice.class && is_waiting_for(groups, class, choice, &topology)
        };
        let dependents: SmallVec<[_; 4]> = waiting.iter_mut().filter(is_dependent).collect();
        let step = if dependents.is_empty() { left } else { 1 };
        let rest = place_class(groups, view, WaitingPods { choice, count: step }, &topology, tracker, out);
        left -= step - rest;
        tracker.pending.insert(choice.class, left);
        if rest > 0 {
            break;
        }
        for other in dependents {
            let Some(topology) = groups.of.find(other.choice.class).cloned() else { continue };
            other.count = place_class(groups, view, *other, &topology, tracker, out);
        }
    }
    left
}

/// True if a pod of `choice` may make pods of `class` placeable: it counts for their affinity, or for their skew.
fn is_waiting_for(groups: &BlockGroups, class: LocalClassIx, choice: &Choice, topology: &Topology) -> bool {
    groups.of.find(class).is_some_and(|other| {
        let spread_groups = other.spreads.iter().map(|rule| &rule.group);
        other.affinity.iter().chain(spread_groups).any(|g| choice.counting_groups.contains(g))
            || other.host_affinity.is_some_and(|g| topology.host_matching_groups.contains(&g))
    })
}

/// A candidate domain set for the next pod of a class. The least is taken: fields are compared from first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Pending pods of other classes that required anti-affinity would leave without a domain set.
    excluded: ExcludedPods,
    /// Pending classes with affinity to this one that can't go to the domain set.
    followers_without_domain: usize,
    /// Spreads of placed pods whose skew would exceed the maximum, if this pod is bound first.
    violated_spreads: usize,
    /// The class's own spreads hold only once pending pods are bound, which kube-scheduler may try after it.
    needs_pending_pods: bool,
    /// Matching pods there, over the class's own spreads: fewer keep the skew low.
    pods_of_own_spreads: i64,
    /// Matching pods there, over the spreads of any class that count this one.
    pods_of_all_spreads: i64,
    /// Of the cheapest offering that is large enough.
    price: i64,
    /// Makes the choice the same in each run.
    domain_set: DomainSetIx,
}

/// Gives as many of `pods` as possible their domain sets; returns how many found none.
fn place_class<'a>(
    groups: &mut BlockGroups,
    view: &TopologyView,
    pods: WaitingPods<'a>,
    topology: &Topology,
    tracker: &mut ConstraintTracker<'a>,
    out: &mut Assignment,
) -> u32 {
    let WaitingPods { choice, count } = pods;
    let is_of_spread = |g: &GroupIx| groups.list.find(*g).is_some_and(|group| group.filter.is_some());
    let spread_groups: SmallVec<[GroupIx; 8]> =
        choice.counting_groups.iter().copied().filter(is_of_spread).collect();
    // Without a spread, the rest of the class can follow at once.
    let ranks_each_pod = !topology.spreads.is_empty()
        || !spread_groups.is_empty()
        || tracker.has_followers(choice.class)
        || topology.anti_affinity.iter().any(|g| topology.matching_groups.contains(g));
    let mut placed_by_domain_set: SmallVec<[(DomainSetIx, u32); 4]> = SmallVec::new();
    let mut left = count;
    while left > 0 {
        let min_counts = min_counts(groups, view, choice, topology);
        let may_be_first = !tracker.must_follow_seeds(choice.class);
        let mut best: Option<Rank> = None;
        for (domain_set, price) in &choice.domain_sets {
            out.steps += 1;
            if room(choice, *domain_set, &placed_by_domain_set, out) == 0
                || violated_constraint(groups, view, *domain_set, topology, &min_counts, may_be_first)
                    .is_some()
                || !tracker.has_host_candidate(groups, choice, topology, view.whole(*domain_set))
            {
                continue;
            }
            let matching =
                |g: GroupIx| view.pod_counts(groups, *domain_set, g).map_or(0, |pods| pods.matching);
            let counts =
                |g: &&GroupIx| groups.list.find(**g).is_some_and(|g| view.is_counted(g, *domain_set));
            let rank = Rank {
                excluded: tracker.excluded_pods(groups, view, choice, topology, *domain_set),
                followers_without_domain: tracker
                    .followers_without_domain(choice.class, view.whole(*domain_set)),
                violated_spreads: tracker.violated_spreads(groups, view, choice, *domain_set),
                needs_pending_pods: tracker
                    .ready_domain_sets
                    .get(&choice.class)
                    .is_some_and(|ready| !ready.contains(domain_set)),
                pods_of_own_spreads: topology.spreads.iter().map(|rule| matching(rule.group)).sum(),
                pods_of_all_spreads: spread_groups.iter().filter(counts).map(|g| matching(*g)).sum(),
                price: *price,
                domain_set: *domain_set,
            };
            if best.is_none_or(|least| rank < least) {
                best = Some(rank);
            }
        }
        let is_open = |rank: &Rank| !tracker.defers_exclusion || rank.excluded.earlier == 0;
        let Some(Rank { excluded, domain_set, .. }) = best.filter(is_open) else {
            break;
        };
        // Where a pod excludes others, the next one is ranked again.
        let ranks_next_pod = ranks_each_pod || excluded.all > 0;
        let step =
            if ranks_next_pod { 1 } else { left.min(room(choice, domain_set, &placed_by_domain_set, out)) };
        count_placement(groups, view, domain_set, choice, topology, i64::from(step));
        tracker.record_placement(groups, view, choice, topology, domain_set);
        match placed_by_domain_set.iter_mut().find(|(c, _)| *c == domain_set) {
            Some((_, n)) => *n += step,
            None => placed_by_domain_set.push((domain_set, step)),
        }
        left -= step;
        tracker.pending.insert(choice.class, left);
    }
    for (domain_set, count) in placed_by_domain_set {
        out.items.push(Item { class: choice.class, domain_set: Some(domain_set), count });
    }
    left
}

/// How many more of the class have room in the domain set, as far as is known. `unrecorded` are placed pods that aren't in `out`
/// yet.
fn room(
    choice: &Choice,
    domain_set: DomainSetIx,
    unrecorded: &[(DomainSetIx, u32)],
    out: &Assignment,
) -> u32 {
    let Some((_, most)) = choice.limited_room.iter().find(|(other, _)| *other == domain_set) else {
        return u32::MAX;
    };
    let placed = out.items.iter().filter(|i| i.class == choice.class && i.domain_set == Some(domain_set));
    let unrecorded = unrecorded.iter().filter(|(c, _)| *c == domain_set).map(|(_, n)| *n);
    most.saturating_sub(placed.map(|i| i.count).chain(unrecorded).sum())
}

/// Counts placed pods in the groups that they match, and in those that they repel.
fn count_placement(
    groups: &mut BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    choice: &Choice,
    topology: &Topology,
    count: i64,
) {
    for g in &choice.counting_groups {
        let Some(group) = groups.list.find_mut(*g) else { continue };
        if let Some(value) = view.value(group, domain_set).filter(|_| view.is_counted(group, domain_set)) {
            group.domain(value).pods.matching += count;
            group.total += count;
        }
    }
    for g in &topology.anti_affinity {
        let Some(group) = groups.list.find_mut(*g) else { continue };
        if let Some(value) = view.value(group, domain_set) {
            group.domain(value).pods.repelling += count;
        }
    }
}

/// The constraint that keeps one more pod of the class out of the domain set.
fn violated_constraint(
    groups: &BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    topology: &Topology,
    min_counts: &[i64],
    may_be_first: bool,
) -> Option<ReasonKind> {
    if !spreads_hold(groups, view, domain_set, topology, min_counts) {
        return Some(ReasonKind::TopologySpread);
    }
    if !topology.affinity.is_empty() {
        let mut all = topology.affinity.iter().chain(&topology.host_affinity);
        let is_first = may_be_first
            && topology.may_be_first
            && all.all(|g| groups.list.find(*g).is_none_or(|g| g.total == 0));
        for g in &topology.affinity {
            let is_admitted = groups.list.find(*g).is_some_and(|group| {
                view.value(group, domain_set).is_some_and(|value| group.admits_affinity(value, is_first))
            });
            if !is_admitted {
                return Some(ReasonKind::PodAffinity);
            }
        }
    }
    is_repelled(groups, view, domain_set, topology).then_some(ReasonKind::PodAntiAffinity)
}

/// True if the spreads of a class allow one more of it in the domain set.
fn spreads_hold(
    groups: &BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    topology: &Topology,
    min_counts: &[i64],
) -> bool {
    topology.spreads.iter().zip(min_counts).all(|(rule, min_count)| {
        let pods = view.pod_counts(groups, domain_set, rule.group);
        pods.is_some_and(|pods| pods.matching + i64::from(rule.own) - min_count <= rule.max_skew)
    })
}
