//! The difference of two models: names of what an open view has to draw again.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Model;

/// Everything that differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The version of the newer model.
    pub version: u64,
    /// Nodes that are new or differ, or whose pods do; with their pool.
    pub nodes: BTreeMap<String, Option<String>>,
    /// Nodes that are gone, with their pool.
    pub gone: BTreeMap<String, Option<String>>,
    /// Namespaces with a pod that is new, gone or differs.
    pub namespaces: BTreeSet<String>,
    /// Tenants that are new, gone or differ.
    pub tenants: BTreeSet<String>,
    /// Pools that are new, gone or differ.
    pub pools: BTreeSet<String>,
    /// True if the log has new entries.
    pub log: bool,
}

impl Change {
    /// The change from `before` to `after`.
    #[must_use]
    pub fn between(before: &Model, after: &Model) -> Self {
        let mut change =
            Self { version: after.version, log: before.last_entry != after.last_entry, ..Self::default() };
        let (pods, gone_pods) = differing(&before.pods, &after.pods);
        for (model, keys) in [(after, &pods), (before, &gone_pods)] {
            for pod in keys.iter().filter_map(|key| model.pods.get(*key)) {
                change.namespaces.insert(pod.namespace.clone());
            }
        }
        let touched = pods.iter().chain(&gone_pods).flat_map(|key| {
            let of = |model: &Model| model.pods.get(*key).and_then(|pod| pod.node.clone());
            [of(before), of(after)]
        });
        let (nodes, gone) = differing(&before.nodes, &after.nodes);
        let touched: BTreeSet<String> = touched.flatten().collect();
        for name in nodes.into_iter().chain(touched.iter().map(String::as_str)) {
            if let Some(node) = after.nodes.get(name) {
                change.nodes.insert(name.to_owned(), node.info.pool.clone());
            }
        }
        for name in gone {
            let pool = before.nodes.get(name).and_then(|node| node.info.pool.clone());
            change.gone.insert(name.to_owned(), pool);
        }
        let (tenants, gone_tenants) = differing(&before.tenants, &after.tenants);
        change.tenants.extend(tenants.into_iter().chain(gone_tenants).map(str::to_owned));
        let (pools, gone_pools) = differing(&before.pools, &after.pools);
        change.pools.extend(pools.into_iter().chain(gone_pools).map(str::to_owned));
        change
    }

    /// True if nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { version: _, nodes, gone, namespaces, tenants, pools, log } = self;
        nodes.is_empty()
            && gone.is_empty()
            && namespaces.is_empty()
            && tenants.is_empty()
            && pools.is_empty()
            && !log
    }
}

/// The keys whose values are new or differ, and those that are gone.
fn differing<'a, V: PartialEq>(
    before: &'a BTreeMap<String, V>,
    after: &'a BTreeMap<String, V>,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    (changed.map(|(key, _)| key.as_str()).collect(), gone.map(String::as_str).collect())
}
