//! Nodes as the scheduler sees them: claims without a Node, and Nodes as they will be once initialized.

use std::{borrow::Cow, collections::BTreeMap};

use croft_scheduler::{
    CapacityType, ComingNode, EPHEMERAL_TAINTS, InstanceType, Quantity, Resources, resources,
};
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::api::resource::Quantity as QuantityText,
};

use crate::{
    NodeClaim,
    amount::Amount,
    claim::NodeClaimStatus,
    condition::{INITIALIZED, is_true},
    convert::declared,
    definitions::{
        CAPACITY_TYPE_LABEL, CROFT_CAPACITY_TYPE_LABEL, DISRUPTED_EFFECT, DISRUPTED_TAINT,
        INSTANCE_TYPE_LABEL, ZONE_LABEL,
    },
};

/// The Node of `claim` as pods will find it: initialized, with the labels of its claim.
#[must_use]
pub fn planned_node<'n>(raw: &'n Node, claim: Option<&NodeClaim>) -> Cow<'n, Node> {
    match claim {
        Some(claim) if !is_initialized(claim) => Cow::Owned(future_node(raw, claim)),
        // A watch may show the claim's conditions before the labels of its node, and labels are removed by hand.
        Some(claim) if lacks_labels(raw, claim) => Cow::Owned(labelled(raw, claim)),
        _ => Cow::Borrowed(raw),
    }
}

fn is_initialized(claim: &NodeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| is_true(&status.conditions, INITIALIZED))
}

/// True if the node lacks a label of its claim, by which limits count it.
fn lacks_labels(raw: &Node, claim: &NodeClaim) -> bool {
    let held = raw.metadata.labels.as_ref();
    claim.spec.labels.iter().any(|(key, value)| held.and_then(|held| held.get(key)) != Some(value))
}

/// The node with the labels of its claim, which are about to be restored.
fn labelled(raw: &Node, claim: &NodeClaim) -> Node {
    let mut node = raw.clone();
    node.metadata.labels.get_or_insert_default().extend(claim.spec.labels.clone());
    node
}

/// The node of `claim` as it will be once it is initialized.
#[must_use]
pub fn future_node(raw: &Node, claim: &NodeClaim) -> Node {
    let mut node = raw.clone();
    let labels = node.metadata.labels.get_or_insert_default();
    let status = claim.status.clone().unwrap_or_default();
    labels.extend(status.labels);
    labels.extend(status.capacity_type.map(|paid| (CROFT_CAPACITY_TYPE_LABEL.to_owned(), paid)));
    labels.extend(claim.spec.labels.clone());
    if let Some(taints) = node.spec.get_or_insert_default().taints.as_mut() {
        taints.retain(|t| {
            !EPHEMERAL_TAINTS.contains(&t.key.as_str())
                && !claim.spec.startup_taints.iter().any(|s| s.key == t.key && s.effect == t.effect)
        });
    }
    let node_status = node.status.get_or_insert_default();
    for (held, known) in
        [(&mut node_status.capacity, status.capacity), (&mut node_status.allocatable, status.allocatable)]
    {
        // Devices are reported late. A resource that the kubelet already reports is up to date.
        let held = held.get_or_insert_default();
        for (name, amount) in known {
            // A device is reported as zero until its plugin is there.
            let is_zero =
                |there: &QuantityText| there.0.parse::<Quantity>().is_ok_and(|q| q == Quantity::ZERO);
            if held.get(&name).is_none_or(|there| resources::is_given_later(&name) && is_zero(there)) {
                held.insert(name, QuantityText(amount.0));
            }
        }
    }
    node
}

/// The coming node of a claim whose Node doesn't exist yet. `find` finds an instance type of its class.
#[must_use]
pub fn in_flight_node<'t>(
    claim: &NodeClaim,
    find: impl FnOnce(&str) -> Option<&'t InstanceType>,
) -> ComingNode {
    let default = NodeClaimStatus::default();
    let status = claim.status.as_ref().unwrap_or(&default);
    let spec = &claim.spec;
    let zone = status.zone.clone().or_else(|| spec.zones.first().cloned()).unwrap_or_default();
    let instance_type =
        status.instance_type.clone().or_else(|| spec.instance_types.first().cloned()).unwrap_or_default();
    let planned = find(&instance_type).map(|kind| declared::instance_type(kind, &spec.resources));
    let planned = planned.as_deref();
    let mut labels: BTreeMap<String, String> = status.labels.clone();
    if let Some(planned) = planned.filter(|_| status.labels.is_empty()) {
        labels.extend(planned.labels.clone());
        labels.entry("kubernetes.io/arch".to_owned()).or_insert_with(|| planned.arch.clone());
        if let Some(os) = planned.os.first() {
            labels.entry("kubernetes.io/os".to_owned()).or_insert_with(|| os.clone());
        }
    }
    labels.insert(ZONE_LABEL.to_owned(), zone.clone());
    labels.insert(INSTANCE_TYPE_LABEL.to_owned(), instance_type.clone());
    labels.insert(CAPACITY_TYPE_LABEL.to_owned(), spec.capacity_type.clone());
    labels.extend(spec.labels.clone());
    let mut taints = spec.taints.clone();
    if claim.metadata.deletion_timestamp.is_some() {
        // Its capacity counts until the instance is terminated, and no pod is planned onto it.
        taints.push(Taint {
            key: DISRUPTED_TAINT.to_owned(),
            effect: DISRUPTED_EFFECT.to_owned(),
            value: None,
            time_added: None,
        });
    }
    let amounts = |launched: &BTreeMap<String, Amount>, planned: Option<Resources>| {
        if launched.is_empty() { planned.unwrap_or_default() } else { amounts(launched) }
    };
    let capacity = amounts(&status.capacity, planned.map(|kind| kind.capacity.clone()));
    let allocatable = amounts(&status.allocatable, planned.map(InstanceType::allocatable));
    ComingNode {
        claim: claim.metadata.name.clone().unwrap_or_default(),
        pool: spec.pool.clone(),
        instance_type,
        zone,
        capacity_type: CapacityType::parse(&spec.capacity_type).unwrap_or_default(),
        labels,
        taints,
        allocatable,
        capacity,
    }
}

fn amounts(map: &BTreeMap<String, Amount>) -> Resources {
    let mut resources = Resources::new();
    for (name, amount) in map {
        if let Ok(quantity) = amount.0.parse::<Quantity>() {
            resources.set_quantity(name, quantity);
        }
    }
    resources
}
