//! Expired and drifted nodes: replaced whatever it costs, as many at once as the budgets allow.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    EC2NodeClass, NodeClaim, TenantPool,
    condition::{DRIFTED, EXPIRED, INITIALIZED, Statement, set},
    disruption::DisruptionReason,
    pool::Provisioner,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{
    budgets::Ledger,
    drift::{self, DriftStatus},
    expiry, guard,
    moves::{self, Moves},
    tally::Tally,
};
use crate::{
    action::{Action, Key},
    decide::{Memory, Round, backoff, conditions, nodes, reference, termination},
    names,
    seam::{Call, Target, Verb},
    snapshot::{NodeView, Snapshot, is},
};

/// Between two looks at a pool's nodes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Labels that were changed by hand are put back at once; a node on which that has failed for so long is compared as it is.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(600);
/// Nodes replaced by one move: if one of its machines doesn't come, all of them stay.
const TOGETHER: usize = 5;

/// A replacement of a drifted node that drifts without an edit is itself replaced so long after its launch at the earliest.
const DRIFTS_AGAIN: Duration = Duration::from_secs(3_600);

/// What was read of claims that are as they would be launched now, for as long as nothing that it was read from
/// changes.
#[derive(Debug, Default)]
pub struct Seen {
    wanted: BTreeMap<String, Arc<drift::Wanted>>,
    current: BTreeMap<String, Current>,
}

#[derive(Debug)]
struct Current {
    claim: Arc<NodeClaim>,
    node: u64,
    wanted: Arc<drift::Wanted>,
    expires: Option<Timestamp>,
}

impl Seen {
    fn keep(&mut self, snapshot: &Snapshot) {
        self.wanted.retain(|pool, _| snapshot.pools.contains_key(pool));
        self.current.retain(|claim, _| snapshot.claims.contains_key(claim));
    }

    fn wanted(
        &mut self,
        name: &str,
        pool: &Arc<TenantPool>,
        class: &Arc<EC2NodeClass>,
    ) -> Arc<drift::Wanted> {
        if let Some(known) = self.wanted.get(name).filter(|known| known.is_of(pool, class)) {
            return Arc::clone(known);
        }
        let new = Arc::new(drift::Wanted::new(pool, class));
        self.wanted.insert(name.to_owned(), Arc::clone(&new));
        new
    }

    /// When a claim expires that is known to be as it should be.
    fn current(
        &self,
        name: &str,
        claim: &Arc<NodeClaim>,
        node: &NodeView,
        wanted: &Arc<drift::Wanted>,
    ) -> Option<Option<Timestamp>> {
        let known = self.current.get(name)?;
        let same = Arc::ptr_eq(&known.claim, claim)
            && known.node == node.version
            && Arc::ptr_eq(&known.wanted, wanted);
        same.then_some(known.expires)
    }
}

/// When a pool's nodes were last judged.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    at: Duration,
    /// What had touched the pool by then.
    touched: u64,
    /// When something that was judged then will be otherwise, by time alone.
    again: Option<Duration>,
    /// Nothing was to be written: what is may fail.
    done: bool,
}

impl Looked {
    fn has_news(&self, touched: u64, mono: Duration) -> bool {
        let unfinished = !self.done && mono.saturating_sub(self.at) >= LOOK_EVERY;
        unfinished || self.touched != touched || self.again.is_some_and(|again| again <= mono)
    }
}

/// A node that is to be replaced.
struct Due<'a> {
    name: &'a String,
    claim: &'a Arc<NodeClaim>,
    node: &'a str,
    reason: DisruptionReason,
    why: String,
}

/// Decides about every node that is too old or not as it would be launched now.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory, ledger: &Ledger<'_>, moves: &Moves<'_>) {
    let snapshot = round.snapshot;
    let mono = round.now.mono;
    let mut due = Vec::new();
    for (name, pool) in &snapshot.pools {
        let touched = snapshot.touched(name);
        match memory.disruption.replaced.get(name) {
            Some(looked) if !looked.has_news(touched, mono) => {
                looked.again.inspect(|again| round.wake_at(*again));
            }
            Some(looked) if !round.has_lasted(looked.at, LOOK_EVERY) => {}
            _ => due.push((name, pool, touched)),
        }
    }
    if due.is_empty() {
        return;
    }
    memory.disruption.seen.keep(snapshot);
    memory.disruption.replaced.retain(|name, _| snapshot.pools.contains_key(name));
    for (name, pool, touched) in due {
        let (done, again) = round.wakes_of(|round| look(round, memory, ledger, moves, (name, pool)));
        memory.disruption.replaced.insert(name.clone(), Looked { at: mono, touched, again, done });
    }
}

/// Judges the nodes of a pool. True if that leaves nothing to be written.
fn look<'a>(
    round: &mut Round<'a>,
    memory: &mut Memory,
    ledger: &Ledger<'_>,
    moves: &Moves<'_>,
    (pool_name, pool): (&'a String, &'a Arc<TenantPool>),
) -> bool {
    let snapshot = round.snapshot;
    let mut due: Vec<Due<'_>> = Vec::new();
    let (mut said, mut stamps) = (Vec::new(), Vec::new());
    for (name, claim) in snapshot.claims_of_pool(pool_name) {
        if claim.metadata.deletion_timestamp.is_some() || !is(claim, INITIALIZED) {
            continue;
        }
        let Some((node, view)) = snapshot.node_of(claim) else { continue };
        if pool.spec.provisioner != Provisioner::Croft {
            if is_said(claim) {
                said.push((name, claim, false, None));
            }
            continue;
        }
        let class = snapshot.class_of(pool).and_then(|c| snapshot.classes.get(c));
        let wanted = class.map(|class| memory.disruption.seen.wanted(pool_name, pool, &class.object));
        if let Some(wanted) = &wanted
            && let Some(expires) = memory.disruption.seen.current(name, claim, view, wanted)
            && !has_come(round, expires)
        {
            continue;
        }
        let mut current = None;
        let relabelled = memory.relabelled_since.get(name).copied();
        let labels = match relabelled.filter(|since| round.has_lasted(*since, PUT_BACK_WITHIN)) {
            None => nodes::put_back(claim, view),
            Some(_) => view.labels.clone(),
        };
        let judged = wanted.as_ref().map(|wanted| (drift::compare(claim, &labels, wanted), wanted));
        let drifted = match judged {
            Some((DriftStatus::Drifted(fields), _)) => Some(fields.join(", ")),
            Some((DriftStatus::Unstamped(stamp), _)) => {
                stamps.push((name, claim, stamp));
                None
            }
            Some((DriftStatus::Current, wanted)) => {
                current = Some(wanted);
                None
            }
            None => None,
        };
        let expires = expiry::at(claim, pool);
        let expired = expires.filter(|_| has_come(round, expires));
        if let Some(wanted) = current.filter(|_| expired.is_none() && relabelled.is_none() && !is_said(claim))
        {
            let (claim, wanted) = (Arc::clone(claim), Arc::clone(wanted));
            let current = Current { claim, node: view.version, wanted, expires };
            memory.disruption.seen.current.insert(name.clone(), current);
        }
        said.push((name, claim, expired.is_some(), drifted.clone()));
        let (reason, why) = match (expired, drifted) {
            (Some(_), _) => (DisruptionReason::Expired, "it is older than expireAfter".to_owned()),
            (None, Some(fields)) => (DisruptionReason::Drifted, format!("{fields} changed since its launch")),
            (None, None) => continue,
        };
        if moves.is_replaced(name) || moves.is_awaited(name) || memory.disruption.holds(name, round) {
            continue;
        }
        if reason == DisruptionReason::Drifted && drifts_at_once(round, name, claim, pool) {
            let note = format!(
                "{}: {why}, but it replaces a node that drifted, and neither the pool nor its class was edited since: its \
                 replacement would drift, too. It is replaced {} min after its launch; find out what changes it",
                reason.as_str(),
                DRIFTS_AGAIN.as_secs() / 60
            );
            round.tell(reference(&**claim), true, "DisruptionBlocked", note);
            continue;
        }
        if let Some(keeps) = keeps(round, claim, node, view, pool) {
            let note = format!("{}: {why}, but {keeps}", reason.as_str());
            round.tell(reference(&**claim), false, "DisruptionBlocked", note);
            continue;
        }
        due.push(Due { name, claim, node, reason, why });
    }
    if !moves.concerns(pool_name) && !snapshot.is_ending(pool_name, pool) {
        // The oldest first, and all of one move for the same reason.
        due.sort_by_key(|d| {
            (d.reason != DisruptionReason::Expired, d.claim.metadata.creation_timestamp.clone())
        });
        if let Some(reason) = due.first().map(|d| d.reason) {
            due.retain(|d| d.reason == reason);
            due.truncate(ledger.left(round, pool, reason).min(TOGETHER));
            replace(round, &mut memory.disruption.tally, ledger, reason, &due);
        }
    }
    let done = said.is_empty() && stamps.is_empty();
    // Last: a claim that is being written would hold up its deletion.
    for (name, claim, stamp) in stamps {
        round.act(restamp(name, claim, &stamp));
    }
    for (name, claim, expired, drifted) in said {
        say(round, name, claim, expired, drifted.as_deref());
    }
    done
}

/// True if a replacement of a drifted node has drifted itself without any edit, and was launched lately: to replace it
/// would launch instances for ever.
fn drifts_at_once(round: &mut Round<'_>, name: &str, claim: &NodeClaim, pool: &TenantPool) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let of_drift = annotations.and_then(|a| a.get(names::DISRUPTION_REASON)).map(String::as_str)
        == Some(DisruptionReason::Drifted.as_str());
    let seen = round.snapshot.milestones(name).created;
    of_drift
        && annotations.is_some_and(|a| a.contains_key(names::LAUNCHED_FOR))
        && backoff::is_launched_for(round.snapshot, pool, claim)
        && !round.has_lasted(seen, DRIFTS_AGAIN)
}

/// True if a moment has come; otherwise asks to be woken then.
fn has_come(round: &mut Round<'_>, at: Option<Timestamp>) -> bool {
    let Some(at) = at else { return false };
    let left = Duration::try_from(at.duration_since(round.now.wall)).unwrap_or(Duration::ZERO);
    if !left.is_zero() {
        round.wake_in(left);
    }
    left.is_zero()
}

fn replace<'a>(
    round: &mut Round<'a>,
    tally: &mut Tally,
    ledger: &Ledger<'_>,
    reason: DisruptionReason,
    due: &[Due<'a>],
) {
    // All that fit together; else the first that does alone.
    let sets = [due.get(..)].into_iter().chain((0..due.len()).map(|at| due.get(at..=at))).flatten();
    for set in sets.filter(|set| !set.is_empty()) {
        let nodes: Vec<&str> = set.iter().map(|d| d.node).collect();
        match moves::instead(round.snapshot, set.iter().map(|d| d.claim), &nodes, &[]) {
            Ok(plan) => {
                let claims: Vec<(&str, &Arc<NodeClaim>)> =
                    set.iter().map(|d| (d.name.as_str(), d.claim)).collect();
                let why = set.first().map_or("", |d| d.why.as_str());
                if moves::begin(round, tally, reason.as_str(), &claims, &plan.machines, why) {
                    set.iter().for_each(|d| ledger.take(&d.claim.spec.pool));
                }
                return;
            }
            Err(why) => {
                if let [one] = set {
                    let note = format!("{}: {}, but without the node {why}", reason.as_str(), one.why);
                    round.tell(reference(&**one.claim), true, "DisruptionBlocked", note);
                }
            }
        }
    }
}

/// A pool's terminationGracePeriod is the word that nothing holds a node for ever: pods then don't hold it here.
fn keeps(
    round: &Round<'_>,
    claim: &NodeClaim,
    node: &str,
    view: &NodeView,
    pool: &TenantPool,
) -> Option<guard::Keeps> {
    let bounded = termination::grace_period(round.snapshot, claim).is_some();
    guard::asked(claim, view, pool).or_else(|| if bounded { None } else { guard::pods(round.snapshot, node) })
}

fn restamp(name: &str, claim: &NodeClaim, stamp: &str) -> Action {
    Action::Write {
        key: Key::Claim(name.to_owned()),
        call: Call {
            target: Target::Claim(name.to_owned()),
            verb: Verb::Patch(json!({"metadata": {
                "uid": claim.metadata.uid,
                "annotations": {names::LAUNCHED_WITH: stamp},
            }})),
        },
        rest: Duration::ZERO,
    }
}

/// True if the claim has a condition of these.
fn is_said(claim: &NodeClaim) -> bool {
    let conditions = claim.status.iter().flat_map(|s| &s.conditions);
    conditions.into_iter().any(|c| c.type_ == EXPIRED || c.type_ == DRIFTED)
}

/// Says on the claim what is so, and takes back what isn't any more.
fn say(round: &mut Round<'_>, name: &str, claim: &NodeClaim, expired: bool, drifted: Option<&str>) {
    let Some(told) = &claim.status else { return };
    if !expired && drifted.is_none() && !is_said(claim) {
        return;
    }
    let (mut status, mut changed) = (told.clone(), false);
    let said = [
        (EXPIRED, expired, "TooOld", "the node is older than its pool's expireAfter".to_owned()),
        (
            DRIFTED,
            drifted.is_some(),
            "FieldsChanged",
            format!("changed since the launch: {}", drifted.unwrap_or_default()),
        ),
    ];
    for (kind, is, reason, message) in said {
        if is {
            let statement = Statement { kind, status: Some(true), reason, message };
            let generation = claim.metadata.generation;
            changed |= set(&mut status.conditions, statement, generation, Time(round.now.wall));
        } else {
            let before = status.conditions.len();
            status.conditions.retain(|c| c.type_ != kind);
            changed |= status.conditions.len() != before;
        }
    }
    if changed && let Some(call) = conditions::write_status(claim, &status) {
        round.act(Action::Write { key: Key::Claim(name.to_owned()), call, rest: Duration::ZERO });
    }
}
