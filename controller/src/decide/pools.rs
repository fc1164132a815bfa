//! TenantPools: what they have, whether they can have more, and how they go.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{
    EC2NodeClass, TenantPool, TenantPoolStatus,
    amount::Amount,
    condition::{READY, Statement, is_true, set},
    pool::Provisioner,
};
use croft_scheduler::{InstanceType, Price, Requirement, Resources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{Memory, Round, lifecycle, reference};
use crate::{
    action::{Action, Key},
    merge, names,
    seam::{Call, Target, Verb},
};

/// Keeps a pool until its nodes are gone.
pub const FINALIZER: &str = "croft.dev/pool";
/// The pool's class can launch.
const CLASS_READY: &str = "ClassReady";
/// The pool's requirements leave something to launch.
const REQUIREMENTS_VALID: &str = "RequirementsValid";
/// The cloud has what the pool may launch.
const CAPACITY_AVAILABLE: &str = "CapacityAvailable";

#[derive(Clone, Debug, Default)]
struct Holdings {
    nodes: i64,
    capacity: Resources,
    cost: Price,
}

/// Decides what to say about every pool.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    memory.pool_written.retain(|name, _| snapshot.pools.contains_key(name));
    let mut holdings: Option<BTreeMap<&str, Holdings>> = None;
    for (name, pool) in &snapshot.pools {
        if pool.metadata.deletion_timestamp.is_some() {
            going(round, name, pool);
            continue;
        }
        if pool.spec.provisioner != Provisioner::Croft {
            continue;
        }
        if !pool.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER) {
            write_finalizers(round, name, pool, true);
        }
        if let Some(at) = memory.pool_written.get(name).copied()
            && !round.has_lasted(at, round.settings.status_every)
        {
            continue;
        }
        if !round.is_idle(&Key::Pool(name.clone())) {
            continue;
        }
        let held = holdings.get_or_insert_with(|| count(round)).remove(name.as_str()).unwrap_or_default();
        let old = pool.status.clone().unwrap_or_default();
        let new = status(round, memory, name, pool, &held, &old);
        if let Some(patch) = merge::diff_of(&old, &new) {
            tell_changes(round, pool, &old, &new);
            memory.pool_written.insert(name.clone(), round.now.mono);
            round.act(Action::Write {
                key: Key::Pool(name.clone()),
                call: Call {
                    target: Target::Pool(name.clone()),
                    verb: Verb::PatchStatus(json!({"metadata": {"uid": pool.metadata.uid}, "status": patch})),
                },
                rest: std::time::Duration::ZERO,
            });
        }
    }
}

/// What every pool has: its claims' machines, and nodes with its label that have no claim.
fn count<'a>(round: &Round<'a>) -> BTreeMap<&'a str, Holdings> {
    let snapshot = round.snapshot;
    let mut held: BTreeMap<&str, Holdings> = BTreeMap::new();
    for claim in snapshot.claims.values() {
        let entry = held.entry(claim.spec.pool.as_str()).or_default();
        entry.nodes += 1;
        let status = claim.status.as_ref();
        if let Some((_, node)) = snapshot.node_of(claim).filter(|(_, node)| !node.capacity.is_empty()) {
            entry.capacity.add(&node.capacity);
        } else if let Some(launched) = status.filter(|s| s.instance_type.is_some()) {
            for (name, amount) in &launched.capacity {
                if let Ok(quantity) = amount.0.parse::<croft_scheduler::Quantity>() {
                    let mut one = Resources::new();
                    one.set_quantity(name, quantity);
                    entry.capacity.add(&one);
                }
            }
        } else if let Some(planned) =
            claim.spec.instance_types.first().and_then(|t| snapshot.instance_type(claim, t))
        {
            entry.capacity.add(&planned.capacity);
        }
        let price = status.and_then(|s| s.price_per_hour.as_deref()).and_then(|p| p.parse::<f64>().ok());
        entry.cost = entry.cost.saturating_add(price.and_then(Price::from_dollars).unwrap_or(Price::ZERO));
    }
    for (name, node) in &snapshot.nodes {
        let Some((pool, _)) =
            node.labels.get(names::POOL_LABEL).and_then(|p| snapshot.pools.get_key_value(p))
        else {
            continue;
        };
        if snapshot.claim_of_node(name).is_none() {
            let entry = held.entry(pool.as_str()).or_default();
            entry.nodes += 1;
            entry.capacity.add(&node.capacity);
        }
    }
    held
}

fn status(
    round: &Round<'_>,
    memory: &Memory,
    name: &str,
    pool: &TenantPool,
    held: &Holdings,
    old: &TenantPoolStatus,
) -> TenantPoolStatus {
    let mut new = old.clone();
    new.nodes = Some(held.nodes);
    new.resources =
        held.capacity.to_quantities().into_iter().map(|(n, q)| (n, Amount(q.to_string()))).collect();
    new.cost_per_hour = Some(held.cost.to_string());
    let mut statements = judgements(round, name, pool);
    if let Some(why) = &memory.collection_stopped {
        statements.push(Statement {
            kind: "CollectionStopped",
            status: Some(true),
            reason: "TooManyOrphans",
            message: why.clone(),
        });
    } else {
        new.conditions.retain(|c| c.type_ != "CollectionStopped");
    }
    let now = Time(round.now.wall);
    for statement in statements {
        set(&mut new.conditions, statement, pool.metadata.generation, now.clone());
    }
    new
}

fn judgements(round: &Round<'_>, name: &str, pool: &TenantPool) -> Vec<Statement> {
    let snapshot = round.snapshot;
    let mut said = Vec::new();
    let class_name =
        pool.spec.template.as_ref().map(|t| t.spec.node_class_ref.name.as_str()).unwrap_or_default();
    let class = snapshot.class_of(pool).and_then(|c| snapshot.classes.get(c));
    said.push(class_ready(class_name, class.map(|c| &*c.object)));
    let problem = snapshot.problems.get(&format!("TenantPool {name}"));
    let types = class.and_then(|c| c.types.as_deref());
    match (problem, types) {
        (Some(problem), _) => said.push(Statement {
            kind: REQUIREMENTS_VALID,
            status: Some(false),
            reason: "Unreadable",
            message: format!("{}: {}", problem.field, problem.problem),
        }),
        (None, Some(types)) => said.extend(offered(pool, types)),
        (None, None) => said.push(Statement {
            kind: REQUIREMENTS_VALID,
            status: None,
            reason: "NotJudged",
            message: class
                .and_then(|c| c.types_error.clone())
                .unwrap_or_else(|| "nothing is known yet of what the class may launch".to_owned()),
        }),
    }
    let trouble = said.iter().find(|s| s.kind != CAPACITY_AVAILABLE && s.status != Some(true));
    said.push(match trouble {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: "Ready",
            message: "the pool can launch nodes".to_owned(),
        },
        Some(s) => Statement { kind: READY, status: s.status, reason: s.reason, message: s.message.clone() },
    });
    said
}

fn class_ready(name: &str, class: Option<&EC2NodeClass>) -> Statement {
    let statement = |status, reason, message| Statement { kind: CLASS_READY, status, reason, message };
    let Some(class) = class else {
        let message = format!("EC2NodeClass {name} is not there; create it, or change nodeClassRef");
        return statement(Some(false), "ClassNotFound", message);
    };
    let conditions = class.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    match conditions.iter().find(|c| c.type_ == READY) {
        Some(_) if is_true(conditions, READY) => {
            statement(Some(true), "ClassReady", format!("EC2NodeClass {name} is ready"))
        }
        Some(ready) if ready.status == "False" => statement(
            Some(false),
            "ClassNotReady",
            format!("EC2NodeClass {name} is not ready: {}", ready.message),
        ),
        _ => statement(None, "ClassNotJudged", format!("EC2NodeClass {name} hasn't been looked at yet")),
    }
}

/// What the requirements leave of the class's offerings, and what of that can be had now.
fn offered(pool: &TenantPool, types: &[InstanceType]) -> Vec<Statement> {
    let requirements: Vec<Requirement> = pool
        .spec
        .template
        .iter()
        .flat_map(|t| &t.spec.requirements)
        .map(croft_api::convert::scheduler::requirement)
        .collect();
    let (mut possible, mut available) = (0_usize, 0_usize);
    for kind in types {
        for offering in kind.offerings.iter().filter(|o| allows(&requirements, pool, kind, o)) {
            possible += 1;
            available += usize::from(offering.available);
        }
    }
    if possible == 0 {
        let blame = requirements.iter().find(|r| {
            !types.iter().any(|t| t.offerings.iter().any(|o| allows(std::slice::from_ref(r), pool, t, o)))
        });
        let message = match blame {
            Some(r) => format!(
                "no instance type has {} {} [{}]; change that requirement",
                r.key,
                r.operator.as_str(),
                r.values.join(", "),
            ),
            None if types.is_empty() => "the class's images and subnets leave no instance type".to_owned(),
            None => "no instance type meets all requirements together; loosen one".to_owned(),
        };
        return vec![Statement {
            kind: REQUIREMENTS_VALID,
            status: Some(false),
            reason: "NothingMatches",
            message,
        }];
    }
    let valid = Statement {
        kind: REQUIREMENTS_VALID,
        status: Some(true),
        reason: "Valid",
        message: "the requirements leave something to launch".to_owned(),
    };
    let capacity = if available == 0 {
        Statement {
            kind: CAPACITY_AVAILABLE,
            status: Some(false),
            reason: "NoCapacity",
            message:
                "the cloud lately had no machine of any type that the pool may launch; it is asked again by \
                      itself, and looser requirements would give it more to choose from"
                    .to_owned(),
        }
    } else {
        Statement {
            kind: CAPACITY_AVAILABLE,
            status: Some(true),
            reason: "Available",
            message: "the cloud has machines for the pool".to_owned(),
        }
    };
    vec![valid, capacity]
}

fn allows(
    requirements: &[Requirement],
    pool: &TenantPool,
    kind: &InstanceType,
    offering: &croft_scheduler::Offering,
) -> bool {
    requirements.iter().all(|r| {
        let template = pool.spec.template.as_ref().and_then(|t| t.metadata.labels.get(&r.key));
        match r.key.as_str() {
            "kubernetes.io/os" | "beta.kubernetes.io/os" => kind.os.iter().any(|os| r.matches(Some(os))),
            "kubernetes.io/arch" | "beta.kubernetes.io/arch" => r.matches(Some(&kind.arch)),
            names::INSTANCE_TYPE_LABEL | "beta.kubernetes.io/instance-type" => r.matches(Some(&kind.name)),
            names::ZONE_LABEL | "failure-domain.beta.kubernetes.io/zone" => r.matches(Some(&offering.zone)),
            names::CAPACITY_TYPE_LABEL | "croft.dev/capacity-type" => {
                r.matches(Some(offering.capacity_type.as_str()))
            }
            key => match kind.labels.get(key).or(template) {
                Some(value) => r.matches(Some(value)),
                // A label that no type has is one that the pool gives its nodes.
                None => !r.key.starts_with("karpenter.k8s.aws/") || r.matches(None),
            },
        }
    })
}

fn tell_changes(
    round: &mut Round<'_>,
    pool: &Arc<TenantPool>,
    old: &TenantPoolStatus,
    new: &TenantPoolStatus,
) {
    let turned: Vec<_> = new
        .conditions
        .iter()
        .filter(|c| c.status == "False" && c.type_ != READY)
        .filter(|c| !old.conditions.iter().any(|o| o.type_ == c.type_ && o.status == "False"))
        .map(|c| (c.type_.clone(), c.message.clone()))
        .collect();
    for (kind, message) in turned {
        let reason = match kind.as_str() {
            CLASS_READY => "ClassNotReady",
            REQUIREMENTS_VALID => "RequirementsInvalid",
            _ => "NoCapacity",
        };
        round.tell(reference(&**pool), true, reason, message);
    }
}

/// A pool that is being deleted: not while a tenant names it, and not before its nodes are gone.
fn going(round: &mut Round<'_>, name: &str, pool: &Arc<TenantPool>) {
    if !pool.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER) {
        return;
    }
    let snapshot = round.snapshot;
    let owner = snapshot.tenants.iter().find(|(_, t)| t.spec.pools.iter().any(|p| p == name));
    if let Some((tenant, _)) = owner {
        let note = format!(
            "Tenant {tenant} still names the pool; take it out of spec.pools first, then its nodes go"
        );
        round.tell(reference(&**pool), true, "DeletionBlocked", note);
        return;
    }
    let claims: Vec<_> = snapshot.claims.iter().filter(|(_, c)| c.spec.pool == name).collect();
    if claims.is_empty() {
        write_finalizers(round, name, pool, false);
    }
    for (claim_name, claim) in claims {
        if claim.metadata.deletion_timestamp.is_none() {
            round.act(lifecycle::delete(claim_name, claim));
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
        rest: if ours { std::time::Duration::ZERO } else { lifecycle::WATCH_LAG },
    });
}
