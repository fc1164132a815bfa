//! Label and taint keys that mean something to the scheduler.

/// Host name; the topology of one node.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
/// Availability zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// Region.
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
/// Architecture.
pub(crate) const ARCH: &str = "kubernetes.io/arch";
/// Operating system.
pub(crate) const OS: &str = "kubernetes.io/os";
/// Instance type.
pub(crate) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// How the instance is paid for.
pub(crate) const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// Croft's name for the same.
pub(crate) const CROFT_CAPACITY_TYPE: &str = "croft.dev/capacity-type";
/// Every node of a pool carries it, with the pool's name, whatever the pool's own key is.
pub(crate) const POOL: &str = "node-restriction.kubernetes.io/pool";
/// Nodes of a pool with several templates carry it, with the template's name.
pub(crate) const TEMPLATE: &str = "croft.dev/template";
/// The taint of a cordoned node.
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Older and other names of the same label: (name, the one used inside).
pub(crate) const ALIASES: [(&str, &str); 7] = [
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("topology.ebs.csi.aws.com/zone", ZONE),
    (CROFT_CAPACITY_TYPE, CAPACITY_TYPE),
];

/// Taints that go by themselves while a node starts: they are gone before kube-scheduler binds, and don't count on coming
/// nodes.
pub const EPHEMERAL_TAINTS: [&str; 6] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "croft.dev/unregistered",
    "karpenter.sh/unregistered",
];
