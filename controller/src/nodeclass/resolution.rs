//! Resolution of EC2NodeClasses: their status, and the list of their offerings.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    EC2NodeClass,
    condition::{READY, set},
};
use croft_cloud::{ClassFindings, InUse};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use crate::{
    action::{Action, Key, Resolution},
    definitions::events,
    in_flight::InFlight,
    kube_api::{Target, Verb},
    nodeclaim::{launch_attempt::open_request, writes::WATCH_LAG},
    nodeclass::findings,
    reconcile::{ReconcileContext, object_reference},
    state::{Snapshot, instance_of},
    tenant::Isolation,
};

/// A class that isn't ready is resolved this often: a user is probably correcting it.
const UNREADY_EVERY: Duration = Duration::from_secs(15);

/// Resolves classes. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub struct NodeClasses {
    classes: BTreeMap<String, ClassProgress>,
    /// When unused launch templates and profiles were last removed.
    swept: Option<Duration>,
}

/// The last requests about a class.
#[derive(Debug, Default)]
struct ClassProgress {
    /// When it was last resolved, and at which generation.
    resolved: Option<(Duration, Option<i64>)>,
    /// Whether all of its terms resolved.
    ready: bool,
    /// When its offerings were last listed.
    offerings: Option<Duration>,
    /// Earlier findings that are missing, and since when some are.
    missing: Option<(Duration, Vec<String>)>,
}

impl NodeClasses {
    /// Takes in the findings of `class` at `mono`.
    pub fn observe_findings(
        &mut self,
        name: &str,
        class: &EC2NodeClass,
        findings: &ClassFindings,
        mono: Duration,
    ) {
        let Some(progress) = self.classes.get_mut(name) else { return };
        if !progress.ready && findings.is_ready() {
            progress.offerings = None;
        }
        progress.ready = findings.is_ready();
        let missing = findings::lost(class, findings);
        let since = progress.missing.as_ref().map_or(mono, |(since, _)| *since);
        progress.missing = (!missing.is_empty()).then_some((since, missing));
    }

    /// Lists the offerings of a class in the next pass.
    pub fn request_offerings(&mut self, name: &str) {
        if let Some(progress) = self.classes.get_mut(name) {
            progress.offerings = None;
        }
    }

    /// Lists the offerings of every class in the next pass. Returns their names.
    pub fn request_all_offerings(&mut self) -> Vec<String> {
        self.classes.values_mut().for_each(|progress| progress.offerings = None);
        self.classes.keys().cloned().collect()
    }

    /// True once the offerings of every usable class are known.
    #[must_use]
    pub fn offerings_known(&self, snapshot: &Snapshot, in_flight: &InFlight) -> bool {
        snapshot.classes().iter().all(|(name, class)| {
            let unusable = |progress: &ClassProgress| {
                let key = Key::Class(name.clone());
                progress.resolved.is_some() && !progress.ready && !in_flight.is_in_flight(&key)
            };
            class.types.is_some()
                || class.types_error.is_some()
                || self.classes.get(name).is_some_and(unusable)
        })
    }

    /// Resolves classes, lists offerings, and removes unused launch artifacts, when due.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, isolation: &Isolation) {
        write_spec_valid(ctx, isolation);
        let snapshot = ctx.snapshot;
        self.classes.retain(|name, _| snapshot.classes().contains_key(name));
        for (name, class) in snapshot.classes() {
            if class.object.metadata.deletion_timestamp.is_none() {
                record_events(ctx, &class.object);
                self.resolve(ctx, name, &class.object);
            }
        }
        self.sweep(ctx);
    }

    fn resolve(&mut self, ctx: &mut ReconcileContext<'_>, name: &str, class: &Arc<EC2NodeClass>) {
        let mono = ctx.now.mono;
        let progress = self.classes.entry(name.to_owned()).or_default();
        let generation = class.metadata.generation;
        let every = if progress.ready { ctx.settings.resolve_every } else { UNREADY_EVERY };
        let due = match progress.resolved {
            Some((at, resolved)) if resolved == generation => ctx.has_lasted(at, every),
            _ => true,
        };
        if due && ctx.is_idle(&Key::Class(name.to_owned())) {
            progress.resolved = Some((mono, generation));
            let since = progress.missing.as_ref().map(|(since, _)| *since);
            let confirmed = since.is_some_and(|since| ctx.has_lasted(since, findings::ABSENT_FOR));
            ctx.request(Action::Resolve(Resolution { class: Arc::clone(class), confirmed }));
        }
        if let Some((_, missing)) = &progress.missing {
            let note = format!(
                "{} no longer found: the lookup may be incomplete, or a tag was removed. No node is replaced for it until \
                 it has been missing for {} minutes; launches use the current findings",
                missing.join(", "),
                findings::ABSENT_FOR.as_secs() / 60,
            );
            ctx.event(object_reference(&**class), true, events::FINDINGS_MISSING, note);
        }
        let due = progress.offerings.is_none_or(|at| ctx.has_lasted(at, ctx.settings.offers_every));
        if progress.ready && due && ctx.is_idle(&Key::Offerings(name.to_owned())) {
            progress.offerings = Some(mono);
            ctx.request(Action::ListOfferings(Arc::clone(class)));
        }
    }

    fn sweep(&mut self, ctx: &mut ReconcileContext<'_>) {
        let due = match self.swept {
            Some(at) => ctx.has_lasted(at, ctx.settings.sweep_every),
            // Not right after the start, when other work is urgent.
            None => {
                self.swept = Some(ctx.now.mono);
                false
            }
        };
        if due && ctx.is_idle(&Key::Sweep) {
            self.swept = Some(ctx.now.mono);
            let claims = ctx.snapshot.claims().values();
            ctx.request(Action::Sweep(InUse {
                classes: ctx.snapshot.classes().values().map(|class| (*class.object).clone()).collect(),
                unanswered: claims.clone().filter_map(|claim| open_request(claim)).collect(),
                instances: claims.filter_map(|claim| instance_of(claim)).map(str::to_owned).collect(),
            }));
        }
    }
}

/// Writes the condition SpecValid of classes, also of those that can't be read and so aren't resolved.
fn write_spec_valid(ctx: &mut ReconcileContext<'_>, isolation: &Isolation) {
    for (name, class, statement) in isolation.class_statements(ctx.snapshot) {
        let key = Key::Class(name.clone());
        let is_new = statement.status == Some(false) && statement.differs(&class.conditions);
        let event = is_new.then(|| (statement.reason, statement.message.clone()));
        let mut conditions = class.conditions.clone();
        if !ctx.is_idle(&key) || !set(&mut conditions, statement, class.generation, Time(ctx.now.wall)) {
            continue;
        }
        if let Some((reason, message)) = event {
            ctx.event(class.reference.clone(), true, reason, message);
        }
        // Conditions are written as a whole, so the write holds only for the version that was read.
        let patch =
            json!({"metadata": {"resourceVersion": class.version}, "status": {"conditions": conditions}});
        ctx.request(Action::write_and_wait(Target::Class(name.clone()), Verb::PatchStatus(patch), WATCH_LAG));
    }
}

/// Events about the False conditions of a class.
fn record_events(ctx: &mut ReconcileContext<'_>, class: &EC2NodeClass) {
    let Some(status) = &class.status else { return };
    let is_current = |c: &&Condition| c.observed_generation == class.metadata.generation;
    let is_reported = |c: &&Condition| c.status == "False" && c.type_ != READY;
    for condition in status.conditions.iter().filter(is_reported).filter(is_current) {
        ctx.event_from_condition(object_reference(class), condition);
    }
}
