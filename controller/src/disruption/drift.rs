//! Expired and drifted nodes, and those of evacuated zones, which count as drifted: replaced whatever the cost, as many at once as
//! the budgets allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    EC2NodeClass, NodeClaim, TenantPool,
    condition::{DRIFTED, EXPIRED, INITIALIZED, Statement, set},
    disruption::DisruptionReason,
    drift::{self, DriftStatus},
    expiry,
    pool::Provisioner,
};
use croft_disruption::blockers::DisruptionBlocker;
use croft_scheduler::Plan;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::{
    action::Action,
    definitions::{conditions as reasons, events, keys},
    disruption::{
        budgets::BudgetLedger,
        node_blocker::{requeue_at_end, standing_blocker},
        outcomes::History,
        replacement::{self, NewCommand},
        shares::{ShareConflict, ShareGuard},
        template_return::{self, TemplateReturn},
    },
    kube_api::{Target, Verb},
    nodeclaim::{
        launch_backoff::{is_launched_for, launched_for},
        lifecycle::Lifecycle,
        node_patch, termination,
        writes::status_action,
    },
    nodepool::static_capacity::size_of,
    reconcile::{ReconcileContext, commands::Commands, object_reference},
    state::{NodeView, Snapshot, blockers::pod_blocker, has_condition},
};

/// Between two evaluations of a pool's nodes.
const EVALUATE_EVERY: Duration = Duration::from_secs(5);
/// Labels that were changed by hand are restored at once. If that has failed for so long, drift is evaluated on the
/// labels as they are.
const LABELS_RESTORED_WITHIN: Duration = Duration::from_secs(600);
/// Nodes replaced by one command: if one of its replacements isn't launched, all of them stay.
const NODES_PER_COMMAND: usize = 5;
/// The replacement of a drifted node, if it drifts without an edit, is itself replaced so long after its launch at the
/// earliest.
const DRIFTS_AGAIN_AFTER: Duration = Duration::from_secs(3_600);

/// Replaces expired and drifted nodes.
#[derive(Debug, Default)]
pub struct Drift {
    evaluated: BTreeMap<String, Evaluated>,
    cache: Cache,
    returns: TemplateReturn,
}

/// The inputs of drift beside the snapshot, and the state that it changes.
pub(crate) struct DriftInputs<'p> {
    /// Which nodes' labels were changed by hand.
    pub(crate) lifecycle: &'p Lifecycle,
    /// Commands in flight.
    pub(crate) commands: &'p Commands<'p>,
    /// The ledger of budgets.
    pub(crate) ledger: &'p BudgetLedger<'p>,
    /// The shares of pools.
    pub(crate) shares: &'p mut ShareGuard,
    /// Outcomes and backoff.
    pub(crate) history: &'p mut History,
}

/// Claims that are as they would be launched now, as long as no input of that changes.
#[derive(Debug, Default)]
struct Cache {
    /// By pool, of each of its templates.
    wanted: BTreeMap<String, Vec<Arc<drift::Wanted>>>,
    current: BTreeMap<String, Current>,
}

#[derive(Debug)]
struct Current {
    claim: Arc<NodeClaim>,
    node: u64,
    wanted: Arc<drift::Wanted>,
    expires: Option<Timestamp>,
}

impl Cache {
    fn retain_known(&mut self, snapshot: &Snapshot) {
        self.wanted.retain(|pool, _| snapshot.pools().contains_key(pool));
        self.current.retain(|claim, _| snapshot.claims().contains_key(claim));
    }

    fn wanted(
        &mut self,
        name: &str,
        pool: &Arc<TenantPool>,
        class: &Arc<EC2NodeClass>,
    ) -> Arc<drift::Wanted> {
        let known = self.wanted.get(name).into_iter().flatten().find(|known| known.is_of(pool, class));
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let new = Arc::new(drift::Wanted::new(pool, class));
        let of_pool = self.wanted.entry(name.to_owned()).or_default();
        of_pool.retain(|known| !known.is_of_template(pool));
        of_pool.push(Arc::clone(&new));
        new
    }

    /// When a claim expires, if it is known not to have drifted.
    fn expires(
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

/// The last evaluation of a pool's nodes. Times are on the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Evaluated {
    at: Duration,
    pool_version: u64,
    /// When the evaluation changes by time alone.
    changes_at: Option<Duration>,
    /// True if nothing was to be written: a write may fail.
    done: bool,
}

impl Evaluated {
    fn is_outdated(&self, pool_version: u64, mono: Duration) -> bool {
        let unfinished = !self.done && mono.saturating_sub(self.at) >= EVALUATE_EVERY;
        unfinished || self.pool_version != pool_version || self.changes_at.is_some_and(|at| at <= mono)
    }
}

/// A node that is due for replacement.
struct DueNode<'a> {
    name: &'a String,
    claim: &'a Arc<NodeClaim>,
    node: &'a str,
    reason: DisruptionReason,
    why: String,
    /// When its pods found no room in a heavier template.
    without_room: Option<Duration>,
}

/// The status of one claim: whether it is expired, and how it has drifted.
struct ClaimStatus<'a> {
    name: &'a String,
    claim: &'a Arc<NodeClaim>,
    expired: bool,
    drifted: Option<Drifted>,
}

/// Why a node isn't as it would be launched now: the reason and the message of the condition.
type Drifted = (&'static str, String);

/// Result of the evaluation of a pool's nodes found.
#[derive(Default)]
struct Found<'a> {
    due: Vec<DueNode<'a>>,
    statuses: Vec<ClaimStatus<'a>>,
    /// Claims without a record of what they were launched with, and that record.
    stamps: Vec<(&'a String, &'a Arc<NodeClaim>, String)>,
}

impl Drift {
    /// Evaluates the nodes of every pool that is due.
    pub(crate) fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, inputs: &mut DriftInputs<'_>) {
        let snapshot = ctx.snapshot;
        let mono = ctx.now.mono;
        let mut due = Vec::new();
        for (name, pool) in snapshot.pools() {
            let pool_version = snapshot.pool_version(name);
            match self.evaluated.get(name) {
                Some(last) if !last.is_outdated(pool_version, mono) => {
                    last.changes_at.inspect(|at| ctx.requeue_at(*at));
                }
                Some(last) if !ctx.has_lasted(last.at, EVALUATE_EVERY) => {}
                _ => due.push((name, pool, pool_version)),
            }
        }
        if due.is_empty() {
            return;
        }
        self.cache.retain_known(snapshot);
        self.returns.retain_known(snapshot);
        self.evaluated.retain(|name, _| snapshot.pools().contains_key(name));
        for (name, pool, pool_version) in due {
            let (done, changes_at) = ctx.collect_requeue(|ctx| self.evaluate_pool(ctx, inputs, name, pool));
            self.evaluated.insert(name.clone(), Evaluated { at: mono, pool_version, changes_at, done });
        }
    }

    /// Evaluates and replaces the nodes of a pool. True if that leaves nothing to be written.
    fn evaluate_pool<'a>(
        &mut self,
        ctx: &mut ReconcileContext<'a>,
        inputs: &mut DriftInputs<'_>,
        pool_name: &str,
        pool: &'a Arc<TenantPool>,
    ) -> bool {
        let snapshot = ctx.snapshot;
        let mut found = Found::default();
        let ready = self.returns.ready(ctx, inputs.history, pool_name, pool);
        for (name, claim) in snapshot.claims_of_pool(pool_name) {
            if claim.metadata.deletion_timestamp.is_some() || !has_condition(claim, INITIALIZED) {
                continue;
            }
            let Some((node, view)) = snapshot.node_of(claim) else { continue };
            if pool.spec.provisioner != Provisioner::Croft {
                if has_drift_condition(claim) {
                    found.statuses.push(ClaimStatus { name, claim, expired: false, drifted: None });
                }
                continue;
            }
            let due = self.evaluate_claim(ctx, inputs.lifecycle, (name, claim, view), &mut found);
            let due = due.or_else(|| self.returns.due(ctx, pool, name, claim, &ready));
            let Some((reason, why)) = due else { continue };
            let without_room = self.returns.without_room_since(name);
            let due = DueNode { name, claim, node, reason, why, without_room };
            if is_replaceable(ctx, inputs, pool, view, &due) {
                found.due.push(due);
            }
        }
        if !inputs.commands.concern(pool_name) && !snapshot.is_ending(pool_name, pool) {
            for claim in replace(ctx, inputs, pool, found.due, &ready) {
                self.returns.observe_no_room(ctx, claim);
                // Other nodes come next.
                ctx.requeue_after(EVALUATE_EVERY);
            }
        }
        let done = found.statuses.is_empty() && found.stamps.is_empty();
        // Last: a status write locks the claim, and would delay its deletion.
        for (name, claim, stamp) in found.stamps {
            ctx.request(write_stamp(name, claim, &stamp));
        }
        for status in found.statuses {
            write_status(ctx, &status);
        }
        done
    }

    /// Why a claim's node is due for replacement, if it is. Its status and its stamp go to `found`.
    fn evaluate_claim<'a>(
        &mut self,
        ctx: &mut ReconcileContext<'a>,
        lifecycle: &Lifecycle,
        (name, claim, view): (&'a String, &'a Arc<NodeClaim>, &NodeView),
        found: &mut Found<'a>,
    ) -> Option<(DisruptionReason, String)> {
        let snapshot = ctx.snapshot;
        let template = snapshot.template_of(claim);
        let class = template.and_then(|template| snapshot.classes().get(snapshot.class_of(template)?));
        let wanted = template
            .zip(class)
            .map(|(template, class)| self.cache.wanted(&claim.spec.pool, template, &class.object));
        let evacuated = snapshot.evacuated_zone_of(claim);
        if evacuated.is_none()
            && let Some(wanted) = &wanted
            && let Some(expires) = self.cache.expires(name, claim, view, wanted)
            && !expires.is_some_and(|at| ctx.has_come(at))
        {
            return None;
        }
        let changed = lifecycle.labels_changed_since(name);
        let labels = match changed.filter(|since| ctx.has_lasted(*since, LABELS_RESTORED_WITHIN)) {
            None => node_patch::restored_labels(claim, view),
            Some(_) => view.labels.clone(),
        };
        let mut current = None;
        let status = wanted.as_ref().map(|wanted| (drift::compare(claim, &labels, wanted), wanted));
        let fields = match status {
            Some((DriftStatus::Drifted(fields), _)) => Some(fields.join(", ")),
            Some((DriftStatus::Unstamped(stamp), _)) => {
                found.stamps.push((name, claim, stamp));
                None
            }
            Some((DriftStatus::Current, wanted)) => {
                current = Some(wanted);
                None
            }
            None => is_template_gone(snapshot, claim).then(|| drift::TEMPLATE.to_owned()),
        };
        let expires = template.and_then(|template| expiry::at(claim, template));
        let expired = expires.is_some_and(|at| ctx.has_come(at));
        if let Some(wanted) = current.filter(|_| !expired && changed.is_none() && !has_drift_condition(claim))
        {
            let (claim, wanted) = (Arc::clone(claim), Arc::clone(wanted));
            let current = Current { claim, node: view.version, wanted, expires };
            self.cache.current.insert(name.clone(), current);
        }
        let why = match (expired, evacuated, &fields) {
            (true, ..) => Some((DisruptionReason::Expired, "it is older than expireAfter".to_owned())),
            (false, Some(zone), _) => {
                Some((DisruptionReason::Drifted, format!("its zone {} is evacuated", zone.name)))
            }
            (false, None, Some(fields)) => {
                Some((DisruptionReason::Drifted, format!("{fields} changed since its launch")))
            }
            (false, None, None) => None,
        };
        let drifted = match (evacuated, fields) {
            (Some(zone), _) => Some((reasons::ZONE_EVACUATED, zone.to_string())),
            (None, fields) => {
                fields.map(|fields| (reasons::FIELDS_CHANGED, format!("changed since the launch: {fields}")))
            }
        };
        found.statuses.push(ClaimStatus { name, claim, expired, drifted });
        why
    }
}

/// True if nothing blocks the replacement of a node that is due; otherwise records an event about the blocker.
fn is_replaceable(
    ctx: &mut ReconcileContext<'_>,
    inputs: &DriftInputs<'_>,
    pool: &TenantPool,
    view: &NodeView,
    due: &DueNode<'_>,
) -> bool {
    let DueNode { name, claim, node, reason, why, .. } = due;
    if inputs.commands.is_replaced(name)
        || inputs.commands.is_replacement(name)
        || inputs.history.is_in_backoff(name, ctx)
    {
        return false;
    }
    let evacuated = ctx.snapshot.evacuated_zone_of(claim).is_some();
    if *reason == DisruptionReason::Drifted && !evacuated && drifts_at_once(ctx, name, claim, pool) {
        let note = format!(
            "{}: {why}, but it replaces a node that drifted, and neither the pool nor its class was edited since: its \
             replacement would drift, too. It is replaced {} min after its launch; find out what changes it",
            reason.as_str(),
            DRIFTS_AGAIN_AFTER.as_secs() / 60
        );
        ctx.event(object_reference(&***claim), true, events::DISRUPTION_BLOCKED, note);
        return false;
    }
    if let Some(blocker) = blocker(ctx, claim, node, view, pool) {
        let note = format!("{}: {why}, but {blocker}", reason.as_str());
        ctx.event(object_reference(&***claim), false, events::DISRUPTION_BLOCKED, note);
        return false;
    }
    true
}

/// True if a replacement of a drifted node has drifted itself without any edit, and was launched lately: replacing it
/// would launch instances without end.
fn drifts_at_once(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim, pool: &TenantPool) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let replaces_drifted = annotations.and_then(|a| a.get(keys::DISRUPTION_REASON)).map(String::as_str)
        == Some(DisruptionReason::Drifted.as_str());
    let created = ctx.snapshot.milestones(name).created;
    replaces_drifted
        && annotations.is_some_and(|a| a.contains_key(keys::LAUNCHED_FOR))
        && is_launched_for(&launched_for(ctx.snapshot, pool), claim)
        && !ctx.has_lasted(created, DRIFTS_AGAIN_AFTER)
}

/// Starts a command for nodes that are due: the oldest first, and only nodes with the same reason. Nodes that can't be replaced, or that
/// the budget of their reason keeps, hold up no others. Returns the claims of those whose pods find no room in a heavier template, or that a
/// share needs.
fn replace<'a>(
    ctx: &mut ReconcileContext<'_>,
    inputs: &mut DriftInputs<'_>,
    pool: &TenantPool,
    due: Vec<DueNode<'a>>,
    ready: &BTreeSet<String>,
) -> Vec<&'a str> {
    let mut without_room = Vec::new();
    for mut group in groups(ctx.snapshot, due) {
        let Some(reason) = group.first().map(|d| d.reason) else { continue };
        group.truncate(inputs.ledger.allowance(ctx, pool, reason).more.min(NODES_PER_COMMAND));
        if replace_group(ctx, inputs, pool, &group, ready, &mut without_room) {
            break;
        }
    }
    without_room
}

/// Nodes that one command may replace, in the order in which they are tried: with the same reason, and of the same fixed size or of
/// none, since nodes of a fixed size are replaced by as many, and others by what their pods need.
fn groups<'a>(snapshot: &Snapshot, mut due: Vec<DueNode<'a>>) -> Vec<Vec<DueNode<'a>>> {
    due.sort_by_key(|d| {
        let (expired, outweighed) =
            (d.reason == DisruptionReason::Expired, d.reason == DisruptionReason::Outweighed);
        (!expired, outweighed, d.without_room, d.claim.metadata.creation_timestamp.clone())
    });
    let mut groups: Vec<Vec<DueNode<'a>>> = Vec::new();
    for one in due {
        let size = size_of(snapshot, one.claim);
        let is_same =
            |first: &DueNode<'_>| first.reason == one.reason && size_of(snapshot, first.claim) == size;
        match groups.iter_mut().find(|group| group.first().is_some_and(is_same)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Starts a command for all of a group's nodes together if they can be replaced, else for the first that can alone. False if none can.
fn replace_group<'a>(
    ctx: &mut ReconcileContext<'_>,
    inputs: &mut DriftInputs<'_>,
    pool: &TenantPool,
    group: &[DueNode<'a>],
    ready: &BTreeSet<String>,
    without_room: &mut Vec<&'a str>,
) -> bool {
    let Some(reason) = group.first().map(|d| d.reason) else { return false };
    let alone = group.chunks(1).filter(|_| group.len() > 1);
    for set in [group].into_iter().chain(alone) {
        let nodes: Vec<&str> = set.iter().map(|d| d.node).collect();
        let claims = || set.iter().map(|d| d.claim);
        let templates = match reason {
            DisruptionReason::Outweighed => template_return::heavier_ones(pool, claims(), ready),
            _ => template_return::not_heavier(ctx.snapshot, claims()),
        };
        let planned = replacement::plan_replacements(ctx, claims(), &nodes, &[], &templates);
        let why = match planned {
            Ok(plan)
                if reason == DisruptionReason::Outweighed && !template_return::is_return(pool, &plan) =>
            {
                "only another pool has room".to_owned()
            }
            Ok(plan) => match check_shares(ctx, inputs, pool, reason, (nodes.as_slice(), &plan)) {
                Ok(()) => {
                    start(ctx, inputs, set, &plan);
                    return true;
                }
                Err(ShareConflict::Creating) => {
                    ctx.requeue_after(EVALUATE_EVERY);
                    return true;
                }
                Err(ShareConflict::Broken(share)) => share,
            },
            Err(why) => why,
        };
        if let ([one], DisruptionReason::Outweighed) = (set, reason) {
            without_room.push(one.name.as_str());
        } else if let [one] = set {
            let note = format!("{}: {}, but without the node {why}", reason.as_str(), one.why);
            ctx.event(object_reference(&**one.claim), true, events::DISRUPTION_BLOCKED, note);
        }
    }
    false
}

/// Checks that a pool stays within its shares if it loses nodes that could stay. One that expires or drifts leaves whatever they say.
///
/// # Errors
/// As of [`ShareGuard::check`].
fn check_shares(
    ctx: &ReconcileContext<'_>,
    inputs: &mut DriftInputs<'_>,
    pool: &TenantPool,
    reason: DisruptionReason,
    (nodes, plan): (&[&str], &Plan),
) -> Result<(), ShareConflict> {
    if reason != DisruptionReason::Outweighed {
        return Ok(());
    }
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    inputs.shares.check(ctx, name, nodes, &plan.instances)
}

/// Starts a command for nodes with the same reason, or has it tried again soon.
fn start(ctx: &mut ReconcileContext<'_>, inputs: &mut DriftInputs<'_>, set: &[DueNode<'_>], plan: &Plan) {
    let claims: Vec<(&str, &Arc<NodeClaim>)> = set.iter().map(|d| (d.name.as_str(), d.claim)).collect();
    let Some(first) = set.first() else { return };
    let (reason, instances) = (first.reason.as_str(), &plan.instances);
    let command = NewCommand { reason, claims: &claims, instances, note: &first.why };
    if !replacement::start(ctx, inputs.history, &command) {
        ctx.requeue_after(EVALUATE_EVERY);
        return;
    }
    set.iter().for_each(|d| inputs.ledger.take(&d.claim.spec.pool));
    let nodes: Vec<&str> = set.iter().map(|d| d.node).collect();
    inputs.shares.take(ctx, &nodes, instances);
}

/// Returns the blocker of the replacement of a node. With a terminationGracePeriod nothing may keep a node forever, so its pods
/// don't block here.
fn blocker(
    ctx: &mut ReconcileContext<'_>,
    claim: &NodeClaim,
    node: &str,
    view: &NodeView,
    pool: &TenantPool,
) -> Option<DisruptionBlocker> {
    let bounded = termination::grace_period(ctx.snapshot, claim).is_some();
    let standing = standing_blocker(ctx, claim, view, pool);
    if bounded || standing.is_some() {
        return standing;
    }
    let by_pods = pod_blocker(ctx.snapshot, node, ctx.now.wall);
    requeue_at_end(ctx, by_pods.as_ref().and_then(DisruptionBlocker::ends));
    by_pods
}

/// True if the claim's pool has other templates than the one that the claim was launched by. The stand-in of an invalid pool has none.
fn is_template_gone(snapshot: &Snapshot, claim: &NodeClaim) -> bool {
    let pool = snapshot.pools().get(&claim.spec.pool);
    snapshot.template_of(claim).is_none() && pool.is_some_and(|pool| pool.spec.node_specs().next().is_some())
}

fn write_stamp(name: &str, claim: &NodeClaim, stamp: &str) -> Action {
    Action::write(
        Target::Claim(name.to_owned()),
        Verb::Patch(json!({"metadata": {
            "uid": claim.metadata.uid,
            "annotations": {keys::LAUNCHED_WITH: stamp},
        }})),
    )
}

/// True if the claim has the condition Expired or Drifted.
fn has_drift_condition(claim: &NodeClaim) -> bool {
    let conditions = claim.status.iter().flat_map(|s| &s.conditions);
    conditions.into_iter().any(|c| c.type_ == EXPIRED || c.type_ == DRIFTED)
}

/// Writes the conditions Expired and Drifted, and removes those that no longer hold.
fn write_status(ctx: &mut ReconcileContext<'_>, status: &ClaimStatus<'_>) {
    let ClaimStatus { name, claim, expired, drifted } = status;
    let Some(old) = &claim.status else { return };
    if !expired && drifted.is_none() && !has_drift_condition(claim) {
        return;
    }
    let (mut new, mut changed) = (old.clone(), false);
    let too_old = (reasons::TOO_OLD, "the node is older than its pool's expireAfter".to_owned());
    let statements = [(EXPIRED, expired.then_some(too_old)), (DRIFTED, drifted.clone())];
    for (kind, holds) in statements {
        if let Some((reason, message)) = holds {
            let statement = Statement { kind, status: Some(true), reason, message };
            changed |= set(&mut new.conditions, statement, claim.metadata.generation, Time(ctx.now.wall));
        } else {
            let before = new.conditions.len();
            new.conditions.retain(|c| c.type_ != kind);
            changed |= new.conditions.len() != before;
        }
    }
    if let Some(action) = status_action(name, claim, &new).filter(|_| changed) {
        ctx.request(action);
    }
}
