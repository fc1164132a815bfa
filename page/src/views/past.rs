//! The cluster at a time, from the log: nodes with their phase, price and pools, and the costs by tenant and pool.

use std::collections::BTreeMap;

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

/// A sum of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PastSum {
    /// Nodes.
    pub nodes: usize,
    /// The sum of their known prices.
    pub micros: i64,
}

/// The cluster at a time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    /// The time.
    pub at: i64,
    /// Since when there are decisions in the log.
    pub begins: Option<i64>,
    /// The nodes that were there.
    pub nodes: Vec<PastNode>,
    /// Sums by pool.
    pub pools: BTreeMap<String, PastSum>,
    /// Sums by tenant, for pools of one tenant.
    pub tenants: BTreeMap<String, PastSum>,
    /// The decisions of the hour before, the newest first.
    pub changes: Vec<Entry>,
}

/// The cluster at `at`, as `scope` sees it.
#[must_use]
pub fn view(model: &Model, log: &Log, scope: &Scope, at: i64) -> Past {
    let mut claims: BTreeMap<String, (PastNode, Phase)> = BTreeMap::new();
    for entry in log.record().entries.iter().filter(|entry| entry.at <= at) {
        if entry.claim_name().is_empty() {
            continue;
        }
        let Some(entry) = entries::visible(model, scope, entry) else { continue };
        let claim = entry.claim_name().to_owned();
        let (node, phase) = claims
            .entry(claim.clone())
            .or_insert_with(|| (PastNode { claim, ..PastNode::default() }, Phase::Unknown));
        take(node, &entry);
        *phase = (*phase).max(reached(&entry));
    }
    let there = claims.into_values().filter(|(_, phase)| (Phase::Launching..Phase::Gone).contains(phase));
    let nodes: Vec<PastNode> =
        there.map(|(node, phase)| PastNode { phase: phase.as_str(), ..node }).collect();
    let (mut pools, mut tenants) = (BTreeMap::new(), BTreeMap::new());
    for node in &nodes {
        add(&mut pools, &node.pool, node);
        if let [only] = node.tenants.as_slice() {
            add(&mut tenants, only, node);
        }
    }
    let selection =
        Selection { from: at.saturating_sub(HOUR_MILLIS), to: at, limit: ENTRIES, ..Selection::default() };
    let changes = entries::decisions(log, model, scope, &selection);
    Past { at, begins: log.begins(), nodes, pools, tenants, changes }
}

fn add(sums: &mut BTreeMap<String, PastSum>, key: &str, node: &PastNode) {
    let sum = sums.entry(key.to_owned()).or_default();
    sum.nodes += 1;
    sum.micros = sum.micros.saturating_add(node.price.unwrap_or_default());
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
