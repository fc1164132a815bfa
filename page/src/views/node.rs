//! One node: its state, why it was launched and with which type, what keeps it, its pods, and its life in the log.

use croft_api::condition::CONSOLIDATABLE;
use croft_inspect::{LaunchChoice, NodeRemoval, consolidation_meaning, launch_choice};
use croft_record::entry::{Entry, EntryKind};
use serde::Serialize;

use super::{
    entries,
    pool::{NodeView, conditions},
};
use crate::{
    access::Scope,
    cluster::log::Log,
    model::facts::{ConditionView, Model, NodeFacts, PodFacts},
};

/// The request for a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// When its NodeClaim was requested.
    pub at: i64,
    /// Its reason besides pods of the reader; may be empty.
    pub reason: String,
    /// The reader's pods that it was requested for, as `namespace/name`.
    pub pods: Vec<String>,
    /// The types that it was requested with.
    pub choice: Option<LaunchChoice>,
}

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
    /// Why it was launched; none if the log doesn't go back so far.
    pub launch: Option<Launch>,
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
    let node = seen(model, scope, name);
    let pool = node.and_then(|node| node.info.pool.as_deref());
    let subject = node.map_or(name, |node| node.info.claim.as_deref().unwrap_or(&node.info.name));
    let timeline = entries::of_node(log, model, scope, subject, model.at);
    if node.is_none() && timeline.is_empty() {
        return None;
    }
    let with_messages = pool.is_some_and(|pool| scope.sees_whole_pool(model, pool)) || scope.is_operator();
    let conditions = node.map(|node| conditions(&node.conditions, with_messages)).unwrap_or_default();
    let kept = conditions.iter().find(|condition| condition.kind == CONSOLIDATABLE);
    let in_words = |condition: &ConditionView| {
        let meaning = consolidation_meaning(&condition.reason).filter(|_| condition.message.is_empty());
        let message = meaning.map_or_else(|| condition.message.clone(), str::to_owned);
        ConditionView { message, ..condition.clone() }
    };
    let seen = |pod: &&PodFacts| scope.sees_namespace(&pod.namespace);
    Some(NodeDetail {
        version: model.version,
        name: node.map_or(name, |node| &node.info.name).to_owned(),
        node: node.map(|node| NodeView::new(model, scope, node)),
        launch: launch(&timeline, node),
        kept: kept.map(in_words),
        conditions,
        pods: node.map(|node| model.pods_of(node).filter(seen).cloned().collect()).unwrap_or_default(),
        timeline,
    })
}

/// A node by its name or that of its NodeClaim; none if there is none that `scope` sees.
#[must_use]
pub fn seen<'m>(model: &'m Model, scope: &Scope, name: &str) -> Option<&'m NodeFacts> {
    let by_claim = || model.nodes.values().find(|node| node.info.claim.as_deref() == Some(name));
    let node = model.nodes.get(name).or_else(by_claim)?;
    scope.sees_nodes_of(model, node.info.pool.as_deref()).then_some(node)
}

/// The request that a node's life in the log begins with.
fn launch(timeline: &[Entry], node: Option<&NodeFacts>) -> Option<Launch> {
    // A request for many pods has several entries.
    let created = || timeline.iter().filter(|entry| entry.kind == EntryKind::Create);
    let first = created().next()?;
    let pods: Vec<String> = created().flat_map(|entry| entry.pods.iter().cloned()).collect();
    let instance = timeline.iter().rev().find_map(|entry| entry.instance.as_ref());
    let (chosen, zone) = match (node, instance) {
        (Some(node), _) => (node.info.instance_type.as_str(), node.info.zone.as_str()),
        (None, Some(instance)) => (instance.instance_type.as_str(), instance.zone.as_str()),
        (None, None) => ("", ""),
    };
    let reason = match (pods.is_empty(), first.reason.as_str()) {
        (true, "") => "static capacity or headroom of its pool, or pods of others",
        (_, reason) => reason,
    };
    let mut choice = launch_choice(&first.message, chosen, zone);
    // The controller's price is what counts; the catalogue's of today may be another.
    let paid = match node {
        Some(node) => node.info.price.map(|price| (price.micros(), node.info.estimated)),
        None => timeline.iter().rev().find_map(|entry| entry.price).map(|price| (price, false)),
    };
    if let (Some(choice), Some((price, estimated))) = (&mut choice, paid) {
        for one in choice.types.iter_mut().filter(|one| one.chosen) {
            (one.price, one.estimated) = (Some(price), estimated);
        }
    }
    Some(Launch { at: first.at, reason: reason.to_owned(), pods, choice })
}

/// The answer about a removal as `scope` sees it. The sentence may name pods of others, so a reader who does not see them gets none.
#[must_use]
pub fn removal(model: &Model, scope: &Scope, node: &NodeFacts, found: NodeRemoval) -> NodeRemoval {
    let pool = node.info.pool.as_deref();
    let is_whole = scope.is_operator() || pool.is_some_and(|pool| scope.sees_whole_pool(model, pool));
    let NodeRemoval { answer, mut pods } = found;
    pods.retain(|pod| scope.sees_namespace(&pod.namespace));
    NodeRemoval { answer: answer.filter(|_| is_whole), pods }
}
