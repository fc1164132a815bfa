//! The place of a pending pod.

use croft_manifest::{Input, InputError};
use croft_scheduler::{Options, PodKey};
use serde::{Deserialize, Serialize};

use crate::{
    places::{
        ExistingNode, NewInstance, PendingReason, denied, existing_nodes, new_instance, pending_reasons,
    },
    simulation::simulate,
};

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
