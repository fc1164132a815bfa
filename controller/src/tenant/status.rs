//! The status of Tenants.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{
    Tenant, TenantStatus,
    condition::{ACCEPTED, READY, Statement, UNLIMITED, set},
    config::Misplaced,
    convert::{policy as convert, unlimited},
    per_tenant::name_of,
    sentence::shortened,
};
use croft_policy::{
    Tenants,
    audit::{LostClaim, lost_claims},
    declarations::DeclaredTenant,
    definitions::{SURPLUS_ANNOTATION, TENANT_LABEL},
};
use croft_scheduler::Price;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    action::{Action, UserEvent},
    definitions::conditions as reasons,
    kube_api::{Kind, Target, Verb},
    reconcile::object_reference,
    state::{Snapshot, holdings::cost_text},
    tenant::{
        namespaces::has_current_metadata,
        objects::{Comparison, Created, Kept},
        placement::{Counted, Placement},
        spec_valid::spec_valid,
        state::{Replica, State},
        usage::{PoolUsage, Prices, quota_use},
    },
};

/// A webhook replica without a report for this long is gone.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(20);
/// Namespaces that the status lists.
const MAX_LISTED_NAMESPACES: usize = 100;
/// Pods that a condition names.
const MAX_NAMED_PODS: usize = 5;
/// Objects that a condition names.
const MAX_NAMED_OBJECTS: usize = 5;
/// Namespaces that a condition names.
const MAX_NAMED_NAMESPACES: usize = 20;

/// Returns true if there are Tenants and webhook replicas, and every replica enforces every Tenant's generation.
pub(super) fn enforced_everywhere(state: &State, mono: Duration) -> bool {
    !state.tenants.is_empty()
        && state.tenants.values().all(|tenant| check_replicas(state, tenant, mono).is_ok())
}

/// Returns true if there are webhook replicas, and every one enforces the present generation of the tenant `name`.
pub(super) fn is_enforced(state: &State, name: &str, mono: Duration) -> bool {
    state.tenants.get(name).is_some_and(|tenant| check_replicas(state, tenant, mono).is_ok())
}

/// The replicas of the webhook that have reported lately.
pub(super) fn live_replicas(state: &State, mono: Duration) -> impl Iterator<Item = (&String, &Replica)> {
    state.replicas.iter().filter(move |(_, r)| mono.saturating_sub(r.heard_at) < REPLICA_TIMEOUT)
}

/// # Errors
/// Reason and message, if a replica of the webhook doesn't enforce the tenant.
fn check_replicas(state: &State, tenant: &Tenant, mono: Duration) -> Result<(), (&'static str, String)> {
    let live = || live_replicas(state, mono);
    if live().next().is_none() {
        return Err((
            reasons::NO_WEBHOOK,
            format!(
                "no replica of croft-webhook runs; check its Deployment in {}",
                state.parameters.namespace
            ),
        ));
    }
    let uid = tenant.metadata.uid.as_deref().unwrap_or_default();
    let generation = tenant.metadata.generation.unwrap_or_default();
    let behind = live().find(|(_, replica)| !replica.report.observed.covers(uid, generation));
    match behind {
        // A replica that API servers can't reach enforces nothing.
        None => live()
            .find_map(|(name, replica)| replica.report.certificate_error.as_ref().map(|why| (name, why)))
            .map_or(Ok(()), |(name, why)| {
                Err((reasons::WEBHOOK_CERTIFICATE, format!("replica {name} of croft-webhook: {why}")))
            }),
        Some((name, _)) => Err((
            reasons::WEBHOOK_BEHIND,
            format!("replica {name} of croft-webhook has not observed generation {generation} yet"),
        )),
    }
}

/// The status writes that are due.
pub(super) fn status_writes(
    state: &State,
    snapshot: &Snapshot,
    view: &Tenants,
    (placement, kept): (&Placement, &Comparison),
    mono: Duration,
    wall: Timestamp,
) -> Vec<Action> {
    let rules = view.declarations();
    let mut namespaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in state.namespaces.keys() {
        if let Some(tenant) = view.tenancy(name).tenant() {
            namespaces.entry(&tenant.name).or_default().push(name);
        }
    }
    let lost = lost_claims(view);
    let invalid = snapshot.invalid_objects();
    let usage = PoolUsage::new(state, snapshot, view);
    let mut actions = Vec::new();
    for (name, tenant) in &state.tenants {
        let Some(rule) = rules.tenant_named(name) else { continue };
        let own = namespaces.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let counted = placement.tenants.get(name.as_str()).cloned().unwrap_or_default();
        let old = tenant.status.clone().unwrap_or_default();
        let valid = spec_valid(invalid, Kind::Tenant, name, &old.conditions);
        let accepted = match &valid {
            // Not all of the tenant's claims are known, so they can't be accepted.
            Some(valid) if invalid.has_no_valid_version(Kind::Tenant, name) => {
                Statement { kind: ACCEPTED, ..valid.clone() }
            }
            _ => {
                let lost = lost.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
                accepted_condition(state, view, tenant, rule, lost)
            }
        };
        let has_metadata = own
            .iter()
            .filter(|n| !kept.is_surplus(name, n))
            .all(|n| state.namespaces.get(*n).is_some_and(|f| has_current_metadata(view, n, f)));
        let parameters = check_parameters(state, view, tenant, rule, has_metadata);
        let ready = ready_condition(state, tenant, &accepted, parameters, mono);
        let remedy = remedy(state, placement, &counted);
        let pools = rule.pools.iter().filter_map(|(pool, _)| state.pools.get(&**pool));
        let unlimited = unlimited::of_tenant(tenant, pools.map(|pool| &**pool));
        let derived = [accepted, ready, isolated_condition(&counted, &remedy), unlimited];
        let objects = kept.tenants.get(name.as_str()).map(objects_condition);
        let creation = kept.created.get(name.as_str()).map(creation_condition);
        let (has_objects, has_creation) = (objects.is_some(), creation.is_some());
        let statements = valid.into_iter().chain(derived).chain(objects).chain(creation);

        let mut new = status_without_conditions(&usage, tenant, rule, &counted, own);
        new.conditions.clone_from(&old.conditions);
        new.quota = quota_use(state, tenant, own);
        new.conditions.retain(|condition| has_objects || condition.type_ != reasons::OBJECTS_KEPT);
        new.conditions.retain(|condition| has_creation || condition.type_ != reasons::NAMESPACE_CREATION);
        let mut events = Vec::new();
        for statement in statements {
            let was = old.conditions.iter().find(|c| c.type_ == statement.kind);
            let is_new = match statement.kind {
                READY => false,
                reasons::OBJECTS_KEPT => {
                    [reasons::NAME_TAKEN, reasons::OBJECTS_REFUSED].contains(&statement.reason)
                        && statement.differs(&old.conditions)
                }
                UNLIMITED => statement.status == Some(true) && was.is_none_or(|w| w.status != "True"),
                _ => statement.status == Some(false) && statement.differs(&old.conditions),
            };
            if is_new {
                let (regarding, note) = (object_reference(&**tenant), statement.message.clone());
                events.push(UserEvent::warning(regarding, statement.reason, note));
            }
            set(&mut new.conditions, statement, tenant.metadata.generation, Time(wall));
        }
        if new != old {
            actions.push(write(tenant, &new, events));
        }
    }
    actions
}

/// Two writes are the same but for the times of conditions, which differ from pass to pass until the watch shows the write, and for
/// counts, which change with every pod.
fn write(tenant: &Tenant, status: &TenantStatus, events: Vec<UserEvent>) -> Action {
    let conditions = status.conditions.iter().map(|c| (&c.type_, &c.status, &c.message));
    let fingerprint = format!("{:?} {:?}", conditions.collect::<Vec<_>>(), status.namespaces);
    // A merge patch removes a field only if it says null.
    let mut status = json!(status);
    for field in ["namespaces", "conditions", "quota"] {
        if let Some(map) = status.as_object_mut() {
            map.entry(field).or_insert(Value::Null);
        }
    }
    let patch = json!({"metadata": {"uid": tenant.metadata.uid}, "status": status});
    Action::write_once_as(Target::Tenant(tenant.name_any()), Verb::PatchStatus(patch), fingerprint, events)
}

fn status_without_conditions(
    usage: &PoolUsage<'_>,
    tenant: &Tenant,
    rule: &DeclaredTenant,
    counted: &Counted,
    own: &[&str],
) -> TenantStatus {
    let (nodes, Prices { micros, unpriced }) =
        usage.of(&rule.pools.iter().filter_map(|(_, id)| *id).collect());
    TenantStatus {
        conditions: Vec::new(),
        namespaces: own.iter().take(MAX_LISTED_NAMESPACES).map(|n| (*n).to_owned()).collect(),
        namespace_count: Some(count(own.len())),
        pool_names: Some(tenant.spec.pools.join(",")),
        pods: Some(counted.pods),
        nodes: Some(count(nodes)),
        quota: Vec::new(),
        cost_per_hour: Some(cost_text(
            Price::from_micros(i64::try_from(micros).unwrap_or(i64::MAX)),
            count(unpriced),
        )),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Why the tenant doesn't have the first of the pools that it lacks.
fn missing_pool(state: &State, view: &Tenants, tenant: &str, first: &str, all: &[&str]) -> String {
    let of_many = state.pools.get(first).filter(|pool| pool.spec.per_tenant);
    let own = of_many.map_or_else(|| first.to_owned(), |_| name_of(first, tenant));
    let collision = view.declarations().collisions().iter().find(|(name, _)| **name == *own);
    let refused = "pods that would go there are refused";
    match (collision, of_many) {
        (Some((_, older)), None) => format!(
            "TenantPool {own} has the label of the older TenantPool {older} and so is ignored, and {refused}; recreate it with another \
             key or value"
        ),
        (Some((_, older)), Some(_)) => format!(
            "TenantPool {own}, which is made from {first}, has the label of the older TenantPool {older} and so is ignored, and {refused}; \
             recreate {first} with a key of its own"
        ),
        (None, Some(_)) if state.pools.contains_key(&own) => format!(
            "the tenant's own pool can't be made from TenantPool {first}: another TenantPool is called {own}, and {refused}; rename that one"
        ),
        (None, Some(_)) => {
            format!(
                "the tenant's own pool is being made from TenantPool {first}, and until then its pods are refused"
            )
        }
        (None, None) => {
            format!(
                "TenantPool {} not found, and {refused}; create it, or correct spec.pools",
                all.join(", ")
            )
        }
    }
}

fn accepted_condition(
    state: &State,
    view: &Tenants,
    tenant: &Tenant,
    rule: &DeclaredTenant,
    lost: &[LostClaim<'_>],
) -> Statement {
    let no = |reason, message| Statement { kind: ACCEPTED, status: Some(false), reason, message };
    if let Err(error) = convert::tenant(tenant) {
        return no(reasons::INVALID_SELECTOR, error.to_string());
    }
    if let Some((first, others)) = lost.split_first() {
        let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
        return no(reasons::NAMESPACE_CONFLICT, format!("{first}{more}"));
    }
    let missing: Vec<&str> =
        rule.pools.iter().filter(|(_, id)| id.is_none()).map(|(name, _)| &**name).collect();
    if let Some(first) = missing.first() {
        return no(reasons::POOL_NOT_FOUND, missing_pool(state, view, &rule.name, first, &missing));
    }
    Statement {
        kind: ACCEPTED,
        status: Some(true),
        reason: reasons::ACCEPTED,
        message: "all of its claims are its own".to_owned(),
    }
}

/// # Errors
/// Reason and message, if the policies don't enforce the tenant yet.
fn check_parameters(
    state: &State,
    view: &Tenants,
    tenant: &Tenant,
    rule: &DeclaredTenant,
    has_metadata: bool,
) -> Result<(), (&'static str, String)> {
    let missing = &state.parameters.policies_missing;
    if !missing.is_empty() {
        return Err((
            reasons::POLICIES_MISSING,
            format!(
                "the admission policy {} is missing or not of this version; install it: kubectl apply -f \
                 manifests/install/policies.yaml",
                shortened(missing, 1)
            ),
        ));
    }
    // Before the first probe is answered, the condition keeps its status.
    let was_ready = || {
        let conditions = tenant.status.iter().flat_map(|status| &status.conditions);
        let ready = conditions.clone().find(|c| c.type_ == READY);
        ready.is_some_and(|c| c.status == "True" && c.observed_generation == tenant.metadata.generation)
    };
    if has_metadata && state.parameters.tenant_in_force(view, rule).unwrap_or_else(was_ready) {
        return Ok(());
    }
    Err((
        reasons::POLICIES_BEHIND,
        "labels of its namespaces and parameters of the admission policies are being written".to_owned(),
    ))
}

fn ready_condition(
    state: &State,
    tenant: &Tenant,
    accepted: &Statement,
    parameters: Result<(), (&'static str, String)>,
    mono: Duration,
) -> Statement {
    let statement =
        |status, reason, message| Statement { kind: READY, status: Some(status), reason, message };
    if accepted.status != Some(true) {
        return statement(false, reasons::NOT_ACCEPTED, accepted.message.clone());
    }
    if let Err((reason, message)) = check_replicas(state, tenant, mono) {
        // Replicas are replaced; what is in force stays enforced by the policies and by the other replicas.
        return statement(false, reason, message);
    }
    if let Err((reason, message)) = parameters {
        return statement(false, reason, message);
    }
    statement(true, reasons::READY, "webhook and admission policies keep its pods in its pools".to_owned())
}

/// The condition of a tenant whose owners may create namespaces.
fn creation_condition(created: &Created) -> Statement {
    let Created { prefix, maximum, count, surplus, .. } = created;
    let (status, reason, message) = if surplus.is_empty() {
        let reason = if created.is_full() { reasons::MAXIMUM_REACHED } else { reasons::BELOW_MAXIMUM };
        (true, reason, format!("{count} namespaces begin with {prefix}, and {maximum} may"))
    } else {
        let message = format!(
            "{count} namespaces begin with {prefix}, and {maximum} may: {} stay without pools and roles, and their pods \
             are refused; delete those that aren't needed, or raise spec.namespaceCreation.maximum. Each carries the annotation \
             {SURPLUS_ANNOTATION}",
            shortened(surplus, MAX_NAMED_NAMESPACES)
        );
        (false, reasons::ABOVE_MAXIMUM, message)
    };
    Statement { kind: reasons::NAMESPACE_CREATION, status: Some(status), reason, message }
}

/// The condition of a tenant that declares objects for its namespaces.
fn objects_condition(kept: &Kept) -> Statement {
    let named = |objects: &[String]| {
        let first: Vec<&str> = objects.iter().take(MAX_NAMED_OBJECTS).map(String::as_str).collect();
        let more = if objects.len() > MAX_NAMED_OBJECTS { ", ..." } else { "" };
        format!("{}{more}", first.join(", "))
    };
    let (status, reason, message) = if !kept.taken.is_empty() {
        let message = format!(
            "{}: the namespace has an object of this name that lacks the label {TENANT_LABEL}, so it isn't Croft's and \
             stays as it is; delete it, and Croft creates its own",
            named(&kept.taken)
        );
        (false, reasons::NAME_TAKEN, message)
    } else if !kept.refused.is_empty() {
        let message = format!(
            "the API server refused {}; correct the Tenant, or what refuses it",
            named(&kept.refused)
        );
        (false, reasons::OBJECTS_REFUSED, message)
    } else if !kept.behind.is_empty() {
        let message =
            format!("{} of {} are being written: {}", kept.behind.len(), kept.expected, named(&kept.behind));
        (false, reasons::OBJECTS_BEHIND, message)
    } else {
        let message = format!("{} objects in its namespaces are as declared", kept.expected);
        (true, reasons::IN_PLACE, message)
    };
    Statement { kind: reasons::OBJECTS_KEPT, status: Some(status), reason, message }
}

/// The remedy for misplaced pods.
fn remedy(state: &State, placement: &Placement, counted: &Counted) -> String {
    let mut text = match state.config.misplaced {
        Misplaced::Report => "delete them, or set spec.misplaced: Recreate in the CroftConfig".to_owned(),
        Misplaced::Recreate => {
            let notes =
                counted.namespaces.iter().filter_map(|namespace| placement.eviction_notes.get(namespace));
            let notes: Vec<&str> = notes.take(MAX_NAMED_PODS).map(String::as_str).collect();
            if notes.is_empty() { "they are evicted".to_owned() } else { notes.join(", ") }
        }
    };
    if !counted.left.is_empty() {
        let named: Vec<&str> = counted.left.iter().take(MAX_NAMED_PODS).map(String::as_str).collect();
        let more = if counted.left.len() > MAX_NAMED_PODS { ", ..." } else { "" };
        text.push_str(&format!(
            "; {} of them ({}{more}) are not deleted by Croft, since their owner may not recreate them: delete the pods, or \
             recreate their owners",
            counted.left.len(),
            named.join(", ")
        ));
    }
    text
}

fn isolated_condition(counted: &Counted, remedy: &str) -> Statement {
    let mut parts = Vec::new();
    for (what, list) in [
        ("outside its pools", &counted.outside),
        ("of others in its pools", &counted.non_tenant_pods),
        ("waiting without a pool", &counted.unpinned),
    ] {
        if !list.is_empty() {
            let named: Vec<&str> = list.iter().take(MAX_NAMED_PODS).map(String::as_str).collect();
            let more = if list.len() > MAX_NAMED_PODS { ", ..." } else { "" };
            parts.push(format!("{} pods {what} ({}{more})", list.len(), named.join(", ")));
        }
    }
    let open: Vec<&str> = counted.open.iter().take(MAX_NAMED_PODS).map(String::as_str).collect();
    if let (true, false) = (parts.is_empty(), open.is_empty()) {
        let more = if counted.open.len() > MAX_NAMED_PODS { ", ..." } else { "" };
        let message = format!(
            "{} nodes of its pools admit pods of others ({}{more}): the pool's taint is missing, or they have the labels of two \
             pools; run croft audit",
            counted.open.len(),
            open.join(", ")
        );
        return Statement {
            kind: reasons::ISOLATED,
            status: Some(false),
            reason: reasons::NODES_OPEN,
            message,
        };
    }
    if parts.is_empty() {
        let message = "none of its pods runs outside its pools, and no other pod inside them".to_owned();
        return Statement {
            kind: reasons::ISOLATED,
            status: Some(true),
            reason: reasons::ISOLATED_REASON,
            message,
        };
    }
    let message = format!("{}; they were there before the Tenant or its pools: {remedy}", parts.join(", "));
    Statement { kind: reasons::ISOLATED, status: Some(false), reason: reasons::PODS_MISPLACED, message }
}
