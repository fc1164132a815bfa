//! Instances and nodes that a plan gives to some pods, and the reasons of those that stay pending; of one pod its outlook.

use std::borrow::Cow;

use croft_manifest::{Input, InputError};
use croft_scheduler::{Options, PlannedInstance, PodKey, Price, Unschedulable};
use serde::{Deserialize, Serialize};

use crate::{
    reasons::meaning,
    simulation::{DENIED, Simulation, simulate},
};

/// Why a pool can't take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReason {
    /// The pool; empty where no pool is concerned.
    pub pool: String,
    /// One of a closed set: `croft explain reason` lists them.
    pub reason: String,
    /// In words, with the number that would have been enough.
    pub detail: String,
    /// The meaning of the reason, and what would help.
    pub remedy: Option<Cow<'static, str>>,
}

/// An instance that a plan launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewInstance {
    /// The pool.
    pub pool: String,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// Its price, in millionths of a dollar per hour, if that is known.
    pub price: Option<i64>,
    /// True if the price is an estimate.
    pub estimated: bool,
    /// Its pods, as `namespace/name`.
    pub pods: Vec<String>,
}

/// A node that gets pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExistingNode {
    /// The node, or the NodeClaim of a coming one.
    pub node: String,
    /// True if the node isn't there yet.
    pub coming: bool,
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
}

fn named(pods: &[PodKey], is_wanted: impl Fn(&PodKey) -> bool) -> Vec<String> {
    pods.iter().filter(|pod| is_wanted(pod)).map(ToString::to_string).collect()
}

/// The instance, if it is launched for a pod that is wanted.
#[must_use]
pub fn new_instance(
    simulation: &Simulation,
    instance: &PlannedInstance,
    is_wanted: impl Fn(&PodKey) -> bool,
) -> Option<NewInstance> {
    let pods = named(&instance.pods, is_wanted);
    (!pods.is_empty()).then(|| NewInstance {
        pool: instance.pool.clone(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        capacity_type: instance.capacity_type.to_string(),
        price: instance.price.map(Price::micros),
        estimated: simulation.is_estimate(instance),
        pods,
    })
}

/// The nodes that take pods that are wanted.
#[must_use]
pub fn existing_nodes(simulation: &Simulation, is_wanted: impl Fn(&PodKey) -> bool) -> Vec<ExistingNode> {
    let nodes = simulation.plan.existing.iter().map(|place| ExistingNode {
        node: place.node.clone(),
        coming: place.coming,
        pods: named(&place.pods, &is_wanted),
    });
    nodes.filter(|node| !node.pods.is_empty()).collect()
}

/// The reasons of a pod that the plan leaves pending.
pub fn pending_reasons(left: &Unschedulable) -> impl Iterator<Item = PendingReason> {
    left.reasons.iter().map(|reason| PendingReason {
        pool: reason.pool.clone(),
        reason: reason.reason.as_str().to_owned(),
        detail: reason.detail.clone(),
        remedy: meaning(reason.reason.as_str()).map(Cow::Borrowed),
    })
}

/// The wanted pods that admission refuses, each with its reason.
pub(crate) fn denied(
    simulation: &Simulation,
    is_wanted: impl Fn(&PodKey) -> bool,
) -> Vec<(String, PendingReason)> {
    let reason = |refusal: &str| PendingReason {
        pool: String::new(),
        reason: DENIED.to_owned(),
        detail: refusal.to_owned(),
        remedy: meaning(DENIED).map(Cow::Borrowed),
    };
    let of_all = simulation.denied.iter().flat_map(|denied| {
        let pods = named(&denied.pods, &is_wanted);
        pods.into_iter().map(|pod| (pod, reason(&denied.refusal)))
    });
    of_all.collect()
}

/// The place of a pending pod in a plan: an instance, a node, or the reasons for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// The instance that can be launched for it.
    pub instance: Option<NewInstance>,
    /// The node that has room for it.
    pub node: Option<ExistingNode>,
    /// Why it stays pending.
    pub reasons: Vec<PendingReason>,
}

/// The place that the scheduler's plan gives the pending pod `namespace/name` of `input`.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn outlook(input: &Input, namespace: &str, name: &str) -> Result<Outlook, InputError> {
    let simulation = simulate(input, croft_cloud::builtin_catalog(), &Options::default())?;
    let key = PodKey::new(namespace, name);
    let is_it = |pod: &PodKey| *pod == key;
    let plan = &simulation.plan;
    let mut reasons: Vec<PendingReason> =
        plan.unschedulable.iter().filter(|left| is_it(&left.pod)).flat_map(pending_reasons).collect();
    reasons.extend(denied(&simulation, is_it).into_iter().map(|(_, reason)| reason));
    Ok(Outlook {
        instance: plan.instances.iter().find_map(|instance| new_instance(&simulation, instance, is_it)),
        node: existing_nodes(&simulation, is_it).into_iter().next(),
        reasons,
    })
}
