//! Everything that was read: typed objects by kind.

use std::collections::BTreeMap;

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{
        LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    },
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    scheduling::v1::PriorityClass,
    storage::v1::{CSINode, StorageClass},
};

use crate::objects::Objects;

/// Objects by kind, each kind in the order of the files.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Input {
    /// Tenants: which namespaces use which pools.
    pub tenants: Objects<Tenant>,
    /// TenantPools.
    pub pools: Objects<TenantPool>,
    /// EC2NodeClasses.
    pub classes: Objects<EC2NodeClass>,
    /// NodeClaims, of coming and registered nodes.
    pub claims: Objects<NodeClaim>,
    /// CroftConfigs: at most one, named `default`.
    pub configs: Objects<CroftConfig>,
    /// Namespaces.
    pub namespaces: Objects<Namespace>,
    /// Nodes.
    pub nodes: Objects<Node>,
    /// Pods: bound, pending, or not created yet.
    pub pods: Objects<Pod>,
    /// Deployments.
    pub deployments: Objects<Deployment>,
    /// ReplicaSets, including those of Deployments.
    pub replica_sets: Objects<ReplicaSet>,
    /// StatefulSets.
    pub stateful_sets: Objects<StatefulSet>,
    /// DaemonSets.
    pub daemon_sets: Objects<DaemonSet>,
    /// ReplicationControllers.
    pub replication_controllers: Objects<ReplicationController>,
    /// Jobs, including those of CronJobs.
    pub jobs: Objects<Job>,
    /// CronJobs.
    pub cron_jobs: Objects<CronJob>,
    /// PersistentVolumeClaims.
    pub volume_claims: Objects<PersistentVolumeClaim>,
    /// PersistentVolumes.
    pub volumes: Objects<PersistentVolume>,
    /// StorageClasses.
    pub storage_classes: Objects<StorageClass>,
    /// CSINodes: how many volumes a node can attach.
    pub csi_nodes: Objects<CSINode>,
    /// PriorityClasses.
    pub priority_classes: Objects<PriorityClass>,
    /// RuntimeClasses.
    pub runtime_classes: Objects<RuntimeClass>,
    /// LimitRanges.
    pub limit_ranges: Objects<LimitRange>,
    /// PodDisruptionBudgets.
    pub budgets: Objects<PodDisruptionBudget>,
    /// When the objects were read from a cluster, if a file of `croft debug dump` says so.
    pub recorded_at: Option<Timestamp>,
    /// Number of skipped objects by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Findings that don't make the input invalid, such as duplicate keys.
    pub warnings: Vec<String>,
}
