//! What nodes cost and whose they are, from their labels and claims.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::convert::policy as convert;
use croft_policy::{Ground, Tenants};
use croft_scheduler::{CapacityType, InstanceType, Price};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use crate::{input::Input, table::counted, workload::is_active};

/// What is known of one node.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) pool: Option<String>,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: String,
    pub(crate) price: Option<Price>,
    pub(crate) claim: Option<String>,
    pub(crate) ready: bool,
}

/// Every node of the input, in the order of their names.
pub(crate) fn machines(input: &Input, types: &Arc<[InstanceType]>) -> Vec<Machine> {
    let mut machines: Vec<Machine> =
        input.nodes.iter().map(|node| machine(&node.object, input, types)).collect();
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    machines
}

pub(crate) fn machine(node: &Node, input: &Input, types: &Arc<[InstanceType]>) -> Machine {
    let labels = node.labels();
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    let pool = input.pools.iter().find(|pool| {
        let (key, value) = (&pool.spec.key, croft_api::convert::scheduler::value(pool));
        labels.get(key) == Some(&value)
    });
    let name = node.name_any();
    let claim = input.claims.iter().find(|claim| {
        let status = claim.status.as_ref();
        status.is_some_and(|s| s.node_name.as_ref() == Some(&name))
    });
    let instance_type = label("node.kubernetes.io/instance-type");
    let zone = label("topology.kubernetes.io/zone");
    let capacity_type = label("karpenter.sh/capacity-type");
    let wanted = CapacityType::parse(&capacity_type).unwrap_or_default();
    let told = claim
        .and_then(|c| c.status.as_ref()?.price_per_hour.as_ref())
        .and_then(|text| text.parse::<f64>().ok())
        .and_then(Price::from_dollars);
    let catalogued = || {
        let offered = types.iter().find(|t| t.name == instance_type)?;
        offered.offerings.iter().find(|o| o.zone == zone && o.capacity_type == wanted)?.price
    };
    let ready = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .any(|c| c.type_ == "Ready" && c.status == "True");
    Machine {
        pool: pool.map(|p| p.name_any()),
        price: told.or_else(catalogued),
        claim: claim.map(|c| c.name_any()),
        name,
        instance_type,
        zone,
        capacity_type,
        ready,
    }
}

/// The sum of what `machines` cost, and how many of them have no known price.
pub(crate) fn cost<'m>(machines: impl Iterator<Item = &'m Machine>) -> (Price, usize) {
    machines.fold((Price::ZERO, 0), |(sum, unknown), m| match m.price {
        Some(price) => (sum + price, unknown),
        None => (sum, unknown + 1),
    })
}

/// A cost in a sentence, which says when it isn't the whole.
pub(crate) fn shown((price, unknown): (Price, usize)) -> String {
    match unknown {
        0 => format!("${price}/h"),
        n => format!("${price}/h and {} of unknown price", counted(n, "node")),
    }
}

/// A cost in a table.
pub(crate) fn cell((price, unknown): (Price, usize)) -> String {
    if unknown == 0 { price.to_string() } else { format!("{price} + {unknown} unknown") }
}

/// The tenant of each namespace that has one.
pub(crate) fn owners(input: &Input, tenants: &Tenants) -> BTreeMap<String, String> {
    let mut names: Vec<String> = input.namespaces.iter().map(|n| n.name_any()).collect();
    names.extend(input.pods.iter().filter_map(|p| p.namespace()));
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| match tenants.ground(&name) {
            Ground::Tenant { tenant, .. } => {
                let tenant = tenant.name.to_string();
                Some((name, tenant))
            }
            _ => None,
        })
        .collect()
}

/// Where a pod is bound.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Pods that count: neither finished nor going.
pub(crate) fn active(input: &Input) -> impl Iterator<Item = &Pod> {
    input.pods.iter().map(|p| &p.object).filter(|p| is_active(p))
}

/// The policy's answer for a pod that exists: what is wrong with where it is, in words.
pub(crate) fn misplaced(tenants: &Tenants, pod: &Pod) -> Vec<String> {
    let namespace = pod.namespace().unwrap_or_default();
    croft_policy::audit::pod(tenants, &namespace, &convert::pod(pod)).into_iter().map(|f| f.message).collect()
}
