//! The answer of [`solve`](crate::solve).

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::api::core::v1::Taint;
use serde::Serialize;

use crate::model::{
    catalog::CapacityType, pool::ComingNode, price::Price, requirement::Requirement, resources::Resources,
};

/// Names a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
}

impl PodKey {
    /// Names the pod `name` in `namespace`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An instance to launch.
#[derive(Clone, Debug)]
pub struct PlannedInstance {
    /// A name within the plan, such as `pool-a-1`; the claim's real name is the caller's.
    pub name: String,
    /// Name of the TenantPool that it belongs to.
    pub pool: String,
    /// The pool's template; empty if it has only one kind of node.
    pub template: String,
    /// The cheapest type that holds the pods.
    pub instance_type: String,
    /// Availability zone where it is launched.
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Its price, if the catalogue has it.
    pub price: Option<Price>,
    /// Every label that the node will have, except its host name.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node, the pool's own included.
    pub taints: Vec<Taint>,
    /// Startup taints of the node.
    pub startup_taints: Vec<Taint>,
    /// The pods planned for it.
    pub pods: Vec<PodKey>,
    /// Sum of what those pods and the DaemonSets there ask for.
    pub requests: Resources,
    /// The amounts that pods may use of the planned type.
    pub allocatable: Resources,
    /// The capacity of the planned type.
    pub capacity: Resources,
    /// Names of types that can take the node's place in the same zone and capacity type, cheapest first,
    /// the planned one included.
    pub options: Vec<String>,
    /// Zones where the planned type would do as well, the planned one first.
    pub zones: Vec<String>,
    /// The pool's requirements of its nodes, narrowed by those of the pods.
    pub requirements: Vec<Requirement>,
}

impl PlannedInstance {
    /// The instance once it is asked for, as what the claim `claim` will be.
    #[must_use]
    pub fn coming(&self, claim: &str) -> ComingNode {
        ComingNode {
            claim: claim.to_owned(),
            pool: self.pool.clone(),
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
            capacity_type: self.capacity_type,
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            allocatable: self.allocatable.clone(),
            capacity: self.capacity.clone(),
        }
    }
}

/// Pods that go onto a node that is there or coming.
#[derive(Clone, Debug)]
pub struct ExistingPlacement {
    /// The Node's name, or the NodeClaim's for a coming one.
    pub node: String,
    /// The pool whose label it carries.
    pub pool: Option<String>,
    /// True if `node` names a NodeClaim whose Node isn't there yet.
    pub coming: bool,
    /// Its instance type by its labels; empty if unknown.
    pub instance_type: String,
    /// Its zone by its labels; empty if unknown.
    pub zone: String,
    /// How it is paid for, by its labels.
    pub capacity_type: Option<CapacityType>,
    /// Its price, if the catalog has it.
    pub price: Option<Price>,
    /// The pods planned for it.
    pub pods: Vec<PodKey>,
    /// Sum of what those pods ask for.
    pub requests: Resources,
}

/// Defines [`ReasonKind`] with its names and meanings.
macro_rules! reason_kinds {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a pool can't take a pod. A closed set; `croft explain` documents each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum ReasonKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl ReasonKind {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As written in JSON and events.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Its meaning, for the reference page.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

reason_kinds! {
    /// The pool launches nothing: its nodes come from elsewhere.
    PoolNotProvisioned,
    /// The catalogue offers the pool nothing, or its requirements exclude everything.
    NoOfferings,
    /// The pod doesn't tolerate the pool's taints.
    TaintNotTolerated,
    /// A node selector or required node affinity matches no node that the pool could launch.
    NodeAffinityMismatch,
    /// No type is large enough in some resource.
    InsufficientResources,
    /// A volume's zone or topology can't be had.
    VolumeTopology,
    /// The pod needs a PersistentVolumeClaim that isn't there or isn't usable.
    VolumeNotFound,
    /// More volumes than a node can attach.
    VolumeLimit,
    /// An offering fits, but is not available now.
    NoCapacity,
    /// A topology spread constraint leaves no domain.
    TopologySpread,
    /// A required pod affinity finds no match.
    PodAffinity,
    /// A required pod anti-affinity, the pod's own or another's towards it, leaves no domain.
    PodAntiAffinity,
    /// A limit of the pool is reached.
    PoolLimit,
    /// A share of the pool leaves no room for nodes of this kind.
    PoolShare,
    /// A limit of the tenant is reached.
    TenantLimit,
    /// A limit of the whole cluster is reached.
    ClusterLimit,
    /// Nodes that the pool launched didn't register: it launches nothing for a while.
    LaunchBackoff,
    /// The pool's minValues can't be kept with what the pod leaves of its offerings.
    MinValues,
    /// The pod has resource claims that Croft can't evaluate.
    UnsupportedResourceClaim,
    /// The pod is larger than the share of one node that it may take.
    MaxShare,
    /// There is no pool at all.
    NoPools,
}

impl ReasonKind {
    /// True if more limit, or more of the cloud's capacity, would help: the pod itself is feasible.
    #[must_use]
    pub const fn is_limit(self) -> bool {
        matches!(
            self,
            Self::PoolLimit
                | Self::PoolShare
                | Self::TenantLimit
                | Self::ClusterLimit
                | Self::NoCapacity
                | Self::LaunchBackoff
                | Self::MinValues
                | Self::MaxShare
        )
    }
}

impl fmt::Display for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why one pool can't take a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The pool; empty where there is none.
    pub pool: String,
    /// One of a closed set.
    pub reason: ReasonKind,
    /// In words, with the number that would have been enough.
    pub detail: String,
    /// The limit that leaves no room, where a limit is the reason.
    #[serde(skip)]
    pub limit: Option<ReachedLimit>,
}

/// A limit that leaves no room for another node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReachedLimit {
    /// The object that declares it.
    pub owner: LimitOwner,
    /// The amounts that it lacks: resources by name, [`LIMIT_NODES`](crate::LIMIT_NODES),
    /// [`LIMIT_COST`](crate::LIMIT_COST), or [`REPLICAS`] of a pool of a fixed size.
    pub resources: Vec<String>,
}

/// In [`ReachedLimit::resources`]: the number of nodes of a pool of a fixed size.
pub const REPLICAS: &str = "replicas";

/// In [`ReachedLimit::resources`]: the shares of a pool.
pub const SHARES: &str = "shares";

/// The object that declares a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitOwner {
    /// A template of a pool.
    Template {
        /// The pool's name.
        pool: String,
        /// The template's name.
        name: String,
    },
    /// The pool of this name.
    Pool(String),
    /// The Tenant of this name.
    Tenant(String),
    /// The settings of the whole cluster.
    Cluster,
}

/// A pod that stays pending.
#[derive(Clone, Debug)]
pub struct Unschedulable {
    /// The pod that has no place.
    pub pod: PodKey,
    /// One per pool, by pool name.
    pub reasons: Arc<[Reason]>,
}

/// The constraints that a bound leaves out of account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relaxed {
    /// Topology spread constraints.
    Spread,
    /// Pod affinity and anti-affinity.
    Affinity,
    /// Limits of pools, tenants and the cluster.
    Limits,
}

/// The answer of [`solve`](crate::solve).
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Instances to launch, by pool, each pool's in a fixed order.
    pub instances: Vec<PlannedInstance>,
    /// Pods that go onto nodes that are there or coming.
    pub existing: Vec<ExistingPlacement>,
    /// Pods that stay pending, and why.
    pub unschedulable: Vec<Unschedulable>,
    /// Price of the instances to launch, without those of unknown price: see [`Plan::unpriced`].
    pub cost: Price,
    /// No plan that places the same pods on new instances costs less than this; zero if a price is unknown. It is what
    /// was proven, not what is plausible: a bound above the cost is a defect.
    pub bound: Price,
    /// The part of the bound that is of one pool's instances. A pool is missing if it shares constraints with another one that gets
    /// instances as well, or if the price of one of its instances is unknown.
    pub bound_by_pool: BTreeMap<String, Price>,
    /// True if the bound holds only for plans that give topology spreads and affinities the domains of this plan.
    pub bound_given_domains: bool,
    /// True if the bound holds only for plans in this one's order of weights: the same pods go to pools and templates of the same
    /// weight, and what a heavier one leaves over to instances of its own.
    pub bound_given_weights: bool,
    /// The constraints that the bound leaves out of account.
    pub bound_relaxes: Vec<Relaxed>,
    /// Work steps that the search took.
    pub steps: u64,
    /// True if the stop callback ended the search early.
    pub cut_short: bool,
    /// Oddities of the input that were worked around.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Number of instances to launch whose price is unknown.
    #[must_use]
    pub fn unpriced(&self) -> usize {
        self.instances.iter().filter(|instance| instance.price.is_none()).count()
    }

    /// (cost - bound) / bound; 0 where the bound is 0.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display only")]
    pub fn gap(&self) -> f64 {
        let (cost, bound) = (self.cost.micros(), self.bound.micros());
        if bound == 0 { 0.0 } else { (cost - bound) as f64 / bound as f64 }
    }
}
