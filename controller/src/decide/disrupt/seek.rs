//! Underutilised nodes: what the search for a cheaper cluster is asked.
//!
//! The search takes long on a large cluster, so it is an action like any other and works on a copy; what becomes of
//! its answer is said in [`make`](super::make). Each pool is a question of its own: what has changed in one tenant's
//! pools asks nothing about another's.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use croft_api::{
    TenantPool,
    disruption::{ConsolidationPolicy, DisruptionReason},
};
use croft_scheduler::{
    Options, Price, Quantity,
    consolidation::{Ask, Candidate, PodFacts, Stay, Terms},
};

use super::{
    budgets::Ledger,
    moves::Moves,
    standing::{self, Standing, Verdict},
};
use crate::{
    action::{Action, Key, Search},
    decide::{Memory, Round},
    snapshot::Snapshot,
    time::earliest,
};

pub(super) const REASON: DisruptionReason = DisruptionReason::Underutilized;
/// Between two looks at a pool.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// A pool in which nothing happens is looked at again after this long: pods get older, and cheaper to move.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// A question that was answered is asked again after this long, should the answer depend on what the question
/// doesn't show.
const ASK_AGAIN: Duration = Duration::from_secs(3_600);

/// What was asked about a pool.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    looked: Duration,
    /// What had touched the pool by then.
    touched: u64,
    /// When something that was seen then will be otherwise, by time alone.
    again: Option<Duration>,
    asked: Option<Duration>,
    /// A hash of the question that an answer is good for.
    question: Option<u64>,
    /// Pods of each candidate, as a hash.
    pub(super) pods: BTreeMap<String, u64>,
}

impl Asked {
    /// Lets the question be asked anew, though it be the same: a part of its answer came to nothing.
    pub(super) fn forget(&mut self) {
        self.question = None;
        self.again = Some(Duration::ZERO);
    }

    /// True if the pool may stand otherwise than when it was looked at; else asks to be woken when it may.
    fn has_news(&self, round: &mut Round<'_>, pool: &str) -> bool {
        let again = self.again.unwrap_or(Duration::MAX).min(self.looked.saturating_add(LOOK_AGAIN));
        if again <= round.now.mono || self.touched != round.snapshot.touched(pool) {
            return true;
        }
        round.wake_at(again);
        false
    }
}

/// Remembers since when each node's pods are what they are.
pub fn watch(round: &Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let memory = &mut memory.disruption;
    for (_, claim) in snapshot.restless() {
        let Some((node, _)) = snapshot.node_of(claim) else { continue };
        let pods = pods(snapshot, node);
        match memory.steady_since.get_mut(node) {
            Some((held, _)) if *held == pods => {}
            Some(entry) => *entry = (pods, round.now.mono),
            None => {
                memory.steady_since.insert(node.to_owned(), (pods, round.now.mono));
            }
        }
    }
    if memory.steady_since.len() > snapshot.nodes.len() {
        memory.steady_since.retain(|node, _| snapshot.nodes.contains_key(node));
    }
}

/// Which pods work on a node, as a hash.
pub(super) fn pods(snapshot: &Snapshot, node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (_, pod) in snapshot.pods_on(node).filter(|(_, pod)| pod.counts_as_work()) {
        pod.uid.hash(&mut hasher);
        pod.deletion.is_some().hash(&mut hasher);
    }
    hasher.finish()
}

/// A pool that is looked at now.
struct Look<'a> {
    pool: &'a TenantPool,
    /// Nodes that may go now.
    nodes: usize,
    hasher: DefaultHasher,
    /// When time alone may change what is seen.
    again: Option<Duration>,
    candidates: Vec<(&'a str, Candidate)>,
}

/// Asks about pools in which something has changed.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory, ledger: &Ledger<'_>, moves: &Moves<'_>) {
    if !round.is_idle(&Key::Consolidation) {
        return;
    }
    let mut looks = due(round, memory, ledger, moves);
    let options = Options { effort: round.settings.effort, without_counts: true, ..Options::default() };
    let mut ask = Ask { options, ..Ask::default() };
    for (name, look) in &mut looks {
        let ((), again) = round.wakes_of(|round| gather(round, memory, moves, name, look));
        look.again = earliest(look.again, again);
    }
    for (name, look) in looks {
        let entry = memory.disruption.asked.entry(name.to_owned()).or_default();
        (entry.looked, entry.touched, entry.again) =
            (round.now.mono, round.snapshot.touched(name), look.again);
        let question = look.hasher.finish();
        let lately = entry.asked.is_some_and(|at| round.now.mono.saturating_sub(at) < ASK_AGAIN);
        let same = lately && entry.question == Some(question);
        if same || look.candidates.is_empty() {
            continue;
        }
        if look.nodes == 0 {
            let verdict = if moves.concerns(name) {
                Verdict::stays("Waiting", "another move of its pool is under way")
            } else {
                Verdict::of(&Stay::Budget)
            };
            for (claim, _) in look.candidates {
                memory.disruption.saying.judge(claim, verdict.clone());
            }
            continue;
        }
        entry.asked = Some(round.now.mono);
        entry.question = Some(question);
        let own = look.candidates.iter();
        entry.pods = own.map(|(_, c)| (c.node.clone(), pods(round.snapshot, &c.node))).collect();
        let terms = Terms { min_savings: min_savings(look.pool), nodes: look.nodes, steps: Terms::STEPS };
        ask.terms.insert(name.to_owned(), terms);
        ask.candidates.extend(look.candidates.into_iter().map(|(_, candidate)| candidate));
    }
    if !ask.candidates.is_empty() {
        round.act(Action::Consolidate(Box::new(Search { cluster: round.snapshot.cluster.clone(), ask })));
    }
}

/// Pools that it is time to look at.
fn due<'a>(
    round: &mut Round<'a>,
    memory: &mut Memory,
    ledger: &Ledger<'_>,
    moves: &Moves<'_>,
) -> BTreeMap<&'a str, Look<'a>> {
    let snapshot = round.snapshot;
    memory.disruption.asked.retain(|name, _| snapshot.pools.contains_key(name));
    let mut waiting = None;
    let mut looks = BTreeMap::new();
    for (name, pool) in &snapshot.pools {
        // A pool of a fixed size keeps its machines, whatever runs there.
        if pool.metadata.deletion_timestamp.is_some() || pool.spec.replicas.is_some() {
            continue;
        }
        if let Some(asked) = memory.disruption.asked.get(name) {
            let every = round.settings.consolidate_every;
            if !asked.has_news(round, name)
                || !round.has_lasted(asked.looked, LOOK_EVERY)
                || asked.asked.is_some_and(|at| !round.has_lasted(at, every))
            {
                continue;
            }
            round.wake_in(LOOK_AGAIN);
        }
        let policy = pool.spec.disruption.consolidation_policy;
        let open = policy == ConsolidationPolicy::WhenEmptyOrUnderutilized && !moves.concerns(name);
        let (mut nodes, mut again) = (0, None);
        if open {
            (nodes, again) = round.wakes_of(|round| ledger.left(round, pool, REASON));
        }
        let mut hasher = DefaultHasher::new();
        // Not its version: Croft's own word on its status would ask the question anew.
        (nodes, serde_json::to_string(&pool.spec).unwrap_or_default()).hash(&mut hasher);
        if let Some(class) = snapshot.class_of(pool).and_then(|c| snapshot.classes.get(c)) {
            // What is offered, and for how much, is replaced as a whole.
            class.types.as_ref().map(|types| types.as_ptr().addr()).hash(&mut hasher);
        }
        let waiting = waiting.get_or_insert_with(|| snapshot.cluster.waiting());
        waiting.for_pool(&snapshot.cluster, name).hash(&mut hasher);
        looks.insert(name.as_str(), Look { pool, nodes, hasher, again, candidates: Vec::new() });
    }
    looks
}

/// Fills the look at a pool with candidates, and says of each other node why it isn't one.
fn gather<'a>(
    round: &mut Round<'a>,
    memory: &mut Memory,
    moves: &Moves<'_>,
    pool: &str,
    look: &mut Look<'a>,
) {
    let snapshot = round.snapshot;
    for (name, claim) in snapshot.claims_of_pool(pool) {
        if let Some((node, _)) = snapshot.node_of(claim) {
            let held = memory.disruption.steady_since.get(node).map(|(pods, _)| *pods);
            (name, held).hash(&mut look.hasher);
        }
        match standing::look(round, memory, moves, name, claim, look.pool) {
            Standing::Outside => {}
            Standing::Settled(verdict) => memory.disruption.saying.judge(name, verdict),
            Standing::Candidate { node, price, capacity_type } => {
                let disturbance = disturbance(round, &node);
                (name, disturbance.micros()).hash(&mut look.hasher);
                let pool = claim.spec.pool.clone();
                let candidate = Candidate { node, pool, price, capacity_type, disturbance };
                look.candidates.push((name.as_str(), candidate));
            }
        }
    }
}

/// What a move must save in the pool. One that can't be read keeps everything: it may have been meant to.
fn min_savings(pool: &TenantPool) -> Price {
    let text = &pool.spec.disruption.min_savings;
    text.parse::<Quantity>().map_or(Price::MAX, |q| Price::from_micros(q.micros_floor()))
}

/// What moving the pods of a node has to be worth.
fn disturbance(round: &Round<'_>, node: &str) -> Price {
    let mut owners: Vec<&str> = Vec::new();
    let pods = round.snapshot.pods_on(node).filter(|(_, pod)| pod.must_leave() && pod.deletion.is_none());
    pods.map(|(_, pod)| {
        let owner = pod.owner.as_deref().unwrap_or_default();
        let first_of_owner = !owners.contains(&owner);
        if first_of_owner {
            owners.push(owner);
        }
        let facts = PodFacts {
            age_seconds: pod.started.map_or(0, |at| round.now.since(at).as_secs()),
            replicas: round.snapshot.replicas(owner),
            deletion_cost: pod.deletion_cost,
            first_of_owner,
        };
        facts.disturbance()
    })
    .sum()
}
