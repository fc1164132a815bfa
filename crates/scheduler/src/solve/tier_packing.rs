//! Packing of one tier: the classes of a block that go to pools of one weight each.
//!
//! In go the classes with their counts ([`TierClass`]), the variants of their pools with the room and the cost of each offering
//! ([`Tier`]), and the rest of the limits. Out come the instances to launch, the topology groups with their pods counted, the rest
//! of the limits, and the pods that found no place ([`Packed`]).
//!
//! An attempt has these steps:
//!
//! 1. `choices`: the offerings that each class may use, narrowed to those that it prefers, and the domain sets in which they lie.
//! 2. `assign`: a domain set for every pod that topology constrains or counts. That may show that the offerings must be partitioned
//!    by a filter, or that a class needs more of them than it prefers.
//! 3. `merge`: pods that the packing can't tell apart are one item type.
//! 4. `portfolio::pack`: item types into bins, under the limits.
//! 5. `collect`: bins become launches with the pods that prefer them.
//!
//! An attempt that shows something new ([`Findings`]) is repeated with it. Where pods that count in a domain find no room there, the
//! tier is decided again with fewer of them there, or fewer of them in all, and of these plans the one is kept that leaves
//! out the fewest pods of the highest priority.
//!
//! # Example
//!
//! Twelve pods `web` of one core have a hard spread over zones with `maxSkew: 1`. Instances have four cores at the same price in the
//! zones `a` and `b`, and of `b` only one can be had.
//!
//! | attempt | `assign` | `portfolio::pack` | finding |
//! |---|---|---|---|
//! | 1 | six in `a`, six in `b` | `a` takes six. The only instance of `b` takes four, and two pods are left out. | `b` has room for four: six in `a` would exceed the skew. |
//! | 2 | five in `a`, four in `b`, and three have no zone | all | none: the attempt is kept |
//!
//! ```
//! use std::{collections::BTreeMap, sync::Arc};
//!
//! use croft_scheduler::{Catalog, Cluster, Options, Pool, ReasonKind, solve};
//! use serde_json::json;
//!
//! let catalog: Catalog = serde_json::from_value(json!({"instanceTypes": [{
//!     "name": "m.4", "arch": "amd64", "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
//!     "offerings": [
//!         {"zone": "a", "capacityType": "on-demand", "price": 0.2},
//!         {"zone": "b", "capacityType": "on-demand", "price": 0.2, "availableCount": 1},
//!     ],
//! }]}))?;
//! let mut cluster = Cluster::new();
//! cluster.upsert_pool(Pool {
//!     name: "default".to_owned(),
//!     key: "node-pool".to_owned(),
//!     value: "default".to_owned(),
//!     instance_types: Arc::from(catalog.instance_types),
//!     launches: true,
//!     ..Pool::default()
//! })?;
//! for number in 0..12 {
//!     cluster.upsert_pod(&serde_json::from_value(json!({
//!         "metadata": {"namespace": "shop", "name": format!("web-{number}"), "labels": {"app": "web"}},
//!         "spec": {
//!             "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
//!             "topologySpreadConstraints": [{
//!                 "topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
//!                 "labelSelector": {"matchLabels": {"app": "web"}},
//!             }],
//!         },
//!     }))?)?;
//! }
//!
//! let plan = solve(&cluster, &Options::default(), &|| false);
//! let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
//! for instance in &plan.instances {
//!     *pods.entry(&instance.zone).or_default() += instance.pods.len();
//! }
//! assert_eq!(pods, BTreeMap::from([("a", 5), ("b", 4)]));
//! assert_eq!(plan.unschedulable.len(), 3);
//! assert!(plan.unschedulable.iter().all(|left| left.reasons[0].reason == ReasonKind::TopologySpread));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{collections::BTreeSet, sync::Arc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    ids::{GroupIx, LimitIx, LocalClassIx, PoolVariant, VariantIx},
    index_vec::IndexVec,
    model::{
        plan::{ReasonKind, Relaxed},
        price::Price,
    },
    packing::{
        offering_table::Table,
        portfolio::{self, Outcome},
        problem::{Limit, PackingProblem},
    },
    solve::{
        block::{Block, Context, Solved},
        findings::{Findings, LimitedRoom, Unopened, filters_to_partition},
    },
    state::{attachments::Dimension, catalog_index::OfferSet},
    topology::{
        assignment,
        domains::{
            Assignment, Choice, CountedDomains, Item, Order, SpreadViolation, TopologyView, by_priority,
            note_domains,
        },
        groups::{BlockGroups, Topology},
    },
};

/// Offerings that a class may use, by variant.
pub(super) type ClassOptions = SmallVec<[(VariantIx, OfferSet); 2]>;

/// The choices of the classes of a tier.
pub(super) struct TierChoices {
    pub(super) view: TopologyView,
    pub(super) list: Vec<Choice>,
    /// Available offerings of the classes in `list`.
    pub(super) options: FxHashMap<LocalClassIx, ClassOptions>,
    /// Classes that have more offerings than they prefer.
    narrowed: BTreeSet<LocalClassIx>,
    /// Pods that no offering takes.
    left: Vec<Unplaced>,
}

/// The domain sets of a packed tier's pods.
#[derive(Default)]
pub(super) struct TierDomains {
    view: TopologyView,
    choices: Vec<Choice>,
    items: Vec<Item>,
    /// Classes with spreads that are violated in it.
    violating: BTreeSet<LocalClassIx>,
}

impl TierDomains {
    fn new(choices: TierChoices, assigned: Assignment) -> Self {
        let violating = assigned.violations.iter().map(|violation| violation.class).collect();
        Self { view: choices.view, choices: choices.list, items: assigned.items, violating }
    }

    /// Classes with spreads that the pods of later tiers violate.
    pub(super) fn violating_since(&self, groups: &BlockGroups) -> impl Iterator<Item = LocalClassIx> {
        let violations = assignment::spread_violations(groups, &self.view, &self.choices, &self.items);
        violations
            .into_iter()
            .map(|violation| violation.class)
            .filter(|class| !self.violating.contains(class))
    }
}

/// One attempt at packing a tier.
struct Attempt {
    solved: Solved,
    domains: TierDomains,
    groups: BlockGroups,
    limits: IndexVec<LimitIx, Limit>,
    /// Pods that no domain or offering takes.
    left: Vec<Unplaced>,
    /// Pods that the packing left out.
    failed: Vec<Item>,
    /// Of classes counted in domains, where some pods found no room.
    limited_room: LimitedRoom,
    /// Classes that place more pods since it doesn't count domains that could be opened and are not.
    opened_only: BTreeSet<LocalClassIx>,
    /// Not empty if it must be repeated with them.
    new_findings: Findings,
}

/// The best attempt at packing a tier.
pub(super) struct Packed {
    pub(super) solved: Solved,
    pub(super) domains: TierDomains,
    pub(super) groups: BlockGroups,
    pub(super) limits: IndexVec<LimitIx, Limit>,
    /// All unplaced pods.
    pub(super) left: Vec<Unplaced>,
    /// Pods that counted in a domain found no room, and fewer of them are tried.
    is_reduced: bool,
    /// Their classes were assigned with fewer domains counted, which allows more of them.
    is_reduced_opened_only: bool,
    unopened: Unopened,
}

/// Which pods are tried again, where not all pods of a class that counts in domains find room.
#[derive(Clone, Copy)]
enum Reduction {
    /// No more of them go to a domain than found room there.
    InDomains,
    /// As many fewer are tried as found no room.
    Anywhere,
}

/// Pods of a class that a tier takes, and the turn of the pools that they go to.
#[derive(Clone, Copy)]
pub(super) struct TierClass {
    pub(super) local: LocalClassIx,
    pub(super) count: u32,
    pub(super) turn: Turn,
}

/// When pools are used: those of a higher turn first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) weight: i32,
    /// First all offerings, then those that no share bounds: beside cheaper ones the packing doesn't see them.
    pub(super) bounded: bool,
}

/// Input of the choices of all classes of a tier.
#[derive(Clone, Copy)]
pub(super) struct ChoiceInput<'a> {
    pub(super) tier: &'a Tier<'a>,
    pub(super) groups: &'a BlockGroups,
    pub(super) findings: &'a Findings,
}

/// Pods of a class that a tier left out.
pub(super) struct Unplaced {
    pub(super) local: LocalClassIx,
    pub(super) count: u32,
    pub(super) reason: Option<ReasonKind>,
}

/// The variants that the classes of a tier may use.
pub(super) struct Tier<'b> {
    /// As in the packing problem.
    pub(super) variants: IndexVec<VariantIx, PoolVariant>,
    pub(super) dims: Arc<[Dimension]>,
    pub(super) tables: IndexVec<VariantIx, Arc<Table>>,
    /// Offerings that the limit of a share counts.
    pub(super) bounded: IndexVec<VariantIx, Option<OfferSet>>,
    /// Some limit bounds its launches.
    pub(super) is_limited: bool,
    /// While a share leaves room for some nodes only: the classes that have no others to go to.
    pub(super) without_others: BTreeSet<LocalClassIx>,
    pub(super) block: &'b Block,
}

impl Tier<'_> {
    /// The order in which a class is packed under a limit: by priority, and of one priority first those that have nowhere else to go.
    pub(super) fn turn_of(&self, class: LocalClassIx, priority: i32) -> i64 {
        2 * i64::from(priority) + i64::from(self.without_others.contains(&class))
    }
}

impl Context<'_> {
    /// Packs the classes of one tier.
    ///
    /// A pod that a limit leaves out was counted in its domain before. Then the whole tier is decided again, with no more of
    /// its class there than found room, so that it goes elsewhere or the rest stays even. Where that leaves out pods, fewer
    /// pods of such classes are tried as well: what found no room beside the others may find it in another domain once there
    /// are fewer of them. How many find room where fewer domains count says nothing of a plan in which all count: that one
    /// is packed as well.
    pub(super) fn pack_tier(
        &self,
        tier: &Tier<'_>,
        classes: &[TierClass],
        limits: &IndexVec<LimitIx, Limit>,
    ) -> Packed {
        let left_out = |packed: &Packed| self.left_by_priority(tier, classes, &packed.left);
        let better = |one: Packed, other: Packed| {
            let steps = one.solved.steps + other.solved.steps;
            let mut better = if left_out(&other) < left_out(&one) { other } else { one };
            better.solved.steps = steps;
            better
        };
        let mut packed = self.pack(tier, classes, limits, Unopened::MayNotCount, Reduction::InDomains);
        if packed.is_reduced_opened_only && !packed.left.is_empty() {
            packed = better(self.pack(tier, classes, limits, Unopened::Count, Reduction::InDomains), packed);
        }
        if packed.is_reduced && !packed.left.is_empty() {
            let fewer = self.pack(tier, classes, limits, packed.unopened, Reduction::Anywhere);
            packed = better(packed, fewer);
        }
        packed
    }

    /// The unplaced pods by priority, highest first.
    fn left_by_priority(&self, tier: &Tier<'_>, classes: &[TierClass], left: &[Unplaced]) -> Vec<u32> {
        by_priority(classes.iter().map(|wanted| {
            let of_class = left.iter().filter(|unplaced| unplaced.local == wanted.local);
            let class = tier.block.classes[wanted.local].class;
            (self.demand.classes[class].priority, of_class.map(|unplaced| unplaced.count).sum())
        }))
    }

    fn pack(
        &self,
        tier: &Tier<'_>,
        classes: &[TierClass],
        limits: &IndexVec<LimitIx, Limit>,
        unopened: Unopened,
        reduction: Reduction,
    ) -> Packed {
        const ROUNDS: u32 = 12;
        let mut wanted = classes.to_vec();
        let mut left: Vec<Unplaced> = Vec::new();
        let (mut steps, mut counted_domains) = (0, CountedDomains::new());
        let mut round = 0;
        let (mut is_reduced, mut is_reduced_opened_only) = (false, false);
        let mut findings = Findings { unopened, ..Findings::default() };
        loop {
            let mut attempt = self.attempt(tier, &wanted, limits, &findings);
            steps += attempt.solved.steps;
            for (scope, domains) in std::mem::take(&mut attempt.solved.counted_domains) {
                note_domains(&mut counted_domains, scope, domains);
            }
            // A pod counts for a spread only on instances that pass the spread's filter, and its instance is
            // known only after packing. Offerings are partitioned in advance only where that went wrong,
            // since fewer choices make plans dearer.
            if findings.learn(std::mem::take(&mut attempt.new_findings)) {
                continue;
            }
            round += 1;
            if !attempt.limited_room.is_empty() && round < ROUNDS {
                is_reduced = true;
                is_reduced_opened_only |=
                    attempt.limited_room.keys().any(|(local, _)| attempt.opened_only.contains(local));
                match reduction {
                    Reduction::InDomains if round <= ROUNDS / 2 => {
                        findings.limited_room.append(&mut attempt.limited_room);
                    }
                    // From half of the attempts on, whole classes are left out, so that the loop ends.
                    Reduction::InDomains => {
                        let all: BTreeSet<LocalClassIx> =
                            attempt.limited_room.keys().map(|(local, _)| *local).collect();
                        for TierClass { local, count, .. } in
                            wanted.extract_if(.., |w| all.contains(&w.local))
                        {
                            left.push(Unplaced { local, count, reason: self.reason(tier, local) });
                        }
                    }
                    Reduction::Anywhere => {
                        let has_domain = |item: &&Item| attempt.groups.of[item.class].needs_domain();
                        for Item { class: local, count, .. } in
                            attempt.failed.iter().filter(has_domain).copied()
                        {
                            if let Some(of_class) = wanted.iter_mut().find(|wanted| wanted.local == local) {
                                of_class.count = of_class.count.saturating_sub(count);
                                left.push(Unplaced { local, count, reason: self.reason(tier, local) });
                            }
                        }
                        wanted.retain(|wanted| wanted.count > 0);
                    }
                }
                continue;
            }
            left.append(&mut attempt.left);
            left.extend(attempt.failed.iter().map(|item| Unplaced {
                local: item.class,
                count: item.count,
                reason: self.reason(tier, item.class),
            }));
            attempt.solved.steps = steps;
            attempt.solved.counted_domains = counted_domains;
            let Attempt { solved, domains, groups, limits, .. } = attempt;
            return Packed {
                solved,
                domains,
                groups,
                limits,
                left,
                is_reduced,
                is_reduced_opened_only,
                unopened,
            };
        }
    }

    /// Why the packing left a class out.
    fn reason(&self, tier: &Tier<'_>, local: LocalClassIx) -> Option<ReasonKind> {
        let groups = &tier.block.groups;
        let has_no_target = |g: GroupIx| {
            let affinity_target = |(class, of): (LocalClassIx, &Topology)| {
                of.host_matching_groups.contains(&g) && (class != local || of.may_be_first)
            };
            groups.list[g].total == 0 && !groups.of.enumerate().any(affinity_target)
        };
        match groups.of[local].host_affinity {
            Some(g) if !tier.is_limited || has_no_target(g) => Some(ReasonKind::PodAffinity),
            _ => tier.is_limited.then_some(ReasonKind::PoolLimit),
        }
    }

    fn attempt(
        &self,
        tier: &Tier<'_>,
        classes: &[TierClass],
        limits: &IndexVec<LimitIx, Limit>,
        findings: &Findings,
    ) -> Attempt {
        let mut out = Solved::default();
        let mut groups = tier.block.groups.clone();
        let mut choices = self.choices(tier, classes, &groups, findings);
        let assigned = match self.assign(tier, &mut choices, &mut groups, findings, &mut out) {
            Ok(assigned) => assigned,
            Err(new_findings) => {
                return Attempt {
                    solved: out,
                    domains: TierDomains::default(),
                    groups,
                    limits: limits.clone(),
                    left: choices.left,
                    failed: Vec::new(),
                    limited_room: LimitedRoom::new(),
                    opened_only: BTreeSet::new(),
                    new_findings,
                };
            }
        };
        for choice in &choices.list {
            choices.view.note_counted(&groups, choice, &mut out.counted_domains);
        }
        let mut left = std::mem::take(&mut choices.left);
        left.extend(assigned.unplaced.iter().map(|pods| {
            let of_packing =
                findings.has_limited_room(pods.class).then(|| self.reason(tier, pods.class)).flatten();
            Unplaced { local: pods.class, count: pods.count, reason: of_packing.or(Some(pods.reason)) }
        }));
        let problem = self.problem(tier, &groups, limits);
        let mut merged = self.merge(tier, &groups, &choices, &assigned.items, problem);
        let outcome = portfolio::pack(
            &merged.problem,
            &mut merged.compat_sets,
            self.effort(classes),
            self.options.cost_cutoff.map(Price::micros),
            self.cancel,
        );
        out.steps += outcome.steps;
        out.cut_short = outcome.cut_short;
        out.bound = outcome.bound;
        note_relaxed(&groups, &merged.problem, &outcome, &mut out);
        let limits = outcome.limits.clone();
        let failed = self.collect(tier, merged, outcome, &mut out);
        let mut limited_room = LimitedRoom::new();
        for item in failed.iter().filter(|item| groups.of[item.class].needs_domain()) {
            let is_same = |other: &&Item| (other.class, other.domain_set) == (item.class, item.domain_set);
            let all: u32 = assigned.items.iter().filter(is_same).map(|item| item.count).sum();
            limited_room
                .extend(item.domain_set.map(|set| ((item.class, set), all.saturating_sub(item.count))));
        }
        let partitioned = self.miscounted(tier, &choices, &mut out.launches);
        for item in out.launches.iter().flat_map(|l| &l.content) {
            let local = tier.block.classes.search(&item.class, |pods| pods.class);
            let BlockGroups { list, of } = &mut groups;
            for g in local.and_then(|local| of.find(local)).into_iter().flat_map(|t| &t.host_matching_groups)
            {
                list[*g].total += i64::from(item.count);
            }
        }
        let TierChoices { view, list, .. } = &choices;
        let overtaken = assignment::overtaken_pods(&tier.block.groups, &groups, view, list, &assigned);
        let overtaken = self.overtaken(tier, &overtaken, &out.launches);
        let new_findings = Findings { partitioned, overtaken, ..Findings::default() };
        let opened_only = assigned.opened_only.clone();
        let domains = TierDomains::new(choices, assigned);
        Attempt {
            solved: out,
            domains,
            groups,
            limits,
            left,
            failed,
            limited_room,
            opened_only,
            new_findings,
        }
    }

    /// How long to search for a packing of `classes`, which have their share of what the plan may take.
    fn effort(&self, classes: &[TierClass]) -> portfolio::Effort {
        let of_tier: u64 = classes.iter().map(|wanted| u64::from(wanted.count)).sum();
        let of_plan: usize = self.demand.classes.iter().map(|class| class.pods.len()).sum();
        let of_plan = u64::try_from(of_plan).unwrap_or(u64::MAX).max(1);
        portfolio::Effort {
            multiple: self.options.effort,
            extra_steps: self.options.small_plan_steps.saturating_mul(of_tier) / of_plan,
        }
    }

    /// The offerings and domain sets of the classes of a tier.
    fn choices(
        &self,
        tier: &Tier<'_>,
        classes: &[TierClass],
        groups: &BlockGroups,
        findings: &Findings,
    ) -> TierChoices {
        let mut choices = TierChoices {
            view: self.view(tier, groups),
            list: Vec::new(),
            options: FxHashMap::default(),
            narrowed: BTreeSet::new(),
            left: Vec::new(),
        };
        for wanted in classes.iter().copied() {
            let TierClass { local, count, turn } = wanted;
            let (options, is_narrowed) = self.options_of(tier, local, turn, findings);
            if is_narrowed {
                choices.narrowed.insert(local);
            }
            if options.is_empty() {
                choices.left.push(Unplaced { local, count, reason: None });
                continue;
            }
            let choice =
                self.choice(ChoiceInput { tier, groups, findings }, &mut choices.view, wanted, &options);
            choices.list.push(choice);
            choices.options.insert(local, options);
        }
        choices
    }

    /// Decides the domain set of every pod, in `groups` as well. The error says which offerings must be partitioned
    /// before that.
    fn assign(
        &self,
        tier: &Tier<'_>,
        choices: &mut TierChoices,
        groups: &mut BlockGroups,
        findings: &Findings,
        out: &mut Solved,
    ) -> Result<Assignment, Findings> {
        let TierChoices { view, list, narrowed, .. } = choices;
        let mut order = Order { last_classes: findings.overtaken.clone(), ..Order::default() };
        let mut assigned = loop {
            let assigned = assignment::decide(groups, view, list, &order);
            out.steps += assigned.steps;
            // kube-scheduler binds in its own order. A spread that holds only for early pods is repaired by
            // partitioning the offerings of the counted pods, or by letting the others choose first. A pod
            // with required affinity to pods that may be bound before it goes where they are.
            let partitioned = filters_to_partition(groups, view, list, &assigned, &findings.partitioned);
            // Nothing keeps a pod where it prefers to be: one that would have to wait there goes elsewhere.
            let left = assigned.unplaced.iter().map(|pods| &pods.class).chain(&assigned.spread_blocked);
            let widened: BTreeSet<LocalClassIx> =
                left.filter(|class| narrowed.contains(*class)).copied().collect();
            if !partitioned.is_empty() || !widened.is_empty() {
                return Err(Findings { partitioned, widened, ..Findings::default() });
            }
            let before = (order.last_classes.len(), order.seed_followers.len());
            order.last_classes.extend(assigned.violations.iter().map(|violation| violation.class));
            order.seed_followers.extend(&assigned.separated_starters);
            if (order.last_classes.len(), order.seed_followers.len()) == before {
                break assigned;
            }
            *groups = tier.block.groups.clone();
        };
        // A constraint that can't hold in every binding order may hold in the likeliest one, or with fewer domains than
        // could be opened.
        for counts_opened_only in [false, true] {
            if assigned.unplaced.is_empty() || counts_opened_only && findings.unopened == Unopened::Count {
                break;
            }
            let view = TopologyView { counts_opened_only, ..view.clone() };
            let mut others = tier.block.groups.clone();
            let order = Order { is_queue_order: true, ..Order::default() };
            let mut queue_order = assignment::decide(&mut others, &view, list, &order);
            out.steps += queue_order.steps;
            let improved: BTreeSet<LocalClassIx> = assigned
                .unplaced
                .iter()
                .map(|pods| pods.class)
                .filter(|class| queue_order.unplaced_of(*class) < assigned.unplaced_of(*class))
                .collect();
            // Pods that are decided later may open a domain that didn't count. Their nodes are there before any pod is bound,
            // so that no order helps.
            let opened =
                |g: &GroupIx| others.list[*g].domains.iter().any(|d| !d.exists && d.pods.matching > 0);
            let is_affected =
                |violation: &SpreadViolation| improved.contains(&violation.class) || opened(&violation.group);
            let opens = counts_opened_only && queue_order.violations.iter().any(is_affected);
            let overtaken =
                assignment::overtaken_pods(&tier.block.groups, &others, &view, list, &queue_order);
            let loses_places = overtaken.iter().any(|pods| findings.overtaken.contains(&pods.class));
            if !opens
                && !loses_places
                && queue_order.unplaced_by_priority(list) < assigned.unplaced_by_priority(list)
            {
                if counts_opened_only {
                    queue_order.opened_only = improved;
                }
                (*groups, assigned) = (others, queue_order);
            }
        }
        view.counts_opened_only = !assigned.opened_only.is_empty();
        Ok(assigned)
    }
}

/// Notes what the bound of a packing leaves out of account. Limits that other tiers use as well it counts for each tier alone.
fn note_relaxed(groups: &BlockGroups, problem: &PackingProblem, outcome: &Outcome, out: &mut Solved) {
    if groups.of.iter().any(|t| !t.spreads.is_empty() || !t.host_spreads.is_empty()) {
        out.relaxed.insert(Relaxed::Spread);
    }
    if groups.of.iter().any(Topology::has_pod_terms) {
        out.relaxed.insert(Relaxed::Affinity);
    }
    if outcome.relaxes_limits && problem.has_limits() || problem.has_used_limits() {
        out.relaxed.insert(Relaxed::Limits);
    }
}
