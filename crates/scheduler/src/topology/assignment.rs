//! The order in which classes choose their domain sets, and which ones each may have.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    ids::{DomainSetIx, GroupIx, LocalClassIx},
    model::plan::ReasonKind,
    state::interner::Sym,
    topology::{
        constraint_tracker::{ConstraintTracker, is_affinity_seed, is_kept_off},
        domains::{Choice, Decided, Item, Order, TopologyView},
        groups::{BlockGroups, Topology},
    },
};

/// Spreads that are violated by the final counts: in another binding order their pods would be kept out.
pub(crate) fn broken(
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    items: &[Item],
) -> Vec<(LocalClassIx, GroupIx, Sym)> {
    let by_class: FxHashMap<LocalClassIx, &Choice> = choices.iter().map(|c| (c.class, c)).collect();
    let mut least: FxHashMap<(LocalClassIx, usize), i64> = FxHashMap::default();
    let mut result = Vec::new();
    for item in items {
        let Some((choice, topology)) = by_class.get(&item.class).zip(groups.of.find(item.class)) else {
            continue;
        };
        for (at, rule) in topology.spreads.iter().enumerate() {
            let Some(group) = groups.list.find(rule.group) else { continue };
            let Some(value) = item.domain_set.and_then(|domain_set| view.value(group, domain_set)) else {
                continue;
            };
            let least = *least.entry((item.class, at)).or_insert_with(|| view.least(groups, choice, rule));
            if group.count_in(Some(value)) - least > rule.max_skew {
                result.push((item.class, rule.group, value));
            }
        }
    }
    result
}

/// By class with spreads: the domain sets where they hold before any pending pod is placed, if not all do.
fn at_once(
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
) -> FxHashMap<LocalClassIx, Vec<DomainSetIx>> {
    let mut result = FxHashMap::default();
    for choice in choices {
        let Some(topology) = groups.of.find(choice.class).filter(|t| !t.spreads.is_empty()) else { continue };
        let leasts = leasts(groups, view, choice, topology);
        let holds = |domain_set: &DomainSetIx| spreads_hold(groups, view, *domain_set, topology, &leasts);
        let domain_sets: Vec<DomainSetIx> =
            choice.domain_sets.iter().map(|(domain_set, _)| *domain_set).filter(holds).collect();
        if domain_sets.len() < choice.domain_sets.len() {
            result.insert(choice.class, domain_sets);
        }
    }
    result
}

/// Classes that may start the group that they need.
fn starting<'a>(groups: &BlockGroups, choices: &'a [Choice]) -> Vec<&'a Choice> {
    let starts = |choice: &&Choice| {
        let Some(topology) = groups.of.find(choice.class) else { return false };
        let none = |g: &GroupIx| groups.list.find(*g).is_none_or(|g| g.total == 0);
        topology.may_be_first
            && !topology.affinity.is_empty()
            && topology.affinity.iter().chain(&topology.host_affinity).all(none)
    };
    choices.iter().filter(starts).collect()
}

/// Classes of `starting` that are alone in a domain, while pods that they need go to other domains and may be
/// bound before them.
fn premature_starters(
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    starting: &[&Choice],
    items: &[Item],
) -> Vec<LocalClassIx> {
    let near = |choice: &Choice| groups.of.find(choice.class).map_or(&[][..], |t| &t.affinity);
    // By group: the domains of its affinity seeds, with the highest priority of those that go there.
    let mut led: FxHashMap<GroupIx, BTreeMap<Sym, i32>> =
        starting.iter().flat_map(|c| near(c)).map(|g| (*g, BTreeMap::new())).collect();
    if led.is_empty() {
        return Vec::new();
    }
    let by_class: FxHashMap<LocalClassIx, &Choice> = choices.iter().map(|c| (c.class, c)).collect();
    for item in items {
        let Some((choice, domain_set)) = by_class.get(&item.class).zip(item.domain_set) else { continue };
        for g in choice.counting_groups.iter().filter(|g| is_affinity_seed(groups, choice, **g)) {
            let Some((domains, group)) = led.get_mut(g).zip(groups.list.find(*g)) else { continue };
            if let Some(value) = view.value(group, domain_set) {
                let most = domains.entry(value).or_insert(choice.priority);
                *most = choice.priority.max(*most);
            }
        }
    }
    let starting: BTreeMap<LocalClassIx, &Choice> = starting.iter().map(|c| (c.class, *c)).collect();
    let strays = |item: &&Item| {
        let Some((choice, domain_set)) = starting.get(&item.class).zip(item.domain_set) else { return false };
        near(choice).iter().any(|g| {
            let Some((domains, group)) = led.get(g).zip(groups.list.find(*g)) else { return false };
            let leads = |priority: &i32| *priority >= choice.priority;
            let here = view.value(group, domain_set).and_then(|value| domains.get(&value));
            domains.values().any(leads) && !here.is_some_and(leads)
        })
    };
    items.iter().filter(strays).map(|item| item.class).collect()
}

/// Decides the domain set of every pod in `choices`.
pub(crate) fn decide(
    groups: &mut BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    order: &Order,
) -> Decided {
    let mut out = Decided::default();
    let starting = starting(groups, choices);
    let Order { late, in_turn, .. } = order;
    let mut tracker = ConstraintTracker::new(groups, view, choices, order);
    tracker.at_once = at_once(groups, view, choices);
    let mut order: Vec<&Choice> = choices.iter().collect();
    // Anti-affinity chooses first, then affinity, then classes that are only counted; spreads come last, when
    // the counts are known.
    order.sort_by_key(|c| {
        let rank = groups.of.find(c.class).map_or(0, |t| {
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
        let rank = if *in_turn { 0 } else { rank };
        (Reverse(c.priority), late.contains(&c.class), rank)
    });
    let mut waiting: Vec<(&Choice, u32)> = order.iter().map(|c| (*c, c.count)).collect();
    // Late classes also wait for those that choose in a later round, unless these find no place.
    let mut late_waits = true;
    loop {
        let mut next: Vec<(&Choice, u32)> = Vec::new();
        let (mut progress, mut postponed) = (false, false);
        for of_one_priority in waiting.chunk_by(|a, b| a.0.priority == b.0.priority) {
            let mut now = of_one_priority.to_vec();
            for yields in [true, false] {
                tracker.yields = yields && !in_turn;
                if !yields && postponed {
                    // Late classes of this priority or a higher one are still to choose.
                    next.append(&mut now);
                }
                for (choice, count) in std::mem::take(&mut now) {
                    let Some(topology) = groups.of.find(choice.class).cloned() else { continue };
                    let is_before = |(other, n): &(&Choice, u32)| *n > 0 && !late.contains(&other.class);
                    if late_waits && late.contains(&choice.class) && next.iter().any(is_before) {
                        next.push((choice, count));
                        postponed = true;
                        continue;
                    }
                    if !topology.needs_domain() {
                        out.items.push(Item { class: choice.class, domain_set: None, count });
                        tracker.anywhere(view, choice, &topology);
                        progress = true;
                        continue;
                    }
                    let left = take_turns(groups, view, (choice, count), &mut next, &mut tracker, &mut out);
                    progress |= left < count;
                    if left == 0 {
                        continue;
                    }
                    if yields && tracker.may_shut_out(choice, &topology) {
                        now.push((choice, left));
                    } else {
                        if !topology.spreads.is_empty() {
                            out.waited.insert(choice.class);
                        }
                        next.push((choice, left));
                    }
                }
            }
        }
        next.retain(|(_, n)| *n > 0);
        waiting = next;
        if !progress && postponed {
            late_waits = false;
        } else if waiting.is_empty() || !progress && !tracker.give_up_seeds() {
            break;
        }
    }
    out.left = waiting
        .into_iter()
        .filter_map(|(choice, count)| Some((choice.class, count, why_left(groups, view, choice)?)))
        .collect();
    out.broken = broken(groups, view, choices, &out.items);
    out.premature_starters = premature_starters(groups, view, choices, &starting, &out.items);
    out
}

/// The constraint that keeps the rest of a class out.
fn why_left(groups: &BlockGroups, view: &TopologyView, choice: &Choice) -> Option<ReasonKind> {
    let topology = groups.of.find(choice.class)?;
    let leasts = leasts(groups, view, choice, topology);
    let mut reasons =
        choice.domain_sets.iter().filter_map(|(c, _)| blocked(groups, view, *c, topology, &leasts, true));
    let otherwise = topology.host_affinity.map_or(ReasonKind::TopologySpread, |_| ReasonKind::PodAffinity);
    Some(reasons.next().unwrap_or(otherwise))
}

fn leasts(
    groups: &BlockGroups,
    view: &TopologyView,
    choice: &Choice,
    topology: &Topology,
) -> SmallVec<[i64; 4]> {
    topology.spreads.iter().map(|rule| view.least(groups, choice, rule)).collect()
}

/// Gives up to `count` pods of the class their domain sets. A pod of `waiting` with required affinity or a spread is
/// retried as soon as a pod that counts for it is placed, as in kube-scheduler. Returns how many of the class found none.
fn take_turns<'a>(
    groups: &mut BlockGroups,
    view: &TopologyView,
    (choice, count): (&'a Choice, u32),
    waiting: &mut [(&'a Choice, u32)],
    tracker: &mut ConstraintTracker<'a>,
    out: &mut Decided,
) -> u32 {
    let Some(topology) = groups.of.find(choice.class).cloned() else { return count };
    let mut left = count;
    while left > 0 {
        let joins = |(other, n): &&mut (&Choice, u32)| {
            *n > 0 && other.class < choice.class && waits_for(groups, other.class, choice, &topology)
        };
        let joining: SmallVec<[_; 4]> = waiting.iter_mut().filter(joins).collect();
        let step = if joining.is_empty() { left } else { 1 };
        let rest = spread_out(groups, view, (choice, &topology), step, tracker, out);
        left -= step - rest;
        tracker.left.insert(choice.class, left);
        if rest > 0 {
            break;
        }
        for (other, n) in joining {
            let Some(topology) = groups.of.find(other.class).cloned() else { continue };
            *n = spread_out(groups, view, (other, &topology), *n, tracker, out);
        }
    }
    left
}

/// True if a pod of `choice` may make room for `class`: its pods must be near one, or even with them.
fn waits_for(groups: &BlockGroups, class: LocalClassIx, choice: &Choice, topology: &Topology) -> bool {
    groups.of.find(class).is_some_and(|other| {
        let even_with = other.spreads.iter().map(|rule| &rule.group);
        other.affinity.iter().chain(even_with).any(|g| choice.counting_groups.contains(g))
            || other.host_affinity.is_some_and(|g| topology.host_matching_groups.contains(&g))
    })
}

/// Gives up to `count` pods of the class their domain sets; returns how many found none.
fn spread_out<'a>(
    groups: &mut BlockGroups,
    view: &TopologyView,
    (choice, topology): (&'a Choice, &Topology),
    count: u32,
    tracker: &mut ConstraintTracker<'a>,
    out: &mut Decided,
) -> u32 {
    let filtered = |g: &GroupIx| groups.list.find(*g).is_some_and(|group| group.filter.is_some());
    let others: SmallVec<[GroupIx; 8]> = choice.counting_groups.iter().copied().filter(filtered).collect();
    // Without a spread, the rest of the class can follow at once.
    let one_by_one = !topology.spreads.is_empty()
        || !others.is_empty()
        || tracker.leads(choice.class)
        || topology.anti_affinity.iter().any(|g| topology.matching_groups.contains(g));
    let mut per_cell: SmallVec<[(DomainSetIx, u32); 4]> = SmallVec::new();
    let mut left = count;
    while left > 0 {
        let leasts = leasts(groups, view, choice, topology);
        let may_start = !tracker.follows(choice.class);
        // Pods of others shut out (first those that come before), followers left behind, others' spreads
        // violated, holds only later, own pods there, others' pods there, price, domain set: less is better.
        type Rank = ((u32, u32), usize, usize, bool, i64, i64, i64, DomainSetIx);
        let mut best: Option<Rank> = None;
        for (domain_set, price) in &choice.domain_sets {
            out.steps += 1;
            if room(choice, *domain_set, &per_cell, out) == 0
                || blocked(groups, view, *domain_set, topology, &leasts, may_start).is_some()
                || !tracker.hosted(groups, (choice, topology), view.whole(*domain_set))
            {
                continue;
            }
            let count = |g: GroupIx| view.pod_counts(groups, *domain_set, g).map_or(0, |pods| pods.matching);
            let own: i64 = topology.spreads.iter().map(|s| count(s.group)).sum();
            let counts = |g: &&GroupIx| groups.list.find(**g).is_some_and(|g| view.counts(g, *domain_set));
            let beside: i64 = others.iter().filter(counts).map(|g| count(*g)).sum();
            let behind = tracker.left_behind(choice.class, view.whole(*domain_set));
            let broken = tracker.broken(groups, view, choice, *domain_set);
            let shut = tracker.shut_out(groups, view, choice, topology, *domain_set);
            let later = tracker
                .at_once
                .get(&choice.class)
                .is_some_and(|domain_sets| !domain_sets.contains(domain_set));
            let rank = (shut, behind, broken, later, own, beside, *price, *domain_set);
            if best.is_none_or(|least| rank < least) {
                best = Some(rank);
            }
        }
        let Some((shut, .., domain_set)) = best.filter(|(shut, ..)| !tracker.yields || shut.0 == 0) else {
            break;
        };
        // With others at stake, the next pod is evaluated again.
        let one_by_one = one_by_one || shut.1 > 0;
        let step = if one_by_one { 1 } else { left.min(room(choice, domain_set, &per_cell, out)) };
        place(groups, view, domain_set, choice, topology, i64::from(step));
        tracker.placed(groups, view, choice, topology, domain_set);
        match per_cell.iter_mut().find(|(c, _)| *c == domain_set) {
            Some((_, n)) => *n += step,
            None => per_cell.push((domain_set, step)),
        }
        left -= step;
        tracker.left.insert(choice.class, left);
    }
    for (domain_set, count) in per_cell {
        out.items.push(Item { class: choice.class, domain_set: Some(domain_set), count });
    }
    left
}

/// How many more of the class have room in the domain set, as far as is known; `here` are those that aren't
/// in `out` yet.
fn room(choice: &Choice, domain_set: DomainSetIx, here: &[(DomainSetIx, u32)], out: &Decided) -> u32 {
    let Some((_, most)) = choice.full.iter().find(|(full, _)| *full == domain_set) else { return u32::MAX };
    let placed = out.items.iter().filter(|i| i.class == choice.class && i.domain_set == Some(domain_set));
    let here = here.iter().filter(|(c, _)| *c == domain_set).map(|(_, n)| *n);
    most.saturating_sub(placed.map(|i| i.count).chain(here).sum())
}

fn place(
    groups: &mut BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    choice: &Choice,
    topology: &Topology,
    count: i64,
) {
    for g in &choice.counting_groups {
        let Some(group) = groups.list.find_mut(*g) else { continue };
        if let Some(value) = view.value(group, domain_set).filter(|_| view.counts(group, domain_set)) {
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
fn blocked(
    groups: &BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    topology: &Topology,
    leasts: &[i64],
    may_start: bool,
) -> Option<ReasonKind> {
    if !spreads_hold(groups, view, domain_set, topology, leasts) {
        return Some(ReasonKind::TopologySpread);
    }
    if !topology.affinity.is_empty() {
        let mut all = topology.affinity.iter().chain(&topology.host_affinity);
        let is_first = may_start
            && topology.may_be_first
            && all.all(|g| groups.list.find(*g).is_none_or(|g| g.total == 0));
        for g in &topology.affinity {
            let takes = groups.list.find(*g).is_some_and(|group| {
                view.value(group, domain_set).is_some_and(|value| group.admits_affinity(value, is_first))
            });
            if !takes {
                return Some(ReasonKind::PodAffinity);
            }
        }
    }
    is_kept_off(groups, view, domain_set, topology).then_some(ReasonKind::PodAntiAffinity)
}

/// True if the spreads of a class allow one more of it in the domain set.
fn spreads_hold(
    groups: &BlockGroups,
    view: &TopologyView,
    domain_set: DomainSetIx,
    topology: &Topology,
    leasts: &[i64],
) -> bool {
    topology.spreads.iter().zip(leasts).all(|(rule, least)| {
        let pods = view.pod_counts(groups, domain_set, rule.group);
        pods.is_some_and(|pods| pods.matching + i64::from(rule.own) - least <= rule.max_skew)
    })
}
