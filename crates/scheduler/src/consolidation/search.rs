//! The large-neighbourhood search over sets of nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use rayon::prelude::*;

use crate::{
    Cluster, ComingNode, Options, PodKey, Price, Resources, ShareLedger,
    consolidation::{
        Ask, Candidate, Command, Consolidation, PoolConstraints, Rejection,
        completion::complete,
        split::{self, CandidateSet, Replacement},
        value::{Floors, ReplacementValue},
    },
    existing::cache::SolveCache,
    ids::CandidateIx,
    solve::solver::solve_with_cache,
};

/// Steps at effort 1, beside those per node and pod: small clusters are searched until little is left to
/// find.
const STEPS: u64 = 1_200_000;
const STEPS_PER_OBJECT: u64 = 60;
/// Steps charged for a solve beside its own, and for each pool.
const STEPS_PER_SOLVE: u64 = 200;
/// A solve without all candidates, and joint neighbourhoods, get more effort than a single node.
const EFFORT_TOGETHER: u32 = 4;
/// Above this many nodes a set is solved with the effort of an ordinary plan of its size.
const FEW: usize = 60;
/// Sets that are evaluated together; the best is taken, and the rest evaluated again.
const BATCH: usize = 16;
/// Single nodes that are evaluated beside the prefixes.
const ALONE: usize = 4;
/// Random neighbourhoods at effort 1, shared by the pools.
const NEIGHBOURHOODS: usize = 1_024;
const TRIES_PER_NODE: usize = 24;
/// Size of a random neighbourhood.
const FEWEST: u64 = 2;
const MOST: u64 = 9;
/// Batches of neighbourhoods without a gain after which the search of a pool ends.
const PATIENCE: usize = 16;
/// A pool whose cost is within this fraction of its bound is left as it is.
const NEAR_ENOUGH: i64 = 200;

/// Searches for commands that lower the cost of the cluster. `cancel` is polled; once it returns true, the
/// commands found so far are returned.
#[must_use]
pub fn consolidate(cluster: &Cluster, ask: &Ask, cancel: &(dyn Fn() -> bool + Sync)) -> Consolidation {
    let mut search = Search::new(cluster, ask, cancel);
    let busy = search.busy();
    for (pool, constraints) in &ask.constraints {
        let mut candidates: Vec<&Candidate> = ask.candidates.iter().filter(|c| c.pool == *pool).collect();
        if busy.contains(pool) {
            for candidate in candidates {
                search.result.rejections.insert(candidate.node.clone(), Rejection::Busy);
            }
            continue;
        }
        search.rank(pool, &mut candidates);
        search.pool(pool, *constraints, &candidates);
    }
    search.finish()
}

/// How many more nodes may be removed.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    /// At once.
    now: usize,
    /// In steps, each after its replacements are ready.
    staged: usize,
}

impl Allowed {
    fn new(constraints: PoolConstraints) -> Self {
        Self { now: constraints.nodes, staged: constraints.nodes.saturating_mul(constraints.steps.max(1)) }
    }

    const fn is_used_up(self) -> bool {
        self.now == 0
    }

    fn take(&mut self, nodes: usize) {
        self.now = self.now.saturating_sub(nodes);
        self.staged = self.staged.saturating_sub(nodes);
    }

    /// Keeps the replacements that the budget allows. Nodes with replacements may be removed in steps; nodes without
    /// replacements all at once.
    fn limit(self, replacements: &mut Vec<Replacement>) {
        replacements
            .sort_by_key(|replacement| (replacement.instances.is_empty(), Reverse(replacement.net())));
        let mut left = self.now;
        replacements.retain(|replacement| {
            let fits = left > 0;
            left = left.saturating_sub(replacement.nodes.len());
            fits
        });
    }
}

/// Evaluation of a set.
#[derive(Debug, Default)]
struct Evaluation {
    replacements: Vec<Replacement>,
    rejections: Vec<(CandidateIx, Rejection)>,
    net: i64,
    steps: u64,
}

impl Evaluation {
    /// More is better: savings, then fewer nodes and instances.
    fn rank(&self) -> (i64, Reverse<usize>) {
        let size = self.replacements.iter().map(|r| r.nodes.len() + r.instances.len()).sum();
        (self.net, Reverse(size))
    }
}

struct Search<'a> {
    ask: &'a Ask,
    cancel: &'a (dyn Fn() -> bool + Sync),
    /// The cluster after the commands so far.
    work: Cluster,
    cache: SolveCache,
    /// The shares of the pools, with the commands so far.
    shares: ShareLedger,
    commands: Vec<Command>,
    /// Nodes that are removed, or that receive pods.
    decided: BTreeSet<String>,
    /// Nodes evaluated alone without a gain since the last command.
    fruitless: BTreeSet<String>,
    /// What each node's pods cost elsewhere at least.
    floors: BTreeMap<String, Floors>,
    result: Consolidation,
    most_steps: u64,
}

impl<'a> Search<'a> {
    fn new(cluster: &Cluster, ask: &'a Ask, cancel: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let objects = u64::try_from(cluster.nodes.len() + cluster.pods.len()).unwrap_or(u64::MAX);
        let effort = u64::from(ask.options.effort.max(1));
        let result = Consolidation {
            before: ask.candidates.iter().map(|c| c.price).sum(),
            rejections: ask.candidates.iter().map(|c| (c.node.clone(), Rejection::NotTried)).collect(),
            ..Consolidation::default()
        };
        let is_leaving = |node: &str| ask.options.leaving.iter().any(|leaving| leaving == node);
        let mut shares = ShareLedger::default();
        ask.constraints.keys().for_each(|pool| shares.observe(cluster, pool, &is_leaving));
        Self {
            ask,
            cancel,
            shares,
            cache: SolveCache::new(cluster),
            work: cluster.clone(),
            commands: Vec::new(),
            decided: BTreeSet::new(),
            fruitless: BTreeSet::new(),
            floors: BTreeMap::new(),
            result,
            most_steps: effort.saturating_mul(STEPS + STEPS_PER_OBJECT.saturating_mul(objects)),
        }
    }

    /// Pools with pending pods.
    fn busy(&mut self) -> BTreeSet<String> {
        if self.work.pending() == 0 {
            return BTreeSet::new();
        }
        let plan = solve_with_cache(&self.work, &self.ask.options, &self.cache, self.cancel);
        self.result.steps += plan.steps;
        let launched = plan.instances.into_iter().map(|instance| instance.pool);
        launched.chain(plan.existing.into_iter().filter_map(|e| e.pool)).collect()
    }

    /// Sorts by wasted share of the price, largest first.
    fn rank(&mut self, pool: &str, candidates: &mut [&Candidate]) {
        let Some(templates) = self.work.pools.get(pool) else { return };
        let mut value = ReplacementValue::new(&self.work, templates);
        let mut shares: BTreeMap<&str, i128> = BTreeMap::new();
        for c in candidates.iter() {
            let node = self.work.find_node(&c.node);
            let here = node.map_or(0, |node| value.node(node));
            let price = c.price.micros();
            let wasted = price - here - c.disruption_cost.micros();
            self.floors.insert(c.node.clone(), node.map_or_else(Floors::default, |node| value.floors(node)));
            shares.insert(&c.node, i128::from(wasted) * 1_000_000 / i128::from(price.max(1)));
        }
        candidates.sort_by_key(|c| (Reverse(shares.get(c.node.as_str()).copied()), &c.node));
    }

    fn is_over(&mut self) -> bool {
        let over = self.result.steps >= self.most_steps || (self.cancel)();
        self.result.cut_short |= over;
        over
    }

    fn pool(&mut self, pool: &str, constraints: PoolConstraints, ranked: &[&'a Candidate]) {
        let mut allowed = Allowed::new(constraints);
        // From as many as may go at once down to two.
        loop {
            let live = self.live(ranked);
            let most = allowed.staged.min(live.len());
            let sizes = std::iter::successors(Some(most), |n| Some(n / 2)).take_while(|n| *n >= 2);
            let mut sets: Vec<CandidateSet<'_>> =
                sizes.map(|n| live.iter().take(n).copied().collect()).collect();
            // The most wasteful ones alone: where one saves as much as many, the many stay.
            sets.extend(live.iter().take(ALONE).map(|candidate| CandidateSet::from(vec![*candidate])));
            if allowed.is_used_up() || self.is_over() || !self.best_of(sets, &mut allowed) {
                break;
            }
        }
        // Each alone.
        let mut next = 0;
        while next < ranked.len() && !allowed.is_used_up() {
            if self.is_over() {
                return;
            }
            let chunk: Vec<&Candidate> = ranked.iter().skip(next).take(BATCH).copied().collect();
            next += chunk.len();
            let mut again = true;
            while again && !allowed.is_used_up() {
                let alone = |candidate| CandidateSet::from(vec![candidate]);
                let sets = self.live(&chunk).into_iter().map(alone).collect();
                again = self.best_of(sets, &mut allowed);
            }
        }
        self.together(pool, constraints, ranked, &mut allowed);
        if allowed.is_used_up() {
            for candidate in self.live(ranked) {
                self.result.rejections.insert(candidate.node.clone(), Rejection::Budget);
            }
        }
    }

    /// Sets that save together what none saves alone.
    fn together(
        &mut self,
        pool: &str,
        constraints: PoolConstraints,
        ranked: &[&'a Candidate],
        allowed: &mut Allowed,
    ) {
        let mut chance = Chance::new(pool);
        let effort = usize::try_from(self.ask.options.effort.max(1)).unwrap_or(1);
        let share = (NEIGHBOURHOODS / self.ask.constraints.len().max(1)).max(BATCH);
        let mut tries = share.min(ranked.len() * TRIES_PER_NODE) * effort;
        let (mut fruitless, mut tried) = (0, BTreeSet::new());
        let mut least = None;
        while tries > 0 && !allowed.is_used_up() && allowed.staged >= 2 && fruitless < PATIENCE {
            let live = self.live(ranked);
            if live.len() < 2 || self.is_over() {
                return;
            }
            let held: i64 = live.iter().map(|c| c.price.micros()).sum();
            let bound = match least {
                Some(bound) => bound,
                None => self.least(&live),
            };
            least = Some(bound);
            if held - bound <= constraints.min_savings.micros().max(held / NEAR_ENOUGH) {
                return;
            }
            // A small pool has few sets: none is evaluated twice.
            let sets: Vec<CandidateSet<'_>> = (0..BATCH.min(tries))
                .map(|_| neighbourhood(live.len(), allowed.staged, &mut chance))
                .filter(|set| tried.insert(set.clone()))
                .map(|set| set.into_iter().map(|candidate| live[candidate]).collect())
                .collect();
            tries = tries.saturating_sub(BATCH);
            fruitless += 1;
            if self.best_of(sets, allowed) {
                fruitless = 0;
                tried.clear();
                least = None;
            }
        }
    }

    /// A lower estimate of new instances' cost for the pods of `live`. Pods may also go onto nodes that stay,
    /// so that this is no proof, only a sign that nothing is left to find.
    fn least(&mut self, live: &CandidateSet<'_>) -> i64 {
        let mut options = self.ask.options.clone();
        options.without_nodes.extend(live.iter().map(|c| c.node.clone()));
        let plan = solve_with_cache(&self.work, &options, &self.cache, self.cancel);
        self.result.steps = self.result.steps.saturating_add(plan.steps);
        plan.bound.micros()
    }

    fn live<'c>(&self, candidates: &[&'c Candidate]) -> CandidateSet<'c> {
        candidates.iter().filter(|c| !self.decided.contains(&c.node)).copied().collect()
    }

    /// Takes the best of `sets`, if it saves enough.
    fn best_of(&mut self, mut sets: Vec<CandidateSet<'_>>, allowed: &mut Allowed) -> bool {
        sets.retain(|set| !matches!(set.as_slice(), [alone] if self.fruitless.contains(&alone.node)));
        let may = *allowed;
        let evaluations: Vec<Evaluation> = sets.par_iter().map(|set| self.attempt(set, may)).collect();
        let mut saving: Vec<(&CandidateSet<'_>, Evaluation)> = Vec::new();
        for (set, evaluation) in sets.iter().zip(evaluations) {
            self.result.steps = self.result.steps.saturating_add(evaluation.steps);
            if let [alone] = set.as_slice() {
                for (_, stay) in &evaluation.rejections {
                    self.result.rejections.insert(alone.node.clone(), stay.clone());
                    self.fruitless.insert(alone.node.clone());
                }
            }
            if !evaluation.replacements.is_empty() {
                saving.push((set, evaluation));
            }
        }
        // Among equals the first.
        saving.sort_by_key(|(_, evaluation)| Reverse(evaluation.rank()));
        for (set, evaluation) in saving {
            let mut made = false;
            for replacement in evaluation.replacements {
                let completed = self.completed(set, replacement);
                if let Some(completed) = completed.filter(|it| self.keeps_shares(set, it).is_ok()) {
                    allowed.take(completed.nodes.len());
                    self.make(set, completed);
                    made = true;
                }
                self.cache.changed(&self.work);
            }
            if made {
                self.fruitless.clear();
                return true;
            }
            if let [alone] = set.as_slice() {
                self.result.rejections.insert(alone.node.clone(), Rejection::SchedulerWouldNotFit);
                self.fruitless.insert(alone.node.clone());
            }
        }
        false
    }

    /// The replacement with the instances that it lacks under kube-scheduler's placement, if it still saves enough.
    fn completed(&mut self, set: &CandidateSet<'_>, mut replacement: Replacement) -> Option<Replacement> {
        if replacement.instances.len() + replacement.onto.len() <= 1 {
            return Some(replacement);
        }
        // In the controller's order: the dearest first, whose pods then find the most room.
        let mut own: Vec<&Candidate> = replacement.nodes.iter().map(|node| set[*node]).collect();
        own.sort_by_key(|c| (Reverse(c.price), &c.node));
        let pods: BTreeSet<PodKey> = own.iter().flat_map(|c| self.work.movable_pods(&c.node)).collect();
        let options = Options {
            simulate_default_scheduler: true,
            effort: 0,
            small_plan_steps: 0,
            ..self.options_without(own.iter().copied())
        };
        let Self { ask, cancel, work, cache, result, .. } = self;
        let instances = complete(work, replacement.instances, |cluster| {
            cache.changed(cluster);
            let mut plan = solve_with_cache(cluster, &options, cache, *cancel);
            result.steps = result.steps.saturating_add(plan.steps).saturating_add(STEPS_PER_SOLVE);
            if let Some(left) = plan.unschedulable.into_iter().find(|left| pods.contains(&left.pod)) {
                return Err(left);
            }
            plan.instances.retain(|instance| instance.pods.iter().any(|pod| pods.contains(pod)));
            Ok(plan.instances)
        });
        let instances = instances.ok().flatten()?;
        let taken: BTreeSet<&PodKey> = instances.iter().flat_map(|instance| &instance.pods).collect();
        replacement.onto.iter_mut().for_each(|placement| placement.pods.retain(|pod| !taken.contains(pod)));
        replacement.onto.retain(|placement| !placement.pods.is_empty());
        let evaluated = split::evaluate(work, ask, set, replacement.nodes, instances).ok()?;
        Some(Replacement { onto: replacement.onto, ..evaluated })
    }

    /// The options of a solve without the nodes of `set`, by the templates that may launch in the place of each of them.
    fn options_without<'c>(&self, set: impl Iterator<Item = &'c Candidate> + Clone) -> Options {
        let mut options = self.ask.options.clone();
        options.without_nodes.extend(set.clone().map(|c| c.node.clone()));
        for candidate in set {
            if let Some(templates) = &candidate.templates {
                options.templates.restrict(&candidate.pool, templates);
            }
        }
        options
    }

    fn attempt(&self, set: &CandidateSet<'_>, allowed: Allowed) -> Evaluation {
        let mut options = self.options_without(set.iter().copied());
        // Sets are many, and most are of no use: their effort is counted over all of them.
        options.small_plan_steps = 0;
        let mut floors = Floors::default();
        for (id, floor) in set.iter().filter_map(|c| self.floors.get(&c.node)).flatten() {
            *floors.entry(*id).or_default() += floor;
        }
        let elsewhere = floors.into_values().max().unwrap_or(0);
        let costs: Price = set.iter().map(|c| c.disruption_cost).sum();
        let least = set
            .iter()
            .filter_map(|c| self.ask.constraints.get(&c.pool))
            .map(|t| t.min_savings)
            .max()
            .unwrap_or_default();
        let price: Price = set.iter().map(|c| c.price).sum();
        // At least the disruption cost of a single node; replacements of a larger set may have less.
        let disruption_cost = if let [alone] = set.as_slice() { alone.disruption_cost } else { Price::ZERO };
        options.cost_cutoff = Some(price.saturating_sub(least.saturating_add(disruption_cost)));
        if price.micros() - costs.micros() - elsewhere <= least.micros() {
            // New instances for its pods would cost as much, however well packed; existing free room may do.
            options.effort = 0;
        } else if set.len() > 1 && set.len() <= FEW {
            options.effort = options.effort.saturating_mul(EFFORT_TOGETHER);
        }
        let plan = solve_with_cache(&self.work, &options, &self.cache, self.cancel);
        let pools = u64::try_from(self.work.pools.len()).unwrap_or(u64::MAX);
        let steps = plan.steps.saturating_add(pools).saturating_add(STEPS_PER_SOLVE);
        if plan.cut_short && (self.cancel)() {
            return Evaluation { steps, ..Evaluation::default() };
        }
        let (mut replacements, mut rejections) = split::split(&self.work, self.ask, set, plan);
        replacements.retain(|replacement| match self.keeps_shares(set, replacement) {
            Ok(()) => true,
            Err(share) => {
                let of_node = |node: &CandidateIx| (*node, Rejection::PoolShare(share.clone()));
                rejections.extend(replacement.nodes.iter().map(of_node));
                false
            }
        });
        allowed.limit(&mut replacements);
        let net = replacements.iter().map(Replacement::net).sum();
        Evaluation { replacements, rejections, net, steps }
    }

    /// Checks that a replacement leaves its pool within its shares. The error is the share that it would break.
    fn keeps_shares(&self, set: &CandidateSet<'_>, replacement: &Replacement) -> Result<(), String> {
        self.shares.check(&self.work, &replacement.names(set), &replacement.instances)
    }

    /// Applies a command to the working cluster. Free room on its instances is left to the next search: a
    /// command that used it would depend on this one.
    fn make(&mut self, set: &CandidateSet<'_>, replacement: Replacement) {
        self.shares.take(&self.work, &replacement.names(set), &replacement.instances);
        let nodes = replacement.nodes.iter().map(|node| set[*node].node.clone()).collect();
        for (number, instance) in replacement.instances.iter().enumerate() {
            let name = format!("\u{1}{}-{number}", self.commands.len());
            let full = ComingNode { allocatable: Resources::new(), ..instance.coming(&name) };
            self.work.upsert_coming(full);
            for pod in &instance.pods {
                self.work.relocate(pod, &name, true);
            }
        }
        let made = Command {
            nodes,
            instances: replacement.instances,
            onto: replacement.onto,
            before: replacement.before,
            after: replacement.after,
            disruption_cost: replacement.disruption_cost,
        };
        for node in &made.nodes {
            self.result.rejections.remove(node);
            self.decided.insert(node.clone());
            self.work.remove_node(node);
        }
        for placement in &made.onto {
            for pod in &placement.pods {
                self.work.relocate(pod, &placement.node, placement.coming);
            }
            self.decided.insert(placement.node.clone());
            if let Some(stay) = self.result.rejections.get_mut(&placement.node) {
                *stay = Rejection::ReceivesPods;
            }
        }
        self.commands.push(made);
    }

    fn finish(mut self) -> Consolidation {
        self.result.commands = self.commands;
        let saved: Price = self.result.commands.iter().map(Command::saves).sum();
        self.result.after = self.result.before.saturating_sub(saved);
        self.result
    }
}

/// A few of the `live` candidates, sampled by wasted price.
fn neighbourhood(live: usize, allowed: usize, chance: &mut Chance) -> BTreeSet<CandidateIx> {
    let size = FEWEST + chance.below(MOST - FEWEST + 1);
    let size = usize::try_from(size).unwrap_or(2).min(allowed).min(live);
    let count = u64::try_from(live).unwrap_or(u64::MAX);
    let mut chosen = BTreeSet::new();
    while chosen.len() < size {
        let number = chance.below(count).min(chance.below(count));
        chosen.insert(CandidateIx::from(usize::try_from(number).unwrap_or(0)));
    }
    chosen
}

/// Deterministic pseudo-random numbers (splitmix64).
struct Chance(u64);

impl Chance {
    fn new(seed: &str) -> Self {
        Self(
            seed.bytes().fold(0x9e37_79b9_7f4a_7c15, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            }),
        )
    }

    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % count.max(1)
    }
}
