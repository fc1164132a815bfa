//! Preferences between pods: preferred affinity and anti-affinity, and spreads with ScheduleAnyway. They choose among
//! places of equal cost, and never raise the cost.

use rustc_hash::FxHashMap;

use crate::{
    demand::{Class, Demand},
    ids::NodeIx,
    state::{cluster::Cluster, interner::Sym, pod_shape::SelectorId},
    topology::groups::{is_remaining, node_domain},
};

/// Weight of a ScheduleAnyway spread beside preferences of 1 to 100.
const SPREAD_WEIGHT: i64 = 50;

/// Pods that a class prefers near or, with a negative weight, far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassPreference {
    pub(crate) selector: SelectorId,
    /// Canonical.
    pub(crate) key: Sym,
    pub(crate) weight: i64,
}

/// The preferences of a class.
pub(crate) fn class_preferences<'a>(
    cluster: &'a Cluster,
    class: &Class,
) -> impl Iterator<Item = ClassPreference> + use<'a> {
    let shape = class.shape(cluster);
    let preferred = shape.preferred_pods.iter().map(|p| ClassPreference {
        selector: p.selector,
        key: cluster.keys.canonical(p.key),
        weight: if p.anti { -i64::from(p.weight) } else { i64::from(p.weight) },
    });
    let spreads = shape.spreads.iter().filter(|s| !s.hard).map(|s| ClassPreference {
        selector: s.selector,
        key: cluster.keys.canonical(s.key),
        weight: -SPREAD_WEIGHT,
    });
    preferred.chain(spreads)
}

/// True if the class prefers to be away from its own pods.
pub(crate) fn has_preference_against_itself(cluster: &Cluster, class: &Class) -> bool {
    class_preferences(cluster, class).any(|w| w.weight < 0 && class.matches(w.selector))
}

/// The pods that preferences match, planned ones included, by domain.
#[derive(Debug, Default)]
pub(crate) struct PreferenceCounts {
    counts: FxHashMap<(SelectorId, Sym), FxHashMap<Sym, i64>>,
}

impl PreferenceCounts {
    /// The score of one more pod of the class in `value` of each preference's topology.
    pub(crate) fn score(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        class: &Class,
        value: impl Fn(Sym) -> Option<Sym>,
    ) -> i64 {
        class_preferences(cluster, class).fold(0i64, |sum, preference| {
            let counts = self
                .counts
                .entry((preference.selector, preference.key))
                .or_insert_with(|| count_running(cluster, demand, preference));
            let count = value(preference.key).and_then(|v| counts.get(&v)).copied().unwrap_or(0);
            sum.saturating_add(preference.weight.saturating_mul(count))
        })
    }

    /// Counts planned pods of the class in `value` of each topology.
    pub(crate) fn record(&mut self, class: &Class, count: u32, value: impl Fn(Sym) -> Option<Sym>) {
        for ((selector, key), counts) in &mut self.counts {
            if class.matches(*selector)
                && let Some(value) = value(*key)
            {
                *counts.entry(value).or_default() += i64::from(count);
            }
        }
    }
}

/// Running pods that a preference matches, by domain.
fn count_running(cluster: &Cluster, demand: &Demand, preference: ClassPreference) -> FxHashMap<Sym, i64> {
    let tables = &cluster.tables;
    let selector = tables.selectors.get(preference.selector);
    let mut counts = FxHashMap::default();
    for (ident, nodes) in &cluster.ident_nodes {
        if !selector.matches(&tables.symbols, &cluster.namespaces, tables.idents.get(*ident)) {
            continue;
        }
        for (node, count) in nodes.iter().filter(|(node, _)| is_remaining(cluster, demand, **node)) {
            if let Some(value) = domain(cluster, *node, preference.key) {
                *counts.entry(value).or_default() += i64::from(*count);
            }
        }
    }
    counts
}

/// The domain of a node; its name where it lacks the hostname label, as a coming node does.
pub(crate) fn domain(cluster: &Cluster, node: NodeIx, key: Sym) -> Option<Sym> {
    let name = || cluster.nodes.find(node).map(|slot| slot.name);
    node_domain(cluster, node, key).or_else(|| if key == cluster.keys.hostname { name() } else { None })
}
