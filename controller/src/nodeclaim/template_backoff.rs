//! Backoff of templates whose nodes register and aren't initialized in time: a device plugin that never comes, a startup
//! taint that no agent removes, a network plugin that isn't ready.
//!
//! Each such node is replaced, and the next one of the same template and image would most likely lack the same. So the
//! template launches nothing for a while, twice as long after each further round, and then one node at a time until one is
//! initialized. Another image, or an edit of the pool or its class, launches at once. Counted in the pool's status, with the
//! launches whose node didn't register ([`launch_backoff`](super::launch_backoff)).

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{
    NodeClaim, TenantPool,
    condition::{INITIALIZED, REGISTERED, Statement},
    pool::{LaunchBackoff, TemplateBackoff},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    config::settings::Settings,
    definitions::{conditions as reasons, events},
    nodeclaim::{
        rounds::{HOUR, creation_time, exponential, is_counted, next_launch},
        writes::delete_claim,
    },
    reconcile::{ReconcileContext, breaker::Cause, object_reference},
    state::{LaunchHold, Snapshot, has_condition},
};

/// After its first round a template rests for so many times the pool's backoff: that a node won't be initialized takes a
/// quarter of an hour to learn, for which it is paid.
const TIMES: u32 = 10;

/// A claim whose node wasn't initialized in time.
pub(super) struct LateClaim<'a> {
    pub(super) name: &'a str,
    pub(super) claim: &'a Arc<NodeClaim>,
    /// What the node lacks.
    missing: &'a str,
}

fn template_of(claim: &NodeClaim) -> &str {
    claim.template().unwrap_or_default()
}

fn image_of(claim: &NodeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.image_id.as_deref()).unwrap_or_default()
}

/// The templates in a pool's backoff whose image may still be launched.
pub(super) fn of_images_in_use<'a>(
    snapshot: &Snapshot,
    pool: &TenantPool,
    backoff: &'a LaunchBackoff,
) -> impl Iterator<Item = &'a TemplateBackoff> {
    let name = pool.metadata.name.clone().unwrap_or_default();
    backoff.templates.iter().filter(move |failed| is_in_use(snapshot, &name, failed))
}

/// True unless the template is gone, or its class knows its images and that one is not among them. An instance whose image
/// isn't known may have any.
fn is_in_use(snapshot: &Snapshot, pool: &str, failed: &TemplateBackoff) -> bool {
    let name = Some(failed.template.as_str()).filter(|name| !name.is_empty());
    let Some(template) = snapshot.template(pool, name) else { return false };
    let class = snapshot.class_of(template).and_then(|class| snapshot.classes().get(class));
    let images = class.and_then(|class| class.object.status.as_ref()).map(|status| status.amis.as_slice());
    let images = images.unwrap_or_default();
    failed.image.is_empty() || images.is_empty() || images.iter().any(|image| image.id == failed.image)
}

/// Claims of a template that are launched or about to be, and whose node isn't initialized yet.
pub(super) fn uninitialized<'a>(
    snapshot: &'a Snapshot,
    pool: &str,
    failed: &'a TemplateBackoff,
) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    let claims = snapshot.claims_of_pool(pool).map(|(_, claim)| claim);
    claims.filter(|claim| {
        !has_condition(claim, INITIALIZED)
            && claim.metadata.deletion_timestamp.is_none()
            && template_of(claim) == failed.template
    })
}

/// Adds a template to the hold of its pool.
pub(super) fn hold(hold: &mut LaunchHold, failed: &TemplateBackoff, waits: bool) {
    if failed.template.is_empty() {
        hold.why.get_or_insert_with(|| describe(failed, waits));
    } else {
        hold.templates.insert(failed.template.clone());
    }
}

fn describe(failed: &TemplateBackoff, waits: bool) -> String {
    let next = if waits {
        format!("the next launch is tried after {}", failed.until.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    } else {
        "one launch at a time is tried until a node is initialized".to_owned()
    };
    let of = |what: &str, name: &str| match name {
        "" => String::new(),
        name => format!(" {what} {name}"),
    };
    let (of_template, of_image) = (of("of template", &failed.template), of("with image", &failed.image));
    format!(
        "in {} rounds of launches no node{of_template}{of_image} was initialized in time (last: {}); {next}",
        failed.rounds, failed.missing
    )
}

/// Of the `overdue` claims those that aren't counted yet, by pool.
pub(super) fn uncounted<'a>(
    ctx: &ReconcileContext<'a>,
    overdue: &'a BTreeMap<String, String>,
) -> BTreeMap<&'a str, Vec<LateClaim<'a>>> {
    let mut late: BTreeMap<&str, Vec<LateClaim<'_>>> = BTreeMap::new();
    for (name, missing) in overdue {
        if let Some(claim) = ctx.snapshot.claims().get(name)
            && !has_condition(claim, INITIALIZED)
            && !is_counted(ctx, name, claim)
        {
            late.entry(&claim.spec.pool).or_default().push(LateClaim { name, claim, missing });
        }
    }
    late
}

/// Counts a node that wasn't initialized in time. One that was launched before the last round ended belongs to that round.
pub(super) fn record(backoff: &mut LaunchBackoff, late: &LateClaim<'_>, settings: &Settings, now: Timestamp) {
    let (template, image, created) =
        (template_of(late.claim), image_of(late.claim), creation_time(late.claim));
    let at = backoff.templates.iter().position(|one| one.template == template && one.image == image);
    let mut entry = at.map_or_else(
        || TemplateBackoff {
            template: template.to_owned(),
            image: image.to_owned(),
            rounds: 0,
            ended: Vec::new(),
            until: Time(now),
            since: Time(created),
            missing: String::new(),
        },
        |at| backoff.templates.remove(at),
    );
    late.missing.clone_into(&mut entry.missing);
    if entry.ended.last().is_none_or(|ended| created >= ended.0) {
        entry.rounds = entry.rounds.saturating_add(1);
        entry.since = Time(created);
        entry.ended.push(Time(now));
        // A single node may have a broken device.
        let wait = match entry.rounds {
            1 => settings.launch_backoff,
            rounds => exponential(settings.launch_backoff.saturating_mul(TIMES), rounds.saturating_sub(1)),
        };
        entry.until = next_launch(&mut entry.ended, wait, settings, now);
    } else {
        entry.since = Time(entry.since.0.min(created));
    }
    backoff.templates.push(entry);
}

/// Clears failures that a node of the same template and image disproves, those of images that are no longer launched, and
/// those that are long over.
pub(super) fn clear_recovered(
    backoff: &mut LaunchBackoff,
    snapshot: &Snapshot,
    name: &str,
    pool: &TenantPool,
    now: Timestamp,
) {
    let in_use: Vec<TemplateBackoff> = of_images_in_use(snapshot, pool, backoff).cloned().collect();
    backoff.templates = in_use;
    backoff.templates.retain(|failed| {
        let works = snapshot.claims_of_pool(name).any(|(_, claim)| {
            has_condition(claim, INITIALIZED)
                && template_of(claim) == failed.template
                && (failed.image.is_empty() || image_of(claim) == failed.image)
                && creation_time(claim) >= failed.since.0
        });
        let is_tried = || uninitialized(snapshot, name, failed).next().is_some();
        !works && (now.duration_since(failed.until.0) < HOUR || is_tried())
    });
}

/// The condition about templates whose nodes aren't initialized in time.
pub(super) fn statement(
    ctx: &ReconcileContext<'_>,
    pool: &TenantPool,
    backoff: &LaunchBackoff,
) -> Option<Statement> {
    let failed = of_images_in_use(ctx.snapshot, pool, backoff).max_by_key(|failed| failed.rounds)?;
    let message = format!(
        "{}. Such nodes are replaced after the pool's initializationTimeout. See what the condition Initialized of their \
         NodeClaims names: the device plugin, the agent that removes the startup taint, the network plugin, or the image. An \
         edit of the pool or of its class launches at once",
        describe(failed, failed.until.0 > ctx.now.wall)
    );
    Some(Statement {
        kind: reasons::NODE_REGISTRATION_HEALTHY,
        status: Some(false),
        reason: reasons::NODES_NOT_INITIALIZING,
        message,
    })
}

/// True if a registered node should have been initialized by now; otherwise asks for another pass when it should.
pub(super) fn is_overdue(ctx: &mut ReconcileContext<'_>, claim: &NodeClaim) -> bool {
    let Some(pool) = ctx.snapshot.pools().get(&claim.spec.pool) else { return false };
    let registered = claim.status.as_ref().and_then(|status| {
        status.conditions.iter().find(|c| c.type_ == REGISTERED).map(|c| c.last_transition_time.0)
    });
    let within = pool.spec.disruption.initialization_timeout();
    let Some((since, within)) = registered.zip(within) else { return false };
    ctx.snapshot.is_provisioned_by_croft(&claim.spec.pool) && ctx.is_older(since, within)
}

/// Deletes the claim of an overdue node, within the breaker's cap, once the pool's status counts it: a failure that is
/// forgotten with its claim would be repeated without end. False if it stays for now.
pub(super) fn replace(
    ctx: &mut ReconcileContext<'_>,
    name: &str,
    claim: &NodeClaim,
    node_name: &str,
    missing: &str,
) -> bool {
    if !is_counted(ctx, name, claim) || !ctx.may_remove(Cause::Uninitialized, &claim.spec.pool, name) {
        return false;
    }
    let pool = ctx.snapshot.pools().get(&claim.spec.pool);
    let within = pool.and_then(|pool| pool.spec.disruption.initialization_timeout()).unwrap_or_default();
    let note = format!(
        "node {node_name} isn't initialized {} s after its registration: {missing}. It is drained and terminated; the pool's \
         initializationTimeout says when",
        within.as_secs()
    );
    ctx.event(object_reference(claim), true, events::INITIALIZATION_TIMEOUT, note);
    ctx.request(delete_claim(name, claim));
    true
}
