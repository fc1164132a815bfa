//! Pools, their limits, and instances on their way.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Taint;

use crate::model::{
    catalog::{CapacityType, InstanceType},
    quantity::Quantity,
    requirement::Requirement,
    resources::Resources,
    share::Share,
};

/// Limit on the number of nodes.
pub const LIMIT_NODES: &str = "nodes";
/// Limit on the price of all nodes, in dollars per hour.
pub const LIMIT_COST: &str = "costPerHour";

/// A set of instances with one label and taint, and what may be launched for it. A TenantPool of several templates is as many of
/// these, which share its name, key and value.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Name of the TenantPool.
    pub name: String,
    /// Label key that every node of the pool carries.
    pub key: String,
    /// Value of that label.
    pub value: String,
    /// Name of the template, which its nodes carry as a label; empty for a TenantPool with only one kind of node.
    pub template: String,
    /// Among those that a pod may use, a heavier one is used while it can be.
    pub weight: i32,
    /// The limits of all nodes of the TenantPool: resources by name, [`LIMIT_NODES`], [`LIMIT_COST`] in dollars.
    pub limits: BTreeMap<String, Quantity>,
    /// The limits of the nodes of this template, likewise.
    pub template_limits: BTreeMap<String, Quantity>,
    /// The shares of all nodes of the TenantPool: the first template's count.
    pub shares: Vec<Share>,
    /// Which instances may be launched. Keys left out default to linux and on-demand; every architecture of the catalogue is allowed.
    pub requirements: Vec<Requirement>,
    /// Labels that the template gives to nodes. The pool's own label needn't be among them.
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes, the pool's own included.
    pub taints: Vec<Taint>,
    /// Taints that go before a node counts as initialized.
    pub startup_taints: Vec<Taint>,
    /// The offerings of this pool. Pools that share one catalogue should share the `Arc`.
    pub instance_types: Arc<[InstanceType]>,
    /// False for pools whose nodes come from elsewhere, and for those of a fixed size: only the nodes that are there
    /// and on their way count.
    pub launches: bool,
    /// How many nodes a TenantPool of a fixed size has.
    pub replicas: Option<u32>,
    /// How many nodes of this template there are, likewise.
    pub template_replicas: Option<u32>,
    /// Why the pool launches nothing for now; the nodes that are there and on their way still take pods.
    pub held: Option<String>,
}

impl Pool {
    /// A name for one of its nodes.
    pub(crate) fn named(&self, node: &str) -> String {
        let parts = [self.name.as_str(), self.template.as_str(), node];
        parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("-")
    }
}

/// The limits of all nodes of a tenant's pools.
#[derive(Clone, Debug, Default)]
pub struct TenantLimits {
    /// Name of the Tenant.
    pub tenant: String,
    /// Names of its pools.
    pub pools: Vec<String>,
    /// As [`Pool::limits`].
    pub limits: BTreeMap<String, Quantity>,
}

///  An instance that was asked for and isn't a Node yet.
#[derive(Clone, Debug, Default)]
pub struct ComingNode {
    /// Name of the NodeClaim.
    pub claim: String,
    /// Name of the pool.
    pub pool: String,
    /// The type, or the first of those asked for.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Every label that the node will have: the claim's own, and those of its type.
    pub labels: BTreeMap<String, String>,
    /// Taints that it will keep.
    pub taints: Vec<Taint>,
    /// The amounts that pods may use of it.
    pub allocatable: Resources,
    /// Its capacity, which limits count.
    pub capacity: Resources,
}
