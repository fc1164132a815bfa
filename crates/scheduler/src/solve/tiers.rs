//! A block: classes and pools that share constraints with each other and with no other block.
//!
//! Pods go to the heaviest pool that can take them; what its limits leave out goes to the next tier.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Options,
    model::{bit_set::BitSet, plan::ReasonKind, price::Price},
    packing::{
        compatibility::CompatibilitySets,
        offering_table::Table,
        portfolio,
        problem::{Limit, PackingProblem},
    },
    solve::{cache::SolveCache, demand::Demand, limits::Limits},
    state::{
        catalog_index::PoolRec,
        cluster::Cluster,
        requests::{RES_CPU, RES_MEMORY, RES_PODS},
    },
    topology::{
        assignment, domains,
        groups::{Groups, Topology},
    },
};

/// Offerings of one variant of a pool that a class may use, available or not.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    pub(crate) pool: usize,
    pub(crate) variant: usize,
    pub(crate) bits: Arc<BitSet>,
}

/// Input that all blocks share.
pub(crate) struct Context<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) options: &'a Options,
    pub(crate) demand: &'a Demand,
    pub(crate) pools: Vec<&'a PoolRec>,
    /// By class.
    pub(crate) allowed: Vec<Vec<Allowed>>,
    pub(crate) limits: Limits<'a>,
    pub(super) cache: &'a SolveCache,
    /// Domains that the plan opens, where some spread counts domains that its own pods can't open.
    pub(crate) opened: Arc<[domains::Opened]>,
    pub(crate) cancel: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        options: &'a Options,
        demand: &'a Demand,
        pools: Vec<&'a PoolRec>,
        limits: Limits<'a>,
        cache: &'a SolveCache,
        cancel: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let opened = Arc::from([]);
        Self { cluster, options, demand, pools, allowed: Vec::new(), limits, cache, opened, cancel }
    }
}

/// Classes and pools that share constraints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Class ids, with their unplaced pods.
    pub(crate) classes: Vec<(usize, u32)>,
    /// The block's topology groups; classes are indexed as in `classes`.
    pub(crate) groups: Groups,
}

/// An instance of the plan, before it is named.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) pool: usize,
    pub(crate) variant: usize,
    pub(crate) offer: u32,
    pub(crate) bits: BitSet,
    pub(crate) table: Arc<Table>,
    pub(crate) dims: Arc<[u32]>,
    /// By dimension.
    pub(crate) used: Vec<i64>,
    /// (class, domain set, count).
    pub(crate) content: Vec<(usize, Option<usize>, u32)>,
    pub(crate) limited: bool,
}

/// Result of a block.
#[derive(Debug, Default)]
pub(crate) struct Solved {
    pub(crate) launches: Vec<Launch>,
    /// (class, count, constraint that kept them out).
    pub(crate) left: Vec<(usize, u32, Option<ReasonKind>)>,
    pub(crate) seen: domains::Seen,
    pub(crate) bound: i64,
    pub(crate) relaxed: BTreeSet<crate::model::plan::Relaxed>,
    pub(crate) steps: u64,
    pub(crate) cut_short: bool,
}

/// One attempt at packing a tier.
struct Attempt {
    solved: Solved,
    groups: Groups,
    limits: Vec<Limit>,
    /// (local class, count, reason) of pods that no domain or offering takes.
    left: Vec<(usize, u32, Option<ReasonKind>)>,
    /// (local class, domain set, count) of pods that the packing left out.
    failed: Vec<(usize, Option<usize>, u32)>,
    /// Of classes counted in domains: how many found room where some didn't.
    full: Full,
    /// It doesn't count domains that could be opened and are not.
    lean: bool,
    /// Why it must be repeated, if so.
    wrong: Found,
}

/// By (local class, domain set): the number of pods with room.
type Full = BTreeMap<(usize, usize), u32>;

/// Findings of the attempts at a tier.
#[derive(Default)]
pub(super) struct Found {
    /// (local class, filter): its offerings must be partitioned by the filter before counting.
    pub(super) parted: BTreeSet<(usize, u32)>,
    /// Local classes that need more offerings than they prefer: domains decide where they may go.
    pub(super) wide: BTreeSet<usize>,
    /// Where limits, or missing affinity targets, leave room for so many pods of a class and no more.
    pub(super) full: Full,
    /// There is no room for what fewer domains would allow.
    not_lean: bool,
}

impl Found {
    /// True if `more` adds a finding about which instances count.
    fn learn(&mut self, mut more: Self) -> bool {
        let before = (self.parted.len(), self.wide.len());
        self.parted.append(&mut more.parted);
        self.wide.append(&mut more.wide);
        let new = before != (self.parted.len(), self.wide.len());
        if new {
            // Domain sets are renumbered.
            self.full.clear();
        }
        new
    }

    fn is_full_for(&self, local: usize) -> bool {
        self.full.range((local, 0)..=(local, usize::MAX)).next().is_some()
    }
}

/// (class, filter) of classes counted in a domain where a spread is violated, though some of their instances
/// wouldn't count.
fn unsure_of(
    groups: &Groups,
    view: &domains::TopologyView,
    choices: &[domains::Choice],
    decided: &domains::Decided,
    parted: &BTreeSet<(usize, u32)>,
) -> BTreeSet<(usize, u32)> {
    let mut result = BTreeSet::new();
    for (class, group, domain) in &decided.broken {
        let Some((it, filter)) = groups.list.get(*group).and_then(|g| Some((g, g.filter?))) else { continue };
        for choice in choices.iter().filter(|c| c.class != *class && c.unsure.contains(&filter)) {
            let there = |i: &domains::Item| {
                i.class == choice.class && i.domain_set.is_some_and(|c| view.value(it, c) == Some(*domain))
            };
            if choice.counted.contains(group) && decided.items.iter().any(there) {
                result.insert((choice.class, filter));
            }
        }
    }
    result.retain(|pair| !parted.contains(pair));
    result
}

pub(super) struct Tier<'b> {
    /// (pool, variant), in the order of the problem's variants.
    pub(super) variants: Vec<(usize, usize)>,
    pub(super) dims: Arc<[u32]>,
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) block: &'b Block,
}

#[expect(
    clippy::indexing_slicing,
    reason = "classes, pools and variants are numbered by the lists that they index"
)]
impl Context<'_> {
    /// Solves one block.
    pub(crate) fn solve(&self, mut block: Block) -> Solved {
        let mut out = Solved::default();
        let mut limits = self.limits.left.clone();
        let mut waiting: Vec<(usize, u32)> =
            block.classes.iter().enumerate().map(|(local, (_, count))| (local, *count)).collect();
        let mut weights: BTreeSet<i32> = BTreeSet::new();
        for (class, _) in &block.classes {
            weights.extend(self.allowed[*class].iter().map(|a| self.pools[a.pool].pool.weight));
        }
        if weights.len() > 1 {
            out.relaxed.insert(crate::model::plan::Relaxed::Weight);
        }
        // Each class starts with its heaviest pool; the rest falls to its next lighter one.
        let mut ceiling: Vec<i32> = vec![i32::MAX; block.classes.len()];
        let mut blame: Vec<Option<ReasonKind>> = vec![None; block.classes.len()];
        while !waiting.is_empty() {
            let mut now = Vec::new();
            let mut heaviest: Vec<i32> = Vec::new();
            for (local, count) in waiting.drain(..) {
                let class = block.classes[local].0;
                let weight = self.allowed[class]
                    .iter()
                    .map(|a| self.pools[a.pool].pool.weight)
                    .filter(|w| *w < ceiling[local] || ceiling[local] == i32::MAX)
                    .max();
                match weight {
                    Some(weight) => {
                        now.push((local, count, weight));
                        heaviest.push(weight);
                    }
                    None => out.left.push((class, count, blame[local])),
                }
            }
            if now.is_empty() {
                break;
            }
            let tier = self.tier(&block, &now);
            let left = self.pack_tier(&tier, &now, &mut limits, &mut out);
            drop(tier);
            // Counts of placed pods stay with the groups for the next tier.
            let (left, groups) = left;
            block.groups = groups;
            for (local, count, reason) in left {
                if let Some((_, _, weight)) = now.iter().find(|(l, _, _)| *l == local) {
                    ceiling[local] = *weight;
                }
                blame[local] = blame[local].or(reason);
                if ceiling[local] == i32::MIN {
                    out.left.push((block.classes[local].0, count, blame[local]));
                } else {
                    waiting.push((local, count));
                }
            }
        }
        out
    }

    fn tier<'b>(&self, block: &'b Block, now: &[(usize, u32, i32)]) -> Tier<'b> {
        let mut variants = BTreeSet::new();
        let mut resources = BTreeSet::new();
        for (local, _, weight) in now {
            let class = block.classes[*local].0;
            for a in self.allowed[class].iter().filter(|a| self.pools[a.pool].pool.weight == *weight) {
                variants.insert((a.pool, a.variant));
            }
            let shape = self.demand.classes[class].shape(self.cluster);
            resources.extend(shape.requests.iter().map(|(id, _)| *id));
        }
        for fixed in [RES_CPU, RES_MEMORY, RES_PODS] {
            resources.remove(&fixed);
        }
        let mut dims = vec![RES_CPU, RES_MEMORY];
        dims.extend(resources);
        dims.push(RES_PODS);
        let variants: Vec<_> = variants.into_iter().collect();
        let tables = variants.iter().map(|(pool, variant)| self.table(*pool, *variant, &dims)).collect();
        Tier { variants, dims: dims.into(), tables, block }
    }

    /// Packs the classes of one tier. Returns the unplaced (local class, count, reason), and the groups as
    /// they then are.
    ///
    /// A pod that a limit leaves out was counted in its domain before. Then the whole tier is decided again
    /// with no more of its class there than found room, so that it goes elsewhere or the rest stays even.
    fn pack_tier(
        &self,
        tier: &Tier<'_>,
        now: &[(usize, u32, i32)],
        limits: &mut Vec<Limit>,
        out: &mut Solved,
    ) -> (Vec<(usize, u32, Option<ReasonKind>)>, Groups) {
        const ROUNDS: u32 = 12;
        let mut wanted = now.to_vec();
        let mut outside: Vec<(usize, u32, Option<ReasonKind>)> = Vec::new();
        let mut round = 0;
        let mut found = Found::default();
        loop {
            let mut attempt = self.attempt(tier, &wanted, limits, &found);
            out.steps += attempt.solved.steps;
            for (spread, domains) in std::mem::take(&mut attempt.solved.seen) {
                match out.seen.entry(spread) {
                    Entry::Vacant(entry) => drop(entry.insert(domains)),
                    Entry::Occupied(mut entry) => entry.get_mut().retain(|value| domains.contains(value)),
                }
            }
            // A pod counts for a spread only on instances that pass the spread's filter, and its instance is
            // known only after packing. Offerings are partitioned in advance only where that went wrong,
            // since fewer choices make plans dearer.
            if found.learn(std::mem::take(&mut attempt.wrong)) {
                continue;
            }
            round += 1;
            if !attempt.full.is_empty() && round < ROUNDS {
                if attempt.lean {
                    found.not_lean = true;
                    continue;
                }
                if round <= ROUNDS / 2 {
                    found.full.append(&mut attempt.full);
                    continue;
                }
                // From half of the attempts on, whole classes yield, so that the loop ends.
                let gives_way: BTreeSet<usize> = attempt.full.keys().map(|(local, _)| *local).collect();
                for (local, count, _) in wanted.extract_if(.., |(local, ..)| gives_way.contains(local)) {
                    outside.push((local, count, self.reason(tier, local)));
                }
                continue;
            }
            limits.clone_from(&attempt.limits);
            outside.append(&mut attempt.left);
            outside.extend(
                attempt.failed.iter().map(|(local, _, count)| (*local, *count, self.reason(tier, *local))),
            );
            out.launches.append(&mut attempt.solved.launches);
            out.bound = out.bound.saturating_add(attempt.solved.bound);
            out.relaxed.append(&mut attempt.solved.relaxed);
            out.cut_short |= attempt.solved.cut_short;
            let mut merged: Vec<(usize, u32, Option<ReasonKind>)> = Vec::new();
            for (local, count, reason) in outside {
                match merged.iter_mut().find(|(l, _, r)| *l == local && *r == reason) {
                    Some((_, n, _)) => *n += count,
                    None => merged.push((local, count, reason)),
                }
            }
            return (merged, attempt.groups);
        }
    }

    /// Why the packing left a class out.
    fn reason(&self, tier: &Tier<'_>, local: usize) -> Option<ReasonKind> {
        let groups = &tier.block.groups;
        let limited = tier.variants.iter().any(|(pool, _)| !self.limits.of[*pool].is_empty());
        let alone = |g: usize| {
            let affinity_target = |(class, of): (usize, &Topology)| {
                of.host_counted.contains(&g) && (class != local || of.starts)
            };
            groups.list[g].total == 0 && !groups.of.iter().enumerate().any(affinity_target)
        };
        match groups.of[local].host_near {
            Some(g) if !limited || alone(g) => Some(ReasonKind::PodAffinity),
            _ => limited.then_some(ReasonKind::PoolLimit),
        }
    }

    fn attempt(
        &self,
        tier: &Tier<'_>,
        now: &[(usize, u32, i32)],
        limits: &[Limit],
        found: &Found,
    ) -> Attempt {
        let mut out = Solved::default();
        let mut groups = tier.block.groups.clone();
        let mut view = self.view(tier, &groups);
        let mut left = Vec::new();
        let mut choices = Vec::new();
        let mut narrow = BTreeSet::new();
        let mut compat_sets_of: FxHashMap<usize, SmallVec<[(u32, BitSet); 2]>> = FxHashMap::default();
        for (local, count, weight) in now {
            let (options, narrowed) = self.options_of(tier, *local, *weight, found);
            if narrowed {
                narrow.insert(*local);
            }
            if options.is_empty() {
                left.push((*local, *count, None));
                continue;
            }
            choices.push(self.choice(tier, &groups, &mut view, (*local, *count), &options, found));
            compat_sets_of.insert(*local, options);
        }
        let mut order = domains::Order::default();
        let mut lean_used = false;
        let mut decided = loop {
            let decided = assignment::decide(&mut groups, &view, &choices, &order);
            out.steps += decided.steps;
            // kube-scheduler binds in its own order. A spread that holds only for early pods is repaired by
            // partitioning the offerings of the counted pods, or by letting the others choose first. A pod
            // with required affinity to pods that may be bound before it goes where they are.
            let parted = unsure_of(&groups, &view, &choices, &decided, &found.parted);
            let wide: BTreeSet<usize> = decided
                .left
                .iter()
                .map(|(class, ..)| *class)
                .filter(|class| narrow.contains(class))
                .collect();
            if !parted.is_empty() || !wide.is_empty() {
                let wrong = Found { parted, wide, ..Found::default() };
                let limits = limits.to_vec();
                let (failed, full, lean) = (Vec::new(), Full::new(), false);
                return Attempt { solved: out, groups, limits, left, failed, full, lean, wrong };
            }
            let before = (order.late.len(), order.following.len());
            order.late.extend(decided.broken.iter().map(|(class, _, _)| *class));
            order.following.extend(&decided.premature_starters);
            if (order.late.len(), order.following.len()) == before {
                break decided;
            }
            groups = tier.block.groups.clone();
        };
        // A constraint that can't hold in every binding order may hold in the likeliest one, or with fewer domains than
        // could be opened.
        for lean in [false, true] {
            if decided.left.is_empty() || lean && found.not_lean {
                break;
            }
            let view = domains::TopologyView { lean, ..view.clone() };
            let mut others = tier.block.groups.clone();
            let order = domains::Order { in_turn: true, ..domains::Order::default() };
            let in_turn = assignment::decide(&mut others, &view, &choices, &order);
            out.steps += in_turn.steps;
            if in_turn.left_by_priority(&choices) < decided.left_by_priority(&choices) {
                (groups, decided) = (others, in_turn);
                lean_used = lean;
            }
        }
        view.lean = lean_used;
        for choice in &choices {
            view.note_seen(&groups, choice, &mut out.seen);
        }
        left.extend(decided.left.iter().map(|(local, count, reason)| {
            let full = found.is_full_for(*local).then(|| self.reason(tier, *local)).flatten();
            (*local, *count, full.or(Some(*reason)))
        }));
        let mut problem = self.problem(tier, &groups, limits);
        let mut compat_sets = CompatibilitySets::default();
        let sources =
            self.kinds(tier, &groups, &view, &decided.items, &compat_sets_of, &mut problem, &mut compat_sets);
        let cost_cutoff = self.options.cost_cutoff.map(Price::micros);
        let outcome =
            portfolio::pack(&problem, &mut compat_sets, self.options.effort, cost_cutoff, self.cancel);
        out.steps += outcome.steps;
        out.cut_short = outcome.cut_short;
        out.bound = outcome.bound;
        self.note_relaxed(&groups, &problem, &mut out);
        let limits = outcome.limits.clone();
        let failed = self.collect(tier, &problem, &compat_sets, outcome, sources, &mut out);
        let mut full = Full::new();
        for (local, domain_set, count) in failed.iter().filter(|(local, ..)| groups.of[*local].chooses()) {
            let there = decided.items.iter().filter(|i| i.class == *local && i.domain_set == *domain_set);
            let all: u32 = there.map(|item| item.count).sum();
            full.extend(domain_set.map(|domain_set| ((*local, domain_set), all.saturating_sub(*count))));
        }
        let parted = self.misjudged(tier, &view, &choices, &mut out.launches);
        for (class, _, count) in out.launches.iter().flat_map(|l| &l.content) {
            let local = tier.block.classes.binary_search_by_key(class, |(class, _)| *class);
            for g in local.ok().into_iter().flat_map(|local| groups.of[local].host_counted.clone()) {
                groups.list[g].total += i64::from(*count);
            }
        }
        let wrong = Found { parted, ..Found::default() };
        Attempt { solved: out, groups, limits, left, failed, full, lean: lean_used, wrong }
    }

    /// The packing problem of a tier, without item types.
    fn problem(&self, tier: &Tier<'_>, groups: &Groups, limits: &[Limit]) -> PackingProblem {
        let mut problem = PackingProblem {
            d: tier.dims.len(),
            variants: self.variant_contexts(tier),
            item_types: Vec::new(),
            sizes: Vec::new(),
            limits: limits.to_vec(),
            present: Vec::new(),
            near: Vec::new(),
        };
        for (at, group) in groups.list.iter().enumerate() {
            if group.key == self.cluster.keys.hostname && group.total > 0 {
                problem.present.push(u32::try_from(at).unwrap_or(u32::MAX));
            }
        }
        for topology in &groups.of {
            problem.near.extend(topology.host_near.and_then(|g| u32::try_from(g).ok()));
        }
        problem.near.sort_unstable();
        problem.near.dedup();
        problem
    }

    fn note_relaxed(&self, groups: &Groups, problem: &PackingProblem, out: &mut Solved) {
        use crate::model::plan::Relaxed;
        if groups.of.iter().any(|t| !t.spreads.is_empty() || !t.host_spreads.is_empty()) {
            out.relaxed.insert(Relaxed::Spread);
        }
        let near = |t: &crate::topology::groups::Topology| {
            !t.near.is_empty() || t.host_near.is_some() || !t.anti.is_empty() || !t.host_anti.is_empty()
        };
        if groups.of.iter().any(near) {
            out.relaxed.insert(Relaxed::Affinity);
        }
        if problem.variants.iter().any(|v| !v.limits.is_empty()) {
            out.relaxed.insert(Relaxed::Limits);
        }
    }
}
