//! Entries of the decision log, as a reader may see them.

use croft_record::{
    entry::{Entry, EntryKind},
    query,
};

use crate::{access::Scope, cluster::log::Log, model::facts::Model};

/// The subject, the time and the number of entries.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Only those about a tenant.
    pub tenant: Option<String>,
    /// Only those about a pool.
    pub pool: Option<String>,
    /// From this time on.
    pub from: i64,
    /// Up to this time.
    pub to: i64,
    /// At most so many, the newest ones.
    pub limit: usize,
}

impl Default for Selection {
    fn default() -> Self {
        Self { tenant: None, pool: None, from: i64::MIN, to: i64::MAX, limit: 500 }
    }
}

/// The entry as `scope` sees it; none if it concerns only others.
///
/// An entry that also concerns others keeps its kind, time and reason, and loses its message and their pods. Requests are those
/// of the reader's namespaces in any case.
#[must_use]
pub fn visible(model: &Model, scope: &Scope, entry: &Entry) -> Option<Entry> {
    if scope.is_operator() {
        return Some(entry.clone());
    }
    let is_of_pod = entry.object.kind == "Pod";
    let is_mine = if is_of_pod {
        scope.sees_namespace(&entry.object.namespace)
    } else {
        let of_tenant = entry.object.kind == "Tenant" && scope.sees_tenant(model, &entry.object.name);
        of_tenant || entry.tenants.iter().any(|tenant| scope.sees_tenant(model, tenant))
    };
    if !is_mine || entry.kind == EntryKind::Plan {
        return None;
    }
    let mut shown = entry.clone();
    shown.pods.retain(|pod| scope.sees_pod(pod));
    shown.tenants.retain(|tenant| scope.sees_tenant(model, tenant));
    if let Some(usage) = &mut shown.usage {
        usage.shares.retain(|share| scope.sees_namespace(&share.payer.namespace));
    }
    // The message of a pending pod is an Event of that pod, which its people can read.
    let is_own_event = entry.kind == EntryKind::Pending && !shown.pods.is_empty();
    let is_whole = shown.pods.len() == entry.pods.len()
        && shown.tenants.len() == entry.tenants.len()
        && shown.tenants.iter().all(|tenant| scope.sees_whole_tenant(model, tenant));
    if !is_whole && !is_own_event && !is_of_pod {
        shown.message = String::new();
    }
    if entry.kind == EntryKind::Pending && shown.pods.is_empty() {
        return None;
    }
    Some(shown)
}

/// The selected entries, the newest first.
#[must_use]
pub fn select(log: &Log, model: &Model, scope: &Scope, selection: &Selection) -> Vec<Entry> {
    newest(log, model, scope, selection, |_| true)
}

/// The selected decisions, the newest first: without the states that are recorded again every hour.
#[must_use]
pub fn decisions(log: &Log, model: &Model, scope: &Scope, selection: &Selection) -> Vec<Entry> {
    newest(log, model, scope, selection, |entry| {
        !matches!(entry.kind, EntryKind::State | EntryKind::Plan | EntryKind::Unknown)
    })
}

fn newest(
    log: &Log,
    model: &Model,
    scope: &Scope,
    selection: &Selection,
    is_wanted: impl Fn(&Entry) -> bool,
) -> Vec<Entry> {
    let Selection { tenant, pool, from, to, limit } = selection;
    let concerns = |entry: &Entry| {
        tenant.as_ref().is_none_or(|tenant| {
            entry.tenants.contains(tenant) || (entry.object.kind == "Tenant" && entry.object.name == *tenant)
        }) && pool.as_ref().is_none_or(|pool| entry.pool == *pool)
    };
    let entries = log.record().entries.iter().rev();
    let selected =
        entries.filter(|entry| (*from..=*to).contains(&entry.at) && concerns(entry) && is_wanted(entry));
    selected.filter_map(|entry| visible(model, scope, entry)).take(*limit).collect()
}

/// The entries about a node or NodeClaim, in order, from the scheduling run on that requested it.
#[must_use]
pub fn of_node(log: &Log, model: &Model, scope: &Scope, name: &str, at: i64) -> Vec<Entry> {
    let Some(found) = query::node_at(log.record(), name, at) else { return Vec::new() };
    let entries = || found.before.iter().chain(&found.after).copied();
    let created = entries().find(|entry| entry.kind == EntryKind::Create);
    let run = created.and_then(|created| run_before(log, created));
    run.into_iter().chain(entries()).filter_map(|entry| visible(model, scope, entry)).collect()
}

/// The scheduling run of the same time before an entry. Its entry names no NodeClaim: a run requests several.
fn run_before<'l>(log: &'l Log, created: &Entry) -> Option<&'l Entry> {
    let entries = &log.record().entries;
    let end = entries.partition_point(|entry| entry.sequence < created.sequence);
    let before = entries.get(..end)?.iter().rev().take_while(|entry| entry.at == created.at);
    before.into_iter().find(|entry| entry.kind == EntryKind::Plan)
}

/// The entries about a pod, in order.
#[must_use]
pub fn of_pod(log: &Log, model: &Model, scope: &Scope, pod: (&str, &str), at: i64) -> Vec<Entry> {
    let Some(found) = query::pod_at(log.record(), pod.0, pod.1, at) else { return Vec::new() };
    let entries = found.before.into_iter().chain(found.after);
    entries.filter_map(|entry| visible(model, scope, entry)).collect()
}

/// The last scheduling runs, the newest first: an operator's alone, since a run is about the whole cluster.
#[must_use]
pub fn plans(log: &Log, limit: usize) -> Vec<Entry> {
    let runs = log.record().entries.iter().rev().filter(|entry| entry.kind == EntryKind::Plan);
    runs.take(limit).cloned().collect()
}
