//! Topology domains, decided by counting before anything is packed.
//!
//! A *cell* is one combination of the domains that matter: usually a zone. Each pod that a live group binds or counts
//! gets a cell, one after the other, so that the order itself shows that kube-scheduler can bind them: every pod's
//! constraints hold at its turn. What is left for the packing then are sizes and sets of offerings.

mod care;
mod decide;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use smallvec::SmallVec;

pub(crate) use decide::{Order, decide};

use crate::{
    bits::Bits,
    groups::{Group, Groups, SpreadRule},
    intern::Sym,
    plan::ReasonKind,
};

/// One combination of domains.
#[derive(Clone, Debug)]
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
    /// Cells with room for so many and no more.
    pub(crate) full: SmallVec<[(usize, u32); 2]>,
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
    /// Classes that come to a domain first, while those that they need may come to others before them.
    pub(crate) astray: Vec<usize>,
    pub(crate) steps: u64,
}

impl Decided {
    /// How many are left, those of the highest priority first.
    pub(crate) fn left_by_priority(&self, choices: &[Choice]) -> Vec<u32> {
        let mut left: BTreeMap<Reverse<i32>, u32> = BTreeMap::new();
        for choice in choices {
            *left.entry(Reverse(choice.priority)).or_default() +=
                self.left.iter().filter(|(class, ..)| *class == choice.class).map(|(_, n, _)| n).sum::<u32>();
        }
        left.into_values().collect()
    }
}

/// The cells and the keys that tell them apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    pub(crate) keys: Vec<Sym>,
    pub(crate) cells: Vec<Cell>,
    /// Domains that the whole plan opens.
    pub(crate) opened: Arc<[Opened]>,
    /// Cells that a class could use make domains only once somebody is there: no node of the others may ever be launched.
    pub(crate) lean: bool,
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
        let own = own.filter(|value| !self.lean || group.count_in(Some(*value)) > 0);
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
