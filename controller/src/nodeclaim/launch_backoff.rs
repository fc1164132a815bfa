//! Launch backoff: templates whose nodes don't come launch less and less, until a node comes or the pool is edited.
//!
//! ```text
//!   nodes come ──▶ no limit on launches
//!        ▲   │ a node doesn't register, or isn't initialized in time
//!        │   ▼
//!        │  hold: nothing is launched for a while, twice as long each round, at most so many rounds an hour
//!        │   │ over
//!        │   ▼
//!        └─ probe: one launch; no other until its node comes, or the next round begins
//! ```
//!
//! What one template lacks, another of the pool may have: its image, its network, its device plugin. So each has a backoff
//! of its own, and while one is held its pods go to the next. Offerings whose nodes didn't register are left out for longer
//! than the template, so that a probe tries another. [`launch_failures`](super::launch_failures) counts what failed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use croft_api::{
    NodeClaim, TenantPool,
    condition::{INITIALIZED, REGISTERED, Statement},
    hash::hash,
    pool::{LaunchBackoff, NodeStage, OfferingBackoff, TemplateBackoff},
};
use croft_scheduler::{CapacityType, PlannedInstance};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    definitions::{conditions as reasons, keys},
    reconcile::ReconcileContext,
    state::{LaunchHold, LaunchHolds, Snapshot, has_condition},
    time::{Now, earliest},
};

/// Hexadecimal digits of a pool's edit hash: programs that read numbers as floating-point ones read it exactly.
const EDIT_HASH_DIGITS: usize = 13;

/// The name of the template that launched a claim; empty if its pool has only one kind of node.
pub(super) fn template_of(claim: &NodeClaim) -> &str {
    claim.template().unwrap_or_default()
}

/// The condition of a claim whose node has reached the stage.
pub(super) const fn condition_of(stage: NodeStage) -> &'static str {
    match stage {
        NodeStage::Registration => REGISTERED,
        NodeStage::Initialization => INITIALIZED,
    }
}

/// The launch backoff in a pool's status, unless the pool or its class was edited since.
fn current_backoff<'a>(snapshot: &Snapshot, pool: &'a TenantPool) -> Option<&'a LaunchBackoff> {
    let backoff = pool.status.as_ref()?.launch_backoff.as_ref()?;
    let edited = (backoff.pool_generation, backoff.class_generation) != generations(snapshot, pool);
    (!edited).then_some(backoff)
}

/// A number that changes with the pool's spec, and not when the pool is paused or resumed: that is no remedy for failed
/// launches, as an edit may be.
#[must_use]
pub fn edit_hash(pool: &TenantPool) -> i64 {
    let mut spec = pool.spec.clone();
    spec.disruption.paused = None;
    let text = serde_json::to_string(&spec).unwrap_or_default();
    i64::from_str_radix(&hash(&[text.as_str()], EDIT_HASH_DIGITS), 16).unwrap_or_default()
}

/// The edit hash of the pool and the generation of its class.
pub(super) fn generations(snapshot: &Snapshot, pool: &TenantPool) -> (i64, i64) {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    // `pool` may be narrowed to one of its templates, and a schedule that begins or ends is no edit.
    let whole = snapshot.declared_pool(name).map_or(pool, |whole| &**whole);
    let of_classes = snapshot.classes_of(name).filter_map(|class| class.object.metadata.generation);
    // Of several classes the sum: an edit of any of them makes it grow.
    let of_classes = of_classes.fold(0i64, i64::saturating_add);
    (edit_hash(whole), of_classes)
}

/// The templates in a pool's backoff that may still launch what failed: the template is there, and its class doesn't say that
/// the image is none of its own. An instance whose image isn't known may have any.
pub(super) fn in_use<'a>(
    snapshot: &Snapshot,
    pool: &TenantPool,
    backoff: &'a LaunchBackoff,
) -> impl Iterator<Item = &'a TemplateBackoff> {
    let pool = pool.metadata.name.as_deref().unwrap_or_default();
    backoff.templates.iter().filter(move |failed| {
        let name = Some(failed.template.as_str()).filter(|name| !name.is_empty());
        let Some(template) = snapshot.template(pool, name) else { return false };
        let class = snapshot.class_of(template).and_then(|class| snapshot.classes().get(class));
        let images =
            class.and_then(|class| class.object.status.as_ref()).map(|status| status.amis.as_slice());
        let images = images.unwrap_or_default();
        failed.image.is_empty() || images.is_empty() || images.iter().any(|image| image.id == failed.image)
    })
}

/// Claims of a template that are launched or about to be, and whose node hasn't reached the stage yet.
pub(super) fn awaited<'a>(
    snapshot: &'a Snapshot,
    pool: &str,
    template: &'a str,
    stage: NodeStage,
) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    let claims = snapshot.claims_of_pool(pool).map(|(_, claim)| claim);
    claims.filter(move |claim| {
        !has_condition(claim, condition_of(stage))
            && claim.metadata.deletion_timestamp.is_none()
            && template_of(claim) == template
    })
}

/// Sets the launch holds of templates and offerings whose launches failed. Returns when the next backoff ends.
pub fn set_launch_holds(snapshot: &mut Snapshot, now: Now) -> Option<Duration> {
    let mut wake = None;
    let mut held = LaunchHolds::new();
    for (pool, template, until) in snapshot.resting_templates(now.mono) {
        wake = earliest(wake, Some(until));
        hold_of(&mut held, &pool, &template).rests = true;
    }
    let mut is_over = |until: &Time| {
        let left = Duration::try_from(until.0.duration_since(now.wall)).unwrap_or(Duration::ZERO);
        if !left.is_zero() {
            wake = earliest(wake, Some(now.mono.saturating_add(left)));
        }
        left.is_zero()
    };
    for (name, pool) in snapshot.pools() {
        let Some(backoff) = current_backoff(snapshot, pool) else { continue };
        for failed in in_use(snapshot, pool, backoff) {
            let waits = !is_over(&failed.until);
            // One that is counted tells nothing more: the breaker may keep it for long, and its node takes what it can.
            let mut tried = awaited(snapshot, name, &failed.template, failed.stage);
            if waits || tried.any(|claim| !is_listed_as_counted(backoff, claim)) {
                let hold = hold_of(&mut held, name, &failed.template);
                hold.why.get_or_insert_with(|| describe(failed, waits));
            }
        }
        for failed in &backoff.offerings {
            let waits = !is_over(&failed.until);
            let mut tried = awaited(snapshot, name, &failed.template, NodeStage::Registration);
            if waits || tried.any(|claim| may_be(claim, failed)) {
                hold_of(&mut held, name, &failed.template).offerings.insert(offering_key(failed));
            }
        }
    }
    snapshot.set_launch_holds(held);
    wake
}

fn hold_of<'h>(held: &'h mut LaunchHolds, pool: &str, template: &str) -> &'h mut LaunchHold {
    held.entry(pool.to_owned()).or_default().entry(template.to_owned()).or_default()
}

fn is_listed_as_counted(backoff: &LaunchBackoff, claim: &NodeClaim) -> bool {
    claim.metadata.name.as_ref().is_some_and(|name| backoff.counted.contains(name))
}

/// Instance type, zone and capacity type of an offering.
pub(super) fn offering_key(offering: &OfferingBackoff) -> (String, String, CapacityType) {
    let capacity_type = CapacityType::parse(&offering.capacity_type).unwrap_or_default();
    (offering.instance_type.clone(), offering.zone.clone(), capacity_type)
}

fn may_be(claim: &NodeClaim, offering: &OfferingBackoff) -> bool {
    claim.spec.capacity_type == offering.capacity_type
        && claim.spec.zones.contains(&offering.zone)
        && claim.spec.instance_types.contains(&offering.instance_type)
}

fn describe(failed: &TemplateBackoff, waits: bool) -> String {
    let (come, comes) = match failed.stage {
        NodeStage::Registration => ("registered", "registers"),
        NodeStage::Initialization => ("was initialized in time", "is initialized"),
    };
    let next = if waits {
        format!("the next launch is tried after {}", failed.until.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    } else {
        format!("one launch at a time is tried until a node {comes}")
    };
    let of = |what: &str, name: &str| match name {
        "" => String::new(),
        name => format!(" {what} {name}"),
    };
    let (of_template, of_image) = (of("of template", &failed.template), of("with image", &failed.image));
    format!(
        "in {} rounds of launches no node{of_template}{of_image} {come} (last: {}); {next}",
        failed.rounds, failed.last
    )
}

/// What failed before in a pool, as planned instances are asked about it.
pub(crate) struct FailedLaunches<'a> {
    templates: BTreeSet<&'a str>,
    offerings: BTreeSet<(&'a str, (String, String, CapacityType))>,
}

impl<'a> FailedLaunches<'a> {
    /// Those of a pool, until it or its class is edited.
    pub(crate) fn of(snapshot: &Snapshot, pool: &'a TenantPool) -> Self {
        let backoff = current_backoff(snapshot, pool);
        let templates = backoff.into_iter().flat_map(|backoff| in_use(snapshot, pool, backoff));
        let offerings = backoff.into_iter().flat_map(|backoff| &backoff.offerings);
        Self {
            templates: templates.map(|failed| failed.template.as_str()).collect(),
            offerings: offerings.map(|failed| (failed.template.as_str(), offering_key(failed))).collect(),
        }
    }

    /// The planned instances that may be launched now: one of each template and each offering that failed before. The
    /// others are planned again once the outcome is known.
    pub(crate) fn limit_probes<'m>(
        &self,
        mut instances: Vec<&'m PlannedInstance>,
    ) -> Vec<&'m PlannedInstance> {
        let (mut offerings, mut templates) = (BTreeSet::new(), BTreeSet::new());
        instances.retain(|instance| {
            let template = instance.template.as_str();
            let offering = (template, key_as(instance, &instance.instance_type));
            (!self.offerings.contains(&offering) || offerings.insert(offering))
                && (!self.templates.contains(template) || templates.insert(template))
        });
        instances
    }

    /// True if a type failed in the zone and capacity type of a planned instance: then it is no alternative.
    pub(crate) fn has(&self, instance: &PlannedInstance, instance_type: &str) -> bool {
        // Most pools have none, and this is asked for every alternative.
        !self.offerings.is_empty()
            && self.offerings.contains(&(instance.template.as_str(), key_as(instance, instance_type)))
    }
}

/// The offering of a planned instance, were it of this type.
fn key_as(instance: &PlannedInstance, instance_type: &str) -> (String, String, CapacityType) {
    (instance_type.to_owned(), instance.zone.clone(), instance.capacity_type)
}

/// The edit hash of the pool and the generation of its class, recorded on new claims.
pub(crate) fn launched_for(snapshot: &Snapshot, pool: &TenantPool) -> String {
    as_written(generations(snapshot, pool))
}

/// The value of the annotation.
pub(super) fn as_written((pool, class): (i64, i64)) -> String {
    format!("{pool}/{class}")
}

/// True if a claim was created since the pool and its class became what [`launched_for`] says.
pub(crate) fn is_launched_for(launched_for: &str, claim: &NodeClaim) -> bool {
    let launched = claim.metadata.annotations.as_ref().and_then(|a| a.get(keys::LAUNCHED_FOR));
    launched.is_none_or(|launched| launched == launched_for)
}

/// The condition about launches whose node didn't register or wasn't initialized in time; none while nodes come.
pub(crate) fn registration_condition(ctx: &ReconcileContext<'_>, pool: &TenantPool) -> Option<Statement> {
    let backoff = current_backoff(ctx.snapshot, pool)?;
    let worst = in_use(ctx.snapshot, pool, backoff)
        .max_by_key(|failed| (failed.stage == NodeStage::Registration, failed.rounds));
    let is_late = worst.is_some_and(|failed| failed.stage == NodeStage::Initialization);
    let (reason, what) = if let Some(failed) = worst {
        let reason = if is_late { reasons::NODES_NOT_INITIALIZING } else { reasons::NODES_NOT_REGISTERING };
        (reason, describe(failed, failed.until.0 > ctx.now.wall))
    } else {
        let last = backoff.offerings.last()?;
        let what = format!(
            "{} instance types launched nodes that didn't register, last {} in {} ({}); they are left out for a while",
            backoff.offerings.len(),
            last.instance_type,
            last.zone,
            last.capacity_type,
        );
        (reasons::OFFERINGS_NOT_REGISTERING, what)
    };
    let remedy = if is_late {
        "such nodes are replaced after the pool's initializationTimeout. See what the condition Initialized of their \
         NodeClaims names: the device plugin, the agent that removes the startup taint, the network plugin, or the image"
            .to_owned()
    } else {
        format!(
            "after {} s without a node an instance is terminated. See the instance's console output, the class's image \
             and user data, its network, and the permission of its role to join the cluster",
            ctx.settings.registration_timeout.as_secs(),
        )
    };
    let message = format!("{what}; {remedy}. An edit of the pool or of its class launches at once");
    Some(Statement { kind: reasons::NODE_REGISTRATION_HEALTHY, status: Some(false), reason, message })
}
