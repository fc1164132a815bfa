//! Each reason for a pending pod: meaning and remedy.

use croft_scheduler::ReasonKind;

use crate::simulation::DENIED;

/// The reasons with their meaning and remedy.
pub const MEANINGS: &[(&str, &str)] = &[
    (
        ReasonKind::PoolNotProvisioned.as_str(),
        "The pool's nodes come from another provisioner, and no existing node has room. Add nodes, or set provisioner: Croft and write spec.template.",
    ),
    (
        ReasonKind::NoOfferings.as_str(),
        "No offering in the catalogue meets the pool's requirements. Loosen spec.template.spec.requirements of the TenantPool.",
    ),
    (
        ReasonKind::TaintNotTolerated.as_str(),
        "The pod doesn't tolerate a taint of the pool's nodes. For another tenant's pool this is intended; for taints of the template, add the toleration to the pod. If the pod's namespace belongs to no tenant, write it into the Tenant that is to use the pool.",
    ),
    (
        ReasonKind::NodeAffinityMismatch.as_str(),
        "The pod's node selector or required node affinity matches no node that the pool could launch. Compare it with the pool's requirements and labels.",
    ),
    (
        ReasonKind::InsufficientResources.as_str(),
        "No type that the pool may launch is large enough. Ask for less, or allow larger types in the pool's requirements; for GPUs, categories that have them, such as g and p in karpenter.k8s.aws/instance-category.",
    ),
    (
        ReasonKind::VolumeTopology.as_str(),
        "A volume of the pod is in a zone that the pool can't launch in. Allow the zone in the pool's requirements, or move the volume.",
    ),
    (
        ReasonKind::VolumeNotFound.as_str(),
        "The pod names a PersistentVolumeClaim that doesn't exist or isn't usable. Create the claim, or correct its name; a claim without a storage class needs a default one: annotate a StorageClass with storageclass.kubernetes.io/is-default-class=true.",
    ),
    (
        ReasonKind::VolumeLimit.as_str(),
        "The pod needs more volumes than one node can attach. Use fewer, or types that attach more.",
    ),
    (
        ReasonKind::NoCapacity.as_str(),
        "The cloud has no capacity for the fitting types at the moment, or the CroftConfig closes their zone; launches are retried. Allow more types, zones or capacity types in the pool's requirements.",
    ),
    (
        ReasonKind::TopologySpread.as_str(),
        "A topology spread constraint with DoNotSchedule leaves no zone or node. Allow the missing zones, or loosen maxSkew.",
    ),
    (
        ReasonKind::PodAffinity.as_str(),
        "A required pod affinity has no matching pod in any reachable domain. Check the labels that it selects.",
    ),
    (
        ReasonKind::PodAntiAffinity.as_str(),
        "A required pod anti-affinity, of the pod itself or of another pod, leaves no domain.",
    ),
    (
        ReasonKind::PoolLimit.as_str(),
        "A limit of the TenantPool is reached. Raise spec.limits, or free nodes.",
    ),
    (
        ReasonKind::PoolShare.as_str(),
        "A share of the pool leaves no room for nodes of the only kind that the pod runs on. Let the pod run on other nodes as well, or change spec.shares of the TenantPool.",
    ),
    (
        ReasonKind::TenantLimit.as_str(),
        "A limit of the Tenant is reached over all its pools. Raise spec.limits of the Tenant, or free nodes.",
    ),
    (
        ReasonKind::ClusterLimit.as_str(),
        "A limit of the CroftConfig is reached over all pools. Raise its spec.limits, or free nodes.",
    ),
    (
        ReasonKind::LaunchBackoff.as_str(),
        "Nodes that the pool launched didn't register, so it launches one instance at a time, with exponential backoff. See the console output of an instance, and the class's image, user data, network and role; an edit of the TenantPool or the EC2NodeClass launches at once.",
    ),
    (
        ReasonKind::MinValues.as_str(),
        "The pool's offerings that fit the pod have fewer distinct values than minValues requires. Lower minValues, or loosen the pod's constraints.",
    ),
    (
        ReasonKind::UnsupportedResourceClaim.as_str(),
        "The pod has resource claims, which Croft doesn't support, so it launches nothing for it.",
    ),
    (ReasonKind::MaxShare.as_str(), "The pod is larger than the share of one node that a workload may take."),
    (ReasonKind::NoPools.as_str(), "There is no TenantPool. Create one, and a Tenant that uses it."),
    (DENIED, "Admission denies the pod, so it is never created; the detail is the API server's message."),
];

/// The meaning and remedy of a reason.
#[must_use]
pub fn meaning(reason: &str) -> Option<&'static str> {
    MEANINGS.iter().find(|(name, _)| *name == reason).map(|(_, meaning)| *meaning)
}
