//! The steps of a solve, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::{
    Cluster, Options, Plan,
    bits::Bits,
    block::{Allowed, Block, Context, Solved},
    cluster::NodeIx,
    demand::{Class, Demand},
    existing::Existing,
    finish,
    groups::{Group, Groups, Topology, all_of},
    intern::{Sym, label},
    nodereq::Expr,
    pack::Limit,
    pool::{LIMIT_COST, LIMIT_NODES},
    quantity::Quantity,
    requests::amount,
    requirement::Operator,
    resources::native,
    space::PoolRec,
    taint,
    warm::Warm,
    zones::Opened,
};

/// Plans: which pods go where, and which machines to launch for the rest. `stop` is asked now and then; once it
/// says true, the cheapest plan found so far is returned.
#[must_use]
pub fn solve(cluster: &Cluster, options: &Options, stop: &(dyn Fn() -> bool + Sync)) -> Plan {
    solve_warm(cluster, options, &Warm::new(cluster), stop)
}

/// [`solve`], with what earlier solves of the same cluster have found out.
pub(crate) fn solve_warm(
    cluster: &Cluster,
    options: &Options,
    warm: &Warm,
    stop: &(dyn Fn() -> bool + Sync),
) -> Plan {
    let demand = Demand::new(cluster, options);
    // Who was kept from old nodes for the sake of others in vain isn't kept.
    let mut heedless = BTreeSet::new();
    loop {
        let (plan, stranded) = attempt(cluster, options, &demand, &heedless, warm, stop);
        let before = heedless.len();
        heedless.extend(stranded);
        if heedless.len() == before {
            return plan;
        }
    }
}

/// One plan, and the classes that were kept from old nodes in vain.
fn attempt(
    cluster: &Cluster,
    options: &Options,
    demand: &Demand,
    heedless: &BTreeSet<usize>,
    warm: &Warm,
    stop: &(dyn Fn() -> bool + Sync),
) -> (Plan, Vec<usize>) {
    let mut groups = Groups::new(cluster, demand);
    let mut existing = Existing::new(cluster, demand, options, heedless, warm);
    existing.run(&mut groups);
    let left = existing.left.clone();
    let steps = existing.steps;
    let held = existing.held();
    let places = existing.finish();

    let pools: Vec<&PoolRec> = cluster.pools.values().collect();
    let limits = limits(cluster, demand, &pools);
    let mut context = Context::new(cluster, options, demand, pools, limits, warm, stop);
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
    let mut waiting: FxHashMap<usize, u32> = hopeless.iter().copied().collect();
    for (class, count, _) in solved.iter().flat_map(|s| &s.left) {
        *waiting.entry(*class).or_default() += count;
    }
    // In vain, if it found no place itself, or if nobody could follow it.
    let none = |class: &usize| waiting.get(class).is_some_and(|n| left.get(*class) == Some(n));
    let in_vain = |(class, followers): &(usize, Vec<usize>)| {
        waiting.contains_key(class) || !followers.is_empty() && followers.iter().all(none)
    };
    let stranded = held.into_iter().filter(in_vain).map(|(class, _)| class).collect();
    (finish::plan(&context, &places, solved, hopeless, steps), stranded)
}

/// Machines by what they are made of: pool, variant, offering.
type Made = BTreeSet<(usize, usize, u32)>;

/// Solves blocks again whose spreads see a domain that the plan opens elsewhere, until the plan opens none that they
/// didn't count on. What they count on only grows, so that it ends.
fn settle_domains(context: &mut Context<'_>, spreading: &FxHashMap<usize, Block>, solved: &mut [Solved]) {
    let mut opened: BTreeSet<Opened> = BTreeSet::new();
    loop {
        let keys: BTreeSet<Sym> = solved.iter().flat_map(|s| s.seen.keys()).map(|(_, key)| *key).collect();
        if keys.is_empty() {
            return;
        }
        let made: Made =
            solved.iter().flat_map(|s| &s.launches).map(|l| (l.pool, l.variant, l.offer)).collect();
        let mut machines: FxHashMap<Sym, BTreeMap<Sym, Made>> = FxHashMap::default();
        for key in keys {
            let by_value = machines.entry(key).or_default();
            for machine in &made {
                if let Some(value) = value_on(context, *machine, key) {
                    by_value.entry(value).or_default().insert(*machine);
                }
            }
        }
        let mut again = Vec::new();
        for (number, it) in solved.iter().enumerate() {
            let mut fresh = false;
            for ((filter, key), seen) in &it.seen {
                let values =
                    machines.get(key).into_iter().flatten().filter(|(value, _)| !seen.contains(value));
                for (value, machines) in values {
                    if machines.iter().any(|m| passes(context, *m, *filter)) {
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

/// The label `key` of a planned machine.
fn value_on(context: &Context<'_>, (pool, variant, offer): (usize, usize, u32), key: Sym) -> Option<Sym> {
    let rec = context.pools.get(pool)?;
    rec.variants.get(variant)?.value(&context.cluster.keys, &rec.catalog, offer as usize, key)
}

/// True if a planned machine counts under `filter`.
fn passes(context: &Context<'_>, machine: (usize, usize, u32), filter: u32) -> bool {
    let (pool, variant, offer) = machine;
    let cluster = context.cluster;
    let (tables, keys) = (&cluster.tables, &cluster.keys);
    let Some(rec) = context.pools.get(pool) else { return false };
    let Some(it) = rec.variants.get(variant) else { return false };
    let filter = tables.filters.get(filter);
    let tolerated = |t: u32| taint::untolerated(tables.tolerations.get(t), &rec.taints).is_none();
    let has = |key: Sym| keys.canonical(key) == keys.hostname || value_on(context, machine, key).is_some();
    let suits =
        |req: &u32| it.satisfies(&tables.symbols, keys, &rec.catalog, offer as usize, tables.reqs.get(*req));
    filter.keys.iter().all(|k| has(*k))
        && filter.tolerations.is_none_or(tolerated)
        && filter.reqs.iter().all(suits)
}

/// Variants by the labels that tell pools apart, so that a class with a selector looks at few of them.
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
        for (pool, rec) in context.pools.iter().enumerate().filter(|(_, rec)| rec.pool.launches) {
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

/// Offerings that each class may use, by pool and variant; classes without pods left get none.
fn allowed(context: &Context<'_>, left: &[u32]) -> Vec<Vec<Allowed>> {
    let mut known: FxHashMap<(Arc<[u32]>, u32), Vec<Allowed>> = FxHashMap::default();
    let cluster = context.cluster;
    let index = Index::new(context);
    let mut everything: FxHashMap<(usize, usize), Arc<Bits>> = FxHashMap::default();
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

/// Offerings of a variant on which the class's labels and taints are right.
fn suits(
    cluster: &Cluster,
    rec: &PoolRec,
    variant: usize,
    class: &Class,
    tolerations: u32,
    everything: &Arc<Bits>,
) -> Option<Arc<Bits>> {
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

/// Nodes of a pool, coming ones included.
pub(crate) fn nodes_of<'a>(
    cluster: &'a Cluster,
    demand: &'a Demand,
    rec: &PoolRec,
) -> impl Iterator<Item = NodeIx> + 'a {
    let nodes = cluster.by_label.get(&rec.label).into_iter().flatten().copied();
    nodes.filter(|n| demand.gone_counts || !demand.gone.contains(n))
}

/// What the catalogue says that a node costs, by its labels; zero if it doesn't know.
pub(crate) fn node_price(cluster: &Cluster, rec: &PoolRec, node: NodeIx) -> Option<i64> {
    let labels = &cluster.nodes.get(node as usize)?.info.as_ref()?.labels;
    let keys = &cluster.keys;
    let kind = rec.catalog.find(label(labels, keys.instance_type)?)?;
    let (zone, capacity) = (label(labels, keys.zone), label(labels, keys.capacity_type));
    let offers = rec.catalog.offers_of(kind).iter();
    let fits = |o: &&crate::space::Offer| {
        zone.is_none_or(|z| z == o.zone) && capacity.is_none_or(|c| c == o.capacity_sym)
    };
    offers.filter(fits).filter_map(|o| o.price).max()
}

/// What is left of every limit, and which limits count each pool's machines.
fn limits(cluster: &Cluster, demand: &Demand, pools: &[&PoolRec]) -> (Vec<Limit>, Vec<Vec<usize>>) {
    let mut list = Vec::new();
    let mut of: Vec<Vec<usize>> = vec![Vec::new(); pools.len()];
    let mut add = |wanted: &BTreeMap<String, Quantity>, members: &[usize]| {
        if wanted.is_empty() {
            return;
        }
        let mut limit = Limit::default();
        for (name, quantity) in wanted {
            match name.as_str() {
                LIMIT_NODES => limit.nodes = Some(quantity.units()),
                LIMIT_COST => limit.cost = Some(quantity.micros_floor()),
                // A resource that nothing has can't be used up.
                _ => limit
                    .resources
                    .extend(cluster.tables.resources.find(name).map(|id| (id, native(name, *quantity)))),
            }
        }
        for member in members {
            let Some(rec) = pools.get(*member) else { continue };
            for node in nodes_of(cluster, demand, rec) {
                let Some(info) = cluster.nodes.get(node as usize).and_then(|s| s.info.as_ref()) else {
                    continue;
                };
                if let Some(nodes) = &mut limit.nodes {
                    *nodes -= 1;
                }
                if let Some(cost) = &mut limit.cost {
                    *cost = cost.saturating_sub(node_price(cluster, rec, node).unwrap_or(0));
                }
                for (id, left) in &mut limit.resources {
                    *left = left.saturating_sub(amount(&info.capacity, *id));
                }
            }
            if let Some(of) = of.get_mut(*member) {
                of.push(list.len());
            }
        }
        list.push(limit);
    };
    for (number, rec) in pools.iter().enumerate() {
        add(&rec.pool.limits, &[number]);
    }
    for tenant in cluster.tenants.values() {
        let members: Vec<usize> = pools
            .iter()
            .enumerate()
            .filter(|(_, rec)| tenant.pools.contains(&rec.pool.name))
            .map(|(number, _)| number)
            .collect();
        add(&tenant.limits, &members);
    }
    (list, of)
}

/// Finds the sets that things belong to.
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

/// Classes that share a pool, a limit or a group belong together. Also answers the classes that no pool may take.
#[expect(
    clippy::indexing_slicing,
    reason = "classes, pools and groups are numbered by the lists that they index"
)]
fn blocks(context: &Context<'_>, groups: &mut Groups, left: &[u32]) -> (Vec<Block>, Vec<(usize, u32)>) {
    let (classes, pools) = (left.len(), context.pools.len());
    let (pool_at, limit_at) = (classes, classes + pools);
    let group_at = limit_at + context.limits.len();
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
    for (pool, limits) in context.limits_of.iter().enumerate() {
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

/// What stays behind when a group moves into its block.
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
