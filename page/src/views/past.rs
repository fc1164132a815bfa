//! The cluster at a time: the last snapshot before it shows what the present shows. Before the first snapshot, the nodes that the log
//! names.

use std::{borrow::Cow, collections::BTreeMap};

use croft_record::{
    entry::{Entry, EntryKind},
    query::Phase,
};
use serde::Serialize;

use super::entries::{self, Selection};
use crate::{access::Scope, cluster::log::Log, model::facts::Model};

/// Entries before the time.
const ENTRIES: usize = 60;
const HOUR_MILLIS: i64 = 3_600_000;

/// The part of the cluster that is shown; all of it for none.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// A pool.
    pub pool: Option<String>,
    /// A tenant.
    pub tenant: Option<String>,
}

/// A node at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PastNode {
    /// Its NodeClaim.
    pub claim: String,
    /// Its node; empty before it registered.
    pub node: String,
    /// Its pool.
    pub pool: String,
    /// The tenants of its pool that the reader may see.
    pub tenants: Vec<String>,
    /// How far its life had come.
    pub phase: &'static str,
    /// Its price.
    pub price: Option<i64>,
    /// The reader's pods on it, when its state was last recorded.
    pub pods: usize,
}

/// A part of the cluster at a time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Past<T> {
    /// The time.
    pub at: i64,
    /// The time of the snapshot that is shown; none if the record has none so old.
    pub snapshot: Option<i64>,
    /// The snapshot's part; none if there was no such part that the reader may see.
    pub view: Option<T>,
    /// Without a snapshot, the nodes that the log names.
    pub nodes: Vec<PastNode>,
    /// The decisions of the hour before, the newest first.
    pub changes: Vec<Entry>,
}

impl<T> Past<T> {
    /// A part of the cluster at `at`, as `scope` sees it. Entries are those that the present `model` shows to the reader.
    #[must_use]
    pub fn new(
        model: &Model,
        log: &Log,
        scope: &Scope,
        (at, part): (i64, Part),
        (snapshot, view): (Option<i64>, Option<T>),
    ) -> Self {
        let nodes = if snapshot.is_some() { Vec::new() } else { nodes(model, log, scope, at, &part) };
        let Part { pool, tenant } = part;
        let from = at.saturating_sub(HOUR_MILLIS);
        let selection = Selection { pool, tenant, from, to: at, limit: ENTRIES };
        let changes = entries::decisions(log, model, scope, &selection);
        Self { at, snapshot, view, nodes, changes }
    }
}

/// The part of an earlier model that a reader sees, and the scope in it: the reader's as it was, of that only what the reader may see
/// now as well.
#[must_use]
pub fn seen<'m>(then: &'m Model, now: &Model, scope: &Scope) -> (Cow<'m, Model>, Scope) {
    if scope.is_operator() {
        return (Cow::Borrowed(then), Scope::All);
    }
    let mut model = then.clone();
    model.pools.retain(|pool, _| scope.sees_pool(now, pool));
    for tenant in model.tenants.values_mut() {
        tenant.pools.retain(|pool| scope.sees_pool(now, pool));
    }
    let scope = scope.at(&model, now);
    (Cow::Owned(model), scope)
}

/// The nodes that the log names.
fn nodes(model: &Model, log: &Log, scope: &Scope, at: i64, part: &Part) -> Vec<PastNode> {
    let mut claims: BTreeMap<String, (PastNode, Phase)> = BTreeMap::new();
    for entry in log.until(at).filter(|entry| !entry.claim_name().is_empty()) {
        let Some(entry) = entries::visible(model, scope, entry) else { continue };
        let claim = entry.claim_name().to_owned();
        let (node, phase) = claims
            .entry(claim.clone())
            .or_insert_with(|| (PastNode { claim, ..PastNode::default() }, Phase::Unknown));
        take(node, &entry);
        *phase = (*phase).max(reached(&entry));
    }
    let there = claims.into_values().filter(|(_, phase)| (Phase::Launching..Phase::Gone).contains(phase));
    let of_part = there.filter(|(node, _)| {
        part.pool.as_ref().is_none_or(|pool| node.pool == *pool)
            && part.tenant.as_ref().is_none_or(|tenant| node.tenants.contains(tenant))
    });
    of_part.map(|(node, phase)| PastNode { phase: phase.as_str(), ..node }).collect()
}

fn take(node: &mut PastNode, entry: &Entry) {
    if !entry.pool.is_empty() {
        node.pool.clone_from(&entry.pool);
    }
    if !entry.node.is_empty() {
        node.node.clone_from(&entry.node);
    }
    if !entry.tenants.is_empty() {
        node.tenants.clone_from(&entry.tenants);
    }
    if entry.kind == EntryKind::State {
        node.pods = entry.pods.len();
    }
    node.price = entry.price.or(node.price);
}

/// The phase that an entry shows, as [`croft_record::query::node_at`] reads it.
fn reached(entry: &Entry) -> Phase {
    match entry.kind {
        EntryKind::Create => Phase::Launching,
        EntryKind::Condition => match entry.condition.as_str() {
            "Launched=True" => Phase::Launched,
            "Registered=True" => Phase::Registered,
            "Initialized=True" => Phase::Ready,
            _ => Phase::Launching,
        },
        EntryKind::State => Phase::Launched,
        EntryKind::Deleting => Phase::Removing,
        EntryKind::Gone => Phase::Gone,
        _ => Phase::Unknown,
    }
}
