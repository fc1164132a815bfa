//! TenantPools: what they have, whether they can have more, and how they go.

mod deletion;
pub mod supply;

use std::{sync::Arc, time::Duration};

use croft_api::{
    TenantPool, TenantPoolStatus,
    amount::Amount,
    condition::{ACCEPTED, INITIALIZED, READY, SPEC_VALID, Statement, UNLIMITED, set},
    convert::unlimited,
    pool::Provisioner,
};
use croft_scheduler::{Price, Resources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use super::{
    Memory, Round, backoff,
    breaker::{Cause, Stopped},
    lifecycle::WATCH_LAG,
    reference, standing,
};
use crate::{
    action::{Action, Key},
    merge,
    seam::{Call, Target, Verb},
    snapshot::{Snapshot, is, price},
};

/// Keeps a pool until its nodes are gone.
pub const FINALIZER: &str = "croft.dev/pool";
/// A pool of a fixed size has its nodes.
const REPLICAS_READY: &str = "ReplicasReady";
/// Croft manages the nodes that it launched for the pool. Said only where it does not.
const NODES_MANAGED: &str = "NodesManaged";
/// A pool's spare places are there.
const HEADROOM_READY: &str = "HeadroomReady";

/// A pool of which nothing seems to have changed is looked at again after this long, when something else is decided.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// While pods keep coming, what is said of their pool waits for this long: names for claims are reserved on the same
/// object, and a plan would wait for the write.
const GIVES_WAY_FOR: Duration = Duration::from_secs(5);

/// When a pool's status was last looked at, and on which picture.
#[derive(Clone, Debug)]
pub struct Looked {
    at: Duration,
    picture: Picture,
    /// Since when the picture is another one.
    stale_since: Option<Duration>,
}

/// What the words about a pool are made of, as numbers that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Picture {
    touched: u64,
    shortages: u64,
    /// Plans say how a pool of a fixed size and spare places stand.
    plan: Option<u64>,
    collects: bool,
    /// What the breaker holds back.
    stopped: Option<Cause>,
    /// Rounds of launches without a node, and offerings left out.
    backoff: (i32, usize),
    /// Its plans panic.
    panics: bool,
}

/// What pools have.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings {
    pub(super) nodes: i64,
    pub(super) capacity: Resources,
    pub(super) cost: Price,
}

impl Holdings {
    /// Adds what another pool has.
    pub(super) fn add(&mut self, other: &Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.capacity.add(&other.capacity);
        self.cost = self.cost.saturating_add(other.cost);
    }
}

/// Decides what to say about every pool.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    memory.pool_looked.retain(|name, _| snapshot.pools.contains_key(name));
    memory.supplies.keep(snapshot);
    memory.apart.keep(snapshot);
    memory.unnamed_since.retain(|name, _| snapshot.pools.contains_key(name));
    for (name, pool) in &snapshot.pools {
        let is_kept = pool.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER);
        if pool.metadata.deletion_timestamp.is_none() {
            if !is_kept {
                write_finalizers(round, name, pool, true);
            }
        } else if !is_kept || deletion::advance(round, memory, name, pool) {
            continue;
        }
        let planned = standing::replicas(pool).is_some() || snapshot.headroom_of(name).is_some();
        let picture = Picture {
            touched: snapshot.touched(name),
            shortages: snapshot.shortages.1,
            plan: planned.then_some(snapshot.plan_version),
            collects: memory.collection_stopped.is_none(),
            stopped: round.stopped(name).map(|stopped| stopped.cause),
            backoff: {
                let backoff = pool.status.as_ref().and_then(|status| status.launch_backoff.as_ref());
                backoff.map_or((0, 0), |backoff| (backoff.rounds, backoff.offerings.len()))
            },
            panics: memory.apart.statement(name).is_some(),
        };
        if let Some(looked) = memory.pool_looked.get_mut(name) {
            let rests = if looked.picture == picture {
                looked.stale_since = None;
                round.now.mono.saturating_sub(looked.at) < LOOK_AGAIN
            } else {
                let since = *looked.stale_since.get_or_insert(round.now.mono);
                let gives_way = round.awaits_plan && !round.has_lasted(since, GIVES_WAY_FOR);
                gives_way || !round.has_lasted(looked.at, round.settings.status_every)
            };
            if rests {
                continue;
            }
        }
        if !round.is_idle(&Key::Pool(name.clone())) {
            continue;
        }
        memory.pool_looked.insert(name.clone(), Looked { at: round.now.mono, picture, stale_since: None });
        let held = count(snapshot, name);
        let old = pool.status.clone().unwrap_or_default();
        let statements = statements(round, memory, name, pool);
        let new = status(round, pool, &held, &old, &statements);
        if let Some(patch) = merge::diff_of(&old, &new) {
            tell_changes(round, pool, &old, &statements);
            // Conditions are written as a whole, and not only from here: this holds for the version that was read.
            let ObjectMeta { uid, resource_version, .. } = &pool.metadata;
            let metadata = if patch.get("conditions").is_some() {
                json!({"uid": uid, "resourceVersion": resource_version})
            } else {
                json!({"uid": uid})
            };
            round.act(Action::Write {
                key: Key::Pool(name.clone()),
                call: Call {
                    target: Target::Pool(name.clone()),
                    verb: Verb::PatchStatus(json!({"metadata": metadata, "status": patch})),
                },
                rest: Duration::ZERO,
            });
        }
    }
}

/// What a pool has: its claims' machines, and nodes with its label that have no claim.
pub(super) fn count(snapshot: &Snapshot, pool: &str) -> Holdings {
    let mut held = Holdings::default();
    for (_, claim) in snapshot.claims_of_pool(pool) {
        held.nodes += 1;
        let status = claim.status.as_ref();
        if let Some((_, node)) = snapshot.node_of(claim).filter(|(_, node)| !node.capacity.is_empty()) {
            held.capacity.add(&node.capacity);
        } else if let Some(launched) = status.filter(|s| s.instance_type.is_some()) {
            for (name, amount) in &launched.capacity {
                if let Ok(quantity) = amount.0.parse::<croft_scheduler::Quantity>() {
                    let mut one = Resources::new();
                    one.set_quantity(name, quantity);
                    held.capacity.add(&one);
                }
            }
        } else if let Some(planned) =
            claim.spec.instance_types.first().and_then(|t| snapshot.instance_type(claim, t))
        {
            held.capacity.add(&planned.capacity);
        }
        held.cost = held.cost.saturating_add(price(claim).unwrap_or_default());
    }
    for (name, node) in snapshot.nodes_of_pool(pool) {
        if snapshot.claim_of_node(name).is_none() {
            held.nodes += 1;
            held.capacity.add(&node.capacity);
        }
    }
    held
}

fn status(
    round: &Round<'_>,
    pool: &TenantPool,
    held: &Holdings,
    old: &TenantPoolStatus,
    statements: &[Statement],
) -> TenantPoolStatus {
    let mut new = old.clone();
    new.nodes = Some(held.nodes);
    new.resources =
        held.capacity.to_quantities().into_iter().map(|(n, q)| (n, Amount(q.to_string()))).collect();
    new.cost_per_hour = Some(held.cost.to_string());
    // What isn't said any more isn't so any more. Whether the pool is accepted is said by the tenants' part.
    new.conditions.retain(|c| {
        c.type_ == ACCEPTED || c.type_ == SPEC_VALID || statements.iter().any(|s| s.kind == c.type_)
    });
    for statement in statements {
        set(&mut new.conditions, statement.clone(), pool.metadata.generation, Time(round.now.wall));
    }
    new
}

fn statements(
    round: &Round<'_>,
    memory: &mut Memory,
    name: &String,
    pool: &Arc<TenantPool>,
) -> Vec<Statement> {
    if pool.metadata.deletion_timestamp.is_some() {
        return deletion::statement(round.snapshot, name).into_iter().collect();
    }
    if pool.spec.provisioner != Provisioner::Croft {
        return handed_over(round.snapshot, name, pool).into_iter().collect();
    }
    let mut said = supply::judgements(round, &mut memory.supplies, name, pool);
    said.extend(replicas(round, memory, name, pool));
    said.extend(headroom(round, name));
    said.extend(round.stopped(name).map(Stopped::statement));
    said.extend(backoff::statement(round, pool));
    said.extend(memory.apart.statement(name));
    let tenants = round.snapshot.tenants.values().filter(|t| t.spec.pools.contains(name));
    said.push(unlimited::of_pool(pool, tenants.map(|tenant| &**tenant)));
    if let Some(why) = &memory.collection_stopped {
        said.push(Statement {
            kind: "CollectionStopped",
            status: Some(true),
            reason: "TooManyOrphans",
            message: why.clone(),
        });
    }
    said
}

/// What becomes of the nodes that Croft launched for a pool which another provisioner makes nodes for now.
fn handed_over(snapshot: &Snapshot, name: &str, pool: &TenantPool) -> Option<Statement> {
    let left = snapshot.claims_of_pool(name).count();
    let message = format!(
        "{left} nodes that Croft launched stay: while spec.provisioner is {:?}, Croft neither removes empty ones nor \
         consolidates or replaces any; delete their NodeClaims, or set spec.provisioner: Croft",
        pool.spec.provisioner
    );
    (left > 0).then_some(Statement {
        kind: NODES_MANAGED,
        status: Some(false),
        reason: "ProvisionedElsewhere",
        message,
    })
}

fn replicas(round: &Round<'_>, memory: &Memory, name: &str, pool: &TenantPool) -> Option<Statement> {
    let wanted = standing::replicas(pool)?;
    let claims = round.snapshot.claims_of_pool(name).map(|(_, claim)| claim);
    let ready =
        claims.filter(|c| c.metadata.deletion_timestamp.is_none() && is(c, INITIALIZED)).count().min(wanted);
    let mut message = format!("{ready} of {wanted} nodes are ready");
    let (reason, why) = match memory.standing.why(name) {
        _ if ready == wanted => ("AllThere", None),
        Some(why) => ("Short", Some(why)),
        None => ("Coming", None),
    };
    if let Some(why) = why {
        message.push_str(": ");
        message.push_str(why);
    }
    Some(Statement { kind: REPLICAS_READY, status: Some(ready == wanted), reason, message })
}

fn headroom(round: &Round<'_>, name: &str) -> Option<Statement> {
    let spare = round.snapshot.headroom_of(name)?;
    let mut message = format!("{} of {} spare places are there or coming", spare.placed, spare.wanted);
    if let Some(why) = &spare.why {
        message.push_str(": ");
        message.push_str(why);
    }
    let whole = spare.placed == spare.wanted;
    let reason = if whole { "Kept" } else { "Short" };
    Some(Statement { kind: HEADROOM_READY, status: Some(whole), reason, message })
}

fn tell_changes(
    round: &mut Round<'_>,
    pool: &Arc<TenantPool>,
    old: &TenantPoolStatus,
    statements: &[Statement],
) {
    for said in statements.iter().filter(|s| s.status == Some(false) && ![READY, UNLIMITED].contains(&s.kind))
    {
        let was = old.conditions.iter().find(|c| c.type_ == said.kind);
        if was.is_none_or(|c| c.status != "False" || c.reason != said.reason) {
            let warning = said.reason != "Coming";
            round.tell(reference(&**pool), warning, said.reason, said.message.clone());
        }
    }
}

fn write_finalizers(round: &mut Round<'_>, name: &str, pool: &TenantPool, ours: bool) {
    let mut finalizers: Vec<&str> =
        pool.metadata.finalizers.iter().flatten().map(String::as_str).filter(|f| *f != FINALIZER).collect();
    if ours {
        finalizers.push(FINALIZER);
    }
    round.act(Action::Write {
        key: Key::Pool(name.to_owned()),
        call: Call {
            target: Target::Pool(name.to_owned()),
            verb: Verb::Patch(json!({"metadata": {
                "uid": pool.metadata.uid,
                "resourceVersion": pool.metadata.resource_version,
                "finalizers": finalizers,
            }})),
        },
        rest: if ours { Duration::ZERO } else { WATCH_LAG },
    });
}
