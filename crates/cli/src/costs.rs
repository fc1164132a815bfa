//! What nodes cost and whose they are, from their labels and claims.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::convert::policy as convert;
use croft_policy::{NamespaceTenancy, Tenants};
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
    /// True if nobody publishes the price.
    pub(crate) estimated: bool,
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
    let told = claim.and_then(|c| {
        let status = c.status.as_ref()?;
        Some((status.price_per_hour.as_ref()?.parse().ok()?, status.price_estimated))
    });
    let catalogued = || {
        let offered = types.iter().find(|t| t.name == instance_type)?;
        let offering = offered.offerings.iter().find(|o| o.zone == zone && o.capacity_type == wanted)?;
        Some((offering.price?, offering.estimated))
    };
    let price = told.or_else(catalogued);
    let ready = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .any(|c| c.type_ == "Ready" && c.status == "True");
    Machine {
        pool: pool.map(|p| p.name_any()),
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

/// What machines cost together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The sum of the prices that are known.
    pub(crate) sum: Price,
    /// Machines without a known price.
    pub(crate) unknown: usize,
    /// True if some of the prices are estimates.
    pub(crate) estimated: bool,
}

/// The sum of what `machines` cost, and how many of them have no known price.
pub(crate) fn cost<'m>(machines: impl Iterator<Item = &'m Machine>) -> Cost {
    machines.fold(Cost::default(), |cost, m| match m.price {
        Some(price) => Cost { sum: cost.sum + price, estimated: cost.estimated || m.estimated, ..cost },
        None => Cost { unknown: cost.unknown + 1, ..cost },
    })
}

/// Stands before what is an estimate.
pub(crate) fn mark(estimated: bool) -> &'static str {
    if estimated { "~" } else { "" }
}

/// A cost in a sentence, which says when it isn't the whole or an estimate.
pub(crate) fn shown(cost: Cost) -> String {
    let (mark, sum) = (mark(cost.estimated), cost.sum);
    match cost.unknown {
        0 => format!("{mark}${sum}/h"),
        n => format!("{mark}${sum}/h and {} of unknown price", counted(n, "node")),
    }
}

/// A cost in a table.
pub(crate) fn cell(cost: Cost) -> String {
    let (mark, sum) = (mark(cost.estimated), cost.sum);
    if cost.unknown == 0 { format!("{mark}{sum}") } else { format!("{mark}{sum} + {} unknown", cost.unknown) }
}

/// The tenant of each namespace that has one.
pub(crate) fn owners(input: &Input, tenants: &Tenants) -> BTreeMap<String, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(price: Option<i64>, estimated: bool) -> Machine {
        Machine {
            name: "n".to_owned(),
            pool: None,
            instance_type: String::new(),
            zone: String::new(),
            capacity_type: String::new(),
            price: price.map(Price::from_micros),
            estimated,
            claim: None,
            ready: true,
        }
    }

    #[test]
    fn a_sum_with_an_estimate_in_it_is_one() {
        let listed = machine(Some(96_000), false);
        let guessed = machine(Some(43_200), true);
        let unknown = machine(None, false);
        assert_eq!(shown(cost([&listed].into_iter())), "$0.096/h");
        assert_eq!(cell(cost([&listed, &guessed].into_iter())), "~0.1392");
        assert_eq!(shown(cost([&guessed, &unknown].into_iter())), "~$0.0432/h and 1 node of unknown price");
    }
}
