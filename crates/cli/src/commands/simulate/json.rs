//! The plan as JSON. Its shape is part of the command line's contract.

use std::collections::BTreeMap;

use croft_inspect::{WorkloadShortfall, shortfalls, simulation::Simulation};
use croft_manifest::Input;
use croft_scheduler::{ExistingPlacement, PodKey, Price, Quantity, Relaxed};
use serde::Serialize;

use super::{
    consolidation,
    pending::{PendingGroup, PendingReason, pending_groups},
};
use crate::{failure::Failure, output::Output};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'s> {
    nodes: Vec<Node<'s>>,
    unschedulable: Vec<Unschedulable>,
    /// Workloads of which a limit leaves some pods without a node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shortfalls: Vec<WorkloadShortfall>,
    cost_per_hour: Price,
    /// Instances that `cost_per_hour` leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    instances_of_unknown_price: usize,
    lower_bound_per_hour: Price,
    gap: f64,
    bound_relaxes: &'s [Relaxed],
    bound_given_domains: bool,
    bound_given_weights: bool,
    steps: u64,
    cut_short: bool,
    elapsed_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    consolidation: Option<consolidation::Document>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'s> {
    name: &'s str,
    pool: Option<&'s str>,
    /// The template of a pool that has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'s str>,
    instance_type: Option<&'s str>,
    zone: Option<&'s str>,
    capacity_type: Option<&'static str>,
    /// Dollars per hour; null if unknown.
    price: Option<Price>,
    /// True if the price is an estimate, not published.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    price_estimated: bool,
    existing: bool,
    /// True for a NodeClaim whose Node doesn't exist yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    coming: bool,
    pods: Vec<String>,
    /// Headroom pods, which `requests` includes.
    #[serde(skip_serializing_if = "is_zero")]
    headroom_pods: usize,
    requests: BTreeMap<String, Quantity>,
    instance_type_options: &'s [String],
}

#[derive(Serialize)]
struct Unschedulable {
    pod: String,
    reasons: Vec<PendingReason>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Writes the plan as one JSON object.
pub(super) fn write(simulation: &Simulation, input: &Input, out: &mut Output) -> Result<(), Failure> {
    let plan = &simulation.plan;
    let pods = |pods: &[PodKey]| pods.iter().map(ToString::to_string).collect();
    let known = |text: &'_ String| -> bool { !text.is_empty() };
    let launched = plan.instances.iter().map(|instance| Node {
        name: &instance.name,
        pool: Some(&instance.pool),
        template: Some(&instance.template).filter(|t| known(t)).map(String::as_str),
        instance_type: Some(&instance.instance_type),
        zone: Some(&instance.zone),
        capacity_type: Some(instance.capacity_type.as_str()),
        price: instance.price,
        price_estimated: simulation.is_estimate(instance),
        existing: false,
        coming: false,
        pods: pods(&instance.pods),
        headroom_pods: simulation.headroom_on(&instance.name),
        requests: instance.requests.to_quantities(),
        instance_type_options: &instance.options,
    });
    let used = |node: &&ExistingPlacement| !node.pods.is_empty() || simulation.headroom_on(&node.node) > 0;
    let existing = plan.existing.iter().filter(used).map(|node| Node {
        name: &node.node,
        pool: node.pool.as_deref(),
        template: None,
        instance_type: Some(&node.instance_type).filter(|t| known(t)).map(String::as_str),
        zone: Some(&node.zone).filter(|t| known(t)).map(String::as_str),
        capacity_type: node.capacity_type.map(|c| c.as_str()),
        price: node.price,
        price_estimated: false,
        existing: true,
        coming: node.coming,
        pods: pods(&node.pods),
        headroom_pods: simulation.headroom_on(&node.node),
        requests: node.requests.to_quantities(),
        instance_type_options: &[],
    });
    let document = Document {
        nodes: launched.chain(existing).collect(),
        unschedulable: pending_groups(simulation, input)
            .into_iter()
            .flat_map(|PendingGroup { pods, reasons }| {
                pods.into_iter()
                    .map(move |pod| Unschedulable { pod: pod.to_string(), reasons: reasons.clone() })
            })
            .collect(),
        shortfalls: shortfalls(input, simulation),
        cost_per_hour: plan.cost,
        instances_of_unknown_price: plan.unpriced(),
        lower_bound_per_hour: plan.bound,
        gap: plan.gap(),
        bound_relaxes: &plan.bound_relaxes,
        bound_given_domains: plan.bound_given_domains,
        bound_given_weights: plan.bound_given_weights,
        steps: plan.steps,
        cut_short: plan.cut_short,
        elapsed_ms: simulation.elapsed_ms,
        consolidation: simulation.savings.as_ref().map(consolidation::Document::new),
    };
    out.json(&document)
}
