//! The search itself.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use rayon::prelude::*;

use super::{
    Ask, Candidate, Consolidation, Move, Stay, Terms,
    complete::complete,
    split::{self, Part},
    worth::Worth,
};
use crate::{Cluster, ComingNode, Options, PodKey, Price, Resources, solver::solve_warm, warm::Warm};

/// Steps at effort 1, beside those per node and pod: small clusters are searched until little is left to find.
const STEPS: u64 = 1_200_000;
const STEPS_PER_OBJECT: u64 = 60;
/// What a solve costs beside its steps, and for each pool.
const STEPS_PER_SOLVE: u64 = 200;
/// A fresh start, and what several nodes come to together, are worth more effort than a single node.
const EFFORT_TOGETHER: u32 = 4;
/// Beyond so many nodes a set is searched as a plan of so many pods always is.
const FEW: usize = 60;
/// Sets that are looked at together; the best is taken, and the rest looked at anew.
const BATCH: usize = 16;
/// Single nodes that are looked at beside the prefixes.
const ALONE: usize = 4;
/// Random neighbourhoods at effort 1, shared by the pools.
const NEIGHBOURHOODS: usize = 1_024;
const TRIES_PER_NODE: usize = 24;
/// Nodes of a random neighbourhood.
const FEWEST: u64 = 2;
const MOST: u64 = 9;
/// Batches of neighbourhoods without a gain after which the search of a pool ends.
const PATIENCE: usize = 16;
/// A pool that costs no more than its bound and this part of it is left as it is.
const NEAR_ENOUGH: i64 = 200;

/// Searches for moves that make the cluster cheaper. `stop` is asked now and then; once it says true, the moves found
/// so far are returned.
#[must_use]
pub fn consolidate(cluster: &Cluster, ask: &Ask, stop: &(dyn Fn() -> bool + Sync)) -> Consolidation {
    let mut search = Search::new(cluster, ask, stop);
    let busy = search.busy();
    for (pool, terms) in &ask.terms {
        let mut candidates: Vec<&Candidate> = ask.candidates.iter().filter(|c| c.pool == *pool).collect();
        if busy.contains(pool) {
            for candidate in candidates {
                search.result.stays.insert(candidate.node.clone(), Stay::Busy);
            }
            continue;
        }
        search.rank(pool, &mut candidates);
        search.pool(pool, *terms, &candidates);
    }
    search.finish()
}

/// How many more nodes may go.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    /// At once.
    now: usize,
    /// One after the other, once what takes their place is there.
    staged: usize,
}

impl Allowed {
    fn new(terms: Terms) -> Self {
        Self { now: terms.nodes, staged: terms.nodes.saturating_mul(terms.steps.max(1)) }
    }

    const fn is_used_up(self) -> bool {
        self.now == 0
    }

    fn take(&mut self, nodes: usize) {
        self.now = self.now.saturating_sub(nodes);
        self.staged = self.staged.saturating_sub(nodes);
    }

    /// Leaves those parts that may be made: what is launched for some is there when the others go, and whoever needs
    /// no machine goes at once.
    fn limit(self, parts: &mut Vec<Part>) {
        parts.sort_by_key(|part| (part.machines.is_empty(), Reverse(part.net())));
        let mut left = self.now;
        parts.retain(|part| {
            let fits = left > 0;
            left = left.saturating_sub(part.nodes.len());
            fits
        });
    }
}

/// What a set came to.
#[derive(Debug, Default)]
struct Tried {
    parts: Vec<Part>,
    stays: Vec<(usize, Stay)>,
    net: i64,
    steps: u64,
}

impl Tried {
    /// More is better: what is gained, then fewer nodes and machines for it.
    fn rank(&self) -> (i64, Reverse<usize>) {
        let size = self.parts.iter().map(|p| p.nodes.len() + p.machines.len()).sum();
        (self.net, Reverse(size))
    }
}

struct Search<'a> {
    ask: &'a Ask,
    stop: &'a (dyn Fn() -> bool + Sync),
    /// The cluster as the moves so far would leave it.
    work: Cluster,
    warm: Warm,
    moves: Vec<Move>,
    /// Nodes that are given back, or that get pods.
    settled: BTreeSet<String>,
    /// Nodes that were looked at alone, for nothing, since the last move.
    fruitless: BTreeSet<String>,
    /// What each node costs beyond what its pods would cost elsewhere and their disturbance.
    wasted: BTreeMap<String, i64>,
    result: Consolidation,
    most_steps: u64,
}

impl<'a> Search<'a> {
    fn new(cluster: &Cluster, ask: &'a Ask, stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let objects = u64::try_from(cluster.nodes.len() + cluster.pods.len()).unwrap_or(u64::MAX);
        let effort = u64::from(ask.options.effort.max(1));
        let result = Consolidation {
            before: ask.candidates.iter().map(|c| c.price).sum(),
            stays: ask.candidates.iter().map(|c| (c.node.clone(), Stay::NotTried)).collect(),
            ..Consolidation::default()
        };
        Self {
            ask,
            stop,
            warm: Warm::new(cluster),
            work: cluster.clone(),
            moves: Vec::new(),
            settled: BTreeSet::new(),
            fruitless: BTreeSet::new(),
            wasted: BTreeMap::new(),
            result,
            most_steps: effort.saturating_mul(STEPS + STEPS_PER_OBJECT.saturating_mul(objects)),
        }
    }

    /// Pools for which a plan is due.
    fn busy(&mut self) -> BTreeSet<String> {
        if self.work.pending() == 0 {
            return BTreeSet::new();
        }
        let plan = solve_warm(&self.work, &self.ask.options, &self.warm, self.stop);
        self.result.steps += plan.steps;
        let launched = plan.machines.into_iter().map(|m| m.pool);
        launched.chain(plan.existing.into_iter().filter_map(|e| e.pool)).collect()
    }

    /// Puts first what wastes the largest share of its price.
    fn rank(&mut self, pool: &str, candidates: &mut [&Candidate]) {
        let Some(rec) = self.work.pools.get(pool) else { return };
        let mut worth = Worth::new(&self.work, rec);
        let mut shares: BTreeMap<&str, i128> = BTreeMap::new();
        for c in candidates.iter() {
            let here = self.work.find_node(&c.node).map_or(0, |node| worth.node(node));
            let price = c.price.micros();
            let wasted = price - here - c.disturbance.micros();
            self.wasted.insert(c.node.clone(), wasted);
            shares.insert(&c.node, i128::from(wasted) * 1_000_000 / i128::from(price.max(1)));
        }
        candidates.sort_by_key(|c| (Reverse(shares.get(c.node.as_str()).copied()), &c.node));
    }

    fn is_over(&mut self) -> bool {
        let over = self.result.steps >= self.most_steps || (self.stop)();
        self.result.cut_short |= over;
        over
    }

    fn pool(&mut self, pool: &str, terms: Terms, ranked: &[&'a Candidate]) {
        let mut allowed = Allowed::new(terms);
        // From all that may go at once down to two.
        loop {
            let live = self.live(ranked);
            let most = allowed.staged.min(live.len());
            let sizes = std::iter::successors(Some(most), |n| Some(n / 2)).take_while(|n| *n >= 2);
            let mut sets: Vec<Vec<&Candidate>> =
                sizes.map(|n| live.iter().take(n).copied().collect()).collect();
            // Beside them the worst alone: where one saves as much as many, the many stay.
            sets.extend(live.iter().take(ALONE).map(|c| vec![*c]));
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
                let sets = self.live(&chunk).into_iter().map(|c| vec![c]).collect();
                again = self.best_of(sets, &mut allowed);
            }
        }
        self.together(pool, terms, ranked, &mut allowed);
        if allowed.is_used_up() {
            for candidate in self.live(ranked) {
                self.result.stays.insert(candidate.node.clone(), Stay::Budget);
            }
        }
    }

    /// Several that together do what none does alone.
    fn together(&mut self, pool: &str, terms: Terms, ranked: &[&'a Candidate], allowed: &mut Allowed) {
        let mut chance = Chance::new(pool);
        let effort = usize::try_from(self.ask.options.effort.max(1)).unwrap_or(1);
        let share = (NEIGHBOURHOODS / self.ask.terms.len().max(1)).max(BATCH);
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
            if held - bound <= terms.min_savings.micros().max(held / NEAR_ENOUGH) {
                return;
            }
            // A small pool has few sets: none is looked at twice.
            let sets: Vec<Vec<&Candidate>> = (0..BATCH.min(tries))
                .map(|_| neighbourhood(live.len(), allowed.staged, &mut chance))
                .filter(|set| tried.insert(set.clone()))
                .map(|set| set.into_iter().filter_map(|at| live.get(at).copied()).collect())
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

    /// What new machines for the pods of `live` would cost at least. Where pods go onto nodes that stay is the plan's
    /// choice, so that this is no proof, but a good sign that nothing is left to find.
    fn least(&mut self, live: &[&Candidate]) -> i64 {
        let mut options = self.ask.options.clone();
        options.without_nodes.extend(live.iter().map(|c| c.node.clone()));
        let plan = solve_warm(&self.work, &options, &self.warm, self.stop);
        self.result.steps = self.result.steps.saturating_add(plan.steps);
        plan.bound.micros()
    }

    fn live<'c>(&self, candidates: &[&'c Candidate]) -> Vec<&'c Candidate> {
        candidates.iter().filter(|c| !self.settled.contains(&c.node)).copied().collect()
    }

    /// Makes the moves of the best of `sets`, if any is worth it.
    fn best_of(&mut self, mut sets: Vec<Vec<&Candidate>>, allowed: &mut Allowed) -> bool {
        sets.retain(|set| !matches!(set.as_slice(), [alone] if self.fruitless.contains(&alone.node)));
        let may = *allowed;
        let tried: Vec<Tried> = sets.par_iter().map(|set| self.attempt(set, may)).collect();
        let mut found: Vec<(usize, Tried)> = Vec::new();
        for (at, tried) in tried.into_iter().enumerate() {
            self.result.steps = self.result.steps.saturating_add(tried.steps);
            if let Some([alone]) = sets.get(at).map(Vec::as_slice) {
                for (_, stay) in &tried.stays {
                    self.result.stays.insert(alone.node.clone(), stay.clone());
                    self.fruitless.insert(alone.node.clone());
                }
            }
            if !tried.parts.is_empty() {
                found.push((at, tried));
            }
        }
        found.sort_by_key(|(at, tried)| (Reverse(tried.rank()), *at));
        for (at, tried) in found {
            let Some(set) = sets.get(at) else { continue };
            let mut made = false;
            for part in tried.parts {
                if let Some(part) = self.completed(set, part) {
                    allowed.take(part.nodes.len());
                    self.make(set, part);
                    made = true;
                }
                self.warm.changed(&self.work);
            }
            if made {
                self.fruitless.clear();
                return true;
            }
            if let [alone] = set.as_slice() {
                self.result.stays.insert(alone.node.clone(), Stay::TooTight);
                self.fruitless.insert(alone.node.clone());
            }
        }
        false
    }

    /// The part with whatever machines more it takes to come about, if it is still worth making then.
    fn completed(&mut self, set: &[&Candidate], mut part: Part) -> Option<Part> {
        if part.machines.len() + part.onto.len() <= 1 {
            return Some(part);
        }
        // As the controller lets them go: the dearest first, whose pods then find the most room.
        let mut own: Vec<&Candidate> = part.nodes.iter().filter_map(|at| set.get(*at).copied()).collect();
        own.sort_by_key(|c| (Reverse(c.price), &c.node));
        let without: Vec<String> = own.into_iter().map(|c| c.node.clone()).collect();
        let pods: BTreeSet<PodKey> = without.iter().flat_map(|name| self.work.movable_pods(name)).collect();
        let options =
            Options { without_nodes: without, as_bound: true, effort: 0, ..self.ask.options.clone() };
        let Self { ask, stop, work, warm, result, .. } = self;
        let machines = complete(work, part.machines, |cluster| {
            warm.changed(cluster);
            let mut plan = solve_warm(cluster, &options, warm, *stop);
            result.steps = result.steps.saturating_add(plan.steps).saturating_add(STEPS_PER_SOLVE);
            if let Some(left) = plan.unschedulable.into_iter().find(|left| pods.contains(&left.pod)) {
                return Err(left);
            }
            plan.machines.retain(|machine| machine.pods.iter().any(|pod| pods.contains(pod)));
            Ok(plan.machines)
        });
        let machines = machines.ok().flatten()?;
        let taken: BTreeSet<&PodKey> = machines.iter().flat_map(|machine| &machine.pods).collect();
        part.onto.iter_mut().for_each(|placement| placement.pods.retain(|pod| !taken.contains(pod)));
        part.onto.retain(|placement| !placement.pods.is_empty());
        let judged = split::judge(work, ask, set, part.nodes, machines).ok()?;
        Some(Part { onto: part.onto, ..judged })
    }

    fn attempt(&self, set: &[&Candidate], allowed: Allowed) -> Tried {
        let mut options = self.ask.options.clone();
        options.without_nodes.extend(set.iter().map(|c| c.node.clone()));
        let wasted = set.iter().filter_map(|c| self.wasted.get(&c.node)).sum::<i64>();
        let least = set
            .iter()
            .filter_map(|c| self.ask.terms.get(&c.pool))
            .map(|t| t.min_savings)
            .max()
            .unwrap_or_default();
        let price: Price = set.iter().map(|c| c.price).sum();
        // Not less what moving the pods has to be worth, unless it is all or nothing: a part may be.
        let disturbance = if let [alone] = set { alone.disturbance } else { Price::ZERO };
        options.useless_from = Some(price.saturating_sub(least.saturating_add(disturbance)));
        if wasted <= least.micros() {
            // New machines for its pods would cost as much, however well packed; what is free elsewhere may do.
            options.effort = 0;
        } else if set.len() > 1 && set.len() <= FEW {
            options.effort = options.effort.saturating_mul(EFFORT_TOGETHER);
        }
        let plan = solve_warm(&self.work, &options, &self.warm, self.stop);
        let pools = u64::try_from(self.work.pools.len()).unwrap_or(u64::MAX);
        let steps = plan.steps.saturating_add(pools).saturating_add(STEPS_PER_SOLVE);
        if plan.cut_short && (self.stop)() {
            return Tried { steps, ..Tried::default() };
        }
        let (mut parts, stays) = split::split(&self.work, self.ask, set, plan);
        allowed.limit(&mut parts);
        let net = parts.iter().map(Part::net).sum();
        Tried { parts, stays, net, steps }
    }

    /// Makes a move in the working cluster. What its machines have left is for the next search: who goes there comes
    /// about with this move or not at all, and each is to hold by itself.
    fn make(&mut self, set: &[&Candidate], part: Part) {
        let nodes = part.nodes.iter().filter_map(|at| set.get(*at)).map(|c| c.node.clone()).collect();
        for (at, machine) in part.machines.iter().enumerate() {
            let name = format!("\u{1}{}-{at}", self.moves.len());
            let full = ComingNode { allocatable: Resources::new(), ..machine.coming(&name) };
            self.work.upsert_coming(full);
            for pod in &machine.pods {
                self.work.relocate(pod, &name, true);
            }
        }
        let made = Move {
            nodes,
            machines: part.machines,
            onto: part.onto,
            before: part.before,
            after: part.after,
            disturbance: part.disturbance,
        };
        for node in &made.nodes {
            self.result.stays.remove(node);
            self.settled.insert(node.clone());
            self.work.remove_node(node);
        }
        for placement in &made.onto {
            for pod in &placement.pods {
                self.work.relocate(pod, &placement.node, placement.coming);
            }
            self.settled.insert(placement.node.clone());
            if let Some(stay) = self.result.stays.get_mut(&placement.node) {
                *stay = Stay::TakesPods;
            }
        }
        self.moves.push(made);
    }

    fn finish(mut self) -> Consolidation {
        self.result.moves = self.moves;
        let saved: Price = self.result.moves.iter().map(Move::saves).sum();
        self.result.after = self.result.before.saturating_sub(saved);
        self.result
    }
}

/// Positions of a few nodes, of which those that waste more are taken more often.
fn neighbourhood(live: usize, allowed: usize, chance: &mut Chance) -> BTreeSet<usize> {
    let size = FEWEST + chance.below(MOST - FEWEST + 1);
    let size = usize::try_from(size).unwrap_or(2).min(allowed).min(live);
    let count = u64::try_from(live).unwrap_or(u64::MAX);
    let mut chosen = BTreeSet::new();
    while chosen.len() < size {
        let at = chance.below(count).min(chance.below(count));
        chosen.insert(usize::try_from(at).unwrap_or(0));
    }
    chosen
}

/// Numbers that look random and are the same every time (splitmix64).
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
