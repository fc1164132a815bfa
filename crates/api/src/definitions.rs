//! Group and version, labels, annotations and finalizers of custom resources, each defined once with its documentation.
//!
//! Reference pages are generated from [`KEYS`]. Those of namespaces, nodes and pods are in [`croft_policy::definitions`].

use croft_policy::documented_keys;

/// The API group of every resource here.
pub const GROUP: &str = "croft.dev";
/// The only served version.
pub const VERSION: &str = "v1alpha1";

documented_keys! {
    /// Every label, annotation, taint and finalizer that this crate defines.
    pub const KEYS;

    /// Keeps a NodeClaim until its instance is terminated, and a Node until it is drained.
    Finalizer FINALIZER = "croft.dev/termination", on "NodeClaims, nodes of NodeClaims", by "the controller";
    /// A hash of each field that the NodeClaim was launched with, by which drift is found.
    Annotation LAUNCHED_WITH = "croft.dev/launched-with", on "NodeClaims", by "the controller";
    /// The NodeClaims that this one replaces, separated by commas.
    Annotation REPLACES = "croft.dev/replaces", on "NodeClaims", by "the controller";
    /// The node is being removed.
    Taint DISRUPTED_TAINT = "croft.dev/disrupted", on "nodes of NodeClaims", by "the controller";
    /// The capacity type, in Karpenter's words.
    Label CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type", on "NodeClaims, nodes of NodeClaims", by "the controller";
    /// Croft's own label for the same.
    Label CROFT_CAPACITY_TYPE_LABEL = "croft.dev/capacity-type", on "NodeClaims, nodes of NodeClaims", by "the controller";
    /// The NodePool of a node of Karpenter's, which pods may select. On nodes of Croft's if the pool's template has it.
    Label KARPENTER_NODE_POOL_LABEL = "karpenter.sh/nodepool", on "TenantPools' templates, NodeClaims, nodes", by "users";
    /// The Provisioner of a node of Karpenter's before its v1beta1, which pods may select. On nodes of Croft's if the pool's template has it.
    Label KARPENTER_PROVISIONER_LABEL = "karpenter.sh/provisioner-name", on "TenantPools' templates, NodeClaims, nodes", by "users";
    /// The node's instance type.
    Label INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type", on "nodes", by "the cloud provider";
    /// The node's zone.
    Label ZONE_LABEL = "topology.kubernetes.io/zone", on "nodes", by "the cloud provider";
}

/// Karpenter's labels that name a pool: of those under `karpenter.sh/`, a template may have only these.
pub const KARPENTER_POOL_LABELS: [&str; 2] = [KARPENTER_NODE_POOL_LABEL, KARPENTER_PROVISIONER_LABEL];

/// Defects for which a node is replaced, as `repairAfter` of a pool names them: conditions of the Node, of which all but the first
/// are those that EKS's node monitoring agent writes, and status checks of the cloud.
/// Source: aws/eks-node-monitoring-agent, and the repair policies of aws/karpenter-provider-aws.
pub const DEFECTS: [&str; 9] = [
    "Ready",
    "AcceleratedHardwareReady",
    "ContainerRuntimeReady",
    "KernelReady",
    "NetworkingReady",
    "StorageReady",
    "SystemStatusCheck",
    "InstanceStatusCheck",
    "EBSStatusCheck",
];

/// The effect of [`DISRUPTED_TAINT`]: pods leave by eviction, not by the taint.
pub const DISRUPTED_EFFECT: &str = "NoSchedule";
