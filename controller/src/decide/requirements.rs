//! Whether a node would meet its pool's requirements once it is launched. One that does not would be replaced as drifted from
//! its first moment, and so would the node in its place: a launch storm. So it is not launched, and the pool says why.

use std::collections::BTreeMap;

use croft_api::{TenantPool, convert::scheduler as convert};
use croft_cloud::facts::node_labels;
use croft_scheduler::{InstanceType, Machine, Operator, Requirement};

use super::provision::follows_from_machine;

/// The reason in conditions and events.
pub const NEVER_MET: &str = "RequirementNeverMet";

fn requirements(pool: &TenantPool) -> impl Iterator<Item = Requirement> + '_ {
    pool.spec.template.iter().flat_map(|t| &t.spec.requirements).map(convert::requirement)
}

/// The requirements that the node of `machine` would not meet, by the labels that it will have.
#[must_use]
pub fn unmet(pool: &TenantPool, machine: &Machine, types: &[InstanceType]) -> Vec<String> {
    let Some(planned) = types.iter().find(|t| t.name == machine.instance_type) else { return Vec::new() };
    let mut labels = node_labels(planned, &machine.zone, machine.capacity_type);
    let own = machine.labels.iter().filter(|(key, _)| !follows_from_machine(key, Some(planned)));
    labels.extend(own.map(|(key, value)| (key.clone(), value.clone())));
    requirements(pool).filter(|r| !r.is_met_by(&labels)).map(|r| r.to_string()).collect()
}

/// The first requirement that no node of the pool would meet: about a label which is neither the instance type's, nor the
/// pool's, nor the template's, and which Croft does not give to nodes either.
#[must_use]
pub fn never_met(pool: &TenantPool, types: &[InstanceType]) -> Option<Requirement> {
    let template = pool.spec.template.as_ref().map(|t| t.metadata.labels.clone()).unwrap_or_default();
    let mut labels: BTreeMap<String, String> = template;
    labels.insert(croft_api::pool::DEFAULT_KEY.to_owned(), convert::pool_name_label(pool));
    labels.insert(pool.spec.key.clone(), convert::value(pool));
    let of_machine = |r: &Requirement| {
        let of_offering = |t: &InstanceType| {
            let first = t.offerings.first().map(|o| node_labels(t, &o.zone, o.capacity_type));
            first.is_some_and(|labels| {
                Requirement { operator: Operator::Exists, values: Vec::new(), ..r.clone() }.is_met_by(&labels)
            })
        };
        types.iter().any(of_offering)
    };
    requirements(pool).filter(|r| !of_machine(r)).find(|r| {
        // The scheduler gives a label of the user's own to the node, where the requirement names its values.
        let given =
            r.operator == Operator::In && !follows_from_machine(&r.key, None) && !labels.contains_key(&r.key);
        !given && !r.is_met_by(&labels)
    })
}
