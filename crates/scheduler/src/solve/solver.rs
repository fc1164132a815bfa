//! The steps of a solve, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::{
    Cluster, Options, Plan, Price,
    demand::{Class, ClassPods, Demand, NodeNeeds},
    existing::{
        cache::SolveCache,
        placement::{Existing, Restraint},
    },
    ids::{BlockIx, ClassIx, GroupIx, LimitIx, MemberIx, NodeIx, OfferIx, PoolIx, PoolVariant},
    index_vec::IndexVec,
    model::requirement::Operator,
    solve::{
        block::{Allowed, Block, Context, Launch, Solved},
        limits::Limits,
        result,
    },
    state::{
        catalog_index::OfferSet,
        interner::{Sym, label},
        node_requirement::Expr,
        pod_shape::{FilterId, NodeReqId, TolerationsId},
        pool::{PoolRec, Variant},
        taint,
    },
    topology::{
        domains::{OpenedDomain, by_priority},
        groups::{Group, Groups, Topology, groups_of},
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
    let mut restraint = Restraint::default();
    let mut joint = false;
    let input = Input { cluster, options, demand: &demand, cache, cancel };
    let mut found = loop {
        let Some(found) = input.attempt(&restraint, joint) else {
            joint = true;
            continue;
        };
        let before = restraint.unrestricted.len();
        restraint.unrestricted.extend(&found.stranded);
        if restraint.unrestricted.len() == before || cancel() {
            break found;
        }
    };
    if found.violating.is_empty() || options.simulate_default_scheduler || cancel() {
        return found.plan;
    }
    // The pods whose spreads are violated may still be able to leave room for those that violate them.
    restraint.unrestricted.retain(|class| found.violating.iter().all(|(other, _)| other != class));
    restraint.reserved = std::mem::take(&mut found.violating);
    match input.attempt(&restraint, joint) {
        Some(other) if other.rank() <= found.rank() => other.plan,
        _ => found.plan,
    }
}

struct Attempt {
    plan: Plan,
    /// Pods without a place, by priority, highest first.
    left: Vec<u32>,
    /// Classes that were kept off existing nodes in vain.
    stranded: Vec<ClassIx>,
    /// Unrestricted pods that violate the spread of others, with their nodes.
    violating: Vec<(ClassIx, NodeIx)>,
}

impl Attempt {
    fn rank(&self) -> PlanRank<'_> {
        PlanRank { left: &self.left, unpriced: self.plan.unpriced(), cost: self.plan.cost }
    }
}

/// How good a plan is. The least is the best: fields are compared from first to last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PlanRank<'a> {
    /// Pods without a place, by priority: kube-scheduler binds those of a higher one first, whatever the plan says.
    left: &'a [u32],
    /// Instances without a price, which the cost leaves out.
    unpriced: usize,
    cost: Price,
}

/// Input of all attempts.
struct Input<'a> {
    cluster: &'a Cluster,
    options: &'a Options,
    demand: &'a Demand,
    cache: &'a SolveCache,
    cancel: &'a (dyn Fn() -> bool + Sync),
}

impl Input<'_> {
    /// One plan. `None` if it overruns the cluster's limit and was not made `joint`ly with it.
    fn attempt(&self, restraint: &Restraint, joint: bool) -> Option<Attempt> {
        let Self { cluster, options, demand, cache, cancel } = *self;
        let mut groups = Groups::new(cluster, demand);
        let mut existing = Existing::new(cluster, demand, options, restraint, cache);
        existing.run(&mut groups);
        let left = existing.left.clone();
        let steps = existing.steps;
        let held = existing.held();
        let violating = std::mem::take(&mut existing.violating);
        let places = existing.finish();

        let pools: IndexVec<PoolIx, &PoolRec> = cluster.templates().collect();
        let limits = Limits::new(cluster, demand, &pools, joint);
        let (allowed, opened) = (IndexVec::new(), Arc::from([]));
        let mut context = Context { cluster, options, demand, pools, allowed, limits, cache, opened, cancel };
        context.allowed = find_allowed(&context, &left);
        let (blocks, without_pool) = blocks(&context, &mut groups, &left);
        let spreading: FxHashMap<BlockIx, Block> = blocks
            .enumerate()
            .filter(|(_, b)| b.groups.of.iter().any(|t| !t.spreads.is_empty()))
            .map(|(n, b)| (n, b.clone()))
            .collect();
        let mut solved: IndexVec<BlockIx, Solved> = if blocks.len() == 1 {
            blocks.into_iter().map(|b| context.solve(b)).collect()
        } else {
            let blocks: Vec<Block> = blocks.into_iter().collect();
            blocks.into_par_iter().map(|b| context.solve(b)).collect::<Vec<_>>().into()
        };
        solve_until_domains_agree(&mut context, &spreading, &mut solved);
        let launches = solved.iter().flat_map(|s| &s.launches);
        if context.limits.is_overrun(&context.pools, launches.map(Launch::pool_offer)) {
            return None;
        }
        let mut waiting: FxHashMap<ClassIx, u32> =
            without_pool.iter().map(|pods| (pods.class, pods.count)).collect();
        for pods in solved.iter().flat_map(|s| &s.left) {
            *waiting.entry(pods.class).or_default() += pods.count;
        }
        // In vain, if the class found no place itself, or if none of its followers did.
        let none = |class: &ClassIx| waiting.get(class).is_some_and(|n| left.find(*class) == Some(n));
        let in_vain = |(class, followers): &(ClassIx, Vec<ClassIx>)| {
            waiting.contains_key(class) || !followers.is_empty() && followers.iter().all(none)
        };
        let stranded = held.into_iter().filter(in_vain).map(|(class, _)| class).collect();
        let classes = demand.classes.enumerate();
        let left =
            by_priority(classes.map(|(n, class)| (class.priority, waiting.get(&n).copied().unwrap_or(0))));
        let plan = result::plan(&context, &places, solved, without_pool, steps);
        Some(Attempt { plan, left, stranded, violating })
    }
}

/// A planned instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Instance {
    from: PoolVariant,
    offer: OfferIx,
}

/// Solves blocks again whose spreads see a domain that another block opens, until no new domain appears.
/// Counted domains only grow, so that the loop ends.
fn solve_until_domains_agree(
    context: &mut Context<'_>,
    spreading: &FxHashMap<BlockIx, Block>,
    solved: &mut IndexVec<BlockIx, Solved>,
) {
    let mut opened: BTreeSet<OpenedDomain> = BTreeSet::new();
    loop {
        let scopes = solved.iter().flat_map(|s| s.counted_domains.keys());
        let keys: BTreeSet<Sym> = scopes.map(|scope| scope.key).collect();
        if keys.is_empty() {
            return;
        }
        let launches = solved.iter().flat_map(|s| &s.launches);
        let made: BTreeSet<Instance> = launches.map(|l| Instance { from: l.from, offer: l.offer }).collect();
        let mut instances: FxHashMap<Sym, BTreeMap<Sym, BTreeSet<Instance>>> = FxHashMap::default();
        for key in keys {
            let by_value = instances.entry(key).or_default();
            for instance in &made {
                if let Some(value) = value_on(context, *instance, key) {
                    by_value.entry(value).or_default().insert(*instance);
                }
            }
        }
        let mut again = Vec::new();
        for (number, it) in solved.enumerate() {
            let mut fresh = false;
            for (scope, counted) in &it.counted_domains {
                let values = instances.get(&scope.key).into_iter().flatten();
                for (value, instances) in values.filter(|(value, _)| !counted.contains(value)) {
                    if instances.iter().any(|instance| is_passing(context, *instance, scope.filter)) {
                        fresh = true;
                        opened.insert(OpenedDomain { scope: *scope, value: *value });
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
            if let Some(block) = spreading.get(&number) {
                solved[number] = context.solve(block.clone());
            }
        }
    }
}

/// The label `key` of a planned instance.
fn value_on(context: &Context<'_>, instance: Instance, key: Sym) -> Option<Sym> {
    let (rec, variant) = context.variant(instance.from);
    variant.value(&context.cluster.keys, &rec.catalog, instance.offer, key)
}

/// True if a planned instance passes `filter`.
fn is_passing(context: &Context<'_>, instance: Instance, filter: FilterId) -> bool {
    let Instance { from, offer } = instance;
    let cluster = context.cluster;
    let (tables, keys) = (&cluster.tables, &cluster.keys);
    let (rec, it) = context.variant(from);
    let filter = tables.filters.get(filter);
    let tolerated = |t: TolerationsId| taint::untolerated(tables.tolerations.get(t), &rec.taints).is_none();
    let has = |key: Sym| keys.canonical(key) == keys.hostname || value_on(context, instance, key).is_some();
    let suits =
        |req: &NodeReqId| it.satisfies(&tables.symbols, keys, &rec.catalog, offer, tables.reqs.get(*req));
    filter.keys.iter().all(|k| has(*k))
        && filter.tolerations.is_none_or(tolerated)
        && filter.reqs.iter().all(suits)
}

/// Variants by the labels that tell pools apart, so that a class with a selector reads few of them.
struct VariantsByLabel {
    /// The pools' own label keys.
    keys: BTreeSet<Sym>,
    with: FxHashMap<(Sym, Sym), Vec<PoolVariant>>,
    without: FxHashMap<Sym, Vec<PoolVariant>>,
    all: Vec<PoolVariant>,
}

impl VariantsByLabel {
    fn new(context: &Context<'_>) -> Self {
        let keys: BTreeSet<Sym> =
            context.pools.iter().map(|rec| rec.label.0).chain([context.cluster.keys.pool]).collect();
        let mut index =
            Self { keys, with: FxHashMap::default(), without: FxHashMap::default(), all: Vec::new() };
        let may_launch = |rec: &PoolRec| {
            let pool = &rec.pool;
            pool.launches
                && pool.held.is_none()
                && context.options.templates.allow(&pool.name, &pool.template)
        };
        for (pool, rec) in context.pools.enumerate().filter(|(_, rec)| may_launch(rec)) {
            for (variant, it) in rec.variants.enumerate() {
                let from = PoolVariant { pool, variant };
                index.all.push(from);
                for key in &index.keys {
                    match label(&it.labels, *key) {
                        Some(value) => index.with.entry((*key, value)).or_default().push(from),
                        None => index.without.entry(*key).or_default().push(from),
                    }
                }
            }
        }
        index
    }

    /// Variants that may satisfy `reqs`, in order.
    fn candidates(&self, cluster: &Cluster, reqs: &[NodeReqId]) -> Vec<PoolVariant> {
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
fn find_allowed(context: &Context<'_>, left: &IndexVec<ClassIx, u32>) -> IndexVec<ClassIx, Vec<Allowed>> {
    let mut known: FxHashMap<NodeNeeds, Vec<Allowed>> = FxHashMap::default();
    let cluster = context.cluster;
    let index = VariantsByLabel::new(context);
    let mut everything: FxHashMap<PoolVariant, Arc<OfferSet>> = FxHashMap::default();
    let mut result = IndexVec::new();
    for (class, left) in context.demand.classes.iter().zip(left) {
        if *left == 0 || class.blocked.is_some() {
            result.push(Vec::new());
            continue;
        }
        let list = known.entry(class.node_needs(cluster)).or_insert_with(|| {
            let mut list = Vec::new();
            for from in index.candidates(cluster, &class.reqs) {
                let (rec, it) = context.variant(from);
                let all = everything.entry(from);
                let all = all.or_insert_with(|| Arc::new(context.with_room_for_daemons(from)));
                if let Some(bits) = suits(cluster, rec, it, class, all) {
                    list.push(Allowed { from, bits });
                }
            }
            list
        });
        let mut list = list.clone();
        for req in class.extra.iter() {
            for a in &mut list {
                let (rec, it) = context.variant(a.from);
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
    it: &Variant,
    class: &Class,
    everything: &Arc<OfferSet>,
) -> Option<Arc<OfferSet>> {
    let tables = &cluster.tables;
    let tolerations = tables.tolerations.get(class.shape(cluster).tolerations);
    let reqs = || class.reqs.iter().map(|r| tables.reqs.get(*r));
    if reqs().any(|r| it.rejects(&tables.symbols, &cluster.keys, r))
        || taint::untolerated(tolerations, &rec.taints).is_some()
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

/// Union-find of classes, pools, limits and groups.
struct UnionFind {
    /// Itself, or a lesser member of the same set.
    parent: IndexVec<MemberIx, MemberIx>,
    /// The first of each kind; classes are the first of all.
    pools: usize,
    limits: usize,
    groups: usize,
}

impl UnionFind {
    fn new(context: &Context<'_>, groups: &Groups) -> Self {
        let pools = groups.of.len();
        let limits = pools + context.pools.len();
        let first = limits + context.limits.left.len();
        let parent = (0..first + groups.list.len()).map(MemberIx::from).collect();
        Self { parent, pools, limits, groups: first }
    }

    fn class(class: ClassIx) -> MemberIx {
        MemberIx::from(usize::from(class))
    }

    fn pool(&self, pool: PoolIx) -> MemberIx {
        MemberIx::from(self.pools + usize::from(pool))
    }

    fn limit(&self, limit: LimitIx) -> MemberIx {
        MemberIx::from(self.limits + usize::from(limit))
    }

    fn group(&self, group: GroupIx) -> MemberIx {
        MemberIx::from(self.groups + usize::from(group))
    }

    fn root(&mut self, mut member: MemberIx) -> MemberIx {
        while self.parent[member] != member {
            self.parent[member] = self.parent[self.parent[member]];
            member = self.parent[member];
        }
        member
    }

    fn join(&mut self, a: MemberIx, b: MemberIx) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.max(b)] = a.min(b);
    }
}

/// Joins classes to their pools and groups, and pools to their limits.
fn connect(context: &Context<'_>, groups: &Groups) -> UnionFind {
    let mut sets = UnionFind::new(context, groups);
    for ((class, list), topology) in context.allowed.enumerate().zip(&groups.of) {
        for a in list {
            sets.join(UnionFind::class(class), sets.pool(a.from.pool));
        }
        if !list.is_empty() {
            for group in groups_of(topology) {
                sets.join(UnionFind::class(class), sets.group(group));
            }
        }
    }
    for (pool, limits) in context.limits.of.enumerate() {
        for limit in limits {
            sets.join(sets.pool(pool), sets.limit(*limit));
        }
    }
    for share in &context.limits.shares {
        for pool in &share.members {
            sets.join(sets.pool(*pool), sets.limit(share.limit));
        }
    }
    sets
}

/// Classes that share a pool, a limit or a group form a block. Also returns the classes that no pool may
/// take.
fn blocks(
    context: &Context<'_>,
    groups: &mut Groups,
    left: &IndexVec<ClassIx, u32>,
) -> (IndexVec<BlockIx, Block>, Vec<ClassPods>) {
    let mut sets = connect(context, groups);
    // By the root of their members, in order of their first class.
    let mut numbers: FxHashMap<MemberIx, BlockIx> = FxHashMap::default();
    let mut blocks: IndexVec<BlockIx, Block> = IndexVec::new();
    let mut without_pool = Vec::new();
    let mut group_of: FxHashMap<GroupIx, GroupIx> = FxHashMap::default();
    for (class, left) in left.enumerate().filter(|(_, left)| **left > 0) {
        if context.allowed[class].is_empty() {
            without_pool.push(ClassPods { class, count: *left });
            continue;
        }
        let root = sets.root(UnionFind::class(class));
        let number = *numbers.entry(root).or_insert_with(|| blocks.push(Block::default()));
        let block = &mut blocks[number];
        block.classes.push(ClassPods { class, count: *left });
        let mut local = |group: GroupIx| {
            *group_of.entry(group).or_insert_with(|| {
                let Group { selector, key, filter, .. } = groups.list[group];
                // In place of the one that moves into the block.
                let empty = Group::new(selector, key, filter);
                block.groups.list.push(std::mem::replace(&mut groups.list[group], empty))
            })
        };
        let topology = renumber(&groups.of[class], &mut local);
        block.groups.of.push(topology);
    }
    (blocks, without_pool)
}

fn renumber(topology: &Topology, local: &mut impl FnMut(GroupIx) -> GroupIx) -> Topology {
    let mut result = topology.clone();
    for rule in result.spreads.iter_mut().chain(&mut result.host_spreads) {
        rule.group = local(rule.group);
    }
    for list in [
        &mut result.affinity,
        &mut result.anti_affinity,
        &mut result.host_anti_affinity,
        &mut result.matching_groups,
        &mut result.host_matching_groups,
    ] {
        list.iter_mut().for_each(|g| *g = local(*g));
    }
    result.host_affinity = result.host_affinity.map(local);
    result
}
