//! Topology domains, decided by counting before anything is packed.
//!
//! A *cell* is one combination of the domains that matter: usually a zone. Each pod that a live group binds or counts
//! gets a cell, one after the other, so that the order itself shows that kube-scheduler can bind them: every pod's
//! constraints hold at its turn. What is left for the packing then are sizes and sets of offerings.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    bits::Bits,
    groups::{Group, Groups, SpreadRule, Topology},
    intern::Sym,
    plan::ReasonKind,
};

/// One combination of domains.
#[derive(Debug)]
pub(crate) struct Cell {
    /// One per key; `None`: nodes there don't have the label.
    pub(crate) values: Vec<Option<Sym>>,
    /// Offerings of each variant that are in it.
    pub(crate) offers: Vec<Bits>,
    /// The cell that this one is a part of, or its own number.
    pub(crate) whole: usize,
    /// Filters that no offering of a part passes, while others of the whole do.
    pub(crate) fails: SmallVec<[u32; 2]>,
}

/// What a class may use.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) class: usize,
    pub(crate) count: u32,
    pub(crate) priority: i32,
    /// Cells where an available offering is large enough, with the price of the cheapest.
    pub(crate) cells: Vec<(usize, i64)>,
    /// Those groups of [`Topology::counted`] whose filter some of the class's offerings pass.
    pub(crate) counted: Vec<usize>,
    /// Filters of those groups that others of its offerings don't pass: the machine will decide.
    pub(crate) unsure: SmallVec<[u32; 2]>,
}

/// Pods of one class that go into one cell; `None`: the cell doesn't matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) class: usize,
    pub(crate) cell: Option<usize>,
    pub(crate) count: u32,
}

/// What the counting decided.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) items: Vec<Item>,
    /// (class, how many, what kept them out).
    pub(crate) left: Vec<(usize, u32, ReasonKind)>,
    /// (class, group, domain) where a class's spread holds only if its pods come before others that were decided later.
    pub(crate) broken: Vec<(usize, usize, Sym)>,
    pub(crate) steps: u64,
}

/// The cells and the keys that tell them apart.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) keys: Vec<Sym>,
    pub(crate) cells: Vec<Cell>,
    /// Domains that the whole plan opens.
    pub(crate) opened: Arc<[Opened]>,
}

/// A domain that a machine of the plan opens: the filter of the spread that sees it, its key and its value.
pub(crate) type Opened = (u32, Sym, Sym);

/// By filter and key of spreads: the domains that each of them counts on.
pub(crate) type Seen = BTreeMap<(u32, Sym), BTreeSet<Sym>>;

impl Board {
    fn whole(&self, cell: usize) -> usize {
        self.cells.get(cell).map_or(cell, |c| c.whole)
    }

    /// True if pods in the cell count for the group, as far as its filter goes.
    pub(crate) fn counts(&self, group: &Group, cell: usize) -> bool {
        group.filter.is_none_or(|f| self.cells.get(cell).is_none_or(|c| !c.fails.contains(&f)))
    }

    /// The value of a group's key in a cell.
    pub(crate) fn value(&self, group: &Group, cell: usize) -> Option<Sym> {
        let at = self.keys.iter().position(|k| *k == group.key)?;
        self.cells.get(cell)?.values.get(at).copied().flatten()
    }

    /// Count and holders of a group in a cell; `None` where the label is missing.
    fn at(&self, groups: &Groups, cell: usize, group: usize) -> Option<(i64, i64)> {
        let group = groups.list.get(group)?;
        let value = self.value(group, cell)?;
        Some(group.find(value).map_or((0, 0), |d| (d.count, d.holds)))
    }

    /// The domains that exist or that the class could open.
    fn domains(&self, group: &Group, choice: &Choice) -> SmallVec<[Sym; 8]> {
        let mut seen: SmallVec<[Sym; 8]> =
            group.domains.iter().filter(|d| d.exists).map(|d| d.value).collect();
        // A machine that the plan launches for others opens a domain as well, if it passes the filter: the class may be
        // too large for it, or not tolerate its taints, or with nodeAffinityPolicy: Ignore not go there at all.
        let own = choice.cells.iter().filter_map(|(cell, _)| self.value(group, *cell));
        let others =
            self.opened.iter().filter(|(filter, key, _)| Some(*filter) == group.filter && *key == group.key);
        for value in own.chain(others.map(|(_, _, value)| *value)) {
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
        seen
    }

    /// The least count among domains that exist or that the class could open; zero if fewer than `min_domains`.
    fn least(&self, groups: &Groups, choice: &Choice, rule: &SpreadRule) -> i64 {
        let Some(group) = groups.list.get(rule.group) else { return 0 };
        let seen = self.domains(group, choice);
        let number = i64::try_from(seen.len()).unwrap_or(i64::MAX);
        if number < rule.min_domains {
            return 0;
        }
        seen.iter().map(|value| group.find(*value).map_or(0, |d| d.count)).min().unwrap_or(0)
    }

    /// Notes the domains that the spreads of a class count on.
    pub(crate) fn note_seen(&self, groups: &Groups, choice: &Choice, seen: &mut Seen) {
        for rule in groups.of.get(choice.class).into_iter().flat_map(|t| &t.spreads) {
            let Some(group) = groups.list.get(rule.group) else { continue };
            let Some(filter) = group.filter else { continue };
            let domains = self.domains(group, choice);
            let known = seen.entry((filter, group.key)).or_insert_with(|| domains.iter().copied().collect());
            known.retain(|value| domains.contains(value));
        }
    }
}

/// Classes that need one of another class in their domain or on their host, while there is none that they could join.
#[derive(Debug, Default)]
struct Followers {
    /// By class: the followers of it whose own cells don't hold all of its.
    of: FxHashMap<usize, SmallVec<[usize; 2]>>,
    /// By follower: its cells, and if one of those that it needs is in one of them.
    list: Vec<(usize, Vec<usize>, bool)>,
}

impl Followers {
    fn new(groups: &Groups, board: &Board, choices: &[Choice]) -> Self {
        let mut result = Self::default();
        let mut needing: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        let cells_of =
            |choice: &Choice| choice.cells.iter().map(|(cell, _)| board.whole(*cell)).collect::<Vec<_>>();
        for choice in choices {
            let Some(topology) = groups.of.get(choice.class) else { continue };
            let needs = || topology.near.iter().copied().chain(topology.host_near);
            if choice.cells.is_empty() || needs().next().is_none() {
                continue;
            }
            let cells = cells_of(choice);
            let met = needs().any(|g| cells.iter().any(|c| board.at(groups, *c, g).is_some_and(|d| d.0 > 0)));
            for group in needs() {
                needing.entry(group).or_default().push(result.list.len());
            }
            result.list.push((choice.class, cells, met));
        }
        for choice in choices.iter().filter(|_| !needing.is_empty()) {
            let Some(topology) = groups.of.get(choice.class) else { continue };
            let mut followers: SmallVec<[usize; 2]> = SmallVec::new();
            for group in choice.counted.iter().chain(&topology.host_counted) {
                for at in needing.get(group).into_iter().flatten() {
                    let narrower = result.list.get(*at).is_some_and(|(class, cells, met)| {
                        *class != choice.class
                            && !met
                            && choice.cells.iter().any(|(c, _)| !cells.contains(&board.whole(*c)))
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

    /// How many followers a pod of `class` would leave behind in `cell`.
    fn left_behind(&self, class: usize, cell: usize) -> usize {
        let Some(followers) = self.of.get(&class) else { return 0 };
        let alone =
            |at: &&usize| self.list.get(**at).is_some_and(|(_, cells, met)| !met && !cells.contains(&cell));
        followers.iter().filter(alone).count()
    }

    fn placed(&mut self, class: usize, cell: usize) {
        for at in self.of.get(&class).into_iter().flatten() {
            if let Some((_, cells, met)) = self.list.get_mut(*at) {
                *met |= cells.contains(&cell);
            }
        }
    }
}

/// Spreads that hold already for pods that have a cell: by group and domain, the strictest.
type Held<'a> = FxHashMap<(usize, Sym), (&'a Choice, SpreadRule)>;

/// What a class that chooses its cells looks after beside its own rules.
struct Care<'a> {
    followers: Followers,
    held: Held<'a>,
    /// By group of some class's anti-affinity: those that it means and that wait for a cell.
    meant: FxHashMap<usize, Vec<&'a Choice>>,
    /// By class: how many still wait.
    left: FxHashMap<usize, u32>,
    /// A class that would shut out others which come before it comes after them.
    gives_way: bool,
}

impl<'a> Care<'a> {
    fn new(groups: &Groups, board: &Board, choices: &'a [Choice]) -> Self {
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
            followers: Followers::new(groups, board, choices),
            held: Held::default(),
            meant,
            left: choices.iter().map(|c| (c.class, c.count)).collect(),
            gives_way: true,
        }
    }

    /// How many waiting pods of others have no cell left once a pod of the class keeps them off the domains of `cell`:
    /// of those that come before it, and of all.
    fn shut_out(
        &self,
        groups: &Groups,
        board: &Board,
        choice: &Choice,
        topology: &Topology,
        cell: usize,
    ) -> (u32, u32) {
        let (mut before, mut all) = (0u32, 0u32);
        for number in &topology.anti {
            let Some(group) = groups.list.get(*number) else { continue };
            let Some(value) = board.value(group, cell) else { continue };
            for other in self.meant.get(number).into_iter().flatten() {
                let left = self.left.get(&other.class).copied().unwrap_or(0);
                if other.class == choice.class || left == 0 {
                    continue;
                }
                let held = |c: usize| board.at(groups, c, *number).is_some_and(|d| d.1 > 0);
                let mut open = other.cells.iter().filter(|(c, _)| !held(*c)).peekable();
                if open.peek().is_some() && open.all(|(c, _)| board.value(group, *c) == Some(value)) {
                    all = all.saturating_add(left);
                    if other.class < choice.class {
                        before = before.saturating_add(left);
                    }
                }
            }
        }
        (before, all)
    }

    /// How many spreads of others one more pod of the class in `cell` would break.
    fn broken(&self, groups: &Groups, board: &Board, choice: &Choice, cell: usize) -> usize {
        let breaks = |g: &&usize| {
            let Some(group) = groups.list.get(**g).filter(|group| board.counts(group, cell)) else {
                return false;
            };
            let Some(value) = board.value(group, cell) else { return false };
            self.held.get(&(**g, value)).is_some_and(|(other, rule)| {
                let count = group.find(value).map_or(0, |d| d.count);
                other.class != choice.class && count + 1 - board.least(groups, other, rule) > rule.max_skew
            })
        };
        if self.held.is_empty() { 0 } else { choice.counted.iter().filter(breaks).count() }
    }

    fn placed(
        &mut self,
        groups: &Groups,
        board: &Board,
        choice: &'a Choice,
        topology: &Topology,
        cell: usize,
    ) {
        self.followers.placed(choice.class, board.whole(cell));
        for rule in &topology.spreads {
            let value = groups.list.get(rule.group).and_then(|group| board.value(group, cell));
            let Some(value) = value else { continue };
            let held = self.held.entry((rule.group, value)).or_insert((choice, *rule));
            if rule.max_skew < held.1.max_skew {
                *held = (choice, *rule);
            }
        }
    }
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

/// Decides the cell of every pod in `choices`; classes in `late` come after the others of their priority.
pub(crate) fn decide(
    groups: &mut Groups,
    board: &Board,
    choices: &[Choice],
    late: &BTreeSet<usize>,
) -> Decided {
    let mut out = Decided::default();
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
        (Reverse(c.priority), late.contains(&c.class), rank)
    });
    let mut care = Care::new(groups, board, choices);
    let mut waiting: Vec<(&Choice, u32)> = order.iter().map(|c| (*c, c.count)).collect();
    loop {
        let mut next = Vec::new();
        let mut progress = false;
        for of_one_priority in waiting.chunk_by(|a, b| a.0.priority == b.0.priority) {
            let mut now = of_one_priority.to_vec();
            for gives_way in [true, false] {
                care.gives_way = gives_way;
                for (choice, count) in std::mem::take(&mut now) {
                    let Some(topology) = groups.of.get(choice.class).cloned() else { continue };
                    if !topology.chooses() {
                        out.items.push(Item { class: choice.class, cell: None, count });
                        progress = true;
                        continue;
                    }
                    let left = spread_out(groups, board, choice, &topology, count, &mut care, &mut out);
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
        waiting = next;
        if waiting.is_empty() || !progress {
            break;
        }
    }
    for (choice, count) in waiting {
        let Some(topology) = groups.of.get(choice.class) else { continue };
        let leasts = leasts(groups, board, choice, topology);
        let mut reasons =
            choice.cells.iter().filter_map(|(c, _)| blocked(groups, board, *c, topology, &leasts));
        out.left.push((choice.class, count, reasons.next().unwrap_or(ReasonKind::TopologySpread)));
    }
    out.broken = broken(groups, board, choices, &out.items);
    out
}

fn leasts(groups: &Groups, board: &Board, choice: &Choice, topology: &Topology) -> SmallVec<[i64; 4]> {
    topology.spreads.iter().map(|rule| board.least(groups, choice, rule)).collect()
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
        || care.followers.of.contains_key(&choice.class)
        || topology.anti.iter().any(|g| topology.counted.contains(g));
    let mut per_cell: SmallVec<[(usize, u32); 4]> = SmallVec::new();
    let mut left = count;
    while left > 0 {
        let leasts = leasts(groups, board, choice, topology);
        // Others shut out (first those that come before), followers left behind, others' spreads broken, pods of its own
        // rules there, of others', price, cell: less is better.
        type Rank = ((u32, u32), usize, usize, i64, i64, i64, usize);
        let mut best: Option<Rank> = None;
        for (cell, price) in &choice.cells {
            out.steps += 1;
            if blocked(groups, board, *cell, topology, &leasts).is_some() {
                continue;
            }
            let count = |g: usize| board.at(groups, *cell, g).map_or(0, |d| d.0);
            let own: i64 = topology.spreads.iter().map(|s| count(s.group)).sum();
            let counts = |g: &&usize| groups.list.get(**g).is_some_and(|g| board.counts(g, *cell));
            let beside: i64 = others.iter().filter(counts).map(|g| count(*g)).sum();
            let behind = care.followers.left_behind(choice.class, board.whole(*cell));
            let broken = care.broken(groups, board, choice, *cell);
            let shut = care.shut_out(groups, board, choice, topology, *cell);
            let rank = (shut, behind, broken, own, beside, *price, *cell);
            if best.is_none_or(|least| rank < least) {
                best = Some(rank);
            }
        }
        let Some((shut, .., cell)) = best.filter(|(shut, ..)| !care.gives_way || shut.0 == 0) else { break };
        // With others at stake, the next one looks anew.
        let one_by_one = one_by_one || shut.1 > 0;
        let step = if one_by_one { 1 } else { left };
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
) -> Option<ReasonKind> {
    for (rule, least) in topology.spreads.iter().zip(leasts) {
        let Some((count, _)) = board.at(groups, cell, rule.group) else {
            return Some(ReasonKind::TopologySpread);
        };
        if count + i64::from(rule.own) - least > rule.max_skew {
            return Some(ReasonKind::TopologySpread);
        }
    }
    if !topology.near.is_empty() {
        let mut all = topology.near.iter().chain(&topology.host_near);
        let first = topology.starts && all.all(|g| groups.list.get(*g).is_none_or(|g| g.total == 0));
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
