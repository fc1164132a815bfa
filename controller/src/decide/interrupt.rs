//! Machines that the cloud is about to take away.
//!
//! ```text
//!   news ──▶ Interrupted on the claim ──▶ acknowledged
//!                     │
//!                     ├── going already, as the cloud confirms ──────────▶ deleted at once
//!                     ├── by a time: cordoned, replacement launched ──▶ it is ready, or time is short ──▶ deleted
//!                     └── perhaps, or some day: replacement launched ───▶ it is ready ──▶ deleted
//! ```
//!
//! News comes again until it is acknowledged, and it is acknowledged once the claim says it: a crash loses none.
//! Budgets don't count here, since the machine goes whatever anybody decides. A recommendation to leave may be wrong about all
//! spot instances of a pool at once: the breaker caps how many are replaced for it. A message may be old or about an earlier
//! life of the instance: it is judged by its time (`is_stale`).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    NodeClaim,
    condition::{INTERRUPTED, Statement, set},
};
use croft_cloud::{Interruption, InterruptionKind};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Memory, Round,
    breaker::Cause,
    conditions,
    disrupt::{
        guard,
        moves::{self, Moves},
        tally,
    },
    lifecycle, nodes, reference,
    termination::machine_id,
};
use crate::{
    action::{Action, Key},
    names,
    seam::{Call, Target, Verb},
    snapshot::{NodeView, is},
};

/// Pods get at least this long to leave before their machine goes, whether or not its replacement is ready. Half of
/// a spot machine's two minutes: most machines are ready in the other half.
const LEAVE: Duration = Duration::from_secs(60);
/// News about a machine that no claim has is kept this long: its launch may not have been answered yet.
const UNKNOWN_KEPT: Duration = Duration::from_secs(60);
/// A message about instances of no claim is left on the queue for so long after it was sent.
const LEFT_FOR_OTHERS: Duration = Duration::from_secs(600);
/// An instance that still works so long after the cloud was to take it was not taken: nothing is in a hurry any more.
const OVERDUE: SignedDuration = SignedDuration::from_secs(120);
/// By then the cloud's own list shows what a message says of an instance.
const SHOWS_AFTER: Duration = Duration::from_secs(10);
/// Between two tries to find another place for pods of a machine that isn't in a hurry.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// As conditions, events and annotations call it.
const REASON: &str = tally::INTERRUPTED;

/// News that isn't acknowledged yet, and when it was first heard.
#[derive(Debug, Default)]
pub struct News(Vec<(Interruption, Duration)>);

impl News {
    /// Takes in news; what was heard before has a new receipt.
    pub fn hear(&mut self, news: Vec<Interruption>, mono: Duration) {
        for one in news {
            let same = |known: &&mut (Interruption, Duration)| {
                let known = &known.0;
                (known.kind, known.at, &known.machines) == (one.kind, one.at, &one.machines)
                    && one.kind != InterruptionKind::Other
            };
            match self.0.iter_mut().find(same) {
                Some((known, _)) => known.receipt = one.receipt,
                None => self.0.push((one, mono)),
            }
        }
    }

    /// Forgets what was acknowledged.
    pub fn forget(&mut self, news: &[Interruption]) {
        self.0.retain(|(known, _)| news.iter().all(|one| one.receipt != known.receipt));
    }
}

/// True if the claim's machine is going already: nothing on it can be waited for.
pub(super) fn is_gone(claim: &NodeClaim) -> bool {
    kind(claim) == Some(InterruptionKind::StateChange)
}

/// What the claim says about its machine.
fn kind(claim: &NodeClaim) -> Option<InterruptionKind> {
    use InterruptionKind::{Rebalance, ScheduledChange, SpotWarning, StateChange};
    let condition = conditions::find(claim.status.as_ref()?, INTERRUPTED)?;
    [StateChange, SpotWarning, ScheduledChange, Rebalance]
        .into_iter()
        .find(|k| k.as_str() == condition.reason)
}

/// The worse news counts.
fn weight(kind: InterruptionKind) -> u8 {
    match kind {
        InterruptionKind::Other => 0,
        InterruptionKind::Rebalance => 1,
        InterruptionKind::ScheduledChange => 2,
        InterruptionKind::SpotWarning => 3,
        InterruptionKind::StateChange => 4,
    }
}

/// Decides about news and about the claims that it is about.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    if round.is_idle(&Key::News) {
        round.act(Action::AwaitNews);
    }
    record(round, memory);
    act(round, memory);
}

fn record(round: &mut Round<'_>, memory: &mut Memory) {
    if memory.news.0.is_empty() {
        return;
    }
    let snapshot = round.snapshot;
    let claims: BTreeMap<&str, (&String, &Arc<NodeClaim>)> = snapshot
        .claims
        .iter()
        .filter_map(|one| Some((machine_id(one.1.status.as_ref()?.provider_id.as_deref()?), one)))
        .collect();
    let (mut handled, mut left, mut relist) = (Vec::new(), Vec::new(), false);
    for (news, heard) in &memory.news.0 {
        let mut open = false;
        for machine in &news.machines {
            let Some((name, claim)) = claims.get(machine.as_str()).copied() else {
                let own = news.kind == InterruptionKind::StateChange;
                open |= !own && !round.has_lasted(*heard, UNKNOWN_KEPT);
                continue;
            };
            if news.kind == InterruptionKind::StateChange {
                match confirmation(round, machine, *heard) {
                    Confirmation::Going => {}
                    Confirmation::Working => continue,
                    Confirmation::Due { ask } => {
                        relist |= ask;
                        open = true;
                        continue;
                    }
                }
            } else if is_stale(round, news, machine) {
                let note =
                    format!("a message of {} is older than the instance's start, or over: ignored", news.at);
                round.tell(reference(&**claim), false, "InterruptionIgnored", note);
                continue;
            }
            let known = kind(claim).map_or(0, weight);
            if claim.metadata.deletion_timestamp.is_none() && known < weight(news.kind) {
                open = true;
                say(round, name, claim, news);
            }
        }
        let is_foreign = news.machines.iter().all(|machine| !claims.contains_key(machine.as_str()));
        if !open && is_foreign && may_be_awaited(round, news) {
            left.push(news.clone());
        } else if !open {
            handled.push(news.clone());
        }
    }
    memory.news.forget(&left);
    if relist {
        memory.listed = None;
    }
    if !handled.is_empty() {
        round.act(Action::Acknowledge(handled));
    }
}

/// True if another cluster that reads the same queue may wait for the message: it stays there, and is shown again once
/// its visibility timeout is over. What is old has been read by whatever it is for.
fn may_be_awaited(round: &Round<'_>, news: &Interruption) -> bool {
    use InterruptionKind::{Rebalance, ScheduledChange, SpotWarning};
    let announces = matches!(news.kind, SpotWarning | Rebalance | ScheduledChange);
    let at = Timestamp::from_second(news.at).unwrap_or(Timestamp::UNIX_EPOCH);
    announces && round.now.since(at) < LEFT_FOR_OTHERS
}

/// What the cloud itself says of an instance that a message says is stopping.
enum Confirmation {
    Going,
    /// It works, or only its absence is known, which is decided elsewhere.
    Working,
    /// Not known yet.
    Due {
        /// The instances have to be listed again for it.
        ask: bool,
    },
}

/// A message may be about an earlier life of the instance, or come again: the cloud is asked. A list may lag behind the
/// message, so that one from [`SHOWS_AFTER`] on counts where the instance works.
fn confirmation(round: &mut Round<'_>, instance: &str, heard: Duration) -> Confirmation {
    let shows = heard.saturating_add(SHOWS_AFTER);
    let list = round.snapshot.machines.0.as_ref().filter(|list| list.asked.mono >= heard);
    let state = list.and_then(|list| list.machines.get(instance)).map(|listed| listed.state);
    if state.is_some_and(|state| !state.is_alive()) {
        Confirmation::Going
    } else if list.is_some_and(|list| list.asked.mono >= shows) {
        Confirmation::Working
    } else {
        let first = list.is_none();
        Confirmation::Due { ask: first || round.has_lasted(heard, SHOWS_AFTER) }
    }
}

/// True if the message says nothing about the instance as it is now: it was sent before the instance last started, by the
/// cloud's own clock, or what it announces is over.
fn is_stale(round: &Round<'_>, news: &Interruption, instance: &str) -> bool {
    let listed = round.snapshot.machines.0.as_ref().and_then(|list| list.machines.get(instance));
    let earlier = news.at > 0 && listed.is_some_and(|listed| listed.launched_at > news.at);
    let over = news.over_at.is_some_and(|at| at < round.now.wall.as_second());
    earlier || over
}

fn say(round: &mut Round<'_>, name: &str, claim: &Arc<NodeClaim>, news: &Interruption) {
    if !round.is_idle(&Key::Claim(name.to_owned())) {
        return;
    }
    let by = news.deadline.and_then(|at| Timestamp::from_second(at).ok());
    let mut message = match news.kind {
        InterruptionKind::SpotWarning => "the cloud takes the spot machine back".to_owned(),
        InterruptionKind::Rebalance => {
            "the cloud is likelier than before to take the spot machine back".to_owned()
        }
        InterruptionKind::ScheduledChange => "the machine's host is retired or maintained".to_owned(),
        InterruptionKind::StateChange => "the machine is stopping or terminating".to_owned(),
        InterruptionKind::Other => return,
    };
    if let Some(by) = by {
        message.push_str(&format!("; by {by} everything has to be off it"));
    }
    round.tell(reference(&**claim), true, news.kind.as_str(), message.clone());
    let mut status = claim.status.clone().unwrap_or_default();
    status.leave_by = by.map(Time);
    // Worse news begins anew.
    status.conditions.retain(|c| c.type_ != INTERRUPTED);
    let statement = Statement { kind: INTERRUPTED, status: Some(true), reason: news.kind.as_str(), message };
    set(&mut status.conditions, statement, claim.metadata.generation, Time(round.now.wall));
    if let Some(call) = conditions::write_status(claim, &status) {
        round.act(Action::Write { key: Key::Claim(name.to_owned()), call, rest: Duration::ZERO });
    }
}

/// A machine whose pods need another place.
struct Leaving<'a> {
    name: &'a String,
    claim: &'a Arc<NodeClaim>,
    node: &'a str,
    /// It goes for certain and soon.
    hurry: bool,
}

fn act(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let said = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none() && is(claim, INTERRUPTED);
    if !snapshot.restless().any(|(_, claim)| said(claim)) {
        return;
    }
    let moves = Moves::read(snapshot);
    let mut leaving: BTreeMap<&str, Vec<Leaving<'_>>> = BTreeMap::new();
    for (name, claim) in snapshot.restless().filter(|(_, claim)| said(claim)) {
        let Some(kind) = kind(claim).filter(|_| round.is_idle(&Key::Claim(name.clone()))) else { continue };
        let node = snapshot.node_of(claim);
        let certain = kind.is_final();
        let Some((node, view)) = node.filter(|_| kind != InterruptionKind::StateChange) else {
            if certain {
                give_up(round, name, claim, "its machine is going");
            }
            continue;
        };
        let by = claim.status.as_ref().and_then(|s| s.leave_by.as_ref()).map(|t| t.0);
        let overdue = by.is_some_and(|by| round.now.wall.duration_since(by) > OVERDUE);
        if certain && !overdue && by.is_some_and(|by| is_near(round, by)) {
            give_up(round, name, claim, "there is no more time to wait for its replacement");
            continue;
        }
        let hurry = kind == InterruptionKind::SpotWarning && !overdue;
        if hurry {
            cordon(round, node, view);
        }
        if moves.is_replaced(name) {
            continue;
        }
        let held = memory.disruption.holds(name, round);
        if held && hurry {
            give_up(round, name, claim, "what was to replace it didn't come");
        }
        if held || (!certain && keeps(round, claim, node, view)) {
            continue;
        }
        if kind == InterruptionKind::Rebalance && !round.may_remove(Cause::Rebalance, &claim.spec.pool, name)
        {
            continue;
        }
        leaving.entry(claim.spec.pool.as_str()).or_default().push(Leaving { name, claim, node, hurry });
    }
    for (pool, leaving) in leaving {
        // What moves under way have launched is spoken for by the pods that they are for.
        let moving = moves.leaving(snapshot, pool);
        replace(round, memory, &leaving, &moving);
    }
}

/// True once pods have to leave in order to be gone by `by`.
fn is_near(round: &mut Round<'_>, by: Timestamp) -> bool {
    let leave = SignedDuration::try_from(LEAVE).unwrap_or_default();
    let left = by.duration_since(round.now.wall).saturating_sub(leave);
    match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => {
            round.wake_in(left);
            false
        }
        _ => true,
    }
}

fn keeps(round: &Round<'_>, claim: &NodeClaim, node: &str, view: &NodeView) -> bool {
    let pool = round.snapshot.pools.get(&claim.spec.pool);
    pool.is_none_or(|pool| guard::asked(claim, view, pool).is_some())
        || guard::pods(round.snapshot, node).is_some()
}

fn cordon(round: &mut Round<'_>, node: &str, view: &NodeView) {
    if view.has_taint(names::DISRUPTED_TAINT) && view.unschedulable {
        return;
    }
    round.act(Action::Write {
        key: Key::Node(node.to_owned()),
        call: Call {
            target: Target::Node(node.to_owned()),
            verb: Verb::JsonPatch(nodes::cordon(view, round.now.wall)),
        },
        rest: Duration::ZERO,
    });
}

fn give_up(round: &mut Round<'_>, name: &str, claim: &NodeClaim, why: &str) {
    round.tell(reference(claim), true, REASON, format!("{why}; its pods leave now"));
    round.act(lifecycle::delete(name, claim));
}

fn replace(round: &mut Round<'_>, memory: &mut Memory, leaving: &[Leaving<'_>], moving: &[&str]) {
    let nodes: Vec<&str> = leaving.iter().map(|l| l.node).collect();
    let claims: Vec<(&str, &Arc<NodeClaim>)> = leaving.iter().map(|l| (l.name.as_str(), l.claim)).collect();
    match moves::instead(round.snapshot, leaving.iter().map(|l| l.claim), &nodes, moving) {
        // Some places are on machines that aren't there yet: when they are, this is decided again.
        Ok(plan) if plan.machines.is_empty() && plan.existing.iter().any(|place| place.coming) => {}
        Ok(plan) => {
            moves::begin(
                round,
                &mut memory.disruption.tally,
                REASON,
                &claims,
                &plan.machines,
                "the cloud takes its machine away",
            );
        }
        Err(why) => {
            for one in leaving {
                if one.hurry {
                    give_up(round, one.name, one.claim, &why);
                } else {
                    let note = format!("{REASON}: without the node {why}; it stays as long as it can");
                    round.tell(reference(&**one.claim), true, "DisruptionBlocked", note);
                    memory.disruption.held_until.insert(one.name.clone(), round.now.mono + TRY_AGAIN);
                }
            }
        }
    }
}
