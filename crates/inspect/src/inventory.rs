//! Nodes of an input with pool, claim and price, and the pods and namespaces beside them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::convert::policy as convert;
use croft_manifest::Input;
use croft_policy::{NamespaceTenancy, Tenants, audit::Recreation, definitions::TEMPLATE_LABEL};
use croft_scheduler::{CapacityType, InstanceType, Price, Quantity, resources};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use crate::{
    node_index::{NodeIndex, OfferingIndex},
    workload::is_active,
};

/// A node with its pool, claim and price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// The pool whose label it carries.
    pub pool: Option<String>,
    /// The template of the pool that its label names; `None` if the pool had only one kind of node.
    pub template: Option<String>,
    /// Its instance type; empty if its labels don't say.
    pub instance_type: String,
    /// Its zone; empty if its labels don't say.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`; empty if its labels don't say.
    pub capacity_type: String,
    /// Its price per hour, if that is known.
    pub price: Option<Price>,
    /// True if the price is an estimate, not published.
    pub estimated: bool,
    /// Its NodeClaim.
    pub claim: Option<String>,
    /// True if its condition Ready is True.
    pub ready: bool,
}

/// Every node of the input, by name.
#[must_use]
pub fn node_infos(input: &Input, types: &Arc<[InstanceType]>) -> Vec<NodeInfo> {
    let (index, offerings) = (NodeIndex::new(input), OfferingIndex::new(types));
    let mut nodes: Vec<NodeInfo> =
        input.nodes.iter().map(|node| described(&node.object, &index, &offerings)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

/// The same at the prices of the built-in catalogue.
#[must_use]
pub fn nodes(input: &Input) -> Vec<NodeInfo> {
    node_infos(input, &croft_cloud::builtin_catalog())
}

/// Pool, claim and price of one node. [`node_infos`] reads the input once for all of them.
#[must_use]
pub fn node_info(node: &Node, input: &Input, types: &Arc<[InstanceType]>) -> NodeInfo {
    described(node, &NodeIndex::new(input), &OfferingIndex::new(types))
}

/// Pool, claim and price of a node. The claim's price is preferred to the catalogue's.
pub(crate) fn described(node: &Node, index: &NodeIndex<'_>, offerings: &OfferingIndex<'_>) -> NodeInfo {
    let labels = node.labels();
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    let pool = index.pool_of(node);
    let name = node.name_any();
    let claim = index.claim_naming(&name);
    let instance_type = label("node.kubernetes.io/instance-type");
    let zone = label("topology.kubernetes.io/zone");
    let capacity_type = capacity_type(node);
    let paid_as = CapacityType::parse(&capacity_type).unwrap_or_default();
    let of_claim = claim.and_then(|c| {
        let status = c.status.as_ref()?;
        Some((status.price_per_hour.as_ref()?.parse().ok()?, status.price_estimated))
    });
    let of_catalog = || {
        let offering = offerings.offering(&instance_type, &zone, paid_as)?;
        Some((offering.price?, offering.estimated))
    };
    let price = of_claim.or_else(of_catalog);
    let ready = is_ready(node);
    NodeInfo {
        pool: pool.map(|p| p.name_any()),
        template: labels.get(TEMPLATE_LABEL).filter(|_| pool.is_some()).cloned(),
        price: price.map(|(price, _)| price),
        estimated: price.is_some_and(|(_, estimated)| estimated),
        claim: claim.map(|c| c.name_any()),
        name,
        instance_type,
        zone,
        capacity_type,
        ready,
    }
}

/// `on-demand`, `spot` or `reserved`; empty if the node's labels don't say. Managed node groups have a label of their own.
fn capacity_type(node: &Node) -> String {
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let of_group = || match label("eks.amazonaws.com/capacityType")? {
        "ON_DEMAND" => Some("on-demand"),
        "SPOT" => Some("spot"),
        "CAPACITY_BLOCK" => Some("reserved"),
        _ => None,
    };
    label("karpenter.sh/capacity-type").or_else(of_group).unwrap_or_default().to_owned()
}

/// Capacity of a node of the input for a resource, in the scheduler's native units; `None` if the node doesn't say.
#[must_use]
pub fn capacity(input: &Input, node: &str, resource: &str) -> Option<i64> {
    let quantity = input.nodes.get("", node)?.status.as_ref()?.capacity.as_ref()?.get(resource)?;
    Some(resources::native(resource, quantity.0.parse::<Quantity>().ok()?))
}

/// Total cost of nodes, per hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Sum of the known prices.
    pub sum: Price,
    /// Number of nodes without a known price.
    pub unknown: usize,
    /// True if a price of the sum is an estimate.
    pub estimated: bool,
}

impl Cost {
    /// Counts a node, or an instance that will be one.
    pub fn add(&mut self, price: Option<Price>) {
        match price {
            Some(price) => self.sum += price,
            None => self.unknown += 1,
        }
    }
}

/// Adds up the prices of nodes.
pub fn total_cost<'n>(nodes: impl Iterator<Item = &'n NodeInfo>) -> Cost {
    nodes.fold(Cost::default(), |cost, node| match node.price {
        Some(price) => Cost { sum: cost.sum + price, estimated: cost.estimated || node.estimated, ..cost },
        None => Cost { unknown: cost.unknown + 1, ..cost },
    })
}

/// True if the condition Ready is True.
pub(crate) fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

/// True for a node that is ready and isn't cordoned.
#[must_use]
pub fn is_open(node: &Node) -> bool {
    is_ready(node) && !node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// The tenant of each namespace that belongs to one.
#[must_use]
pub fn tenants_by_namespace(input: &Input, tenants: &Tenants) -> BTreeMap<String, String> {
    let mut names: Vec<String> = input.namespaces.iter().map(|n| n.name_any()).collect();
    names.extend(input.pods.iter().filter_map(|p| p.namespace()));
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| match tenants.tenancy(&name) {
            NamespaceTenancy::Tenant { tenant, .. } => {
                let tenant = tenant.name.to_string();
                Some((name, tenant))
            }
            _ => None,
        })
        .collect()
}

/// The namespaces of each tenant, from the tenants of namespaces.
#[must_use]
pub fn namespaces_by_tenant(owners: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut namespaces: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (namespace, tenant) in owners {
        namespaces.entry(tenant).or_default().insert(namespace);
    }
    namespaces
}

/// The node that a pod is bound to.
#[must_use]
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Pods that are neither finished nor being deleted.
pub fn active_pods(input: &Input) -> impl Iterator<Item = &Pod> {
    input.pods.iter().map(|p| &p.object).filter(|p| is_active(p))
}

/// Placement violations of an existing pod.
#[must_use]
pub fn placement_violations(tenants: &Tenants, pod: &Pod) -> Vec<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let found = croft_policy::audit::pod(tenants, &namespace, &convert::pod(pod), recreation(pod));
    found.into_iter().map(|f| f.message).collect()
}

/// The same for people of the pod's namespace: no pool but its tenant's is named.
#[must_use]
pub fn own_placement_violations(tenants: &Tenants, pod: &Pod) -> Vec<String> {
    let namespace = pod.namespace().unwrap_or_default();
    croft_policy::audit::pod_in_own_words(tenants, &namespace, &convert::pod(pod), recreation(pod))
}

/// The controller that creates a deleted pod again, if there is one.
#[must_use]
pub fn recreation(pod: &Pod) -> Recreation {
    let has_controller = pod.owner_references().iter().any(|owner| owner.controller == Some(true));
    if has_controller { Recreation::Controller } else { Recreation::None }
}
