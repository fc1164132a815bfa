//! Pools, and their nodes as blocks.

use std::collections::BTreeMap;

use croft_inspect::{NodeState, inventory::NodeInfo};
use serde::Serialize;

use crate::{
    access::Scope,
    model::facts::{ConditionView, Model, NodeFacts, PoolFacts, TemplateFacts, ready},
};

/// A sum of prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CostView {
    /// The sum of the known prices.
    pub micros: i64,
    /// The number of nodes without a known price.
    pub unknown: usize,
    /// True if a price of the sum is an estimate.
    pub estimated: bool,
}

impl CostView {
    /// The cost of nodes per hour.
    pub fn of<'a>(nodes: impl Iterator<Item = &'a NodeInfo>) -> Self {
        nodes.fold(Self::default(), |cost, node| match node.price {
            Some(price) => Self {
                micros: cost.micros.saturating_add(price.micros()),
                estimated: cost.estimated || node.estimated,
                ..cost
            },
            None => Self { unknown: cost.unknown + 1, ..cost },
        })
    }
}

/// A node as a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its NodeClaim.
    pub claim: Option<String>,
    /// Its pool.
    pub pool: Option<String>,
    /// The template of its pool, if the nodes of that are of several kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Its instance type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// Its price, if that is known.
    pub price: Option<i64>,
    /// True if the price is an estimate.
    pub estimated: bool,
    /// Its state.
    pub state: NodeState,
    /// Since when it is there.
    pub since: Option<i64>,
    /// Why it is in its state; may be empty.
    pub reason: String,
    /// Allocatable CPU.
    pub cpu: i64,
    /// Allocatable memory.
    pub memory: i64,
    /// CPU that the reader's pods request.
    pub used_cpu: i64,
    /// Memory that the reader's pods request.
    pub used_memory: i64,
    /// CPU that all of it uses, where that is known and the reader sees every tenant of its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_cpu: Option<i64>,
    /// Memory that all of it uses, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_memory: Option<i64>,
    /// The reader's pods on it.
    pub pods: usize,
}

impl NodeView {
    /// A node as `scope` sees it.
    #[must_use]
    pub fn new(model: &Model, scope: &Scope, node: &NodeFacts) -> Self {
        let (mut used_cpu, mut used_memory, mut pods) = (0_i64, 0_i64, 0);
        for pod in model.pods_of(node).filter(|pod| scope.sees_namespace(&pod.namespace)) {
            used_cpu = used_cpu.saturating_add(pod.cpu);
            used_memory = used_memory.saturating_add(pod.memory);
            pods += 1;
        }
        let sees_all = match &node.info.pool {
            Some(pool) => scope.sees_whole_pool(model, pool),
            None => scope.is_operator(),
        };
        let usage = node.usage.filter(|_| sees_all);
        let NodeInfo {
            name,
            pool,
            template,
            instance_type,
            zone,
            capacity_type,
            price,
            estimated,
            claim,
            ready: _,
        } = node.info.clone();
        Self {
            name,
            claim,
            pool,
            template,
            instance_type,
            zone,
            capacity_type,
            price: price.map(croft_scheduler::Price::micros),
            estimated,
            state: node.state,
            since: node.since,
            reason: node.reason.clone(),
            cpu: node.cpu,
            memory: node.memory,
            used_cpu,
            used_memory,
            use_cpu: usage.map(|usage| usage.cpu),
            use_memory: usage.map(|usage| usage.memory),
            pods,
        }
    }
}

/// A pool as a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    /// Its name.
    pub name: String,
    /// The tenants that use it and that the reader may see.
    pub tenants: Vec<String>,
    /// Its nodes by state.
    pub states: BTreeMap<NodeState, usize>,
    /// The reader's pods on it.
    pub pods: usize,
    /// The cost of its nodes.
    pub cost: CostView,
    /// The condition Ready.
    pub ready: String,
}

/// The nodes of a pool.
pub fn nodes_of<'a>(model: &'a Model, pool: &'a PoolFacts) -> impl Iterator<Item = &'a NodeFacts> {
    pool.nodes.iter().filter_map(|node| model.nodes.get(node))
}

impl PoolRow {
    /// A pool as `scope` sees it.
    #[must_use]
    pub fn new(model: &Model, scope: &Scope, name: &str, pool: &PoolFacts) -> Self {
        let mut states: BTreeMap<NodeState, usize> = BTreeMap::new();
        let mut pods = 0;
        for node in nodes_of(model, pool) {
            *states.entry(node.state).or_default() += 1;
            pods += node.pods.iter().filter(|pod| scope.sees_pod(pod)).count();
        }
        let tenants = pool.tenants.iter().filter(|tenant| scope.sees_tenant(model, tenant));
        Self {
            name: name.to_owned(),
            tenants: tenants.cloned().collect(),
            states,
            pods,
            cost: CostView::of(nodes_of(model, pool).map(|node| &node.info)),
            ready: ready(&pool.conditions),
        }
    }
}

/// A template of a pool.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateView {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: i32,
    /// Its limits.
    pub limits: BTreeMap<String, String>,
    /// The number of its nodes and coming nodes.
    pub nodes: usize,
    /// Their cost.
    pub cost: CostView,
    /// Why no further node is launched by it, in words; `None` also for readers who don't see every tenant of the pool.
    pub passed_over: Option<String>,
}

/// A pool with its nodes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// The version of the model.
    pub version: u64,
    /// The pool.
    #[serde(flatten)]
    pub row: PoolRow,
    /// Its limits.
    pub limits: BTreeMap<String, String>,
    /// Its conditions.
    pub conditions: Vec<ConditionView>,
    /// Its templates, the heaviest first; none if its nodes are of one kind.
    pub templates: Vec<TemplateView>,
    /// Its nodes and coming nodes.
    pub nodes: Vec<NodeView>,
}

/// A pool; none if there is no such pool that `scope` sees.
#[must_use]
pub fn view(model: &Model, scope: &Scope, name: &str) -> Option<PoolView> {
    let pool = model.pools.get(name).filter(|_| scope.sees_pool(model, name))?;
    let sees_whole = scope.sees_whole_pool(model, name);
    let template = |facts: &TemplateFacts| {
        let is_its = |node: &&NodeFacts| node.info.template.as_ref() == Some(&facts.name);
        TemplateView {
            name: facts.name.clone(),
            weight: facts.weight,
            limits: facts.limits.clone(),
            nodes: nodes_of(model, pool).filter(is_its).count(),
            cost: CostView::of(nodes_of(model, pool).filter(is_its).map(|node| &node.info)),
            passed_over: facts.passed_over.clone().filter(|_| sees_whole),
        }
    };
    Some(PoolView {
        version: model.version,
        row: PoolRow::new(model, scope, name, pool),
        limits: pool.limits.clone(),
        conditions: conditions(&pool.conditions, sees_whole),
        templates: pool.templates.iter().map(template).collect(),
        nodes: nodes_of(model, pool).map(|node| NodeView::new(model, scope, node)).collect(),
    })
}

/// Conditions; a message may name others' objects, so a reader who doesn't see them gets none.
#[must_use]
pub fn conditions(given: &[ConditionView], with_messages: bool) -> Vec<ConditionView> {
    let shown = |condition: &ConditionView| match with_messages {
        true => condition.clone(),
        false => ConditionView { message: String::new(), ..condition.clone() },
    };
    given.iter().map(shown).collect()
}
