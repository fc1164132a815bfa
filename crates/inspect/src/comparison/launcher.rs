//! Who launched a node, and which of the launcher's groups the node belongs to, by the labels that launchers write.

use croft_cloud::facts::LABEL_PREFIX;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde::Serialize;

/// `auto` on nodes of EKS Auto Mode, `fargate` and `hybrid` on nodes that are no EC2 instances of the account.
const COMPUTE_TYPE: &str = "eks.amazonaws.com/compute-type";
/// EKS Auto Mode describes its instances under this prefix, as Karpenter does under its own.
const AUTO_MODE_INSTANCE: &str = "eks.amazonaws.com/instance-";
const KARPENTER_POOL: &str = "karpenter.sh/nodepool";
/// Karpenter before v1beta1.
const KARPENTER_PROVISIONER: &str = "karpenter.sh/provisioner-name";
const MANAGED_GROUP: &str = "eks.amazonaws.com/nodegroup";
const KOPS_GROUP: &str = "kops.k8s.io/instancegroup";
/// Also on nodes of managed groups that eksctl has created.
const EKSCTL_GROUP: &str = "alpha.eksctl.io/nodegroup-name";
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// What launches nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Launcher {
    /// Croft.
    Croft,
    /// Karpenter.
    Karpenter,
    /// EKS Auto Mode.
    AutoMode,
    /// An EKS managed node group.
    ManagedNodeGroup,
    /// An instance group of kOps.
    Kops,
    /// A node group of eksctl that EKS doesn't manage.
    Eksctl,
    /// An Auto Scaling group, or somebody by hand: no label says it.
    Unknown,
}

impl Launcher {
    /// The words of tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Croft => "Croft",
            Self::Karpenter => "Karpenter",
            Self::AutoMode => "EKS Auto Mode",
            Self::ManagedNodeGroup => "EKS node group",
            Self::Kops => "kOps",
            Self::Eksctl => "eksctl",
            Self::Unknown => "ASG or by hand",
        }
    }
}

/// Why a node isn't compared: Croft launches no such instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// It runs the control plane.
    ControlPlane,
    /// It is a pod of AWS Fargate.
    Fargate,
    /// It is a computer outside AWS, joined as an EKS hybrid node.
    Hybrid,
    /// It runs Windows, whose prices the catalogue doesn't have.
    Windows,
}

impl LeftOut {
    /// The words before `node`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Fargate => "Fargate",
            Self::Hybrid => "hybrid",
            Self::Windows => "Windows",
        }
    }
}

/// Why a node isn't compared; `None` for one that is.
pub(super) fn left_out(node: &Node) -> Option<LeftOut> {
    let labels = node.labels();
    match labels.get(COMPUTE_TYPE).map(String::as_str) {
        Some("fargate") => return Some(LeftOut::Fargate),
        Some("hybrid") => return Some(LeftOut::Hybrid),
        _ => {}
    }
    if CONTROL_PLANE.iter().any(|key| labels.contains_key(*key)) {
        return Some(LeftOut::ControlPlane);
    }
    let os = labels.get("kubernetes.io/os").map(String::as_str);
    (os == Some("windows")).then_some(LeftOut::Windows)
}

/// The launcher of a node by its labels, and a title of its group. A title has a blank, so it is the name of no TenantPool.
pub(super) fn group(node: &Node) -> (Launcher, String) {
    let labels = node.labels();
    let label = |key: &str| labels.get(key).map(String::as_str);
    let pool = label(KARPENTER_POOL);
    let is_auto =
        label(COMPUTE_TYPE) == Some("auto") || labels.keys().any(|key| key.starts_with(AUTO_MODE_INSTANCE));
    if is_auto {
        return (Launcher::AutoMode, format!("NodePool {}", pool.unwrap_or("unknown")));
    }
    if let Some(pool) = pool {
        return (Launcher::Karpenter, format!("NodePool {pool}"));
    }
    let others = [
        (KARPENTER_PROVISIONER, Launcher::Karpenter, "Provisioner"),
        (MANAGED_GROUP, Launcher::ManagedNodeGroup, "node group"),
        (KOPS_GROUP, Launcher::Kops, "instance group"),
        (EKSCTL_GROUP, Launcher::Eksctl, "eksctl group"),
    ];
    let named = others.into_iter().find_map(|(key, launcher, kind)| Some((launcher, kind, label(key)?)));
    named.map_or_else(
        || (Launcher::Unknown, "other nodes".to_owned()),
        |(launcher, kind, name)| (launcher, format!("{kind} {name}")),
    )
}

/// True for a label that launchers and kubelets write about one instance: nodes that come don't have it, or have their own.
pub(super) fn is_of_instance(key: &str) -> bool {
    const DOMAINS: [&str; 6] = [
        "kubernetes.io",
        "beta.kubernetes.io",
        "topology.kubernetes.io",
        "failure-domain.beta.kubernetes.io",
        "topology.ebs.csi.aws.com",
        "topology.k8s.aws",
    ];
    const KEYS: [&str; 6] = [
        "karpenter.sh/capacity-type",
        "karpenter.sh/initialized",
        "karpenter.sh/registered",
        "croft.dev/capacity-type",
        "eks.amazonaws.com/capacityType",
        "node.kubernetes.io/instance-type",
    ];
    let domain = key.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| DOMAINS.contains(&domain))
        || KEYS.contains(&key)
        || key.starts_with(LABEL_PREFIX)
        || key.starts_with(AUTO_MODE_INSTANCE)
}
