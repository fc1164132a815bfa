//! Fields of Karpenter 1.15's objects that Croft's don't have, each with what to do instead.

/// Kind of Croft's object, the path of the field in it without the places in lists, and the reason.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "TenantPool",
        "spec.template.spec.kubelet",
        "the kubelet's settings are the class's since Karpenter's v1: write spec.kubelet of its EC2NodeClass",
    ),
    (
        "TenantPool",
        "spec.templates.spec.kubelet",
        "the kubelet's settings are the class's since Karpenter's v1: write spec.kubelet of its EC2NodeClass",
    ),
    ("EC2NodeClass", "spec.amiSelectorTerms.name", NAMED),
    (
        "EC2NodeClass",
        "spec.amiSelectorTerms.owner",
        "images of other accounts are named by id: write id or ssmParameter",
    ),
    ("EC2NodeClass", "spec.securityGroupSelectorTerms.name", NAMED),
    (
        "EC2NodeClass",
        "spec.capacityReservationSelectorTerms.ownerID",
        "reservations of other accounts are named by id: write id",
    ),
    (
        "EC2NodeClass",
        "spec.capacityReservationSelectorTerms.instanceMatchCriteria",
        "reservations are selected by what they are: write id or tags",
    ),
    (
        "EC2NodeClass",
        "spec.networkInterfaces",
        "instances have the interfaces of their type: launch those that need EFA by another provisioner, with provisioner: None",
    ),
    (
        "EC2NodeClass",
        "spec.ipPrefixCount",
        "the VPC CNI assigns prefixes itself: set ENABLE_PREFIX_DELEGATION there, and spec.kubelet.maxPods",
    ),
    (
        "EC2NodeClass",
        "spec.connectionTracking",
        "instances have EC2's timeouts: set them in userData, or where the connections are made",
    ),
    ("EC2NodeClass", "spec.cpuOptions", "instances have the options of their type"),
    ("EC2NodeClass", "spec.enclaveOptions", "no instance is launched with enclaves"),
    ("EC2NodeClass", "spec.context", "EC2 reserves it"),
    (
        "EC2NodeClass",
        "spec.blockDeviceMappings.ebs.volumeInitializationRate",
        "volumes load snapshots at EC2's own rate",
    ),
    (
        "EC2NodeClass",
        "spec.kubelet.podsPerCore",
        "write spec.kubelet.maxPods, in a class for each size of instances that needs another number",
    ),
    (
        "EC2NodeClass",
        "spec.kubelet",
        "the scheduler doesn't plan with it: write it into userData, in the form of the image's family",
    ),
];

/// The reason for a term by name.
const NAMED: &str = "a name may be another's tomorrow: write id or tags";

/// Why the field at `path` of a kind isn't carried over.
pub(super) fn reason(kind: &str, path: &str) -> &'static str {
    let mut plain = String::new();
    let mut is_inside = false;
    for c in path.chars() {
        match c {
            '[' => is_inside = true,
            ']' => is_inside = false,
            c if !is_inside => plain.push(c),
            _ => {}
        }
    }
    let is_of = |field: &str| {
        plain.strip_prefix(field).is_some_and(|inside| inside.is_empty() || inside.starts_with('.'))
    };
    let found = REASONS.iter().find(|(of, field, _)| *of == kind && is_of(field));
    found.map_or("Croft has no such field", |(_, _, why)| why)
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn a_field_in_a_list_or_an_object_has_the_reason_of_its_path() {
        let kubelet = reason("EC2NodeClass", "spec.kubelet.evictionSoft");
        assert!(kubelet.contains("userData"), "{kubelet}");
        let term = reason("EC2NodeClass", "spec.securityGroupSelectorTerms[3].name");
        assert!(term.contains("write id or tags"), "{term}");
        assert_eq!(reason("TenantPool", "spec.kubelet"), "Croft has no such field");
        assert_eq!(reason("EC2NodeClass", "spec.contexts"), "Croft has no such field");
    }
}
