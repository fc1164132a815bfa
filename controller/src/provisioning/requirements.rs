//! Whether a node would meet its pool's requirements once it is launched. A node that does not would be replaced as
//! drifted at once, and so would its replacement, without end. So it is not launched, and the pool's condition says
//! why.

use std::collections::BTreeMap;

use croft_api::{TenantPool, convert::scheduler as convert};
use croft_cloud::{facts::node_labels, pool_types::requirements};
use croft_scheduler::{InstanceType, Operator, PlannedInstance, Requirement};

use crate::definitions::keys;

/// True if the value of a label follows from the instance, by the type that is planned, so that it is known only once
/// the instance is launched.
#[must_use]
pub fn follows_from_instance(key: &str, planned: Option<&InstanceType>) -> bool {
    const OF_EVERY_INSTANCE: [&str; 9] = [
        keys::INSTANCE_TYPE_LABEL,
        keys::ZONE_LABEL,
        keys::CAPACITY_TYPE_LABEL,
        keys::CROFT_CAPACITY_TYPE_LABEL,
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "kubernetes.io/hostname",
        "topology.kubernetes.io/region",
        "node.kubernetes.io/windows-build",
    ];
    OF_EVERY_INSTANCE.contains(&key)
        || key.starts_with("beta.kubernetes.io/")
        || key.starts_with("failure-domain.beta.kubernetes.io/")
        || planned.is_some_and(|t| t.labels.contains_key(key))
}

/// The requirements that the node of a planned instance would not meet, by the labels that it will have.
#[must_use]
pub fn unmet_requirements(
    pool: &TenantPool,
    instance: &PlannedInstance,
    types: &[InstanceType],
) -> Vec<String> {
    let Some(planned) = types.iter().find(|t| t.name == instance.instance_type) else { return Vec::new() };
    let mut labels = node_labels(planned, &instance.zone, instance.capacity_type);
    let own = instance.labels.iter().filter(|(key, _)| !follows_from_instance(key, Some(planned)));
    labels.extend(own.map(|(key, value)| (key.clone(), value.clone())));
    requirements(pool).iter().filter(|r| !r.is_met_by(&labels)).map(|r| r.to_string()).collect()
}

/// The first requirement that no node of the pool would meet: about a label that neither an instance type, the
/// pool, the template nor Croft gives to nodes.
#[must_use]
pub fn never_met_requirement(pool: &TenantPool, types: &[InstanceType]) -> Option<Requirement> {
    let template = pool.spec.template.as_ref().map(|t| t.metadata.labels.clone()).unwrap_or_default();
    let mut labels: BTreeMap<String, String> = template;
    labels.insert(croft_api::pool::DEFAULT_KEY.to_owned(), convert::pool_name_label(pool));
    labels.insert(pool.spec.key.clone(), convert::value(pool));
    let of_instance = |r: &Requirement| {
        let of_offering = |t: &InstanceType| {
            let first = t.offerings.first().map(|o| node_labels(t, &o.zone, o.capacity_type));
            first.is_some_and(|labels| {
                Requirement { operator: Operator::Exists, values: Vec::new(), ..r.clone() }.is_met_by(&labels)
            })
        };
        types.iter().any(of_offering)
    };
    let all = requirements(pool);
    // If a requirement names values for a label of the user's own, the scheduler gives the label to the node, with one that all meet.
    let is_given = |key: &str| {
        let is_listed = all.iter().any(|r| r.operator == Operator::In && r.key == key);
        is_listed && !follows_from_instance(key, None) && !labels.contains_key(key)
    };
    all.iter().find(|&r| !of_instance(r) && !is_given(&r.key) && !r.is_met_by(&labels)).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_of_a_list_meets_the_other_requirements_on_it() {
        let pool = |requirements: serde_json::Value| -> TenantPool {
            let spec =
                json!({"template": {"spec": {"nodeClassRef": {"name": "c"}, "requirements": requirements}}});
            let object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"}, "spec": spec});
            serde_json::from_value(object).unwrap()
        };
        let exists = json!({"key": "team", "operator": "Exists"});
        let list = json!({"key": "team", "operator": "In", "values": ["a", "b"]});
        let never = never_met_requirement(&pool(json!([exists])), &[]);
        assert_eq!(never.map(|r| r.to_string()).as_deref(), Some("team Exists"));
        assert_eq!(never_met_requirement(&pool(json!([exists, list])), &[]), None);
    }
}
