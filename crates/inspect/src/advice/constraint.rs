//! Constraints that can have a price.

use crate::workload::WorkloadName;

/// A label of nodes that selectors and requirements restrict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeLabel {
    /// `kubernetes.io/arch`.
    Architecture,
    /// `topology.kubernetes.io/zone`.
    Zone,
}

impl NodeLabel {
    pub(super) const ALL: [Self; 2] = [Self::Architecture, Self::Zone];

    /// True for the label's key, or its former one.
    pub(super) fn is(self, key: &str) -> bool {
        match self {
            Self::Architecture => matches!(key, "kubernetes.io/arch" | "beta.kubernetes.io/arch"),
            Self::Zone => {
                matches!(key, "topology.kubernetes.io/zone" | "failure-domain.beta.kubernetes.io/zone")
            }
        }
    }
}

/// A constraint, and the object that has it. Constraints of pods are those of their workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Constraint {
    /// A PodDisruptionBudget that allows no eviction.
    PodDisruptionBudget { namespace: String, name: String },
    /// The annotation do-not-disrupt of pods.
    PodDoNotDisrupt(WorkloadName),
    /// The annotation of a node, or of its NodeClaim.
    NodeDoNotDisrupt(String),
    /// The annotation of a pool.
    PoolDoNotDisrupt(String),
    /// A pod without a controller.
    BarePod(WorkloadName),
    /// Topology spreads with DoNotSchedule over one key.
    TopologySpread { workload: WorkloadName, key: String },
    /// Required anti-affinities over one key.
    PodAntiAffinity { workload: WorkloadName, key: String },
    /// Required affinities over one key.
    PodAffinity { workload: WorkloadName, key: String },
    /// A label in the pods' node selector or required node affinity.
    NodeSelector { workload: WorkloadName, label: NodeLabel },
    /// A label in a pool's requirements.
    PoolRequirement { pool: String, label: NodeLabel },
    /// `minSavings` of a pool.
    MinSavings(String),
    /// `evictionCost` of a pool above that of its preference or of the default.
    EvictionCost(String),
    /// `consolidationPolicy: WhenEmpty` of a pool.
    ConsolidationPolicy(String),
    /// `consolidateAfter: Never` of a pool.
    ConsolidateAfter(String),
    /// A disruption budget of a pool that always allows nothing.
    PoolBudget(String),
    /// A limit of a pool.
    PoolLimit { pool: String, resource: String },
    /// A limit of a template of a pool.
    TemplateLimit { pool: String, template: String, resource: String },
    /// Different weights of a pool's templates, which come before price.
    TemplateWeights(String),
    /// A limit of a tenant.
    TenantLimit { tenant: String, resource: String },
    /// A limit of the cluster.
    ClusterLimit(String),
}

impl Constraint {
    /// Its kind, as JSON and CSV name it.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::PodDisruptionBudget { .. } => "PodDisruptionBudget",
            Self::PodDoNotDisrupt(_) | Self::NodeDoNotDisrupt(_) | Self::PoolDoNotDisrupt(_) => {
                "DoNotDisrupt"
            }
            Self::BarePod(_) => "BarePod",
            Self::TopologySpread { .. } => "TopologySpread",
            Self::PodAntiAffinity { .. } => "PodAntiAffinity",
            Self::PodAffinity { .. } => "PodAffinity",
            Self::NodeSelector { label, .. } | Self::PoolRequirement { label, .. } => match label {
                NodeLabel::Architecture => "Architecture",
                NodeLabel::Zone => "Zone",
            },
            Self::MinSavings(_) => "MinSavings",
            Self::EvictionCost(_) => "EvictionCost",
            Self::ConsolidationPolicy(_) => "ConsolidationPolicy",
            Self::ConsolidateAfter(_) => "ConsolidateAfter",
            Self::PoolBudget(_) => "DisruptionBudget",
            Self::PoolLimit { .. }
            | Self::TemplateLimit { .. }
            | Self::TenantLimit { .. }
            | Self::ClusterLimit(_) => "Limit",
            Self::TemplateWeights(_) => "Weight",
        }
    }
}
