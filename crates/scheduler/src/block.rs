//! A block: classes and pools that have to do with each other, and with nobody else.
//!
//! Pods go to the heaviest pool that can take them; what its limits leave out goes to the next, in tiers.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Options,
    bits::Bits,
    cluster::Cluster,
    demand::Demand,
    groups::Groups,
    intern::Sym,
    pack::{self, Kind, Limit, Masks, Outcome, Rules, Surcharge, Table, VariantCtx, Yard, fits},
    plan::ReasonKind,
    requests::{RES_CPU, RES_MEMORY, RES_PODS, amount},
    space::PoolRec,
    taint,
    zones::{self, Board, Cell, Choice, Item},
};

/// Offerings of one variant of a pool that a class may use, available or not.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    pub(crate) pool: usize,
    pub(crate) variant: usize,
    pub(crate) bits: Arc<Bits>,
}

type TableKey = (usize, Vec<u32>, Vec<i64>);
/// Catalogue, keys, and the variant's own values of them.
type PartsKey = (usize, Vec<Sym>, Vec<Option<Sym>>);
/// Offerings by the values of some keys.
type Parts = Vec<(Vec<Option<Sym>>, Bits)>;

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
    tables: Mutex<FxHashMap<TableKey, Arc<Table>>>,
    parts: Mutex<FxHashMap<PartsKey, Arc<Parts>>>,
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        options: &'a Options,
        demand: &'a Demand,
        pools: Vec<&'a PoolRec>,
        (limits, limits_of): (Vec<Limit>, Vec<Vec<usize>>),
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self {
            cluster,
            options,
            demand,
            pools,
            allowed: Vec::new(),
            limits,
            limits_of,
            tables: Mutex::default(),
            parts: Mutex::default(),
            stop,
        }
    }
}

/// Classes and pools that have to do with each other.
#[derive(Debug, Default)]
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
    /// (local class, count) of what the packing left out.
    failed: Vec<(usize, u32)>,
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

    /// DaemonSets that will run on machines of a variant: (offerings, requests by dimension, shape).
    fn daemons(&self, pool: usize, variant: usize, dims: &[u32]) -> Vec<(Bits, Vec<i64>, u32)> {
        let tables = &self.cluster.tables;
        let rec = self.pools[pool];
        let it = &rec.variants[variant];
        let mut result = Vec::new();
        for daemon in self.cluster.daemons.values() {
            let shape = tables.shapes.get(daemon.shape);
            let tolerations = tables.tolerations.get(shape.tolerations);
            if taint::untolerated(tolerations, &rec.taints).is_some() {
                continue;
            }
            let mut bits = it.allowed.clone();
            for req in &shape.reqs {
                let req = tables.reqs.get(*req);
                bits.intersect(&it.req(&tables.symbols, &self.cluster.keys, &rec.catalog, req));
            }
            if !bits.is_empty() {
                let size = dims.iter().map(|dim| amount(&shape.requests, *dim)).collect();
                result.push((bits, size, daemon.shape));
            }
        }
        result
    }

    pub(crate) fn table(&self, pool: usize, variant: usize, dims: &[u32]) -> Arc<Table> {
        let rec = self.pools[pool];
        let daemons = self.daemons(pool, variant, dims);
        let surcharge = Surcharge {
            spot_permille: i64::from(self.options.spot_risk_permille),
            per_node: self.options.per_node_cost.micros(),
        };
        let uniform = daemons.iter().all(|(bits, _, _)| *bits == rec.variants[variant].allowed);
        let mut all = vec![0i64; dims.len()];
        for (_, size, _) in &daemons {
            for (a, s) in all.iter_mut().zip(size) {
                *a = a.saturating_add(*s);
            }
        }
        if uniform {
            let key = (Arc::as_ptr(&rec.catalog).addr(), dims.to_vec(), all.clone());
            let mut known = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            let all: Arc<[i64]> = all.into();
            let table = known
                .entry(key)
                .or_insert_with(|| Arc::new(Table::new(&rec.catalog, dims, surcharge, |_| Arc::clone(&all))));
            return Arc::clone(table);
        }
        let sums: Mutex<FxHashMap<Vec<usize>, Arc<[i64]>>> = Mutex::default();
        Arc::new(Table::new(&rec.catalog, dims, surcharge, |offer| {
            let which: Vec<usize> = (0..daemons.len()).filter(|d| daemons[*d].0.contains(offer)).collect();
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            let sum = sums.entry(which).or_insert_with_key(|which| {
                let mut sum = vec![0i64; dims.len()];
                for d in which {
                    for (a, s) in sum.iter_mut().zip(&daemons[*d].1) {
                        *a = a.saturating_add(*s);
                    }
                }
                sum.into()
            });
            Arc::clone(sum)
        }))
    }

    /// Packs the classes of one tier. Answers what is left (local class, count, reason), and the groups as they then are.
    ///
    /// A pod that a limit leaves out was counted in its domains before: then everything is decided anew without it, so
    /// that what stays is even.
    #[expect(clippy::type_complexity, reason = "two results of one step")]
    fn pack_tier(
        &self,
        tier: &Tier<'_>,
        now: &[(usize, u32, i32)],
        limits: &mut Vec<Limit>,
        out: &mut Solved,
    ) -> (Vec<(usize, u32, Option<ReasonKind>)>, Groups) {
        const ROUNDS: u32 = 6;
        let mut wanted = now.to_vec();
        let mut outside: Vec<(usize, u32, Option<ReasonKind>)> = Vec::new();
        let mut round = 0;
        loop {
            round += 1;
            let mut attempt = self.attempt(tier, &wanted, limits);
            out.steps += attempt.solved.steps;
            let counted = |local: usize| tier.block.groups.of[local].chooses();
            let broken: Vec<(usize, u32)> =
                attempt.failed.iter().copied().filter(|(local, _)| counted(*local)).collect();
            if !broken.is_empty() && round < ROUNDS {
                for (local, count) in broken {
                    let Some((_, n, _)) = wanted.iter_mut().find(|(l, _, _)| *l == local) else { continue };
                    // Halfway through, whole classes give way, so that it ends.
                    let out_now = if round > ROUNDS / 2 { *n } else { count };
                    *n -= out_now;
                    outside.push((local, out_now, self.limit_reason(tier)));
                }
                wanted.retain(|(_, n, _)| *n > 0);
                continue;
            }
            limits.clone_from(&attempt.limits);
            outside.append(&mut attempt.left);
            let reason = self.limit_reason(tier);
            outside.extend(attempt.failed.iter().map(|(local, count)| (*local, *count, reason)));
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

    fn limit_reason(&self, tier: &Tier<'_>) -> Option<ReasonKind> {
        let limited = tier.variants.iter().any(|(pool, _)| !self.limits_of[*pool].is_empty());
        limited.then_some(ReasonKind::PoolLimit)
    }

    fn attempt(&self, tier: &Tier<'_>, now: &[(usize, u32, i32)], limits: &[Limit]) -> Attempt {
        let mut out = Solved::default();
        let mut groups = tier.block.groups.clone();
        let board = self.board(tier, &groups);
        let mut left = Vec::new();
        let mut choices = Vec::new();
        let mut masks_of: FxHashMap<usize, SmallVec<[(u32, Bits); 2]>> = FxHashMap::default();
        for (local, count, weight) in now {
            let options = self.options_of(tier, *local, *weight);
            if options.is_empty() {
                left.push((*local, *count, None));
                continue;
            }
            choices.push(self.choice(tier, &groups, &board, *local, *count, &options));
            masks_of.insert(*local, options);
        }
        let decided = zones::decide(&mut groups, &board, &choices);
        out.steps += decided.steps;
        left.extend(decided.left.iter().map(|(local, count, reason)| (*local, *count, Some(*reason))));
        let mut yard = self.yard(tier, &groups, limits);
        let mut masks = Masks::default();
        let sources = self.kinds(tier, &groups, &board, &decided.items, &masks_of, &mut yard, &mut masks);
        let outcome = pack::pack(&yard, &mut masks, self.options.effort, self.stop);
        out.steps += outcome.steps;
        out.cut_short = outcome.cut_short;
        out.bound = outcome.bound;
        self.note_relaxed(&groups, &yard, &mut out);
        let limits = outcome.limits.clone();
        let failed = self.collect(tier, &yard, &masks, outcome, sources, &mut out);
        Attempt { solved: out, groups, limits, left, failed }
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

    fn variant_contexts(&self, tier: &Tier<'_>) -> Vec<VariantCtx> {
        let mut list = Vec::new();
        for ((pool, variant), table) in tier.variants.iter().zip(&tier.tables) {
            let rec = self.pools[*pool];
            let ports = self
                .daemons(*pool, *variant, &tier.dims)
                .iter()
                .flat_map(|(_, _, shape)| self.cluster.tables.shapes.get(*shape).ports.iter().copied())
                .collect();
            list.push(VariantCtx {
                pool: *pool,
                variant: *variant,
                catalog: Arc::clone(&rec.catalog),
                table: Arc::clone(table),
                ports,
                limits: self.limits_of[*pool].clone(),
                min_values: self.min_values(rec),
            });
        }
        list
    }

    /// For each minValues of the pool: each offering's value as a number, and how many different ones must remain.
    fn min_values(&self, rec: &PoolRec) -> Vec<(Vec<u32>, usize)> {
        let column = |key: Sym| {
            let value = |o| rec.catalog.value(&self.cluster.keys, o, key).map_or(u32::MAX, |v| v.0);
            (0..rec.catalog.offers.len()).map(value).collect()
        };
        rec.min_values.iter().map(|(key, n)| (column(*key), *n as usize)).collect()
    }

    /// Available offerings of the tier's variants that the class may use and that are large enough.
    fn options_of(&self, tier: &Tier<'_>, local: usize, weight: i32) -> SmallVec<[(u32, Bits); 2]> {
        let class = tier.block.classes[local].0;
        let size = self.size(tier, class);
        let mut result = SmallVec::new();
        for a in self.allowed[class].iter().filter(|a| self.pools[a.pool].pool.weight == weight) {
            let Some(at) = tier.variants.iter().position(|v| *v == (a.pool, a.variant)) else { continue };
            let table = &tier.tables[at];
            let open = a.bits.and(&self.pools[a.pool].catalog.available);
            // The largest ones decide whether anything fits; the packing looks at sizes again.
            let edges = table.edges(&open);
            if edges.maximal.iter().any(|offer| fits(&size, table.row(*offer)) > 0) {
                result.push((u32::try_from(at).unwrap_or(u32::MAX), open));
            }
        }
        self.prefer(tier, class, &mut result);
        result
    }

    /// Narrows offerings to what the class prefers, heaviest preference first, wherever that costs nothing: when every
    /// machine worth launching is left, at the same price.
    fn prefer(&self, tier: &Tier<'_>, class: usize, options: &mut SmallVec<[(u32, Bits); 2]>) {
        let cluster = self.cluster;
        for (_, term) in &self.demand.classes[class].shape(cluster).preferred_nodes {
            let narrowed: SmallVec<[(u32, Bits); 2]> = options
                .iter()
                .map(|(at, bits)| {
                    let (pool, variant) = tier.variants[*at as usize];
                    let rec = self.pools[pool];
                    let with = rec.variants[variant].preferred(
                        &cluster.tables.symbols,
                        &cluster.keys,
                        &rec.catalog,
                        term,
                    );
                    (*at, bits.and(&with))
                })
                .collect();
            let free = options.iter().zip(&narrowed).all(|((at, all), (_, some))| {
                let table = &tier.tables[*at as usize];
                let (all, some) = (table.edges(all), table.edges(some));
                all.ladder.len() == some.ladder.len()
                    && all.ladder.iter().zip(&some.ladder).all(|(a, b)| {
                        table.cost[*a as usize] == table.cost[*b as usize] && table.row(*a) == table.row(*b)
                    })
            });
            if free {
                *options = narrowed;
            }
        }
    }

    fn size(&self, tier: &Tier<'_>, class: usize) -> SmallVec<[i64; 4]> {
        let shape = self.demand.classes[class].shape(self.cluster);
        tier.dims.iter().map(|dim| amount(&shape.requests, *dim)).collect()
    }

    /// Cells: every combination of the domains that some group of the block looks at.
    fn board(&self, tier: &Tier<'_>, groups: &Groups) -> Board {
        let mut keys: Vec<Sym> =
            groups.list.iter().map(|g| g.key).filter(|k| *k != self.cluster.keys.hostname).collect();
        keys.sort_unstable_by_key(|k| self.cluster.tables.symbols.text(*k));
        keys.dedup();
        let mut board = Board { keys, cells: Vec::new() };
        if board.keys.is_empty() {
            return board;
        }
        let sizes: Vec<usize> =
            tier.variants.iter().map(|(pool, _)| self.pools[*pool].catalog.offers.len()).collect();
        for (at, (pool, variant)) in tier.variants.iter().enumerate() {
            let rec = self.pools[*pool];
            let open = rec.variants[*variant].allowed.and(&rec.catalog.available);
            for (values, bits) in self.parts(*pool, *variant, &board.keys).iter() {
                let here = bits.and(&open);
                if here.is_empty() {
                    continue;
                }
                let number = board.cells.iter().position(|c| c.values == *values).unwrap_or_else(|| {
                    let offers = sizes.iter().map(|size| Bits::none(*size)).collect();
                    board.cells.push(Cell { values: values.clone(), offers });
                    board.cells.len() - 1
                });
                board.cells[number].offers[at] = here;
            }
        }
        let text = |v: &Option<Sym>| v.map(|v| self.cluster.tables.symbols.text(v));
        board
            .cells
            .sort_by_cached_key(|c| c.values.iter().map(|v| text(v).map(str::to_owned)).collect::<Vec<_>>());
        board
    }

    /// The catalogue of a variant, parted by the values of `keys`. Variants that agree in their own labels share it.
    fn parts(&self, pool: usize, variant: usize, keys: &[Sym]) -> Arc<Parts> {
        let rec = self.pools[pool];
        let it = &rec.variants[variant];
        let own = keys.iter().map(|k| crate::intern::label(&it.labels, *k)).collect();
        let key = (Arc::as_ptr(&rec.catalog).addr(), keys.to_vec(), own);
        let mut known = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = known.entry(key).or_insert_with(|| {
            let size = rec.catalog.offers.len();
            let mut numbers: FxHashMap<Vec<Option<Sym>>, usize> = FxHashMap::default();
            let mut parts: Parts = Vec::new();
            for offer in 0..size {
                let values =
                    keys.iter().map(|k| it.value(&self.cluster.keys, &rec.catalog, offer, *k)).collect();
                let number = *numbers.entry(values).or_insert_with_key(|values| {
                    parts.push((values.clone(), Bits::none(size)));
                    parts.len() - 1
                });
                parts[number].1.insert(offer);
            }
            Arc::new(parts)
        });
        Arc::clone(parts)
    }

    fn choice(
        &self,
        tier: &Tier<'_>,
        groups: &Groups,
        board: &Board,
        local: usize,
        count: u32,
        options: &[(u32, Bits)],
    ) -> Choice {
        let class = tier.block.classes[local].0;
        let topology = &groups.of[local];
        let mut choice = Choice {
            class: local,
            count,
            priority: self.demand.classes[class].priority,
            cells: Vec::new(),
            counted: Vec::new(),
        };
        if !topology.chooses() {
            return choice;
        }
        let size = self.size(tier, class);
        for (number, cell) in board.cells.iter().enumerate() {
            let mut cheapest = None;
            for (at, bits) in options {
                let table = &tier.tables[*at as usize];
                let here = bits.and(&cell.offers[*at as usize]);
                if here.is_empty() {
                    continue;
                }
                let edges = table.edges(&here);
                let fit = edges.ladder.iter().find(|o| fits(&size, table.row(**o)) > 0);
                if let Some(cost) = fit.map(|o| table.cost[*o as usize]) {
                    cheapest = Some(cheapest.map_or(cost, |c: i64| c.min(cost)));
                }
            }
            choice.cells.extend(cheapest.map(|cost| (number, cost)));
        }
        for g in &topology.counted {
            let counts = groups.list[*g].filter.is_none_or(|filter| {
                options.iter().any(|(at, bits)| self.filter_allows(tier, *at as usize, bits, filter))
            });
            if counts {
                choice.counted.push(*g);
            }
        }
        choice
    }

    /// True if new nodes of some offering in `bits` count under `filter`.
    fn filter_allows(&self, tier: &Tier<'_>, at: usize, bits: &Bits, filter: u32) -> bool {
        let tables = &self.cluster.tables;
        let filter = tables.filters.get(filter);
        let (pool, variant) = tier.variants[at];
        let rec = self.pools[pool];
        let it = &rec.variants[variant];
        if let Some(t) = filter.tolerations
            && taint::untolerated(tables.tolerations.get(t), &rec.taints).is_some()
        {
            return false;
        }
        let mut bits = bits.clone();
        for req in &filter.reqs {
            let req = tables.reqs.get(*req);
            bits.intersect(&it.req(&tables.symbols, &self.cluster.keys, &rec.catalog, req));
        }
        !bits.is_empty()
    }

    /// Makes kinds of the items: what is alike to the packing becomes one. Answers each kind's items.
    #[expect(clippy::too_many_arguments, reason = "one step of pack_tier, which owns all of these")]
    fn kinds(
        &self,
        tier: &Tier<'_>,
        groups: &Groups,
        board: &Board,
        items: &[Item],
        masks_of: &FxHashMap<usize, SmallVec<[(u32, Bits); 2]>>,
        yard: &mut Yard,
        masks: &mut Masks,
    ) -> Vec<Vec<Item>> {
        type Key = (i32, SmallVec<[i64; 4]>, SmallVec<[(u32, u32); 2]>, Option<Box<Rules>>);
        let mut numbers: FxHashMap<Key, usize> = FxHashMap::default();
        let mut sources: Vec<Vec<Item>> = Vec::new();
        let mut known: FxHashMap<(usize, Option<usize>), SmallVec<[(u32, u32); 2]>> = FxHashMap::default();
        let limited = yard.variants.iter().any(|v| !v.limits.is_empty());
        for item in items {
            let class = tier.block.classes[item.class].0;
            let options = known.entry((item.class, item.cell)).or_insert_with(|| {
                let mut list = SmallVec::new();
                for (at, bits) in masks_of.get(&item.class).into_iter().flatten() {
                    let bits = match item.cell {
                        Some(cell) => bits.and(&board.cells[cell].offers[*at as usize]),
                        None => bits.clone(),
                    };
                    if let Some(mask) = masks.number(yard, *at, bits) {
                        list.push((*at, mask));
                    }
                }
                list
            });
            let priority = if limited { self.demand.classes[class].priority } else { 0 };
            let key = (priority, self.size(tier, class), options.clone(), self.rules(groups, item, class));
            let number = *numbers.entry(key).or_insert_with_key(|(priority, size, options, rules)| {
                yard.sizes.extend_from_slice(size);
                yard.kinds.push(Kind {
                    options: options.clone(),
                    rules: rules.clone(),
                    count: 0,
                    priority: *priority,
                });
                sources.push(Vec::new());
                sources.len() - 1
            });
            yard.kinds[number].count += item.count;
            sources[number].push(*item);
        }
        sources
    }

    fn rules(&self, groups: &Groups, item: &Item, class: usize) -> Option<Box<Rules>> {
        let topology = &groups.of[item.class];
        let it = &self.demand.classes[class];
        let number = |g: usize| u32::try_from(g).unwrap_or(u32::MAX);
        let mut caps: Vec<(u32, u32)> = topology
            .host_spreads
            .iter()
            .map(|rule| (number(rule.group), u32::try_from(rule.max_skew).unwrap_or(u32::MAX)))
            .collect();
        for g in &topology.host_anti {
            caps.push((number(*g), u32::from(topology.host_counted.contains(g))));
        }
        caps.sort_unstable();
        let share = self.options.max_share_percent;
        let most = if share == 0 {
            u32::MAX
        } else {
            let pods = u64::try_from(it.pods.len()).unwrap_or(u64::MAX);
            u32::try_from((pods.saturating_mul(u64::from(share)) / 100).max(1)).unwrap_or(u32::MAX)
        };
        let rules = Rules {
            counts: topology.host_counted.iter().map(|g| number(*g)).collect(),
            caps: caps.into(),
            needs: topology.host_near.iter().map(|g| number(*g)).collect(),
            starts: topology.starts,
            ports: it.shape(self.cluster).ports.clone(),
            most,
        };
        (rules != Rules { most: u32::MAX, ..Rules::default() }).then(|| Box::new(rules))
    }

    /// The same machine at the same price in the zone that its pods would rather have: where ScheduleAnyway spreads and
    /// preferred anti-affinity have put fewest of them so far.
    fn softly(
        &self,
        ctx: &VariantCtx,
        bits: &Bits,
        offer: u32,
        content: &[(usize, Option<usize>, u32)],
        soft: &mut FxHashMap<(usize, Sym), u32>,
    ) -> u32 {
        let zone = self.cluster.keys.zone;
        let wishes = |class: &usize| {
            let shape = self.demand.classes[*class].shape(self.cluster);
            shape.spreads.iter().any(|s| !s.hard && s.key == zone)
                || shape.preferred_pods.iter().any(|p| p.anti && p.key == zone)
        };
        let wishing: Vec<(usize, u32)> =
            content.iter().filter(|(class, _, _)| wishes(class)).map(|(class, _, n)| (*class, *n)).collect();
        if wishing.is_empty() {
            return offer;
        }
        let own = &ctx.catalog.offers[offer as usize];
        let there = |zone: Sym| -> u64 {
            wishing.iter().map(|(c, _)| u64::from(soft.get(&(*c, zone)).copied().unwrap_or(0))).sum()
        };
        let same = |o: &u32| {
            let it = &ctx.catalog.offers[*o as usize];
            it.kind == own.kind
                && it.capacity == own.capacity
                && ctx.table.cost[*o as usize] == ctx.table.cost[offer as usize]
        };
        let best = bits
            .iter()
            .filter_map(|o| u32::try_from(o).ok())
            .filter(same)
            .min_by_key(|o| (there(ctx.catalog.offers[*o as usize].zone), *o != offer, *o))
            .unwrap_or(offer);
        for (class, n) in wishing {
            *soft.entry((class, ctx.catalog.offers[best as usize].zone)).or_default() += n;
        }
        best
    }

    /// Turns bins into launches; answers (local class, count) of what found no place.
    fn collect(
        &self,
        tier: &Tier<'_>,
        yard: &Yard,
        masks: &Masks,
        outcome: Outcome,
        mut sources: Vec<Vec<Item>>,
        out: &mut Solved,
    ) -> Vec<(usize, u32)> {
        let mut soft: FxHashMap<(usize, Sym), u32> = FxHashMap::default();
        for bin in &outcome.bins {
            let ctx = &yard.variants[bin.variant as usize];
            let mut used = vec![0i64; yard.d];
            let mut content = Vec::new();
            for (kind, count) in &bin.content {
                let kind = *kind as usize;
                for (u, s) in used.iter_mut().zip(yard.size(kind)) {
                    *u = u.saturating_add(s.saturating_mul(i64::from(*count)));
                }
                let mut need = *count;
                while need > 0 {
                    let Some(item) = sources[kind].last_mut() else { break };
                    let take = need.min(item.count);
                    content.push((tier.block.classes[item.class].0, item.cell, take));
                    item.count -= take;
                    need -= take;
                    if item.count == 0 {
                        sources[kind].pop();
                    }
                }
            }
            let offer = self.softly(ctx, masks.bits(bin.mask), bin.offer, &content, &mut soft);
            out.launches.push(Launch {
                pool: ctx.pool,
                variant: ctx.variant,
                offer,
                bits: masks.bits(bin.mask).clone(),
                table: Arc::clone(&ctx.table),
                dims: Arc::clone(&tier.dims),
                used,
                content,
                limited: !ctx.limits.is_empty(),
            });
        }
        let mut failed: Vec<(usize, u32)> = Vec::new();
        for item in sources.into_iter().flatten() {
            match failed.iter_mut().find(|(class, _)| *class == item.class) {
                Some((_, n)) => *n += item.count,
                None => failed.push((item.class, item.count)),
            }
        }
        failed
    }
}
