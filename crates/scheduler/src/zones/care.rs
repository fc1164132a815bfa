//! What a class that chooses its cells looks after beside its own rules.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Board, Choice, Order};
use crate::{
    groups::{Groups, SpreadRule, Topology},
    intern::Sym,
};

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

/// Where those who must be beside one of a group could have a new host.
#[derive(Debug, Default)]
struct Hosts {
    /// The cells where one of the group comes to a new machine; `None`: any.
    cells: BTreeSet<Option<usize>>,
    /// Classes of the group that need none of it themselves.
    mates: Vec<usize>,
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
                    hosts.mates.push(choice.class);
                }
            }
        }
        result
    }
}

/// What is at stake for others.
pub(super) struct Care<'a> {
    followers: Followers,
    held: Held<'a>,
    /// By group of some class's anti-affinity: those that it means and that wait for a cell.
    meant: FxHashMap<usize, Vec<&'a Choice>>,
    /// By class: how many still wait.
    pub(super) left: FxHashMap<usize, u32>,
    /// A class that would shut out others which come before it comes after them.
    pub(super) gives_way: bool,
    /// By group that somebody must be beside on one host.
    hosts: FxHashMap<usize, Hosts>,
    /// By class of [`Order::following`]: those whom it must not come before.
    leaders: FxHashMap<usize, Vec<usize>>,
    /// Leaders that still wait have no place: who follows them comes first after all.
    forsaken: bool,
    /// By class with spreads: the cells where they hold before anybody waiting is placed, if that isn't all of them.
    pub(super) at_once: FxHashMap<usize, Vec<usize>>,
}

impl<'a> Care<'a> {
    pub(super) fn new(groups: &Groups, board: &Board, choices: &'a [Choice], order: &Order) -> Self {
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
            hosts: Hosts::new(groups, choices),
            leaders: leaders(groups, choices, order),
            forsaken: false,
            at_once: FxHashMap::default(),
        }
    }

    /// Notes that a class comes to no cell in particular.
    pub(super) fn anywhere(&mut self, class: usize, topology: &Topology) {
        self.left.insert(class, 0);
        self.host(topology, None);
    }

    /// Notes where pods of a class come to.
    fn host(&mut self, topology: &Topology, cell: Option<usize>) {
        if self.hosts.is_empty() {
            return;
        }
        for g in &topology.host_counted {
            if let Some(hosts) = self.hosts.get_mut(g) {
                hosts.cells.insert(cell);
            }
        }
    }

    /// True if a pod of the class could have a new host in `cell` with a mate, or start one.
    pub(super) fn hosted(&self, groups: &Groups, topology: &Topology, cell: usize) -> bool {
        let Some(g) = topology.host_near else { return true };
        let Some(Hosts { cells, mates }) = self.hosts.get(&g) else { return true };
        let waits = |mate: &usize| self.left.get(mate).is_some_and(|n| *n > 0);
        let none = cells.is_empty() && groups.list.get(g).is_some_and(|group| group.total == 0);
        let first = topology.starts && none && (self.forsaken || !mates.iter().any(waits));
        first || cells.contains(&None) || cells.contains(&Some(cell))
    }

    /// True if a class that could be the first in its domain has to follow others that still wait.
    pub(super) fn follows(&self, class: usize) -> bool {
        let waits = |leader: &usize| self.left.get(leader).is_some_and(|n| *n > 0);
        !self.forsaken && self.leaders.get(&class).is_some_and(|leaders| leaders.iter().any(waits))
    }

    /// Leaders that still wait are no longer waited for; false if that changes nothing.
    pub(super) fn forsake(&mut self) -> bool {
        let anybody = !self.leaders.is_empty() || !self.hosts.is_empty();
        anybody && !std::mem::replace(&mut self.forsaken, true)
    }

    /// True if pods of the class have others to look after that make each of them look anew.
    pub(super) fn leads(&self, class: usize) -> bool {
        self.followers.of.contains_key(&class)
    }

    /// How many followers a pod of `class` would leave behind in `cell`.
    pub(super) fn left_behind(&self, class: usize, cell: usize) -> usize {
        self.followers.left_behind(class, cell)
    }

    /// How many waiting pods of others have no cell left once a pod of the class keeps them off the domains of `cell`:
    /// of those that come before it, and of all.
    pub(super) fn shut_out(
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
    pub(super) fn broken(&self, groups: &Groups, board: &Board, choice: &Choice, cell: usize) -> usize {
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

    pub(super) fn placed(
        &mut self,
        groups: &Groups,
        board: &Board,
        choice: &'a Choice,
        topology: &Topology,
        cell: usize,
    ) {
        self.followers.placed(choice.class, board.whole(cell));
        self.host(topology, Some(board.whole(cell)));
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

/// True if `choice` is one that pods of `group` may be near to without needing one themselves.
pub(super) fn is_leader(groups: &Groups, choice: &Choice, group: usize) -> bool {
    choice.counted.contains(&group) && groups.of.get(choice.class).is_some_and(|t| !t.near.contains(&group))
}

fn leaders(groups: &Groups, choices: &[Choice], order: &Order) -> FxHashMap<usize, Vec<usize>> {
    let following = choices.iter().filter(|c| order.following.contains(&c.class));
    let of = |choice: &Choice| {
        let near = groups.of.get(choice.class).map_or(&[][..], |t| &t.near);
        let leads = |other: &&Choice| {
            other.class != choice.class
                && other.priority >= choice.priority
                && near.iter().any(|group| is_leader(groups, other, *group))
        };
        (choice.class, choices.iter().filter(leads).map(|other| other.class).collect())
    };
    following.map(of).collect()
}
