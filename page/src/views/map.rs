//! The map: every node that a reader sees, by pool.

use std::collections::BTreeMap;

use serde::Serialize;

use super::pool::NodeView;
use crate::{
    access::Scope,
    model::facts::{Model, NodeFacts},
};

/// The nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapPool {
    /// The pool; none for nodes of the cluster that belong to no pool, which operators alone see.
    pub name: Option<String>,
    /// The tenants that use it and that the reader may see.
    pub tenants: Vec<String>,
    /// Its nodes and coming nodes, those of one template side by side.
    pub nodes: Vec<NodeView>,
}

/// Every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapView {
    /// The version of the model.
    pub version: u64,
    /// The pools that have nodes, by name.
    pub pools: Vec<MapPool>,
}

/// The map for `scope`.
#[must_use]
pub fn view(model: &Model, scope: &Scope) -> MapView {
    let mut pools: BTreeMap<Option<&String>, Vec<&NodeFacts>> = BTreeMap::new();
    for node in model.nodes.values() {
        pools.entry(node.info.pool.as_ref()).or_default().push(node);
    }
    let shown = pools.into_iter().filter(|(pool, _)| scope.sees_nodes_of(model, pool.map(String::as_str)));
    let shown = shown.map(|(pool, mut nodes)| {
        let tenants = pool.and_then(|pool| model.pools.get(pool)).map(|facts| facts.tenants.iter());
        let seen = tenants.into_iter().flatten().filter(|tenant| scope.sees_tenant(model, tenant));
        nodes.sort_by_key(|node| node.info.template.as_ref());
        MapPool {
            name: pool.cloned(),
            tenants: seen.cloned().collect(),
            nodes: nodes.into_iter().map(|node| NodeView::new(model, scope, node)).collect(),
        }
    });
    MapView { version: model.version, pools: shown.collect() }
}
