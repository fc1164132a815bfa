//! Findings of the attempts at a tier: a later attempt is made under what earlier ones found.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::{DomainSetIx, LocalClassIx},
    state::pod_shape::FilterId,
    topology::{
        domains::{Assignment, Choice, Item, SpreadViolation, TopologyView},
        groups::BlockGroups,
    },
};

/// Whether domains count for a spread that could be opened and are not.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Unopened {
    Count,
    /// They don't where that places more pods.
    #[default]
    MayNotCount,
}

/// How many pods of a class have room in a domain set that has no room for more of them.
pub(super) type LimitedRoom = BTreeMap<(LocalClassIx, DomainSetIx), u32>;

/// Findings of the attempts at a tier, and what they are made under.
#[derive(Default)]
pub(super) struct Findings {
    /// Classes whose offerings must be partitioned by the filter before counting.
    pub(super) partitioned: BTreeSet<(LocalClassIx, FilterId)>,
    /// Classes that need more offerings than they prefer: domains decide where they may go.
    pub(super) widened: BTreeSet<LocalClassIx>,
    /// Classes whose places pods of earlier ones would take.
    pub(super) overtaken: BTreeSet<LocalClassIx>,
    /// As far as limits and missing affinity targets leave room.
    pub(super) limited_room: LimitedRoom,
    /// The same in all attempts.
    pub(super) unopened: Unopened,
}

impl Findings {
    /// True if `more` adds a finding about which instances count, or about who chooses last.
    pub(super) fn learn(&mut self, mut more: Self) -> bool {
        let count = |it: &Self| it.partitioned.len() + it.widened.len() + it.overtaken.len();
        let before = count(self);
        self.partitioned.append(&mut more.partitioned);
        self.widened.append(&mut more.widened);
        self.overtaken.append(&mut more.overtaken);
        let new = count(self) > before;
        if new {
            // Domain sets are renumbered.
            self.limited_room.clear();
        }
        new
    }

    /// The domain sets of limited room for a class.
    pub(super) fn limited_room_of(
        &self,
        local: LocalClassIx,
    ) -> impl Iterator<Item = (&(LocalClassIx, DomainSetIx), &u32)> {
        self.limited_room.range((local, DomainSetIx::LEAST)..=(local, DomainSetIx::NONE))
    }

    pub(super) fn has_limited_room(&self, local: LocalClassIx) -> bool {
        self.limited_room_of(local).next().is_some()
    }
}

/// (class, filter) of classes counted in a domain where a spread is violated, though some of their instances
/// wouldn't count.
pub(super) fn filters_to_partition(
    groups: &BlockGroups,
    view: &TopologyView,
    choices: &[Choice],
    assigned: &Assignment,
    partitioned: &BTreeSet<(LocalClassIx, FilterId)>,
) -> BTreeSet<(LocalClassIx, FilterId)> {
    let mut result = BTreeSet::new();
    for SpreadViolation { class, group, domain } in &assigned.violations {
        let Some((it, filter)) = groups.list.find(*group).and_then(|g| Some((g, g.filter?))) else {
            continue;
        };
        for choice in choices.iter().filter(|c| c.class != *class && c.undecided_filters.contains(&filter)) {
            let is_counted = |item: &Item| {
                item.class == choice.class
                    && item.domain_set.is_some_and(|set| view.value(it, set) == Some(*domain))
            };
            if choice.counting_groups.contains(group) && assigned.items.iter().any(is_counted) {
                result.insert((choice.class, filter));
            }
        }
    }
    result.retain(|pair| !partitioned.contains(pair));
    result
}
