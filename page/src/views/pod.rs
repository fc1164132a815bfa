//! One pod: why it is where it is, or why it is pending and what would help.

use croft_inspect::Outlook;
use croft_record::entry::Entry;
use serde::Serialize;

use super::{entries, pool::NodeView};
use crate::{
    access::Scope,
    cluster::log::Log,
    model::facts::{Model, PodFacts},
};

/// A pod with everything about it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodDetail {
    /// The version of the model.
    pub version: u64,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pod as it is now; none if it is gone.
    pub pod: Option<PodFacts>,
    /// Its node.
    pub node: Option<NodeView>,
    /// Of a pending pod, its place in a plan that is made now, or the reasons for none; none while too much else is computed.
    pub outlook: Option<Outlook>,
    /// Its life in the log, in order.
    pub timeline: Vec<Entry>,
}

/// A pod, also one that is gone and that the log still knows; none if there is none that `scope` sees.
#[must_use]
pub fn view(model: &Model, log: &Log, scope: &Scope, namespace: &str, name: &str) -> Option<PodDetail> {
    if !scope.sees_namespace(namespace) {
        return None;
    }
    let pod = model.pods.get(&format!("{namespace}/{name}"));
    let timeline = entries::of_pod(log, model, scope, (namespace, name), model.at);
    if pod.is_none() && timeline.is_empty() {
        return None;
    }
    let node = pod.and_then(|pod| model.nodes.get(pod.node.as_ref()?));
    let is_seen = |pool: &Option<String>| match pool {
        Some(pool) => scope.sees_pool(model, pool),
        None => scope.is_operator(),
    };
    Some(PodDetail {
        version: model.version,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        pod: pod.cloned(),
        node: node.filter(|node| is_seen(&node.info.pool)).map(|node| NodeView::new(model, scope, node)),
        outlook: None,
        timeline,
    })
}
