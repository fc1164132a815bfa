//! Interruptions: instances that the cloud is about to take.
//!
//! ```text
//!   message ─────────────┐
//!   scheduled, by a list ┴─▶ Interrupted on the claim ──▶ message acknowledged
//!                     │
//!                     ├── going already, as the cloud confirms ───────────▶ deleted at once
//!                     ├── at a time: cordoned, replacement launched ──▶ it is ready, or time is short ──▶ deleted
//!                     └── perhaps, or one day: replacement launched ──▶ it is ready ──▶ deleted
//! ```
//!
//! A message is delivered again until it is acknowledged, and it is acknowledged once the claim's status has it: a crash
//! loses none. Budgets don't count here, since the instance goes in any case. A rebalance recommendation may be wrong
//! about all spot instances of a pool at once: the breaker caps how many are replaced for it. A message may be old or about
//! an earlier life of the instance: its time tells (`is_outdated`). Scheduled changes are also in the cloud's list of instances,
//! as they are now: without a queue, and after a message that was lost.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    NodeClaim,
    condition::{INTERRUPTED, Statement, set},
    disruption::RebalanceRecommendations,
};
use croft_cloud::{Interruption, InterruptionKind, ScheduledChange};
use croft_scheduler::{LaunchTemplates, Plan};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    action::{Action, Key},
    definitions::events,
    disruption::{
        outcomes::{self, History},
        replacement::{self, NewCommand},
    },
    kube_api::Verb,
    nodeclaim::{
        conditions::{find_condition, interruption_kind},
        node_patch,
        writes::{delete_claim, patch_node, status_action},
    },
    nodepool::static_capacity::size_of,
    reconcile::{ReconcileContext, breaker::Cause, commands::Commands, object_reference},
    state::{
        NodeView,
        blockers::{annotation_blocker, pod_blocker},
        has_condition, instance_of,
    },
};

/// Pods get at least this long to leave before their instance goes, whether or not its replacement is ready. Half of a
/// spot instance's two minutes: most replacements are ready in the other half.
const EVICTION_TIME: Duration = Duration::from_secs(60);
/// A message about an instance without a claim is kept this long: the outcome of its launch may be unknown yet.
const UNKNOWN_KEPT: Duration = Duration::from_secs(60);
/// A message about instances without a claim is left on the queue for so long after it was sent.
const LEFT_FOR_OTHERS: Duration = Duration::from_secs(600);
/// An instance that still works so long after the announced time was not taken: nothing is urgent any more.
const OVERDUE: SignedDuration = SignedDuration::from_secs(120);
/// By then the cloud's own list shows what a message says of an instance.
const SHOWS_AFTER: Duration = Duration::from_secs(10);
/// The list's scheduled changes are as of a minute before, at most, and the cloud's own view may lag a little.
const LIST_LAGS: SignedDuration = SignedDuration::from_secs(120);
/// Backoff of an instance that isn't urgent and can't be replaced.
const BACKOFF: Duration = Duration::from_secs(60);
/// So many nodes are planned one by one in a pass where not all can be replaced together: each takes a plan.
const TRIED_AT_ONCE: usize = 16;
/// The disruption reason.
const REASON: &str = outcomes::INTERRUPTED;

/// Handles messages, and replaces interrupted instances.
#[derive(Debug, Default)]
pub struct Interruptions {
    /// Messages that aren't acknowledged yet, and when each was first received, on the monotonic clock.
    messages: Vec<(Interruption, Duration)>,
}

impl Interruptions {
    /// Takes in messages. A message that is delivered again has a new receipt.
    pub fn observe(&mut self, messages: Vec<Interruption>, mono: Duration) {
        for message in messages {
            let same = |known: &&mut (Interruption, Duration)| {
                let known = &known.0;
                (known.kind, known.at, &known.instances) == (message.kind, message.at, &message.instances)
                    && message.kind != InterruptionKind::Other
            };
            match self.messages.iter_mut().find(same) {
                Some((known, _)) => known.receipt = message.receipt,
                None => self.messages.push((message, mono)),
            }
        }
    }

    /// Forgets acknowledged messages.
    pub fn forget(&mut self, messages: &[Interruption]) {
        self.messages.retain(|(known, _)| messages.iter().all(|message| message.receipt != known.receipt));
    }

    /// Records messages on claims, and takes the next step of every interrupted instance.
    pub fn reconcile(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        history: &mut History,
        commands: &Commands<'_>,
    ) {
        if ctx.is_idle(&Key::Interruptions) {
            ctx.request(Action::ReceiveInterruptions);
        }
        self.record(ctx);
        record_scheduled(ctx);
        disrupt(ctx, history, commands);
    }

    fn record(&mut self, ctx: &mut ReconcileContext<'_>) {
        if self.messages.is_empty() {
            return;
        }
        let claims: BTreeMap<&str, (&String, &Arc<NodeClaim>)> =
            ctx.snapshot.claims().iter().filter_map(|one| Some((instance_of(one.1)?, one))).collect();
        let (mut handled, mut left) = (Vec::new(), Vec::new());
        for (message, received) in &self.messages {
            let open = record_message(ctx, &claims, message, *received);
            let is_foreign = message.instances.iter().all(|id| !claims.contains_key(id.as_str()));
            if !open && is_foreign && may_be_awaited(ctx, message) {
                left.push(message.clone());
            } else if !open {
                handled.push(message.clone());
            }
        }
        self.forget(&left);
        if !handled.is_empty() {
            ctx.request(Action::AcknowledgeInterruptions(handled));
        }
    }
}

/// Records a message on the claims that it is about. True while it isn't fully recorded.
fn record_message(
    ctx: &mut ReconcileContext<'_>,
    claims: &BTreeMap<&str, (&String, &Arc<NodeClaim>)>,
    message: &Interruption,
    received: Duration,
) -> bool {
    let mut open = false;
    for instance in &message.instances {
        let Some((name, claim)) = claims.get(instance.as_str()).copied() else {
            let is_state_change = message.kind == InterruptionKind::StateChange;
            open |= !is_state_change && !ctx.has_lasted(received, UNKNOWN_KEPT);
            continue;
        };
        if message.kind == InterruptionKind::StateChange {
            match confirmation(ctx, instance, received) {
                Confirmation::Going => {}
                Confirmation::Working => continue,
                Confirmation::Pending { list } => {
                    if list {
                        ctx.request_instance_list();
                    }
                    open = true;
                    continue;
                }
            }
        } else if is_outdated(ctx, message, instance) {
            let note = format!(
                "a message of {} is older than the instance's start, or its time is over: it has no effect",
                message.at
            );
            ctx.event(object_reference(&**claim), false, events::INTERRUPTION_IGNORED, note);
            continue;
        } else if message.kind == InterruptionKind::Rebalance && ignores_recommendations(ctx, claim) {
            let note = "the cloud recommends to leave the instance, and rebalanceRecommendations of its pool is Ignore";
            ctx.event(object_reference(&**claim), false, events::INTERRUPTION_IGNORED, note.to_owned());
            continue;
        }
        if claim.metadata.deletion_timestamp.is_none() && says_more(claim, message) {
            open = true;
            write_condition(ctx, name, claim, message);
        }
    }
    open
}

/// Records on claims what the last list says is scheduled for their instances.
fn record_scheduled(ctx: &mut ReconcileContext<'_>) {
    let snapshot = ctx.snapshot;
    for (name, claim) in snapshot.dirty_claims() {
        let scheduled = snapshot.health_of(claim).map(|health| health.scheduled.as_slice());
        let first =
            scheduled.unwrap_or_default().iter().min_by_key(|c| (c.not_before.is_none(), c.not_before));
        let Some(change) = first.filter(|_| claim.metadata.deletion_timestamp.is_none()) else { continue };
        let message = Interruption {
            kind: InterruptionKind::ScheduledChange,
            instances: Vec::new(),
            at: 0,
            deadline: change.not_before,
            over_at: None,
            receipt: String::new(),
        };
        if says_more(claim, &message) || is_postponed(ctx, claim, change) {
            write_condition(ctx, name, claim, &message);
        }
    }
}

/// True if the last list shows a later time of the scheduled change than the claim says, as where a user has moved it, and is surely
/// newer than what the claim was told.
fn is_postponed(ctx: &ReconcileContext<'_>, claim: &NodeClaim, change: &ScheduledChange) -> bool {
    let Some((status, list)) = claim.status.as_ref().zip(ctx.snapshot.instances()) else { return false };
    let by = status.leave_by.as_ref().map(|by| by.0.as_second());
    let told = find_condition(status, INTERRUPTED).map(|told| told.last_transition_time.0);
    interruption_kind(claim) == Some(InterruptionKind::ScheduledChange)
        && by.zip(change.not_before).is_some_and(|(by, at)| by < at)
        && told.is_some_and(|told| list.asked.wall.duration_since(told) > LIST_LAGS)
}

fn ignores_recommendations(ctx: &ReconcileContext<'_>, claim: &NodeClaim) -> bool {
    let pool = ctx.snapshot.pools().get(&claim.spec.pool);
    pool.is_some_and(|pool| {
        pool.spec.disruption.rebalance_recommendations == RebalanceRecommendations::Ignore
    })
}

/// True if the claim doesn't say yet what the message says: it is more severe, or the time of the same change is sooner.
fn says_more(claim: &NodeClaim, message: &Interruption) -> bool {
    let known = interruption_kind(claim);
    let by = claim.status.as_ref().and_then(|status| status.leave_by.as_ref()).map(|by| by.0.as_second());
    known.map_or(0, severity) < severity(message.kind)
        || known == Some(message.kind)
            && message.deadline.is_some_and(|deadline| by.is_none_or(|by| deadline < by))
}

/// The more severe message counts.
fn severity(kind: InterruptionKind) -> u8 {
    match kind {
        InterruptionKind::Other => 0,
        InterruptionKind::Rebalance => 1,
        InterruptionKind::ScheduledChange => 2,
        InterruptionKind::SpotWarning => 3,
        InterruptionKind::StateChange => 4,
    }
}

/// True if another cluster that reads the same queue may wait for the message. The message stays on the queue and is
/// delivered again after its visibility timeout. An old message has been read by the cluster that it is for.
fn may_be_awaited(ctx: &ReconcileContext<'_>, message: &Interruption) -> bool {
    use InterruptionKind::{Rebalance, ScheduledChange, SpotWarning};
    let announces = matches!(message.kind, SpotWarning | Rebalance | ScheduledChange);
    let at = Timestamp::from_second(message.at).unwrap_or(Timestamp::UNIX_EPOCH);
    announces && ctx.now.since(at) < LEFT_FOR_OTHERS
}

/// The cloud's own answer about an instance that is stopping according to a message.
enum Confirmation {
    Going,
    /// It works, or only its absence from the list is known, which is decided elsewhere.
    Working,
    /// Not known yet.
    Pending {
        /// The instances must be listed again.
        list: bool,
    },
}

/// Compares a message with a list of instances: the message may be about an earlier life of the instance, or be delivered
/// again. A list may lag behind the message, so a working instance counts only from [`SHOWS_AFTER`] on.
fn confirmation(ctx: &mut ReconcileContext<'_>, instance: &str, received: Duration) -> Confirmation {
    let shows = received.saturating_add(SHOWS_AFTER);
    let list = ctx.snapshot.instances().filter(|list| list.asked.mono >= received);
    let state = list.and_then(|list| list.instances.get(instance)).map(|listed| listed.state);
    if state.is_some_and(|state| !state.is_alive()) {
        Confirmation::Going
    } else if list.is_some_and(|list| list.asked.mono >= shows) {
        Confirmation::Working
    } else {
        let first = list.is_none();
        Confirmation::Pending { list: first || ctx.has_lasted(received, SHOWS_AFTER) }
    }
}

/// True if the message says nothing about the instance as it is now: it was sent before the instance last started, by
/// the cloud's own clock, or the announced time is over.
fn is_outdated(ctx: &ReconcileContext<'_>, message: &Interruption, instance: &str) -> bool {
    let listed = ctx.snapshot.instances().and_then(|list| list.instances.get(instance));
    let earlier = message.at > 0 && listed.is_some_and(|listed| listed.launched_at > message.at);
    let over = message.over_at.is_some_and(|at| at < ctx.now.wall.as_second());
    earlier || over
}

/// Writes the condition Interrupted.
fn write_condition(
    ctx: &mut ReconcileContext<'_>,
    name: &str,
    claim: &Arc<NodeClaim>,
    message: &Interruption,
) {
    if !ctx.is_idle(&Key::Claim(name.to_owned())) {
        return;
    }
    let by = message.deadline.and_then(|at| Timestamp::from_second(at).ok());
    let mut text = match message.kind {
        InterruptionKind::SpotWarning => "the cloud takes the spot instance".to_owned(),
        InterruptionKind::Rebalance => {
            "the spot instance is more likely than before to be taken by the cloud".to_owned()
        }
        InterruptionKind::ScheduledChange => {
            "the instance is to be stopped, retired, maintained or rebooted".to_owned()
        }
        InterruptionKind::StateChange => "the instance is stopping or terminating".to_owned(),
        InterruptionKind::Other => return,
    };
    if let Some(by) = by {
        text.push_str(&format!("; its pods must leave by {by}"));
    }
    ctx.event(object_reference(&**claim), true, message.kind.as_str(), text.clone());
    let mut status = claim.status.clone().unwrap_or_default();
    status.leave_by = by.map(Time);
    // A more severe message restarts the transition time.
    status.conditions.retain(|c| c.type_ != INTERRUPTED);
    let reason = message.kind.as_str();
    let statement = Statement { kind: INTERRUPTED, status: Some(true), reason, message: text };
    set(&mut status.conditions, statement, claim.metadata.generation, Time(ctx.now.wall));
    if let Some(action) = status_action(name, claim, &status) {
        ctx.request(action);
    }
}

/// An interrupted instance whose pods need another node.
struct InterruptedNode<'a> {
    name: &'a String,
    claim: &'a Arc<NodeClaim>,
    node: &'a str,
    /// It is certainly taken, and soon.
    urgent: bool,
}

fn disrupt(ctx: &mut ReconcileContext<'_>, history: &mut History, commands: &Commands<'_>) {
    let snapshot = ctx.snapshot;
    let is_interrupted =
        |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none() && has_condition(claim, INTERRUPTED);
    // Nodes of a fixed size are replaced by as many, and others by what their pods need.
    let mut by_size: BTreeMap<(&str, Option<&str>), Vec<InterruptedNode<'_>>> = BTreeMap::new();
    for (name, claim) in snapshot.dirty_claims().filter(|(_, claim)| is_interrupted(claim)) {
        if let Some(interrupted) = next_step(ctx, history, commands, name, claim) {
            let template = size_of(snapshot, claim).and_then(|size| size.template);
            by_size.entry((claim.spec.pool.as_str(), template)).or_default().push(interrupted);
        }
    }
    for ((pool, _), interrupted) in by_size {
        // The capacity of replacements in flight is reserved for the pods that they are for.
        let leaving = commands.replaced_nodes(snapshot, pool);
        replace(ctx, history, interrupted, &leaving);
    }
}

/// Takes the next step of an interrupted instance. Returns it if its pods need another node first.
fn next_step<'a>(
    ctx: &mut ReconcileContext<'a>,
    history: &History,
    commands: &Commands<'_>,
    name: &'a String,
    claim: &'a Arc<NodeClaim>,
) -> Option<InterruptedNode<'a>> {
    let kind = interruption_kind(claim).filter(|_| ctx.is_idle(&Key::Claim(name.clone())))?;
    let certain = kind.is_final();
    let node = ctx.snapshot.node_of(claim).filter(|_| kind != InterruptionKind::StateChange);
    let Some((node, view)) = node else {
        if certain {
            drain_now(ctx, name, claim, "its instance is going");
        }
        return None;
    };
    let by = claim.status.as_ref().and_then(|s| s.leave_by.as_ref()).map(|t| t.0);
    let overdue = by.is_some_and(|by| ctx.now.wall.duration_since(by) > OVERDUE);
    if certain && !overdue && by.is_some_and(|by| is_near(ctx, by)) {
        drain_now(ctx, name, claim, "there is no more time to wait for its replacement");
        return None;
    }
    let urgent = kind == InterruptionKind::SpotWarning && !overdue;
    if urgent {
        cordon(ctx, node, view);
    }
    if commands.is_replaced(name) {
        return None;
    }
    if certain && !ctx.snapshot.has_work(name, node) {
        // It needs no replacement, and isn't kept since the pods of others find none.
        remove_now(ctx, name, claim, "its instance is going, and it has no pods".to_owned());
        return None;
    }
    let in_backoff = history.is_in_backoff(name, ctx);
    if in_backoff && urgent {
        drain_now(ctx, name, claim, "its replacement wasn't launched");
    }
    if in_backoff || (!certain && is_blocked(ctx, claim, node, view)) {
        return None;
    }
    let capped = kind == InterruptionKind::Rebalance;
    // The pool may have been edited after the claim was told.
    if capped
        && (ignores_recommendations(ctx, claim) || !ctx.may_remove(Cause::Rebalance, &claim.spec.pool, name))
    {
        return None;
    }
    Some(InterruptedNode { name, claim, node, urgent })
}

/// True once pods must start to leave in order to be gone by `by`.
fn is_near(ctx: &mut ReconcileContext<'_>, by: Timestamp) -> bool {
    ctx.has_come(by.checked_sub(EVICTION_TIME).unwrap_or(Timestamp::MIN))
}

fn is_blocked(ctx: &ReconcileContext<'_>, claim: &NodeClaim, node: &str, view: &NodeView) -> bool {
    let pool = ctx.snapshot.pools().get(&claim.spec.pool);
    pool.is_none_or(|pool| annotation_blocker(claim, view, pool).is_some())
        || pod_blocker(ctx.snapshot, node, ctx.now.wall).is_some()
}

fn cordon(ctx: &mut ReconcileContext<'_>, node: &str, view: &NodeView) {
    if !view.is_cordoned_by_croft() {
        ctx.request(patch_node(node, Verb::JsonPatch(node_patch::cordon(view, ctx.now.wall))));
    }
}

/// Deletes the claim without waiting for a replacement.
fn drain_now(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim, why: &str) {
    remove_now(ctx, name, claim, format!("{why}; its pods are evicted now"));
}

fn remove_now(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim, note: String) {
    ctx.event(object_reference(claim), true, events::INTERRUPTED, note);
    ctx.request(delete_claim(name, claim));
}

/// Starts a command for the nodes whose pods have other places: for all, or else for as many as can be replaced.
fn replace(
    ctx: &mut ReconcileContext<'_>,
    history: &mut History,
    mut interrupted: Vec<InterruptedNode<'_>>,
    leaving: &[&str],
) {
    if interrupted.len() > 1
        && let Ok(plan) = plan_replacements(ctx, &interrupted, leaving)
    {
        start(ctx, history, &interrupted, &plan);
        return;
    }
    // The urgent ones get what is left of a limit.
    interrupted.sort_by_key(|one| !one.urgent);
    let (mut replaceable, mut plan) = (Vec::new(), Plan::default());
    for one in interrupted.into_iter().take(TRIED_AT_ONCE) {
        replaceable.push(one);
        match plan_replacements(ctx, &replaceable, leaving) {
            Ok(larger) => plan = larger,
            Err(why) => {
                // Nodes that weren't tried, or that the breaker kept for the sake of this one, come next.
                ctx.requeue_after(Duration::ZERO);
                if let Some(one) = replaceable.pop() {
                    keep_or_drain(ctx, history, &one, &why);
                }
            }
        }
    }
    if !replaceable.is_empty() {
        start(ctx, history, &replaceable, &plan);
    }
}

fn plan_replacements(
    ctx: &ReconcileContext<'_>,
    interrupted: &[InterruptedNode<'_>],
    leaving: &[&str],
) -> Result<Plan, String> {
    let nodes: Vec<&str> = interrupted.iter().map(|one| one.node).collect();
    let (claims, any) = (interrupted.iter().map(|one| one.claim), LaunchTemplates::default());
    replacement::plan_replacements(ctx, claims, &nodes, leaving, &any)
}

fn start(
    ctx: &mut ReconcileContext<'_>,
    history: &mut History,
    interrupted: &[InterruptedNode<'_>],
    plan: &Plan,
) {
    if plan.instances.is_empty() && plan.existing.iter().any(|place| place.coming) {
        // Some pods fit onto in-flight nodes only: a pass after their initialization decides again.
        return;
    }
    let claims: Vec<(&str, &Arc<NodeClaim>)> =
        interrupted.iter().map(|one| (one.name.as_str(), one.claim)).collect();
    let note = "the cloud takes its instance";
    let command = NewCommand { reason: REASON, claims: &claims, instances: &plan.instances, note };
    replacement::start(ctx, history, &command);
}

/// A node that can't be replaced: the pods of an urgent one leave now, another one stays for the time being.
fn keep_or_drain(
    ctx: &mut ReconcileContext<'_>,
    history: &mut History,
    one: &InterruptedNode<'_>,
    why: &str,
) {
    if one.urgent {
        drain_now(ctx, one.name, one.claim, why);
        return;
    }
    let note = format!("{REASON}: without the node {why}; it stays as long as possible");
    ctx.event(object_reference(&**one.claim), true, events::DISRUPTION_BLOCKED, note);
    history.back_off(one.name, ctx.now.mono + BACKOFF);
}
