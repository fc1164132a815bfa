//! The steps of a solve, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::{
    Cluster, Options, Plan,
    existing::placement::Existing,
    model::{bit_set::BitSet, requirement::Operator},
    solve::{
        cache::SolveCache,
        demand::{Class, Demand},
        limits::Limits,
        result,
        tiers::{Allowed, Block, Context, Solved},
    },
    state::{
        catalog_index::PoolRec,
        interner::{Sym, label},
        node_requirement::Expr,
        taint,
    },
    topology::{
        domains::Opened,
        groups::{Group, Groups, Topology, all_of},
    },
};

/// Plans which node each pending pod goes to, and which instances to launch for the rest.
///
/// `cancel` is polled; once it returns true, the cheapest plan found so far is returned with `cut_short`.
#[must_use]
pub fn solve(cluster: &Cluster, options: &Options, cancel: &(dyn Fn() -> bool + Sync)) -> Plan {
    solve_with_cache(cluster, options, &SolveCache::new(cluster), cancel)
}

/// [`solve`], sharing `cache` with earlier solves of the same cluster.
pub(crate) fn solve_with_cache(
    cluster: &Cluster,
    options: &Options,
    cache: &SolveCache,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Plan {
    let demand = Demand::new(cluster, options);
    // Classes that were kept off existing nodes for other pods, in vain, are not kept off in the next
    // attempt.
    let mut unrestricted = BTreeSet::new();
    let mut joint = false;
    loop {
        let attempted = attempt(cluster, options, &demand, (&unrestricted, joint), cache, cancel);
        let Some((plan, stranded)) = attempted else {
            joint = true;
            continue;
        };
        let before = unrestricted.len();
        unrestricted.extend(stranded);
        if unrestricted.len() == before {
            return plan;
        }
    }
}

/// One plan, and the classes that were kept off existing nodes in vain. None if the plan overruns the cluster's limit and
/// was not made `joint`ly with it.
fn attempt(
    cluster: &Cluster,
    options: &Options,
    demand: &Demand,
    (unrestricted, joint): (&BTreeSet<usize>, bool),
    cache: &SolveCache,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Option<(Plan, Vec<usize>)> {
    let mut groups = Groups::new(cluster, demand);
    let mut existing = Existing::new(cluster, demand, options, unrestricted, cache);
    existing.run(&mut groups);
    let left = existing.left.clone();
    let steps = existing.steps;
    let held = existing.held();
    let places = existing.finish();

    let pools: Vec<&PoolRec> = cluster.pools.values().collect();
    let limits = Limits::new(cluster, demand, &pools, joint);
    let mut context = Context::new(cluster, options, demand, pools, limits, cache, cancel);
    context.allowed = allowed(&context, &left);
    let (blocks, hopeless) = blocks(&context, &mut groups, &left);
    let spreading: FxHashMap<usize, Block> = blocks
        .iter()
        .enumerate()
        .filter(|(_, b)| b.groups.of.iter().any(|t| !t.spreads.is_empty()))
        .map(|(n, b)| (n, b.clone()))
        .collect();
    let mut solved: Vec<Solved> = if blocks.len() == 1 {
        blocks.into_iter().map(|b| context.solve(b)).collect()
    } else {
        blocks.into_par_iter().map(|b| context.solve(b)).collect()
    };
    settle_domains(&mut context, &spreading, &mut solved);
    let launches = solved.iter().flat_map(|s| &s.launches);
    if context.limits.is_overrun(&context.pools, launches.map(|l| (l.pool, l.offer))) {
        return None;
    }
    let mut waiting: FxHashMap<usize, u32> = hopeless.iter().copied().collect();
    for (class, count, _) in solved.iter().flat_map(|s| &s.left) {
        *waiting.entry(*class).or_default() += count;
    }
    // In vain, if the class found no place itself, or if none of its followers did.
    let none = |class: &usize| waiting.get(class).is_some_and(|n| left.get(*class) == Some(n));
    let in_vain = |(class, followers): &(usize, Vec<usize>)| {
        waiting.contains_key(class) || !followers.is_empty() && followers.iter().all(none)
    };
    let stranded = held.into_iter().filter(in_vain).map(|(class, _)| class).collect();
    Some((result::plan(&context, &places, solved, hopeless, steps), stranded))
}

/// Planned instances by (pool, variant, offering).
type Made = BTreeSet<(usize, usize, u32)>;

/// Solves blocks again whose spreads see a domain that another block opens, until no new domain appears.
/// Counted domains only grow, so that the loop ends.
fn settle_domains(context: &mut Context<'_>, spreading: &FxHashMap<usize, Block>, solved: &mut [Solved]) {
    let mut opened: BTreeSet<Opened> = BTreeSet::new();
    loop {
        let keys: BTreeSet<Sym> = solved.iter().flat_map(|s| s.seen.keys()).map(|(_, key)| *key).collect();
        if keys.is_empty() {
            return;
        }
        let made: Made =
            solved.iter().flat_map(|s| &s.launches).map(|l| (l.pool, l.variant, l.offer)).collect();
        let mut instances: FxHashMap<Sym, BTreeMap<Sym, Made>> = FxHashMap::default();
        for key in keys {
            let by_value = instances.entry(key).or_default();
            for instance in &made {
                if let Some(value) = value_on(context, *instance, key) {
                    by_value.entry(value).or_default().insert(*instance);
                }
            }
        }
        let mut again = Vec::new();
        for (number, it) in solved.iter().enumerate() {
            let mut fresh = false;
            for ((filter, key), seen) in &it.seen {
                let values =
                    instances.get(key).into_iter().flatten().filter(|(value, _)| !seen.contains(value));
                for (value, instances) in values {
                    if instances.iter().any(|m| passes(context, *m, *filter)) {
                        fresh = true;
                        opened.insert((*filter, *key, *value));
                    }
                }
            }
            if fresh {
                again.push(number);
            }
        }
        if again.is_empty() {
            return;
        }
        context.opened = opened.iter().copied().collect();
        for number in again {
            if let Some((block, solved)) = spreading.get(&number).zip(solved.get_mut(number)) {
                *solved = context.solve(block.clone());
            }
        }
    }
}

/// The label `key` of a planned instance.
fn value_on(context: &Context<'_>, (pool, variant, offer): (usize, usize, u32), key: Sym) -> Option<Sym> {
    let rec = context.pools.get(pool)?;
    rec.variants.get(variant)?.value(&context.cluster.keys, &rec.catalog, offer as usize, key)
}

/// True if a planned instance passes `filter`.
fn passes(context: &Context<'_>, instance: (usize, usize, u32), filter: u32) -> bool {
    let (pool, variant, offer) = instance;
    let cluster = context.cluster;
    let (tables, keys) = (&cluster.tables, &cluster.keys);
    let Some(rec) = context.pools.get(pool) else { return false };
    let Some(it) = rec.variants.get(variant) else { return false };
    let filter = tables.filters.get(filter);
    let tolerated = |t: u32| taint::untolerated(tables.tolerations.get(t), &rec.taints).is_none();
    let has = |key: Sym| keys.canonical(key) == keys.hostname || value_on(context, instance, key).is_some();
    let suits =
        |req: &u32| it.satisfies(&tables.symbols, keys, &rec.catalog, offer as usize, tables.reqs.get(*req));
    filter.keys.iter().all(|k| has(*k))
        && filter.tolerations.is_none_or(tolerated)
        && filter.reqs.iter().all(suits)
}

/// Variants by the labels that tell pools apart, so that a class with a selector reads few of them.
struct Index {
    /// The pools' own label keys.
    keys: BTreeSet<Sym>,
    with: FxHashMap<(Sym, Sym), Vec<(usize, usize)>>,
    without: FxHashMap<Sym, Vec<(usize, usize)>>,
    all: Vec<(usize, usize)>,
}

impl Index {
    fn new(context: &Context<'_>) -> Self {
        let keys: BTreeSet<Sym> =
            context.pools.iter().map(|rec| rec.label.0).chain([context.cluster.keys.pool]).collect();
        let mut index =
            Self { keys, with: FxHashMap::default(), without: FxHashMap::default(), all: Vec::new() };
        for (pool, rec) in
            context.pools.iter().enumerate().filter(|(_, rec)| rec.pool.launches && rec.pool.held.is_none())
        {
            for (variant, it) in rec.variants.iter().enumerate() {
                index.all.push((pool, variant));
                for key in &index.keys {
                    match label(&it.labels, *key) {
                        Some(value) => index.with.entry((*key, value)).or_default().push((pool, variant)),
                        None => index.without.entry(*key).or_default().push((pool, variant)),
                    }
                }
            }
        }
        index
    }

    /// Variants that may satisfy `reqs`, in order.
    fn candidates(&self, cluster: &Cluster, reqs: &[u32]) -> Vec<(usize, usize)> {
        for req in reqs {
            let [term] = &*cluster.tables.reqs.get(*req).terms else { continue };
            let chooses = |e: &&Expr| e.operator == Operator::In && self.keys.contains(&e.key);
            if let Some(expr) = term.labels.iter().find(chooses) {
                let with = expr.values.iter().filter_map(|v| self.with.get(&(expr.key, *v)));
                let mut list: Vec<_> = with.chain(self.without.get(&expr.key)).flatten().copied().collect();
                list.sort_unstable();
                return list;
            }
        }
        self.all.clone()
    }
}

/// Offerings that each class may use, by pool and variant; none for classes without pending pods.
fn allowed(context: &Context<'_>, left: &[u32]) -> Vec<Vec<Allowed>> {
    let mut known: FxHashMap<(Arc<[u32]>, u32), Vec<Allowed>> = FxHashMap::default();
    let cluster = context.cluster;
    let index = Index::new(context);
    let mut everything: FxHashMap<(usize, usize), Arc<BitSet>> = FxHashMap::default();
    let mut result = Vec::new();
    for (class, left) in context.demand.classes.iter().zip(left) {
        if *left == 0 || class.blocked.is_some() {
            result.push(Vec::new());
            continue;
        }
        let tolerations = class.shape(cluster).tolerations;
        let list = known.entry((Arc::clone(&class.reqs), tolerations)).or_insert_with(|| {
            let mut list = Vec::new();
            for (pool, variant) in index.candidates(cluster, &class.reqs) {
                let Some(rec) = context.pools.get(pool) else { continue };
                let Some(it) = rec.variants.get(variant) else { continue };
                let all = everything.entry((pool, variant)).or_insert_with(|| Arc::new(it.allowed.clone()));
                if let Some(bits) = suits(cluster, rec, variant, class, tolerations, all) {
                    list.push(Allowed { pool, variant, bits });
                }
            }
            list
        });
        let mut list = list.clone();
        for req in class.extra.iter() {
            for a in &mut list {
                let Some(rec) = context.pools.get(a.pool) else { continue };
                let Some(it) = rec.variants.get(a.variant) else { continue };
                let with = it.req(&cluster.tables.symbols, &cluster.keys, &rec.catalog, req);
                a.bits = Arc::new(a.bits.and(&with));
            }
            list.retain(|a| !a.bits.is_empty());
        }
        result.push(list);
    }
    result
}

/// Offerings of a variant whose labels and taints suit the class.
fn suits(
    cluster: &Cluster,
    rec: &PoolRec,
    variant: usize,
    class: &Class,
    tolerations: u32,
    everything: &Arc<BitSet>,
) -> Option<Arc<BitSet>> {
    let tables = &cluster.tables;
    let it = rec.variants.get(variant)?;
    let reqs = || class.reqs.iter().map(|r| tables.reqs.get(*r));
    if reqs().any(|r| it.rejects(&tables.symbols, &cluster.keys, r))
        || taint::untolerated(tables.tolerations.get(tolerations), &rec.taints).is_some()
    {
        return None;
    }
    let mut bits = Arc::clone(everything);
    for req in reqs() {
        if !it.accepts(&tables.symbols, &cluster.keys, req) {
            bits = Arc::new(bits.and(&it.req(&tables.symbols, &cluster.keys, &rec.catalog, req)));
        }
    }
    (!bits.is_empty()).then_some(bits)
}

/// Union-find.
struct Sets(Vec<usize>);

#[expect(clippy::indexing_slicing, reason = "members are numbered from zero")]
impl Sets {
    fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// Classes that share a pool, a limit or a group form a block. Also returns the classes that no pool may
/// take.
#[expect(
    clippy::indexing_slicing,
    reason = "classes, pools and groups are numbered by the lists that they index"
)]
fn blocks(context: &Context<'_>, groups: &mut Groups, left: &[u32]) -> (Vec<Block>, Vec<(usize, u32)>) {
    let (classes, pools) = (left.len(), context.pools.len());
    let (pool_at, limit_at) = (classes, classes + pools);
    let group_at = limit_at + context.limits.left.len();
    let mut sets = Sets((0..group_at + groups.list.len()).collect());
    for (class, list) in context.allowed.iter().enumerate() {
        for a in list {
            sets.join(class, pool_at + a.pool);
        }
        if !list.is_empty() {
            for group in all_of(&groups.of[class]) {
                sets.join(class, group_at + group);
            }
        }
    }
    for (pool, limits) in context.limits.of.iter().enumerate() {
        for limit in limits {
            sets.join(pool_at + pool, limit_at + limit);
        }
    }
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    let mut blocks: Vec<Block> = Vec::new();
    let mut hopeless = Vec::new();
    let mut group_of: FxHashMap<usize, usize> = FxHashMap::default();
    for (class, left) in left.iter().copied().enumerate() {
        if left == 0 {
            continue;
        }
        if context.allowed[class].is_empty() {
            hopeless.push((class, left));
            continue;
        }
        let root = sets.root(class);
        let number = *numbers.entry(root).or_insert_with(|| {
            blocks.push(Block::default());
            blocks.len() - 1
        });
        let block = &mut blocks[number];
        block.classes.push((class, left));
        let mut local = |group: usize| {
            *group_of.entry(group).or_insert_with(|| {
                let empty = hollow(&groups.list[group]);
                block.groups.list.push(std::mem::replace(&mut groups.list[group], empty));
                block.groups.list.len() - 1
            })
        };
        let topology = renumber(&groups.of[class], &mut local);
        block.groups.of.push(topology);
    }
    (blocks, hopeless)
}

/// Placeholder of a group that has moved into its block.
fn hollow(group: &Group) -> Group {
    Group {
        selector: group.selector,
        key: group.key,
        filter: group.filter,
        domains: Vec::new(),
        nodes: FxHashMap::default(),
        total: 0,
        live: false,
    }
}

fn renumber(topology: &Topology, local: &mut impl FnMut(usize) -> usize) -> Topology {
    let mut result = topology.clone();
    for rule in result.spreads.iter_mut().chain(&mut result.host_spreads) {
        rule.group = local(rule.group);
    }
    for list in [
        &mut result.near,
        &mut result.anti,
        &mut result.host_anti,
        &mut result.counted,
        &mut result.host_counted,
    ] {
        list.iter_mut().for_each(|g| *g = local(*g));
    }
    result.host_near = result.host_near.map(local);
    result
}
