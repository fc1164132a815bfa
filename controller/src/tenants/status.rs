//! What a Tenant's status says.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{
    Tenant, TenantStatus,
    condition::{ACCEPTED, READY, Statement, UNLIMITED, set},
    config::Misplaced,
    convert::{policy as convert, unlimited},
};
use croft_policy::{
    NamespaceTenancy, Tenants,
    audit::{LostClaim, lost_claims},
    declarations::DeclaredTenant,
};
use croft_scheduler::Price;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    decide::{Action, is_marked},
    pods::{Counted, Placement},
    state::State,
    unread::spec_valid,
};

/// That no pod of the tenant runs outside its pools, and no other inside them.
const ISOLATED: &str = "Isolated";
/// A webhook replica that was silent for so long enforces nothing.
const REPLICA_LIFE: Duration = Duration::from_secs(20);
/// Namespaces that the status lists.
const LISTED: usize = 100;
/// Pods that a condition names.
const NAMED: usize = 5;

/// True if there are Tenants and webhook replicas, and every replica enforces every Tenant's generation.
pub(super) fn enforced_everywhere(state: &State, mono: Duration) -> bool {
    !state.tenants.is_empty() && state.tenants.values().all(|tenant| enforcing(state, tenant, mono).is_ok())
}

/// # Errors
/// A reason and a sentence, if the tenant isn't enforced by every replica.
fn enforcing(state: &State, tenant: &Tenant, mono: Duration) -> Result<(), (&'static str, String)> {
    let alive = || state.replicas.iter().filter(|(_, r)| mono.saturating_sub(r.heard) < REPLICA_LIFE);
    if alive().next().is_none() {
        return Err((
            "NoWebhook",
            format!(
                "no replica of croft-webhook runs; look at its Deployment in {}",
                state.parameters.namespace
            ),
        ));
    }
    let uid = tenant.metadata.uid.as_deref().unwrap_or_default();
    let generation = tenant.metadata.generation.unwrap_or_default();
    let behind = alive().find(|(_, replica)| !replica.report.observed.covers(uid, generation));
    match behind {
        // What it enforces nobody hears of whom API servers can't reach.
        None => alive()
            .find_map(|(name, replica)| replica.report.certificate_error.as_ref().map(|why| (name, why)))
            .map_or(Ok(()), |(name, why)| {
                Err((
                    "WebhookCertificate",
                    format!("replica {name} of croft-webhook: {why}; see certs/README.md"),
                ))
            }),
        Some((name, _)) => Err((
            "WebhookBehind",
            format!("replica {name} of croft-webhook has not seen generation {generation} yet"),
        )),
    }
}

/// The statuses that aren't what they should be.
pub(super) fn stale(
    state: &State,
    view: &Tenants,
    placement: &Placement,
    mono: Duration,
    wall: Timestamp,
) -> Vec<Action> {
    let rules = view.declarations();
    let mut namespaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in state.namespaces.keys() {
        if let NamespaceTenancy::Tenant { tenant, .. } = view.tenancy(name) {
            namespaces.entry(&tenant.name).or_default().push(name);
        }
    }
    let lost = lost_claims(view);
    let mut actions = Vec::new();
    for (name, tenant) in &state.tenants {
        let Some(rule) = rules.tenant_named(name) else { continue };
        let own = namespaces.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let counted = placement.tenants.get(name.as_str()).cloned().unwrap_or_default();
        let old = tenant.status.clone().unwrap_or_default();
        let valid = spec_valid(state, "Tenant", name, &old.conditions);
        let accepted = match &valid {
            // Not all of its claims are known, so they can't be said to hold.
            Some(valid) if state.stands_in("Tenant", name) => Statement { kind: ACCEPTED, ..valid.clone() },
            _ => {
                let lost = lost.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
                accepted(view, tenant, rule, lost)
            }
        };
        let marked = own.iter().all(|n| state.namespaces.get(*n).is_some_and(|f| is_marked(view, n, f)));
        let in_step = in_step(state, view, tenant, rule, marked);
        let ready = ready(state, tenant, &accepted, in_step, mono);
        let remedy = remedy(state, placement, &counted);
        let pools = tenant.spec.pools.iter().filter_map(|pool| state.pools.get(pool));
        let unlimited = unlimited::of_tenant(tenant, pools.map(|pool| &**pool));
        let said = [accepted, ready, isolated(&counted, &remedy), unlimited];
        let statements = valid.into_iter().chain(said);

        let mut new = counts(state, view, rule, &counted, own);
        new.conditions.clone_from(&old.conditions);
        let mut tell = Vec::new();
        for statement in statements {
            let was = old.conditions.iter().find(|c| c.type_ == statement.kind);
            let news = match statement.kind {
                READY => false,
                UNLIMITED => statement.status == Some(true) && was.is_none_or(|w| w.status != "True"),
                _ => {
                    statement.status == Some(false)
                        && was.is_none_or(|w| w.status != "False" || w.message != statement.message)
                }
            };
            if news {
                tell.push((statement.reason, statement.message.clone()));
            }
            set(&mut new.conditions, statement, tenant.metadata.generation, Time(wall));
        }
        if new != old {
            actions.push(Action::Status { tenant: name.clone(), status: Box::new(new), tell });
        }
    }
    actions
}

fn counts(
    state: &State,
    view: &Tenants,
    rule: &DeclaredTenant,
    counted: &Counted,
    own: &[&str],
) -> TenantStatus {
    let in_pools =
        |node: &&String| view.node(node).is_some_and(|p| p.labelled.iter().any(|id| rule.may_use(*id)));
    let mine = |pool: &str| view.declarations().pool_id(pool).is_some_and(|id| rule.may_use(id));
    let micros: u64 = state.claims.values().filter(|(pool, _)| mine(pool)).map(|(_, price)| price).sum();
    TenantStatus {
        conditions: Vec::new(),
        namespaces: own.iter().take(LISTED).map(|n| (*n).to_owned()).collect(),
        namespace_count: Some(count(own.len())),
        pods: Some(counted.pods),
        nodes: Some(count(state.nodes.keys().filter(in_pools).count())),
        cost_per_hour: Some(Price::from_micros(i64::try_from(micros).unwrap_or(i64::MAX)).to_string()),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn accepted(view: &Tenants, tenant: &Tenant, rule: &DeclaredTenant, lost: &[LostClaim<'_>]) -> Statement {
    let no = |reason, message| Statement { kind: ACCEPTED, status: Some(false), reason, message };
    if let Err(error) = convert::tenant(tenant) {
        return no("InvalidSelector", error.to_string());
    }
    if let Some((first, others)) = lost.split_first() {
        let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
        return no("NamespaceConflict", format!("{first}{more}"));
    }
    let missing: Vec<&str> =
        rule.pools.iter().filter(|(_, id)| id.is_none()).map(|(name, _)| &**name).collect();
    if let Some(first) = missing.first() {
        let collision = view.declarations().collisions().iter().find(|(name, _)| **name == **first);
        let message = match collision {
            Some((_, older)) => format!(
                "TenantPool {first} has the label of the older TenantPool {older} and so doesn't count, and the pods that \
                 would go there are refused; make it anew with another key or value"
            ),
            None => format!(
                "TenantPool {} not found, and the pods that would go there are refused; make it, or correct spec.pools",
                missing.join(", ")
            ),
        };
        return no("PoolNotFound", message);
    }
    Statement {
        kind: ACCEPTED,
        status: Some(true),
        reason: "Accepted",
        message: "its claims hold".to_owned(),
    }
}

/// # Errors
/// A reason and a sentence, if the policies don't hold the tenant's pods yet.
fn in_step(
    state: &State,
    view: &Tenants,
    tenant: &Tenant,
    rule: &DeclaredTenant,
    marked: bool,
) -> Result<(), (&'static str, String)> {
    if let Some((first, others)) = state.parameters.missing.split_first() {
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        return Err((
            "PoliciesMissing",
            format!(
                "the admission policy {first}{more} is missing or not of this version; install it: kubectl apply -f \
                 manifests/install/policies.yaml"
            ),
        ));
    }
    // As long as nothing was asked, what was said before stands.
    let said = || {
        let conditions = tenant.status.iter().flat_map(|status| &status.conditions);
        let ready = conditions.clone().find(|c| c.type_ == READY);
        ready.is_some_and(|c| c.status == "True" && c.observed_generation == tenant.metadata.generation)
    };
    if marked && state.parameters.hold(view, rule).unwrap_or_else(said) {
        return Ok(());
    }
    Err((
        "PoliciesBehind",
        "its namespaces and what the admission policies read are being brought in step".to_owned(),
    ))
}

fn ready(
    state: &State,
    tenant: &Tenant,
    accepted: &Statement,
    in_step: Result<(), (&'static str, String)>,
    mono: Duration,
) -> Statement {
    let say = |status, reason, message| Statement { kind: READY, status: Some(status), reason, message };
    if accepted.status != Some(true) {
        return say(false, "NotAccepted", accepted.message.clone());
    }
    if let Err((reason, message)) = enforcing(state, tenant, mono) {
        // Replicas come and go; what was enforced is enforced by the policies and those that are there.
        return say(false, reason, message);
    }
    if let Err((reason, message)) = in_step {
        return say(false, reason, message);
    }
    say(true, "Ready", "its pods are held in its pools".to_owned())
}

/// What becomes of pods that are misplaced.
fn remedy(state: &State, placement: &Placement, counted: &Counted) -> String {
    let mut text = match state.config.misplaced {
        Misplaced::Report => "delete them, or set spec.misplaced: Recreate in the CroftConfig".to_owned(),
        Misplaced::Recreate => {
            let notes = counted.namespaces.iter().filter_map(|namespace| placement.paced.get(namespace));
            let notes: Vec<&str> = notes.take(NAMED).map(String::as_str).collect();
            if notes.is_empty() { "they are evicted".to_owned() } else { notes.join(", ") }
        }
    };
    if !counted.left.is_empty() {
        let named: Vec<&str> = counted.left.iter().take(NAMED).map(String::as_str).collect();
        let more = if counted.left.len() > NAMED { ", ..." } else { "" };
        text.push_str(&format!(
            "; {} of them ({}{more}) are not deleted by Croft, since their owner may not make another pod: delete the pods, or \
             delete and create their owners",
            counted.left.len(),
            named.join(", ")
        ));
    }
    text
}

fn isolated(counted: &Counted, remedy: &str) -> Statement {
    let mut parts = Vec::new();
    for (what, list) in [
        ("outside its pools", &counted.outside),
        ("of others in its pools", &counted.strangers),
        ("waiting without a pool", &counted.unpinned),
    ] {
        if !list.is_empty() {
            let named: Vec<&str> = list.iter().take(NAMED).map(String::as_str).collect();
            let more = if list.len() > NAMED { ", ..." } else { "" };
            parts.push(format!("{} pods {what} ({}{more})", list.len(), named.join(", ")));
        }
    }
    let open: Vec<&str> = counted.open.iter().take(NAMED).map(String::as_str).collect();
    if let (true, false) = (parts.is_empty(), open.is_empty()) {
        let more = if counted.open.len() > NAMED { ", ..." } else { "" };
        let message = format!(
            "{} nodes of its pools let others' pods in ({}{more}), for want of the pool's taint or with two pools' labels: \
             croft audit says which",
            counted.open.len(),
            open.join(", ")
        );
        return Statement { kind: ISOLATED, status: Some(false), reason: "NodesOpen", message };
    }
    if parts.is_empty() {
        let message = "no pod of it runs outside its pools, and no other inside them".to_owned();
        return Statement { kind: ISOLATED, status: Some(true), reason: "Isolated", message };
    }
    let message = format!("{}; they were there before the Tenant or its pools: {remedy}", parts.join(", "));
    Statement { kind: ISOLATED, status: Some(false), reason: "PodsMisplaced", message }
}
