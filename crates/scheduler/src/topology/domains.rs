//! Topology domains, decided by counting before packing.
//!
//! A *domain set* is one combination of the domains that matter: usually a zone. Each pod that a live group
//! constrains or counts gets a domain set, one after the other, so that the order itself shows that kube-scheduler
//! can bind them: every pod's constraints hold at its turn. What is left for the packing are sizes and sets of
//! offerings.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use smallvec::SmallVec;

use crate::{
    ids::{DomainSetIx, GroupIx, LocalClassIx, VariantIx},
    index_vec::IndexVec,
    model::plan::ReasonKind,
    state::{catalog_index::OfferSet, interner::Sym, pod_shape::FilterId},
    topology::groups::{BlockGroups, Group, PodCounts, SpreadRule},
};

/// One combination of domains.
#[derive(Clone, Debug)]
pub(crate) struct DomainSet {
    /// One per key; `None`: nodes there lack the label.
    pub(crate) values: Vec<Option<Sym>>,
    /// Offerings of each variant in it.
    pub(crate) offers: IndexVec<VariantIx, OfferSet>,
    /// The domain set that this one is a part of, or its own id.
    pub(crate) whole: DomainSetIx,
    /// Filters that no offering of a part passes, while others of the whole do.
    pub(crate) fails: SmallVec<[FilterId; 2]>,
}

/// The domain sets that a class may choose.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) class: LocalClassIx,
    pub(crate) count: u32,
    pub(crate) priority: i32,
    /// Domain sets where an available offering is large enough, with the price of the cheapest.
    pub(crate) domain_sets: Vec<(DomainSetIx, i64)>,
    /// Domain sets with room for so many pods and no more.
    pub(crate) limited_room: SmallVec<[(DomainSetIx, u32); 2]>,
    /// Groups of [`Topology::matching_groups`] whose filter some of the class's offerings pass.
    pub(crate) counting_groups: Vec<GroupIx>,
    /// Filters of those groups that other offerings of the class don't pass: the instance decides.
    pub(crate) undecided_filters: SmallVec<[FilterId; 2]>,
}

/// Pods of one class in one domain set; `None`: the domain set doesn't matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item<C = LocalClassIx> {
    pub(crate) class: C,
    pub(crate) domain_set: Option<DomainSetIx>,
    pub(crate) count: u32,
}

/// Order in which classes choose.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Classes that choose after the others of their priority, since their spreads held only before those were placed, or since
    /// those would take their places.
    pub(crate) last_classes: BTreeSet<LocalClassIx>,
    /// Classes with affinity to their own pods that don't place the first one while affinity seeds of another class are pending.
    pub(crate) seed_followers: BTreeSet<LocalClassIx>,
    /// The order of kube-scheduler's queue, and no class defers to another: a placement that holds only in that order is better
    /// than none.
    pub(crate) is_queue_order: bool,
}

/// Pods of a class without a domain set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnplacedPods {
    pub(crate) class: LocalClassIx,
    pub(crate) count: u32,
    /// The constraint that kept them out.
    pub(crate) reason: ReasonKind,
}

/// A domain in which a spread holds only if the class's pods are bound before others that were placed later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpreadViolation {
    pub(crate) class: LocalClassIx,
    pub(crate) group: GroupIx,
    pub(crate) domain: Sym,
}

/// Pods with anti-affinity to pods of an earlier class, in a domain set where these may be bound first: the spread of the earlier
/// class holds as planned only once the others are bound, and before that here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OvertakenPods {
    pub(crate) class: LocalClassIx,
    pub(crate) domain_set: DomainSetIx,
    pub(crate) earlier: LocalClassIx,
}

/// Where the pods of all choices go, and what keeps the rest out.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    pub(crate) items: Vec<Item>,
    pub(crate) unplaced: Vec<UnplacedPods>,
    pub(crate) violations: Vec<SpreadViolation>,
    /// Classes with the first matching pod of a domain, while pods that they have affinity to may be bound to other domains
    /// before them.
    pub(crate) separated_starters: Vec<LocalClassIx>,
    /// Classes whose spreads kept pods out when they chose, whether or not others made room later.
    pub(crate) spread_blocked: BTreeSet<LocalClassIx>,
    /// Classes that place more pods if domains that could be opened and are not don't count.
    pub(crate) opened_only: BTreeSet<LocalClassIx>,
    pub(crate) steps: u64,
}

impl Assignment {
    /// Unplaced pods of a class.
    pub(crate) fn unplaced_of(&self, class: LocalClassIx) -> u32 {
        self.unplaced.iter().filter(|pods| pods.class == class).map(|pods| pods.count).sum()
    }

    /// Unplaced pods by priority, highest first.
    pub(crate) fn unplaced_by_priority(&self, choices: &[Choice]) -> Vec<u32> {
        by_priority(choices.iter().map(|choice| (choice.priority, self.unplaced_of(choice.class))))
    }
}

/// Sums of counts of one priority, highest first.
pub(crate) fn by_priority(counts: impl Iterator<Item = (i32, u32)>) -> Vec<u32> {
    let mut sums: BTreeMap<Reverse<i32>, u32> = BTreeMap::new();
    for (priority, count) in counts {
        *sums.entry(Reverse(priority)).or_default() += count;
    }
    sums.into_values().collect()
}

/// The domain sets, and the keys that tell them apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopologyView {
    pub(crate) keys: Vec<Sym>,
    pub(crate) domain_sets: IndexVec<DomainSetIx, DomainSet>,
    /// Domains that the whole plan opens.
    pub(crate) opened: Arc<[OpenedDomain]>,
    /// A domain set that a class could use counts as a domain only once it has a pod: its other nodes may
    /// never be launched.
    pub(crate) counts_opened_only: bool,
}

/// The nodes that count for a spread, and the key of the domains that it compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DomainScope {
    pub(crate) filter: FilterId,
    pub(crate) key: Sym,
}

/// A domain that a planned instance opens for the spreads of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpenedDomain {
    pub(crate) scope: DomainScope,
    pub(crate) value: Sym,
}

/// The domains that the spreads of each scope count.
pub(crate) type CountedDomains = BTreeMap<DomainScope, BTreeSet<Sym>>;

/// Records the domains that a spread counts, as far as it counted them each time.
pub(crate) fn note_domains(counted: &mut CountedDomains, scope: DomainScope, domains: BTreeSet<Sym>) {
    let known = counted.entry(scope).or_insert_with(|| domains.clone());
    known.retain(|value| domains.contains(value));
}

impl TopologyView {
    pub(super) fn whole(&self, domain_set: DomainSetIx) -> DomainSetIx {
        self.domain_sets.find(domain_set).map_or(domain_set, |c| c.whole)
    }

    /// True if pods in the domain set count for the group under its filter.
    pub(crate) fn is_counted(&self, group: &Group, domain_set: DomainSetIx) -> bool {
        group.filter.is_none_or(|f| self.domain_sets.find(domain_set).is_none_or(|c| !c.fails.contains(&f)))
    }

    /// The value of a group's key in a domain set.
    pub(crate) fn value(&self, group: &Group, domain_set: DomainSetIx) -> Option<Sym> {
        let index = self.keys.iter().position(|k| *k == group.key)?;
        self.domain_sets.find(domain_set)?.values.get(index).copied().flatten()
    }

    /// Pods in the domain of a group's key; `None` if nodes of the domain set lack the label.
    pub(super) fn pod_counts(
        &self,
        groups: &BlockGroups,
        domain_set: DomainSetIx,
        group: GroupIx,
    ) -> Option<PodCounts> {
        let group = groups.list.find(group)?;
        let value = self.value(group, domain_set)?;
        Some(group.find(value).map_or(PodCounts::default(), |domain| domain.pods))
    }

    /// The domains that exist or that the class could open.
    fn domains(&self, group: &Group, choice: &Choice) -> SmallVec<[Sym; 8]> {
        let mut values: SmallVec<[Sym; 8]> =
            group.domains.iter().filter(|d| d.exists).map(|d| d.value).collect();
        // An instance launched for other pods opens a domain as well, if it passes the filter: the class may
        // be too large for it, not tolerate its taints, or, with nodeAffinityPolicy: Ignore, not go there at
        // all.
        let own = choice.domain_sets.iter().filter_map(|(domain_set, _)| self.value(group, *domain_set));
        let own = own.filter(|value| !self.counts_opened_only || group.count_in(Some(*value)) > 0);
        let scope = group.filter.map(|filter| DomainScope { filter, key: group.key });
        let others = self.opened.iter().filter(|opened| Some(opened.scope) == scope);
        for value in own.chain(others.map(|opened| opened.value)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// The least count among domains that exist or that the class could open; zero with fewer than
    /// `min_domains`.
    pub(super) fn min_count(&self, groups: &BlockGroups, choice: &Choice, rule: &SpreadRule) -> i64 {
        let Some(group) = groups.list.find(rule.group) else { return 0 };
        let domains = self.domains(group, choice);
        let number = i64::try_from(domains.len()).unwrap_or(i64::MAX);
        if number < rule.min_domains {
            return 0;
        }
        domains.iter().map(|value| group.count_in(Some(*value))).min().unwrap_or(0)
    }

    /// Records the domains that the spreads of a class count.
    pub(crate) fn note_counted(&self, groups: &BlockGroups, choice: &Choice, counted: &mut CountedDomains) {
        for rule in groups.of.find(choice.class).into_iter().flat_map(|t| &t.spreads) {
            let Some(group) = groups.list.find(rule.group) else { continue };
            let Some(filter) = group.filter else { continue };
            let scope = DomainScope { filter, key: group.key };
            note_domains(counted, scope, self.domains(group, choice).into_iter().collect());
        }
    }
}
