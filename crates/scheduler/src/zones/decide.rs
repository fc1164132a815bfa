//! The order in which classes choose, and what each of them may have.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    Board, Choice, Decided, Item,
    care::{Care, is_leader},
};
use crate::{
    groups::{Groups, Topology},
    intern::Sym,
    plan::ReasonKind,
};

/// Who chooses when.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Classes that come after the others of their priority.
    pub(crate) late: BTreeSet<usize>,
    /// Classes that aren't the first in a domain while others that they need wait.
    pub(crate) following: BTreeSet<usize>,
    /// As the demand comes, whatever is at stake: what holds only in that order is better than nothing.
    pub(crate) in_turn: bool,
}

/// Spreads that don't hold once everybody is there: in another order their pods would be kept out.
fn broken(groups: &Groups, board: &Board, choices: &[Choice], items: &[Item]) -> Vec<(usize, usize, Sym)> {
    let by_class: FxHashMap<usize, &Choice> = choices.iter().map(|c| (c.class, c)).collect();
    let mut least: FxHashMap<(usize, usize), i64> = FxHashMap::default();
    let mut result = Vec::new();
    for item in items {
        let Some((choice, topology)) = by_class.get(&item.class).zip(groups.of.get(item.class)) else {
            continue;
        };
        for (at, rule) in topology.spreads.iter().enumerate() {
            let Some(group) = groups.list.get(rule.group) else { continue };
            let Some(value) = item.cell.and_then(|cell| board.value(group, cell)) else { continue };
            let least = *least.entry((item.class, at)).or_insert_with(|| board.least(groups, choice, rule));
            if group.find(value).map_or(0, |d| d.count) - least > rule.max_skew {
                result.push((item.class, rule.group, value));
            }
        }
    }
    result
}

/// By class with spreads: the cells where they hold before anybody waiting is placed, if that isn't all of them.
fn at_once(groups: &Groups, board: &Board, choices: &[Choice]) -> FxHashMap<usize, Vec<usize>> {
    let mut result = FxHashMap::default();
    for choice in choices {
        let Some(topology) = groups.of.get(choice.class).filter(|t| !t.spreads.is_empty()) else { continue };
        let leasts = leasts(groups, board, choice, topology);
        let holds = |cell: &usize| spreads_hold(groups, board, *cell, topology, &leasts);
        let cells: Vec<usize> = choice.cells.iter().map(|(cell, _)| *cell).filter(holds).collect();
        if cells.len() < choice.cells.len() {
            result.insert(choice.class, cells);
        }
    }
    result
}

/// Classes that may be the first of those that they need.
fn starting<'a>(groups: &Groups, choices: &'a [Choice]) -> Vec<&'a Choice> {
    let starts = |choice: &&Choice| {
        let Some(topology) = groups.of.get(choice.class) else { return false };
        let none = |g: &usize| groups.list.get(*g).is_none_or(|g| g.total == 0);
        topology.starts
            && !topology.near.is_empty()
            && topology.near.iter().chain(&topology.host_near).all(none)
    };
    choices.iter().filter(starts).collect()
}

/// Those of `starting` that are alone in a domain, while others whom they need come to other domains and may be bound
/// before them.
fn astray(
    groups: &Groups,
    board: &Board,
    choices: &[Choice],
    starting: &[&Choice],
    items: &[Item],
) -> Vec<usize> {
    let near = |choice: &Choice| groups.of.get(choice.class).map_or(&[][..], |t| &t.near);
    // By group: the domains of those who need nobody of it, with the highest priority of who comes there.
    let mut led: FxHashMap<usize, BTreeMap<Sym, i32>> =
        starting.iter().flat_map(|c| near(c)).map(|g| (*g, BTreeMap::new())).collect();
    if led.is_empty() {
        return Vec::new();
    }
    let by_class: FxHashMap<usize, &Choice> = choices.iter().map(|c| (c.class, c)).collect();
    for item in items {
        let Some((choice, cell)) = by_class.get(&item.class).zip(item.cell) else { continue };
        for g in choice.counted.iter().filter(|g| is_leader(groups, choice, **g)) {
            let Some((domains, group)) = led.get_mut(g).zip(groups.list.get(*g)) else { continue };
            if let Some(value) = board.value(group, cell) {
                let most = domains.entry(value).or_insert(choice.priority);
                *most = choice.priority.max(*most);
            }
        }
    }
    let starting: BTreeMap<usize, &Choice> = starting.iter().map(|c| (c.class, *c)).collect();
    let strays = |item: &&Item| {
        let Some((choice, cell)) = starting.get(&item.class).zip(item.cell) else { return false };
        near(choice).iter().any(|g| {
            let Some((domains, group)) = led.get(g).zip(groups.list.get(*g)) else { return false };
            let leads = |priority: &i32| *priority >= choice.priority;
            let here = board.value(group, cell).and_then(|value| domains.get(&value));
            domains.values().any(leads) && !here.is_some_and(leads)
        })
    };
    items.iter().filter(strays).map(|item| item.class).collect()
}

/// Decides the cell of every pod in `choices`.
pub(crate) fn decide(groups: &mut Groups, board: &Board, choices: &[Choice], order: &Order) -> Decided {
    let mut out = Decided::default();
    let starting = starting(groups, choices);
    let Order { late, in_turn, .. } = order;
    let mut care = Care::new(groups, board, choices, order);
    care.at_once = at_once(groups, board, choices);
    let mut order: Vec<&Choice> = choices.iter().collect();
    // Who keeps others away chooses first, who needs others near comes after them, who is only counted fills in, and
    // who must be even comes last, when the counts are known.
    order.sort_by_key(|c| {
        let rank = groups.of.get(c.class).map_or(0, |t| {
            if !t.anti.is_empty() {
                0
            } else if !t.near.is_empty() {
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
    loop {
        let mut next: Vec<(&Choice, u32)> = Vec::new();
        let mut progress = false;
        for of_one_priority in waiting.chunk_by(|a, b| a.0.priority == b.0.priority) {
            let mut now = of_one_priority.to_vec();
            for gives_way in [true, false] {
                care.gives_way = gives_way && !in_turn;
                for (choice, count) in std::mem::take(&mut now) {
                    let Some(topology) = groups.of.get(choice.class).cloned() else { continue };
                    if !topology.chooses() {
                        out.items.push(Item { class: choice.class, cell: None, count });
                        care.anywhere(choice.class, &topology);
                        progress = true;
                        continue;
                    }
                    let left = take_turns(groups, board, (choice, count), &mut next, &mut care, &mut out);
                    progress |= left < count;
                    if left == 0 {
                        continue;
                    }
                    if gives_way && !topology.anti.is_empty() {
                        now.push((choice, left));
                    } else {
                        next.push((choice, left));
                    }
                }
            }
        }
        next.retain(|(_, n)| *n > 0);
        waiting = next;
        if waiting.is_empty() || !progress && !care.forsake() {
            break;
        }
    }
    for (choice, count) in waiting {
        let Some(topology) = groups.of.get(choice.class) else { continue };
        let leasts = leasts(groups, board, choice, topology);
        let mut reasons =
            choice.cells.iter().filter_map(|(c, _)| blocked(groups, board, *c, topology, &leasts, true));
        let otherwise = topology.host_near.map_or(ReasonKind::TopologySpread, |_| ReasonKind::PodAffinity);
        out.left.push((choice.class, count, reasons.next().unwrap_or(otherwise)));
    }
    out.broken = broken(groups, board, choices, &out.items);
    out.astray = astray(groups, board, choices, &starting, &out.items);
    out
}

fn leasts(groups: &Groups, board: &Board, choice: &Choice, topology: &Topology) -> SmallVec<[i64; 4]> {
    topology.spreads.iter().map(|rule| board.least(groups, choice, rule)).collect()
}

/// Gives up to `count` pods of the class their cells, and those of `waiting` who come before it as soon as one that they
/// need near is there: kube-scheduler tries them again at once. Answers how many of the class found none.
fn take_turns<'a>(
    groups: &mut Groups,
    board: &Board,
    (choice, count): (&'a Choice, u32),
    waiting: &mut [(&'a Choice, u32)],
    care: &mut Care<'a>,
    out: &mut Decided,
) -> u32 {
    let Some(topology) = groups.of.get(choice.class).cloned() else { return count };
    let mut left = count;
    while left > 0 {
        let joins = |(other, n): &&mut (&Choice, u32)| {
            *n > 0 && other.class < choice.class && needs_one_of(groups, other.class, choice, &topology)
        };
        let joining: SmallVec<[_; 4]> = waiting.iter_mut().filter(joins).collect();
        let step = if joining.is_empty() { left } else { 1 };
        let rest = spread_out(groups, board, choice, &topology, step, care, out);
        left -= step - rest;
        care.left.insert(choice.class, left);
        if rest > 0 {
            break;
        }
        for (other, n) in joining {
            let Some(topology) = groups.of.get(other.class).cloned() else { continue };
            *n = spread_out(groups, board, other, &topology, *n, care, out);
        }
    }
    left
}

/// True if pods of `class` must be near one of `choice`.
fn needs_one_of(groups: &Groups, class: usize, choice: &Choice, topology: &Topology) -> bool {
    groups.of.get(class).is_some_and(|other| {
        other.near.iter().any(|g| choice.counted.contains(g))
            || other.host_near.is_some_and(|g| topology.host_counted.contains(&g))
    })
}

/// Gives up to `count` pods of the class their cells; answers how many found none.
fn spread_out<'a>(
    groups: &mut Groups,
    board: &Board,
    choice: &'a Choice,
    topology: &Topology,
    count: u32,
    care: &mut Care<'a>,
    out: &mut Decided,
) -> u32 {
    let filtered = |g: &usize| groups.list.get(*g).is_some_and(|group| group.filter.is_some() && group.live);
    let others: SmallVec<[usize; 8]> = choice.counted.iter().copied().filter(filtered).collect();
    // Where nothing must be even, the rest of the class can follow at once.
    let one_by_one = !topology.spreads.is_empty()
        || !others.is_empty()
        || care.leads(choice.class)
        || topology.anti.iter().any(|g| topology.counted.contains(g));
    let mut per_cell: SmallVec<[(usize, u32); 4]> = SmallVec::new();
    let mut left = count;
    while left > 0 {
        let leasts = leasts(groups, board, choice, topology);
        let may_start = !care.follows(choice.class);
        // Others shut out (first those that come before), followers left behind, others' spreads broken, only once others are
        // there, pods of its own rules there, of others', price, cell: less is better.
        type Rank = ((u32, u32), usize, usize, bool, i64, i64, i64, usize);
        let mut best: Option<Rank> = None;
        for (cell, price) in &choice.cells {
            out.steps += 1;
            if room(choice, *cell, &per_cell, out) == 0
                || blocked(groups, board, *cell, topology, &leasts, may_start).is_some()
                || !care.hosted(groups, topology, board.whole(*cell))
            {
                continue;
            }
            let count = |g: usize| board.at(groups, *cell, g).map_or(0, |d| d.0);
            let own: i64 = topology.spreads.iter().map(|s| count(s.group)).sum();
            let counts = |g: &&usize| groups.list.get(**g).is_some_and(|g| board.counts(g, *cell));
            let beside: i64 = others.iter().filter(counts).map(|g| count(*g)).sum();
            let behind = care.left_behind(choice.class, board.whole(*cell));
            let broken = care.broken(groups, board, choice, *cell);
            let shut = care.shut_out(groups, board, choice, topology, *cell);
            let later = care.at_once.get(&choice.class).is_some_and(|cells| !cells.contains(cell));
            let rank = (shut, behind, broken, later, own, beside, *price, *cell);
            if best.is_none_or(|least| rank < least) {
                best = Some(rank);
            }
        }
        let Some((shut, .., cell)) = best.filter(|(shut, ..)| !care.gives_way || shut.0 == 0) else { break };
        // With others at stake, the next one looks anew.
        let one_by_one = one_by_one || shut.1 > 0;
        let step = if one_by_one { 1 } else { left.min(room(choice, cell, &per_cell, out)) };
        place(groups, board, cell, choice, topology, i64::from(step));
        care.placed(groups, board, choice, topology, cell);
        match per_cell.iter_mut().find(|(c, _)| *c == cell) {
            Some((_, n)) => *n += step,
            None => per_cell.push((cell, step)),
        }
        left -= step;
        care.left.insert(choice.class, left);
    }
    for (cell, count) in per_cell {
        out.items.push(Item { class: choice.class, cell: Some(cell), count });
    }
    left
}

/// How many more of the class have room in the cell, as far as is known; `here` are those that aren't in `out` yet.
fn room(choice: &Choice, cell: usize, here: &[(usize, u32)], out: &Decided) -> u32 {
    let Some((_, most)) = choice.full.iter().find(|(full, _)| *full == cell) else { return u32::MAX };
    let placed = out.items.iter().filter(|i| i.class == choice.class && i.cell == Some(cell));
    let here = here.iter().filter(|(c, _)| *c == cell).map(|(_, n)| *n);
    most.saturating_sub(placed.map(|i| i.count).chain(here).sum())
}

fn place(groups: &mut Groups, board: &Board, cell: usize, choice: &Choice, topology: &Topology, count: i64) {
    for g in &choice.counted {
        let Some(group) = groups.list.get_mut(*g) else { continue };
        if let Some(value) = board.value(group, cell).filter(|_| board.counts(group, cell)) {
            group.domain(value).count += count;
            group.total += count;
        }
    }
    for g in &topology.anti {
        let Some(group) = groups.list.get_mut(*g) else { continue };
        if let Some(value) = board.value(group, cell) {
            group.domain(value).holds += count;
        }
    }
}

/// What keeps one more pod of the class out of the cell.
fn blocked(
    groups: &Groups,
    board: &Board,
    cell: usize,
    topology: &Topology,
    leasts: &[i64],
    may_start: bool,
) -> Option<ReasonKind> {
    if !spreads_hold(groups, board, cell, topology, leasts) {
        return Some(ReasonKind::TopologySpread);
    }
    if !topology.near.is_empty() {
        let mut all = topology.near.iter().chain(&topology.host_near);
        let first =
            may_start && topology.starts && all.all(|g| groups.list.get(*g).is_none_or(|g| g.total == 0));
        for g in &topology.near {
            match board.at(groups, cell, *g) {
                None => return Some(ReasonKind::PodAffinity),
                Some((0, _)) if !first => return Some(ReasonKind::PodAffinity),
                Some(_) => {}
            }
        }
    }
    let keeps_off = topology.anti.iter().any(|g| board.at(groups, cell, *g).is_some_and(|d| d.0 > 0))
        || topology.counted.iter().any(|g| board.at(groups, cell, *g).is_some_and(|d| d.1 > 0));
    keeps_off.then_some(ReasonKind::PodAntiAffinity)
}

/// True if the spreads of a class let one more of it into the cell.
fn spreads_hold(groups: &Groups, board: &Board, cell: usize, topology: &Topology, leasts: &[i64]) -> bool {
    topology.spreads.iter().zip(leasts).all(|(rule, least)| {
        let there = board.at(groups, cell, rule.group);
        there.is_some_and(|(count, _)| count + i64::from(rule.own) - least <= rule.max_skew)
    })
}
