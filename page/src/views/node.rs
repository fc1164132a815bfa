//! One node: its state, what keeps it, its pods, and its life in the log.

use croft_api::condition::CONSOLIDATABLE;
use croft_record::entry::{Entry, EntryKind};
use serde::Serialize;

use super::{
    entries,
    pool::{NodeView, conditions},
};
use crate::{
    access::Scope,
    cluster::log::Log,
    model::facts::{ConditionView, Model, PodFacts},
};

/// A node with everything about it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDetail {
    /// The version of the model.
    pub version: u64,
    /// Its name.
    pub name: String,
    /// The node as it is now; none if it is gone.
    pub node: Option<NodeView>,
    /// The conditions of its NodeClaim.
    pub conditions: Vec<ConditionView>,
    /// Why it was launched, in words.
    pub launched_for: Option<String>,
    /// The condition that says why it is kept, or that it may be removed.
    pub kept: Option<ConditionView>,
    /// The reader's pods on it.
    pub pods: Vec<PodFacts>,
    /// Its life, in order.
    pub timeline: Vec<Entry>,
}

/// A node, also one that is gone and that the log still knows; none if there is none that `scope` sees.
#[must_use]
pub fn view(model: &Model, log: &Log, scope: &Scope, name: &str) -> Option<NodeDetail> {
    let by_claim = || model.nodes.values().find(|node| node.info.claim.as_deref() == Some(name));
    let node = model.nodes.get(name).or_else(by_claim);
    let pool = node.and_then(|node| node.info.pool.as_deref());
    let is_seen = match pool {
        Some(pool) => scope.sees_pool(model, pool),
        None => scope.is_operator(),
    };
    let node = node.filter(|_| is_seen);
    let subject = node.map_or(name, |node| node.info.claim.as_deref().unwrap_or(&node.info.name));
    let timeline = entries::of_node(log, model, scope, subject, model.at);
    if node.is_none() && timeline.is_empty() {
        return None;
    }
    let with_messages = pool.is_some_and(|pool| scope.sees_whole_pool(model, pool)) || scope.is_operator();
    let conditions = node.map(|node| conditions(&node.conditions, with_messages)).unwrap_or_default();
    let created = timeline.iter().find(|entry| entry.kind == EntryKind::Create);
    let seen = |pod: &&PodFacts| scope.sees_namespace(&pod.namespace);
    Some(NodeDetail {
        version: model.version,
        name: node.map_or(name, |node| &node.info.name).to_owned(),
        node: node.map(|node| NodeView::new(model, scope, node)),
        launched_for: created.map(launched_for),
        kept: conditions.iter().find(|condition| condition.kind == CONSOLIDATABLE).cloned(),
        conditions,
        pods: node.map(|node| model.pods_of(node).filter(seen).cloned().collect()).unwrap_or_default(),
        timeline,
    })
}

fn launched_for(created: &Entry) -> String {
    match (created.pods.len(), created.reason.as_str()) {
        (0, "") => "static capacity or headroom of its pool, or pods of others".to_owned(),
        (0, reason) if created.message.is_empty() => reason.to_owned(),
        (0, reason) => format!("{reason}: {}", created.message),
        (1, _) => format!("pod {}", created.pods.concat()),
        (count, _) => format!("{count} pods"),
    }
}
