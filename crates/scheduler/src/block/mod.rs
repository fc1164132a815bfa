//! A block: classes and pools that have to do with each other, and with nobody else.
//!
//! Pods go to the heaviest pool that can take them; what its limits leave out goes to the next, in tiers.

mod kinds;
mod options;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Options,
    bits::Bits,
    cluster::Cluster,
    demand::Demand,
    groups::{Groups, Topology},
    intern::Sym,
    pack::{self, Limit, Masks, Table, Yard},
    plan::ReasonKind,
    price::Price,
    requests::{RES_CPU, RES_MEMORY, RES_PODS},
    space::PoolRec,
    warm::Warm,
    zones,
};

/// Offerings of one variant of a pool that a class may use, available or not.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    pub(crate) pool: usize,
    pub(crate) variant: usize,
    pub(crate) bits: Arc<Bits>,
}

/// Catalogue, dimensions, and what DaemonSets take.
pub(crate) type TableKey = (usize, Vec<u32>, Vec<i64>);
/// Catalogue, keys, and the variant's own values of them.
pub(crate) type PartsKey = (usize, Vec<Sym>, Vec<Option<Sym>>);
/// Offerings by the values of some keys.
pub(crate) type Parts = Vec<(Vec<Option<Sym>>, Bits)>;

/// What all blocks read.
pub(crate) struct Context<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) options: &'a Options,
    pub(crate) demand: &'a Demand,
    pub(crate) pools: Vec<&'a PoolRec>,
    /// By class.
    pub(crate) allowed: Vec<Vec<Allowed>>,
    pub(crate) limits: Vec<Limit>,
    /// Limits that count each pool's machines.
    pub(crate) limits_of: Vec<Vec<usize>>,
    warm: &'a Warm,
    /// Domains that the plan opens, as far as some spread sees those that its own pods can't open.
    pub(crate) opened: Arc<[zones::Opened]>,
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        options: &'a Options,
        demand: &'a Demand,
        pools: Vec<&'a PoolRec>,
        (limits, limits_of): (Vec<Limit>, Vec<Vec<usize>>),
        warm: &'a Warm,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let opened = Arc::from([]);
        Self { cluster, options, demand, pools, allowed: Vec::new(), limits, limits_of, warm, opened, stop }
    }
}

/// Classes and pools that have to do with each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Numbers of classes, and pods left of each.
    pub(crate) classes: Vec<(usize, u32)>,
    /// Their groups alone; classes count from zero as in `classes`.
    pub(crate) groups: Groups,
}

/// A machine of the plan, before it gets names.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) pool: usize,
    pub(crate) variant: usize,
    pub(crate) offer: u32,
    pub(crate) bits: Bits,
    pub(crate) table: Arc<Table>,
    pub(crate) dims: Arc<[u32]>,
    /// By dimension.
    pub(crate) used: Vec<i64>,
    /// (class, cell, how many).
    pub(crate) content: Vec<(usize, Option<usize>, u32)>,
    pub(crate) limited: bool,
}

/// What a block came to.
#[derive(Debug, Default)]
pub(crate) struct Solved {
    pub(crate) launches: Vec<Launch>,
    /// (class, how many, what kept them out).
    pub(crate) left: Vec<(usize, u32, Option<ReasonKind>)>,
    pub(crate) seen: zones::Seen,
    pub(crate) bound: i64,
    pub(crate) relaxed: BTreeSet<crate::plan::Relaxed>,
    pub(crate) steps: u64,
    pub(crate) cut_short: bool,
}

/// One try at packing a tier.
struct Attempt {
    solved: Solved,
    groups: Groups,
    limits: Vec<Limit>,
    /// (local class, count, reason) of what no domain or offering takes.
    left: Vec<(usize, u32, Option<ReasonKind>)>,
    /// (local class, cell, count) of what the packing left out.
    failed: Vec<(usize, Option<usize>, u32)>,
    /// Of those who are counted in domains: how many found room where some didn't.
    full: Full,
    /// It counts on domains that could be opened staying away.
    lean: bool,
    /// Why it must be tried again, if so.
    wrong: Found,
}

/// By (local class, cell): for how many there is room.
type Full = BTreeMap<(usize, usize), u32>;

/// What attempts at a tier have found out.
#[derive(Default)]
struct Found {
    /// (local class, filter): its machines must be told apart by the filter before anything is counted.
    parted: BTreeSet<(usize, u32)>,
    /// Local classes that need more machines than those they prefer: domains decide where they may go.
    wide: BTreeSet<usize>,
    /// Where limits, or mates that are missing, leave room for so many of a class and no more.
    full: Full,
    /// There is no room for what fewer domains would allow.
    not_lean: bool,
}

impl Found {
    /// True if `more` holds anything new that has to do with which machines count.
    fn learn(&mut self, mut more: Self) -> bool {
        let before = (self.parted.len(), self.wide.len());
        self.parted.append(&mut more.parted);
        self.wide.append(&mut more.wide);
        let new = before != (self.parted.len(), self.wide.len());
        if new {
            // Cells get other numbers.
            self.full.clear();
        }
        new
    }

    fn is_full_for(&self, local: usize) -> bool {
        self.full.range((local, 0)..=(local, usize::MAX)).next().is_some()
    }
}

/// Who is counted in a domain where a spread is broken, though some of its machines wouldn't count: (class, filter).
fn unsure_of(
    groups: &Groups,
    board: &zones::Board,
    choices: &[zones::Choice],
    decided: &zones::Decided,
    parted: &BTreeSet<(usize, u32)>,
) -> BTreeSet<(usize, u32)> {
    let mut result = BTreeSet::new();
    for (class, group, domain) in &decided.broken {
        let Some((it, filter)) = groups.list.get(*group).and_then(|g| Some((g, g.filter?))) else { continue };
        for choice in choices.iter().filter(|c| c.class != *class && c.unsure.contains(&filter)) {
            let there = |i: &zones::Item| {
                i.class == choice.class && i.cell.is_some_and(|c| board.value(it, c) == Some(*domain))
            };
            if choice.counted.contains(group) && decided.items.iter().any(there) {
                result.insert((choice.class, filter));
            }
        }
    }
    result.retain(|pair| !parted.contains(pair));
    result
}

struct Tier<'b> {
    /// (pool, variant), in the order of the yard's variants.
    variants: Vec<(usize, usize)>,
    dims: Arc<[u32]>,
    tables: Vec<Arc<Table>>,
    block: &'b Block,
}

#[expect(
    clippy::indexing_slicing,
    reason = "classes, pools and variants are numbered by the lists that they index"
)]
impl Context<'_> {
    /// Solves one block.
    pub(crate) fn solve(&self, mut block: Block) -> Solved {
        let mut out = Solved::default();
        let mut limits = self.limits.clone();
        let mut waiting: Vec<(usize, u32)> =
            block.classes.iter().enumerate().map(|(local, (_, count))| (local, *count)).collect();
        let mut weights: BTreeSet<i32> = BTreeSet::new();
        for (class, _) in &block.classes {
            weights.extend(self.allowed[*class].iter().map(|a| self.pools[a.pool].pool.weight));
        }
        if weights.len() > 1 {
            out.relaxed.insert(crate::plan::Relaxed::Weight);
        }
        // Each class starts with the heaviest of its own pools; what is left over falls to its next lighter one.
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
            // Counts of what was placed stay with the groups for the next tier.
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

    /// Packs the classes of one tier. Answers what is left (local class, count, reason), and the groups as they then are.
    ///
    /// A pod that a limit leaves out was counted in its domain before: then everything is decided anew with no more of its
    /// class there than found room, so that it goes elsewhere or what stays is even.
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
            // A pod counts for a spread only on machines that pass the spread's filter, and which machine it gets is known
            // after the packing alone. Only where that went wrong is it decided before: a choice less makes plans dearer.
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
                // Halfway through, whole classes give way, so that it ends.
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
        let limited = tier.variants.iter().any(|(pool, _)| !self.limits_of[*pool].is_empty());
        let alone = |g: usize| {
            let mate = |(class, of): (usize, &Topology)| {
                of.host_counted.contains(&g) && (class != local || of.starts)
            };
            groups.list[g].total == 0 && !groups.of.iter().enumerate().any(mate)
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
        let mut board = self.board(tier, &groups);
        let mut left = Vec::new();
        let mut choices = Vec::new();
        let mut narrow = BTreeSet::new();
        let mut masks_of: FxHashMap<usize, SmallVec<[(u32, Bits); 2]>> = FxHashMap::default();
        for (local, count, weight) in now {
            let (options, narrowed) = self.options_of(tier, *local, *weight, found);
            if narrowed {
                narrow.insert(*local);
            }
            if options.is_empty() {
                left.push((*local, *count, None));
                continue;
            }
            choices.push(self.choice(tier, &groups, &mut board, (*local, *count), &options, found));
            masks_of.insert(*local, options);
        }
        let mut order = zones::Order::default();
        let mut lean_used = false;
        let mut decided = loop {
            let decided = zones::decide(&mut groups, &board, &choices, &order);
            out.steps += decided.steps;
            // The scheduler binds in an order of its own. A spread that holds only for who comes early is mended by telling
            // apart which machines of the others count, or else by letting the others choose first; and who needs others
            // that may come before it goes where they are.
            let parted = unsure_of(&groups, &board, &choices, &decided, &found.parted);
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
            order.following.extend(&decided.astray);
            if (order.late.len(), order.following.len()) == before {
                break decided;
            }
            groups = tier.block.groups.clone();
        };
        // What can't hold in every order may hold in the likeliest one, or with fewer domains than could be opened.
        for lean in [false, true] {
            if decided.left.is_empty() || lean && found.not_lean {
                break;
            }
            let board = zones::Board { lean, ..board.clone() };
            let mut others = tier.block.groups.clone();
            let order = zones::Order { in_turn: true, ..zones::Order::default() };
            let in_turn = zones::decide(&mut others, &board, &choices, &order);
            out.steps += in_turn.steps;
            if in_turn.left_by_priority(&choices) < decided.left_by_priority(&choices) {
                (groups, decided) = (others, in_turn);
                lean_used = lean;
            }
        }
        board.lean = lean_used;
        for choice in &choices {
            board.note_seen(&groups, choice, &mut out.seen);
        }
        left.extend(decided.left.iter().map(|(local, count, reason)| {
            let full = found.is_full_for(*local).then(|| self.reason(tier, *local)).flatten();
            (*local, *count, full.or(Some(*reason)))
        }));
        let mut yard = self.yard(tier, &groups, limits);
        let mut masks = Masks::default();
        let sources = self.kinds(tier, &groups, &board, &decided.items, &masks_of, &mut yard, &mut masks);
        let useless_from = self.options.useless_from.map(Price::micros);
        let outcome = pack::pack(&yard, &mut masks, self.options.effort, useless_from, self.stop);
        out.steps += outcome.steps;
        out.cut_short = outcome.cut_short;
        out.bound = outcome.bound;
        self.note_relaxed(&groups, &yard, &mut out);
        let limits = outcome.limits.clone();
        let failed = self.collect(tier, &yard, &masks, outcome, sources, &mut out);
        let mut full = Full::new();
        for (local, cell, count) in failed.iter().filter(|(local, ..)| groups.of[*local].chooses()) {
            let there = decided.items.iter().filter(|i| i.class == *local && i.cell == *cell);
            let all: u32 = there.map(|item| item.count).sum();
            full.extend(cell.map(|cell| ((*local, cell), all.saturating_sub(*count))));
        }
        let parted = self.misjudged(tier, &board, &choices, &mut out.launches);
        for (class, _, count) in out.launches.iter().flat_map(|l| &l.content) {
            let local = tier.block.classes.binary_search_by_key(class, |(class, _)| *class);
            for g in local.ok().into_iter().flat_map(|local| groups.of[local].host_counted.clone()) {
                groups.list[g].total += i64::from(*count);
            }
        }
        let wrong = Found { parted, ..Found::default() };
        Attempt { solved: out, groups, limits, left, failed, full, lean: lean_used, wrong }
    }

    /// The yard of a tier, without kinds.
    fn yard(&self, tier: &Tier<'_>, groups: &Groups, limits: &[Limit]) -> Yard {
        let mut yard = Yard {
            d: tier.dims.len(),
            variants: self.variant_contexts(tier),
            kinds: Vec::new(),
            sizes: Vec::new(),
            limits: limits.to_vec(),
            present: Vec::new(),
            near: Vec::new(),
        };
        for (at, group) in groups.list.iter().enumerate() {
            if group.key == self.cluster.keys.hostname && group.total > 0 {
                yard.present.push(u32::try_from(at).unwrap_or(u32::MAX));
            }
        }
        for topology in &groups.of {
            yard.near.extend(topology.host_near.and_then(|g| u32::try_from(g).ok()));
        }
        yard.near.sort_unstable();
        yard.near.dedup();
        yard
    }

    fn note_relaxed(&self, groups: &Groups, yard: &Yard, out: &mut Solved) {
        use crate::plan::Relaxed;
        if groups.of.iter().any(|t| !t.spreads.is_empty() || !t.host_spreads.is_empty()) {
            out.relaxed.insert(Relaxed::Spread);
        }
        let near = |t: &crate::groups::Topology| {
            !t.near.is_empty() || t.host_near.is_some() || !t.anti.is_empty() || !t.host_anti.is_empty()
        };
        if groups.of.iter().any(near) {
            out.relaxed.insert(Relaxed::Affinity);
        }
        if yard.variants.iter().any(|v| !v.limits.is_empty()) {
            out.relaxed.insert(Relaxed::Limits);
        }
    }
}
