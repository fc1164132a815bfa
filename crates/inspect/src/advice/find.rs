//! Finds the constraints that could have a price.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{
    Tenant, TenantPool,
    convert::static_capacity::size_of_node,
    disruption::{ConsolidationPolicy, DisruptionReason},
    pool::Provisioner,
};
use croft_disruption::{budgets::min_savings, cost::eviction_cost};
use croft_manifest::{Input, InputError};
use croft_scheduler::{InstanceType, Price};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, PodSpec};
use kube::ResourceExt as _;

use super::{
    constraint::{Constraint, NodeLabel},
    parts::Parts,
    take_out::usual,
    words::{Words, in_affinity, in_selector, words},
};
use crate::{
    admission::Admission,
    inventory::{described, node_of, tenants_by_namespace},
    node_index::{NodeIndex, OfferingIndex},
    simulation::{Horizon, PodIndex, allows_nothing, has_do_not_disrupt, is_disrupted},
    workload::{controller, workload_of},
};

/// The objects whose constraints are priced.
#[derive(Clone, Debug)]
pub enum Focus {
    /// Every node and pod of the pools.
    All,
    /// One node, its pods and its pool.
    Node(String),
    /// One pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A constraint that could have a price.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) constraint: Constraint,
    /// The part of the pools that it concerns; all of them for none.
    pub(super) part: Option<String>,
    /// The tenants that the constraint belongs to.
    pub(super) tenants: Vec<String>,
    pub(super) namespace: Option<String>,
    /// The price of the nodes that it touches, for the order in which constraints are tried.
    pub(super) touched: Price,
    /// The pods that have it, by namespace and name; none for a constraint of nodes and pools.
    pub(super) pods: BTreeSet<(String, String)>,
    pub(super) words: Words,
}

impl Found {
    /// False if the cluster `without` the constraint is one that the constraint would allow as well: then a lower cost
    /// comes from another order of the search. True where that isn't known.
    pub(super) fn may_explain(&self, with: &Input, without: &Input) -> bool {
        match &self.constraint {
            Constraint::NodeDoNotDisrupt(node) => without.nodes.get("", node).is_none(),
            Constraint::PodDisruptionBudget { .. }
            | Constraint::PodDoNotDisrupt(_)
            | Constraint::BarePod(_)
            | Constraint::TopologySpread { .. }
            | Constraint::NodeSelector { .. } => self.pods.iter().any(|(namespace, name)| {
                let node = |input: &Input| {
                    let pod = input.pods.get(namespace, name);
                    pod.and_then(|pod| node_of(&pod.object).map(str::to_owned))
                };
                node(with) != node(without)
            }),
            _ => true,
        }
    }
}

/// Finds the constraints in `focus`, in their own order. `names` has the workloads that pods belong to.
///
/// # Errors
/// A Tenant whose selector can't be read.
pub(super) fn find(
    input: &Input,
    names: &Input,
    types: &Arc<[InstanceType]>,
    now: Timestamp,
    focus: &Focus,
) -> Result<Vec<Found>, InputError> {
    let admission = Admission::new(input)?;
    let (index, offerings) = (NodeIndex::new(input), OfferingIndex::new(types));
    let mut finder = Finder {
        index: &index,
        names,
        pods: PodIndex::new(input, now, Horizon::End),
        parts: Parts::new(input),
        owners: tenants_by_namespace(input, admission.tenants()),
        tenants: tenants_by_pool(input),
        focus,
        found: BTreeMap::new(),
    };
    let mut nodes: Vec<&Node> = input.nodes.iter().map(|node| &node.object).collect();
    nodes.sort_by_key(|node| node.name_any());
    for node in nodes {
        let pool = index.pool_of(node).filter(|pool| {
            let follows_demand = size_of_node(pool, node).is_none();
            pool.spec.provisioner == Provisioner::Croft && follows_demand && !is_disrupted(node)
        });
        if let Some(pool) = pool {
            let price = described(node, &index, &offerings).price.unwrap_or(Price::ZERO);
            finder.node(node, pool, price);
        }
    }
    Ok(finder.found.into_values().map(|(found, _)| found).collect())
}

/// The tenants that list each pool, in the order of the input.
fn tenants_by_pool(input: &Input) -> BTreeMap<Cow<'_, str>, Vec<&Tenant>> {
    let mut tenants: BTreeMap<Cow<'_, str>, Vec<&Tenant>> = BTreeMap::new();
    for tenant in &input.tenants {
        let pools: BTreeSet<Cow<'_, str>> = input.pools_of_tenant(tenant).collect();
        for pool in pools {
            tenants.entry(pool).or_default().push(&tenant.object);
        }
    }
    tenants
}

struct Finder<'a> {
    index: &'a NodeIndex<'a>,
    names: &'a Input,
    pods: PodIndex<'a>,
    parts: Parts,
    /// Tenants by namespace.
    owners: BTreeMap<String, String>,
    /// Tenants by pool.
    tenants: BTreeMap<Cow<'a, str>, Vec<&'a Tenant>>,
    focus: &'a Focus,
    /// With the last node whose price was counted.
    found: BTreeMap<Constraint, (Found, String)>,
}

/// A node of a pool with its price.
#[derive(Clone, Copy)]
struct Place<'a> {
    node: &'a Node,
    pool: &'a TenantPool,
    price: Price,
}

impl<'a> Finder<'a> {
    fn node(&mut self, node: &'a Node, pool: &'a TenantPool, price: Price) {
        let place = Place { node, pool, price };
        let name = node.name_any();
        match self.focus {
            Focus::Node(wanted) if *wanted != name => return,
            Focus::Pod { .. } => {}
            Focus::All | Focus::Node(_) => self.node_and_pool(place),
        }
        let pods: Vec<&Pod> = self.pods.movable(&name).collect();
        for pod in pods {
            let is_asked = match self.focus {
                Focus::Pod { namespace, name } => {
                    pod.namespace().as_ref() == Some(namespace) && pod.name_any() == *name
                }
                Focus::All | Focus::Node(_) => true,
            };
            if is_asked {
                self.pod(place, pod);
            }
        }
    }

    fn add(&mut self, constraint: Constraint, place: Place<'_>, pod: Option<&Pod>) {
        let name = place.node.name_any();
        let own = pod.map(|pod| (pod.namespace().unwrap_or_default(), pod.name_any()));
        if let Some((found, last)) = self.found.get_mut(&constraint) {
            found.pods.extend(own);
            if *last != name {
                found.touched += place.price;
                *last = name;
            }
            return;
        }
        let namespace = pod.and_then(|pod| pod.namespace());
        let tenants = match (&constraint, &namespace) {
            (Constraint::TenantLimit { tenant, .. }, _) => vec![tenant.clone()],
            (Constraint::ClusterLimit(_), _) => Vec::new(),
            (_, Some(namespace)) => self.owners.get(namespace).cloned().into_iter().collect(),
            (_, None) => self.tenants(place.pool).iter().map(|tenant| tenant.name_any()).collect(),
        };
        let part = match constraint {
            Constraint::ClusterLimit(_) => None,
            _ => self.parts.of(&place.pool.name_any()).map(str::to_owned),
        };
        let words = words(self.index, &self.pods, &constraint, pod);
        let found = Found {
            constraint: constraint.clone(),
            part,
            tenants,
            namespace,
            touched: place.price,
            pods: own.into_iter().collect(),
            words,
        };
        self.found.insert(constraint, (found, name));
    }

    /// The tenants that list a pool.
    fn tenants(&self, pool: &TenantPool) -> Vec<&'a Tenant> {
        self.tenants.get(pool.name_any().as_str()).cloned().unwrap_or_default()
    }

    fn node_and_pool(&mut self, place: Place<'a>) {
        let Place { node, pool, .. } = place;
        let (name, own) = (node.name_any(), pool.name_any());
        let claim = self.index.claim_naming(&name);
        if has_do_not_disrupt(node) || claim.is_some_and(has_do_not_disrupt) {
            self.add(Constraint::NodeDoNotDisrupt(name), place, None);
        }
        if has_do_not_disrupt(pool) {
            self.add(Constraint::PoolDoNotDisrupt(own.clone()), place, None);
        }
        let disruption = &pool.spec.disruption;
        if min_savings(disruption) > Price::ZERO {
            self.add(Constraint::MinSavings(own.clone()), place, None);
        }
        if eviction_cost(disruption) > eviction_cost(&usual(disruption)) {
            self.add(Constraint::EvictionCost(own.clone()), place, None);
        }
        if disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty {
            self.add(Constraint::ConsolidationPolicy(own.clone()), place, None);
        }
        if disruption.consolidate_after() == "Never" {
            self.add(Constraint::ConsolidateAfter(own.clone()), place, None);
        }
        if disruption.budgets.iter().any(|b| allows_nothing(b, DisruptionReason::Underutilized)) {
            self.add(Constraint::PoolBudget(own.clone()), place, None);
        }
        for label in NodeLabel::ALL {
            let mut requirements = pool.spec.node_specs().flat_map(|nodes| &nodes.requirements);
            if requirements.any(|wanted| label.is(&wanted.key)) {
                self.add(Constraint::PoolRequirement { pool: own.clone(), label }, place, None);
            }
        }
        for resource in pool.spec.limits.keys() {
            let (pool, resource) = (own.clone(), resource.clone());
            self.add(Constraint::PoolLimit { pool, resource }, place, None);
        }
        for template in &pool.spec.templates {
            for resource in template.limits.keys() {
                let (pool, template, resource) = (own.clone(), template.name.clone(), resource.clone());
                self.add(Constraint::TemplateLimit { pool, template, resource }, place, None);
            }
        }
        let weights: BTreeSet<i32> = pool.spec.templates.iter().map(|template| template.weight).collect();
        if weights.len() > 1 {
            self.add(Constraint::TemplateWeights(own.clone()), place, None);
        }
        for tenant in self.tenants(pool) {
            for resource in tenant.spec.limits.keys() {
                let (tenant, resource) = (tenant.name_any(), resource.clone());
                self.add(Constraint::TenantLimit { tenant, resource }, place, None);
            }
        }
        for resource in self.index.input().configs.iter().flat_map(|config| config.spec.limits.keys()) {
            self.add(Constraint::ClusterLimit(resource.clone()), place, None);
        }
    }

    fn pod(&mut self, place: Place<'_>, pod: &Pod) {
        let workload = workload_of(self.names, pod);
        let namespace = pod.namespace().unwrap_or_default();
        let budgets: Vec<String> =
            self.pods.blocking_budgets(pod).into_iter().map(|(budget, _)| budget.name_any()).collect();
        for name in budgets {
            let namespace = namespace.clone();
            self.add(Constraint::PodDisruptionBudget { namespace, name }, place, Some(pod));
        }
        if self.pods.forbidden(pod).is_some() {
            self.add(Constraint::PodDoNotDisrupt(workload.clone()), place, Some(pod));
        }
        if controller(&pod.metadata).is_none() {
            self.add(Constraint::BarePod(workload.clone()), place, Some(pod));
        }
        let Some(spec) = &pod.spec else { return };
        for key in hard_spreads(spec) {
            self.add(Constraint::TopologySpread { workload: workload.clone(), key }, place, Some(pod));
        }
        let affinity = spec.affinity.as_ref();
        let apart = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
        let apart = apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
        for key in keys(apart) {
            self.add(Constraint::PodAntiAffinity { workload: workload.clone(), key }, place, Some(pod));
        }
        let together = affinity.and_then(|a| a.pod_affinity.as_ref());
        let together =
            together.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
        for key in keys(together) {
            self.add(Constraint::PodAffinity { workload: workload.clone(), key }, place, Some(pod));
        }
        for label in NodeLabel::ALL {
            if in_selector(spec, label).is_some() || in_affinity(spec, label).is_some() {
                let workload = workload.clone();
                self.add(Constraint::NodeSelector { workload, label }, place, Some(pod));
            }
        }
    }
}

fn hard_spreads(spec: &PodSpec) -> BTreeSet<String> {
    let spreads = spec.topology_spread_constraints.iter().flatten();
    spreads
        .filter(|spread| spread.when_unsatisfiable != "ScheduleAnyway")
        .map(|spread| spread.topology_key.clone())
        .collect()
}

fn keys(terms: Option<&[PodAffinityTerm]>) -> BTreeSet<String> {
    terms.unwrap_or_default().iter().map(|term| term.topology_key.clone()).collect()
}
