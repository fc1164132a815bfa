//! Status and finalizer of TenantPools.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    TenantPool, TenantPoolStatus,
    amount::Amount,
    condition::{ACCEPTED, INITIALIZED, READY, SPEC_VALID, Statement, UNLIMITED, set},
    convert::{static_capacity::sizes, unlimited},
    pool::{ExtendedResource, InstanceLabel},
};
use croft_runtime::kubernetes::Release;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use crate::{
    action::{Action, Key},
    definitions::{conditions as reasons, keys},
    kube_api::{Target, Verb},
    kubernetes_features, merge_patch,
    nodeclaim::{
        garbage_collection::GarbageCollection, launch_backoff::registration_condition, writes::WATCH_LAG,
    },
    nodepool::{
        deletion::{Deletion, Step},
        static_capacity::StaticCapacity,
        supply::Supplies,
    },
    provisioning::panic_isolation::PanicIsolation,
    reconcile::{
        ReconcileContext,
        breaker::{Cause, Stopped},
        object_reference,
    },
    state::{
        Snapshot, has_condition,
        holdings::{Holdings, count},
    },
    tenant::Isolation,
};

/// A pool without changes is compared again after this long, if a pass runs anyway.
const COMPARE_AGAIN: Duration = Duration::from_secs(60);
/// While pods arrive, status writes of their pool wait for this long: names of claims are reserved on the same object,
/// and a scheduling run would wait for the write.
const DEFERRED_FOR: Duration = Duration::from_secs(5);

/// Facts about pools from other deciders.
#[derive(Clone, Copy)]
pub struct PoolInputs<'a> {
    /// The conditions about label and spec.
    pub isolation: &'a Isolation,
    /// Nodes that pools with static capacity lack.
    pub static_capacity: &'a StaticCapacity,
    /// Pools on which the scheduler panics.
    pub panics: &'a PanicIsolation,
    /// Whether garbage collection is stopped.
    pub garbage_collection: &'a GarbageCollection,
}

/// The last comparison of a pool's status.
#[derive(Clone, Debug)]
struct Compared {
    at: Duration,
    inputs: StatusInputs,
    /// Since when the inputs differ from those.
    stale_since: Option<Duration>,
}

/// The inputs of a pool's status, as numbers that change with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StatusInputs {
    pool_version: u64,
    unavailable_version: u64,
    /// Plans determine how static capacity and headroom stand.
    plan_version: Option<u64>,
    collects: bool,
    /// The state of the breaker.
    stopped: Option<Cause>,
    /// Rounds of launches without a node, and how many offerings are left out.
    backoff: (i32, usize),
    panics: bool,
    /// Voluntary disruption is paused.
    paused: bool,
    release: Option<Release>,
}

/// Writes statuses and finalizers.
#[derive(Debug, Default)]
pub struct PoolStatus {
    compared: BTreeMap<String, Compared>,
    supplies: Supplies,
    deletion: Deletion,
}

impl PoolStatus {
    /// Writes the status of every pool whose inputs have changed, and takes the next step of each deletion.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, inputs: PoolInputs<'_>) {
        let snapshot = ctx.snapshot;
        self.compared.retain(|name, _| snapshot.pools().contains_key(name));
        self.supplies.retain_known(snapshot);
        self.deletion.retain_known(snapshot);
        for (name, pool) in snapshot.pools() {
            let has_finalizer = pool.metadata.finalizers.iter().flatten().any(|f| f == keys::POOL_FINALIZER);
            if pool.metadata.deletion_timestamp.is_none() {
                if !has_finalizer {
                    ctx.request(write_finalizers(name, pool, true));
                }
            } else if !has_finalizer {
                continue;
            } else if self.deletion.advance(ctx, name, pool) == Step::Release {
                ctx.request(write_finalizers(name, pool, false));
                continue;
            }
            if let Some(end) = snapshot.pause_of(pool, ctx.now.wall).and_then(|pause| pause.end()) {
                ctx.has_come(end);
            }
            let now = status_inputs(ctx, name, pool, inputs);
            // Launches and pods wait for the conditions of isolation, and people for the end of a deletion.
            let urgent = if pool.metadata.deletion_timestamp.is_some() {
                self.deletion.is_untold(ctx, name, pool)
            } else {
                let held =
                    pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
                inputs.isolation.pool_statements(name).iter().any(|s| s.differs(held))
            };
            if !(self.is_due(ctx, name, now) || urgent) || !ctx.is_idle(&Key::Pool(name.clone())) {
                continue;
            }
            self.compared.insert(name.clone(), Compared { at: ctx.now.mono, inputs: now, stale_since: None });
            let statements = self.statements(ctx, name, pool, inputs);
            let resources = self.supplies.extended_resources(ctx.snapshot, name);
            let labels = self.supplies.instance_labels(ctx.snapshot, name);
            write_status(ctx, name, pool, &statements, (resources, labels));
        }
    }

    fn is_due(&mut self, ctx: &mut ReconcileContext<'_>, name: &str, inputs: StatusInputs) -> bool {
        let Some(compared) = self.compared.get_mut(name) else { return true };
        if compared.inputs == inputs {
            compared.stale_since = None;
            return ctx.now.mono.saturating_sub(compared.at) >= COMPARE_AGAIN;
        }
        let since = *compared.stale_since.get_or_insert(ctx.now.mono);
        let deferred = ctx.awaits_plan && !ctx.has_lasted(since, DEFERRED_FOR);
        !deferred && ctx.has_lasted(compared.at, ctx.settings.status_every)
    }

    fn statements(
        &mut self,
        ctx: &ReconcileContext<'_>,
        name: &str,
        pool: &Arc<TenantPool>,
        inputs: PoolInputs<'_>,
    ) -> Vec<Statement> {
        if pool.metadata.deletion_timestamp.is_some() {
            return self.deletion.statement(ctx, name, pool).into_iter().collect();
        }
        let mut statements = inputs.isolation.pool_statements(name).to_vec();
        if !ctx.snapshot.is_provisioned_by_croft(name) {
            statements.extend(provisioned_elsewhere(ctx.snapshot, name, pool));
            return statements;
        }
        statements.extend(self.supplies.statements(ctx.snapshot, name));
        statements.extend(replicas_condition(ctx.snapshot, inputs.static_capacity, name, pool));
        statements.extend(headroom_condition(ctx.snapshot, name));
        statements.extend(ctx.stopped(name).map(Stopped::statement));
        statements.extend(paused_condition(ctx, pool));
        statements.extend(schedule_condition(ctx.snapshot, name));
        statements.extend(registration_condition(ctx, pool));
        statements.extend(inputs.panics.statement(name));
        statements.extend(kubernetes_features::pool_condition(ctx.snapshot.release()));
        let tenants = ctx.snapshot.tenants_of_pool(name);
        statements.push(unlimited::of_pool(pool, tenants.map(|(_, tenant)| &**tenant)));
        if let Some(why) = inputs.garbage_collection.stopped() {
            statements.push(Statement {
                kind: reasons::COLLECTION_STOPPED,
                status: Some(true),
                reason: reasons::TOO_MANY_ORPHANS,
                message: why.to_owned(),
            });
        }
        statements
    }
}

fn status_inputs(
    ctx: &ReconcileContext<'_>,
    name: &str,
    pool: &TenantPool,
    inputs: PoolInputs<'_>,
) -> StatusInputs {
    let snapshot = ctx.snapshot;
    let follows_plan = sizes(pool).next().is_some() || snapshot.headroom_of(name).is_some();
    let backoff = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
    StatusInputs {
        pool_version: snapshot.pool_version(name),
        unavailable_version: snapshot.unavailable_version(),
        plan_version: follows_plan.then_some(snapshot.plan_version()),
        collects: inputs.garbage_collection.stopped().is_none(),
        stopped: ctx.stopped(name).map(|stopped| stopped.cause),
        backoff: backoff.map_or((0, 0), |backoff| {
            (backoff.templates.iter().map(|failed| failed.rounds).sum(), backoff.offerings.len())
        }),
        panics: inputs.panics.statement(name).is_some(),
        paused: snapshot.pause_of(pool, ctx.now.wall).is_some(),
        release: snapshot.release(),
    }
}

/// Writes the status if it differs, with events about conditions that became False.
fn write_status(
    ctx: &mut ReconcileContext<'_>,
    name: &str,
    pool: &Arc<TenantPool>,
    statements: &[Statement],
    (resources, labels): (Option<Vec<ExtendedResource>>, Option<Vec<InstanceLabel>>),
) {
    let old = pool.status.clone().unwrap_or_default();
    let mut new = new_status(ctx, pool, &count(ctx.snapshot, name), &old, statements);
    // Resources and labels that aren't known for a while stay as they were known.
    let is_elsewhere = !ctx.snapshot.is_provisioned_by_croft(name);
    if resources.is_some() || is_elsewhere {
        new.extended_resources = resources;
    }
    if labels.is_some() || is_elsewhere {
        new.instance_labels = labels;
    }
    let Some(patch) = merge_patch::diff_of(&old, &new) else { return };
    record_events(ctx, pool, &old, statements);
    // Conditions are written as a whole, so the write holds only for the version that was read.
    let ObjectMeta { uid, resource_version, .. } = &pool.metadata;
    let metadata = if patch.get("conditions").is_some() {
        json!({"uid": uid, "resourceVersion": resource_version})
    } else {
        json!({"uid": uid})
    };
    ctx.request(Action::write(
        Target::Pool(name.to_owned()),
        Verb::PatchStatus(json!({"metadata": metadata, "status": patch})),
    ));
}

fn new_status(
    ctx: &ReconcileContext<'_>,
    pool: &TenantPool,
    held: &Holdings,
    old: &TenantPoolStatus,
    statements: &[Statement],
) -> TenantPoolStatus {
    let mut new = old.clone();
    new.nodes = Some(held.nodes);
    new.resources =
        held.capacity.to_quantities().into_iter().map(|(n, q)| (n, Amount(q.to_string()))).collect();
    new.cost_per_hour = Some(held.cost_text());
    // A condition without a statement no longer holds, but for those that keep their status until isolation is known.
    new.conditions.retain(|c| {
        c.type_ == ACCEPTED || c.type_ == SPEC_VALID || statements.iter().any(|s| s.kind == c.type_)
    });
    for statement in statements {
        set(&mut new.conditions, statement.clone(), pool.metadata.generation, Time(ctx.now.wall));
    }
    new
}

/// The condition of a pool whose nodes no voluntary disruption touches for now.
fn paused_condition(ctx: &ReconcileContext<'_>, pool: &TenantPool) -> Option<Statement> {
    let pause = ctx.snapshot.pause_of(pool, ctx.now.wall)?;
    let (reason, resume) = if pause.is_of_cluster {
        (reasons::PAUSED_BY_CONFIG, "croft resume --all".to_owned())
    } else {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        (reasons::PAUSED_BY_POOL, format!("croft resume {name}"))
    };
    let message = format!(
        "{pause}. What began before ends, and broken and interrupted nodes are still replaced. `{resume}` ends the pause"
    );
    Some(Statement { kind: reasons::DISRUPTION_PAUSED, status: Some(true), reason, message })
}

/// The condition of a pool of which a schedule holds.
fn schedule_condition(snapshot: &Snapshot, name: &str) -> Option<Statement> {
    let schedules = snapshot.schedules_of(name)?;
    let number = schedules.in_force?;
    let until = schedules.until.map_or_else(String::new, |until| format!(" at least until {until:.0}"));
    let message = format!(
        "spec.schedules[{number}] holds{until}: what it says counts in place of the pool's own fields"
    );
    Some(Statement {
        kind: reasons::SCHEDULE_IN_FORCE,
        status: Some(true),
        reason: reasons::SCHEDULED,
        message,
    })
}

/// The condition of a pool whose provisioner is no longer Croft, while nodes that Croft launched remain.
fn provisioned_elsewhere(snapshot: &Snapshot, name: &str, pool: &TenantPool) -> Option<Statement> {
    let left = snapshot.claims_of_pool(name).count();
    let message = format!(
        "{left} nodes that Croft launched stay: while spec.provisioner is {:?}, Croft neither removes empty ones nor \
         consolidates or replaces any; delete their NodeClaims, or set spec.provisioner: Croft",
        pool.spec.provisioner
    );
    (left > 0).then_some(Statement {
        kind: reasons::NODES_MANAGED,
        status: Some(false),
        reason: reasons::PROVISIONED_ELSEWHERE,
        message,
    })
}

fn replicas_condition(
    snapshot: &Snapshot,
    static_capacity: &StaticCapacity,
    name: &str,
    pool: &TenantPool,
) -> Option<Statement> {
    let mut sizes = sizes(pool).peekable();
    sizes.peek()?;
    let (mut all_ready, mut lacks, mut sentences) = (true, false, Vec::new());
    for size in sizes {
        let claims = snapshot.claims_of_pool(name).map(|(_, claim)| claim);
        let counted = claims.filter(|c| size.has(c.template()) && c.metadata.deletion_timestamp.is_none());
        let wanted = size.replicas;
        let ready = counted.filter(|c| has_condition(c, INITIALIZED)).count().min(wanted);
        let of_template =
            size.template.map_or_else(String::new, |template| format!(" of template {template}"));
        let mut sentence = format!("{ready} of {wanted} nodes{of_template} are ready");
        if ready < wanted {
            all_ready = false;
            if let Some(why) = static_capacity.why(name, &size) {
                lacks = true;
                sentence = format!("{sentence}: {why}");
            }
        }
        sentences.push(sentence);
    }
    let reason = match (all_ready, lacks) {
        (true, _) => reasons::ALL_READY,
        (false, true) => reasons::INSUFFICIENT,
        (false, false) => reasons::IN_FLIGHT,
    };
    let message = sentences.join("; ");
    Some(Statement { kind: reasons::REPLICAS_READY, status: Some(all_ready), reason, message })
}

fn headroom_condition(snapshot: &Snapshot, name: &str) -> Option<Statement> {
    let headroom = snapshot.headroom_of(name)?;
    let mut message =
        format!("{} of {} headroom pods have a place or an in-flight node", headroom.placed, headroom.wanted);
    if let Some(why) = &headroom.why {
        message.push_str(": ");
        message.push_str(why);
    }
    let complete = headroom.placed == headroom.wanted;
    let reason = if complete { reasons::RESERVED } else { reasons::INSUFFICIENT };
    Some(Statement { kind: reasons::HEADROOM_READY, status: Some(complete), reason, message })
}

fn record_events(
    ctx: &mut ReconcileContext<'_>,
    pool: &Arc<TenantPool>,
    old: &TenantPoolStatus,
    statements: &[Statement],
) {
    let is_reported = |s: &&Statement| {
        // A key that isn't in force lasts less than a second.
        let silent = [READY, UNLIMITED, reasons::KUBERNETES_FEATURES].contains(&s.kind)
            || s.reason == reasons::KEY_NOT_IN_FORCE;
        s.status == Some(false) && !silent
    };
    for statement in statements.iter().filter(is_reported) {
        let was = old.conditions.iter().find(|c| c.type_ == statement.kind);
        let is_new = if [ACCEPTED, SPEC_VALID].contains(&statement.kind) {
            statement.differs(&old.conditions)
        } else {
            // Messages of the other conditions have counts.
            was.is_none_or(|c| c.status != "False" || c.reason != statement.reason)
        };
        if is_new {
            let warning = statement.reason != reasons::IN_FLIGHT;
            ctx.event(object_reference(&**pool), warning, statement.reason, statement.message.clone());
        }
    }
}

/// Adds Croft's finalizer to a pool, or removes it.
fn write_finalizers(name: &str, pool: &TenantPool, add: bool) -> Action {
    let others = pool.metadata.finalizers.iter().flatten().map(String::as_str);
    let mut finalizers: Vec<&str> = others.filter(|f| *f != keys::POOL_FINALIZER).collect();
    if add {
        finalizers.push(keys::POOL_FINALIZER);
    }
    Action::write_and_wait(
        Target::Pool(name.to_owned()),
        Verb::Patch(json!({"metadata": {
            "uid": pool.metadata.uid,
            "resourceVersion": pool.metadata.resource_version,
            "finalizers": finalizers,
        }})),
        if add { Duration::ZERO } else { WATCH_LAG },
    )
}
