//! Underutilised nodes: what the search for a cheaper cluster is asked, and what becomes of its answer.
//!
//! The search takes long on a large cluster, so it is an action like any other and works on a copy. By the time that
//! it answers, the picture has moved on: each move is looked at again on the present one, just before it is made.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    NodeClaim, TenantPool,
    condition::INITIALIZED,
    disruption::{ConsolidationPolicy, DisruptionReason},
    duration,
};
use croft_scheduler::{
    CapacityType, Options, Price, Quantity,
    consolidate::{Ask, Candidate, Consolidation, PodFacts, Terms},
};

use super::{
    budgets::Ledger,
    guard,
    moves::{self, Moves},
};
use crate::{
    action::{Action, Key, Search},
    decide::{Memory, Round, empty},
    snapshot::{NodeView, Snapshot, is},
};

const REASON: DisruptionReason = DisruptionReason::Underutilized;
/// What nothing has changed for is asked about again after this long: pods get older, and cheaper to move.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// What was asked, and on which picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    at: Duration,
    picture: u64,
    question: u64,
    /// Pods of each candidate, as a hash.
    pods: BTreeMap<String, u64>,
}

/// Remembers since when each node's pods are what they are.
pub fn watch(round: &Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let memory = &mut memory.disruption;
    if memory.watched == Some(snapshot.plan_version) {
        return;
    }
    memory.watched = Some(snapshot.plan_version);
    for claim in snapshot.claims.values() {
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
    memory.steady_since.retain(|node, _| snapshot.nodes.contains_key(node));
}

/// Which pods work on a node, as a hash.
fn pods(snapshot: &Snapshot, node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (_, pod) in snapshot.pods_on(node).filter(|(_, pod)| pod.counts_as_work()) {
        pod.uid.hash(&mut hasher);
        pod.deletion.is_some().hash(&mut hasher);
    }
    hasher.finish()
}

/// Makes the moves that were found, if they still hold, and asks for more.
pub fn decide<'a>(round: &mut Round<'a>, memory: &mut Memory, ledger: &mut Ledger<'a>, moves: &Moves<'_>) {
    if let Some(found) = memory.disruption.found.take() {
        make(round, memory, ledger, moves, &found);
        return;
    }
    if !round.is_idle(&Key::Consolidation) {
        return;
    }
    let Some((ask, question)) = question(round, memory, ledger, moves) else { return };
    if let Some(asked) = memory.disruption.asked.as_ref() {
        let (at, same) =
            (asked.at, asked.picture == round.snapshot.plan_version && asked.question == question);
        let pause = if same { ASK_AGAIN } else { round.settings.consolidate_every };
        if !round.has_lasted(at, pause) {
            return;
        }
    }
    memory.disruption.asked = Some(Asked {
        at: round.now.mono,
        picture: round.snapshot.plan_version,
        question,
        pods: ask.candidates.iter().map(|c| (c.node.clone(), pods(round.snapshot, &c.node))).collect(),
    });
    round.act(Action::Consolidate(Box::new(Search { cluster: round.snapshot.cluster.clone(), ask })));
}

/// True if the node may be asked about, or given back, for saving's sake.
fn is_candidate(
    round: &mut Round<'_>,
    memory: &Memory,
    moves: &Moves<'_>,
    name: &str,
    claim: &NodeClaim,
    pool: &TenantPool,
) -> bool {
    let snapshot = round.snapshot;
    let Ok(Some(after)) = duration::parse(&pool.spec.disruption.consolidate_after) else { return false };
    let Some((node, view)) = snapshot.node_of(claim) else { return false };
    let Some((_, since)) = memory.disruption.steady_since.get(node).copied() else { return false };
    claim.metadata.deletion_timestamp.is_none()
        && is(claim, INITIALIZED)
        && is_open(view)
        && !moves.is_replaced(name)
        && !moves.is_awaited(name)
        && !memory.disruption.holds(name, round)
        && empty::has_work(round, memory, name, node)
        && snapshot.nominated_to(name).next().is_none()
        && guard::asked(claim, view, pool).is_none()
        && guard::pods(snapshot, node).is_none()
        && guard::bare(snapshot, node).is_none()
        && round.has_lasted(since, after)
}

fn is_open(view: &NodeView) -> bool {
    view.ready && !view.unschedulable && !view.deleting
}

/// What to ask, and a hash of the part that isn't the picture.
fn question<'a>(
    round: &mut Round<'a>,
    memory: &Memory,
    ledger: &Ledger<'a>,
    moves: &Moves<'_>,
) -> Option<(Ask, u64)> {
    let snapshot = round.snapshot;
    let options = Options { effort: round.settings.effort, without_counts: true, ..Options::default() };
    let mut ask = Ask { options, ..Ask::default() };
    for (name, pool) in &snapshot.pools {
        let policy = pool.spec.disruption.consolidation_policy;
        if policy != ConsolidationPolicy::WhenEmptyOrUnderutilized
            || pool.metadata.deletion_timestamp.is_some()
            || pool.spec.replicas.is_some()
            || moves.concerns(name)
        {
            continue;
        }
        let nodes = ledger.left(round, pool, REASON);
        if nodes > 0 {
            ask.terms.insert(name.clone(), Terms { min_savings: min_savings(pool), nodes });
        }
    }
    if ask.terms.is_empty() {
        return None;
    }
    let mut replicas: Option<BTreeMap<&str, usize>> = None;
    let mut hasher = DefaultHasher::new();
    for (name, claim) in &snapshot.claims {
        let Some(pool) =
            snapshot.pools.get(&claim.spec.pool).filter(|_| ask.terms.contains_key(&claim.spec.pool))
        else {
            continue;
        };
        if !is_candidate(round, memory, moves, name, claim, pool) {
            continue;
        }
        let (Some((node, _)), Some(price)) = (snapshot.node_of(claim), price(claim)) else { continue };
        let replicas = replicas.get_or_insert_with(|| count_replicas(snapshot));
        name.hash(&mut hasher);
        ask.candidates.push(Candidate {
            node: node.to_owned(),
            pool: claim.spec.pool.clone(),
            price,
            capacity_type: CapacityType::parse(&claim.spec.capacity_type).unwrap_or_default(),
            disturbance: disturbance(round, replicas, node),
        });
    }
    for (pool, terms) in &ask.terms {
        (pool, terms.nodes, terms.min_savings).hash(&mut hasher);
    }
    let question = hasher.finish();
    (!ask.candidates.is_empty()).then_some((ask, question))
}

/// What a move must save in the pool. One that can't be read keeps everything: it may have been meant to.
fn min_savings(pool: &TenantPool) -> Price {
    let text = &pool.spec.disruption.min_savings;
    text.parse::<Quantity>().map_or(Price::MAX, |q| Price::from_micros(q.micros_floor()))
}

fn price(claim: &NodeClaim) -> Option<Price> {
    let text = claim.status.as_ref()?.price_per_hour.as_deref()?;
    Price::from_dollars(text.parse().ok()?)
}

fn count_replicas(snapshot: &Snapshot) -> BTreeMap<&str, usize> {
    let mut replicas: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in snapshot.pods.values() {
        if let Some(owner) = &pod.owner {
            *replicas.entry(owner).or_default() += 1;
        }
    }
    replicas
}

/// What moving the pods of a node has to be worth.
fn disturbance(round: &Round<'_>, replicas: &BTreeMap<&str, usize>, node: &str) -> Price {
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
            replicas: replicas.get(owner).copied().unwrap_or(1),
            deletion_cost: pod.deletion_cost,
            first_of_owner,
        };
        facts.disturbance()
    })
    .sum()
}

/// Makes what was found, move by move, as far as it still holds.
fn make<'a>(
    round: &mut Round<'a>,
    memory: &mut Memory,
    ledger: &mut Ledger<'a>,
    moves: &Moves<'_>,
    found: &Consolidation,
) {
    let snapshot = round.snapshot;
    let Some(asked) = memory.disruption.asked.clone() else { return };
    let mut without: Vec<String> = Vec::new();
    let mut launched = Price::ZERO;
    for one in &found.moves {
        let claims: Vec<(&str, &'a Arc<NodeClaim>)> = one
            .nodes
            .iter()
            .filter_map(|node| snapshot.claim_of_node(node))
            .filter_map(|claim| Some((claim.metadata.name.as_deref()?, claim)))
            .collect();
        let mut holds = claims.len() == one.nodes.len()
            && one.nodes.iter().all(|node| asked.pods.get(node) == Some(&pods(snapshot, node)));
        let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, claim) in &claims {
            let Some(pool) = snapshot.pools.get(&claim.spec.pool) else { return };
            holds = holds
                && !moves.concerns(&claim.spec.pool)
                && is_candidate(round, memory, moves, name, claim, pool);
            *wanted.entry(&claim.spec.pool).or_default() += 1;
        }
        for (pool, count) in &wanted {
            let Some(pool) = snapshot.pools.get(*pool) else { return };
            holds = holds && ledger.left(round, pool, REASON) >= *count;
        }
        if !holds {
            continue;
        }
        // On the present picture, together with what this round has begun already.
        let all: Vec<&str> = without.iter().chain(&one.nodes).map(String::as_str).collect();
        let now = match moves::places(snapshot, &all) {
            Ok(plan) => plan.cost,
            Err(why) => {
                tracing::debug!(why, "a move no longer holds");
                continue;
            }
        };
        if now > launched.saturating_add(one.after) {
            tracing::debug!(now = %now, planned = %one.after, "a move has become dearer");
            continue;
        }
        let note = format!(
            "moving its pods saves ${}/h (${}/h instead of ${}/h)",
            one.saves(),
            one.after,
            one.before
        );
        if moves::begin(round, REASON.as_str(), &claims, &one.machines, &note) {
            launched = launched.saturating_add(one.after);
            without.extend(one.nodes.iter().cloned());
            claims.iter().for_each(|(_, claim)| ledger.take(&claim.spec.pool));
            memory.disruption.saved = memory.disruption.saved.saturating_add(one.saves());
            memory.disruption.moves += 1;
            if !one.machines.is_empty() {
                // A pool's names are reserved by one action at a time; the rest is found again.
                continue;
            }
        }
    }
}
