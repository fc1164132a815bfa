//! Labels of a node that follow from its instance.

use croft_scheduler::InstanceType;

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
