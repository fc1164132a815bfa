//! Everything that was read: typed objects by kind.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool, per_tenant, pool::ForTenant};
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

use kube::ResourceExt as _;

use crate::{
    custom::CustomWorkload,
    objects::{Objects, Sourced},
};

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
    /// Objects of other controllers' kinds that pods are made from, such as Rollouts. Only files have them.
    pub custom_workloads: Vec<CustomWorkload>,
    /// When the objects were read from a cluster, if a file of `croft debug dump` says so.
    pub recorded_at: Option<Timestamp>,
    /// Number of skipped objects by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Findings that don't make the input invalid, such as duplicate keys.
    pub warnings: Vec<String>,
}

impl Input {
    /// Makes the pools for tenants that the controller would make from those with `perTenant`, and brings those in line that are there.
    /// Twice is as once.
    pub fn make_pools_for_tenants(&mut self) {
        let many: Vec<Sourced<TenantPool>> =
            self.pools.iter().filter(|pool| pool.spec.per_tenant).cloned().collect();
        for Sourced { object: pool, origin } in many {
            let name = pool.name_any();
            for tenant in &self.tenants {
                if !tenant.spec.pools.contains(&name) {
                    continue;
                }
                let tenant = tenant.name_any();
                let mut made = per_tenant::pool_of(&pool, &tenant);
                match self.pools.get("", &made.name_any()) {
                    None => {}
                    Some(held) if per_tenant::is_of(held, &name, &tenant) => {
                        made.metadata = held.metadata.clone();
                        made.status.clone_from(&held.status);
                    }
                    // Another pool has the name: the tenant gets none.
                    Some(_) => continue,
                }
                self.pools.put(made, origin.clone());
            }
        }
    }

    /// Removes the pools for tenants whose Tenant named the pool that they were made from in `before`, and doesn't name it here: the
    /// controller deletes them.
    pub fn end_pools_for_tenants(&mut self, before: &Self) {
        let is_ended = |pool: &&Sourced<TenantPool>| {
            pool.spec.for_tenant.as_ref().is_some_and(|of| before.names(of) && !self.names(of))
        };
        let ended: BTreeSet<String> =
            self.pools.iter().filter(is_ended).map(|pool| pool.name_any()).collect();
        self.pools.retain(|pool| !ended.contains(&pool.name_any()));
    }

    /// True if the Tenant that a pool was made for names what it was made from.
    fn names(&self, of: &ForTenant) -> bool {
        let tenant = self.tenants.get("", &of.tenant);
        let is_ordinary = self.pools.get("", &of.pool).is_some_and(|pool| !pool.spec.per_tenant);
        !is_ordinary && tenant.is_some_and(|tenant| tenant.spec.pools.contains(&of.pool))
    }

    /// The names of the pools that a tenant's pods may use.
    pub fn pools_of_tenant<'a>(&'a self, tenant: &'a Tenant) -> impl Iterator<Item = Cow<'a, str>> {
        per_tenant::pools_of(tenant, |name| self.pools.get("", name).map(|pool| &pool.object))
    }

    /// The names of the Tenants whose pods may use each pool, by its name.
    #[must_use]
    pub fn tenants_by_pool(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut tenants: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for tenant in &self.tenants {
            for pool in self.pools_of_tenant(tenant) {
                tenants.entry(pool.into_owned()).or_default().insert(tenant.name_any());
            }
        }
        tenants
    }
}

/// Groups of the kinds of an [`Input`], as [`each_kind`](crate::each_kind) lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindGroup {
    /// Croft's kinds that users write.
    Settings,
    /// NodeClaims, which Croft writes.
    Claims,
    /// Pods, the workloads that create them, and the claims and budgets beside these: kinds that a tenant's people write.
    Workloads,
    /// The other kinds of Kubernetes: namespaces, nodes, storage, classes and LimitRanges.
    Cluster,
}

impl KindGroup {
    /// True for the kinds of Croft's own API group.
    #[must_use]
    pub const fn is_croft(self) -> bool {
        matches!(self, Self::Settings | Self::Claims)
    }
}

/// Calls the macro `$each` with every kind of an [`Input`]: its field, and the name of its [`KindGroup`].
///
/// ```
/// use croft_manifest::{Input, KindGroup, each_kind};
///
/// let input = Input::default();
/// let mut settings = 0;
/// macro_rules! count {
///     ($($field:ident: $group:ident),*) => {
///         $(if KindGroup::$group == KindGroup::Settings {
///             settings += input.$field.len();
///         })*
///     };
/// }
/// each_kind!(count);
/// assert_eq!(settings, 0);
/// ```
#[macro_export]
macro_rules! each_kind {
    ($each:ident) => {
        $each! {
            tenants: Settings,
            pools: Settings,
            classes: Settings,
            claims: Claims,
            configs: Settings,
            namespaces: Cluster,
            nodes: Cluster,
            pods: Workloads,
            deployments: Workloads,
            replica_sets: Workloads,
            stateful_sets: Workloads,
            daemon_sets: Workloads,
            replication_controllers: Workloads,
            jobs: Workloads,
            cron_jobs: Workloads,
            volume_claims: Workloads,
            volumes: Cluster,
            storage_classes: Cluster,
            csi_nodes: Cluster,
            priority_classes: Cluster,
            runtime_classes: Cluster,
            limit_ranges: Cluster,
            budgets: Workloads
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_lists_every_field_that_holds_objects() {
        macro_rules! groups {
            ($($field:ident: $group:ident),*) => { {
                // Doesn't compile if one is missing.
                let Input { $($field: _,)* custom_workloads: _, recorded_at: _, skipped: _, warnings: _ } =
                    Input::default();
                [$(KindGroup::$group),*]
            } };
        }
        let groups = each_kind!(groups);
        assert_eq!(groups.iter().filter(|group| group.is_croft()).count(), 5);
    }

    #[test]
    fn pools_for_tenants_have_the_declared_size_however_often_they_are_made() {
        let text = "
{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: shop}, spec: {namespaces: [shop], pools: [dev]}}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: dev}
spec: {perTenant: true, replicas: 2, template: {spec: {nodeClassRef: {name: default}}}}
";
        let mut input = crate::parse("a.yaml", text, &crate::LoadOptions::default()).unwrap();
        for _ in 0..2 {
            let pools = input.pools.iter().map(|pool| (pool.name_any(), pool.spec.replicas));
            let pools: Vec<(String, Option<i32>)> = pools.collect();
            assert_eq!(pools, [("dev".to_owned(), Some(2)), ("dev-shop".to_owned(), Some(2))]);
            input.make_pools_for_tenants();
        }
        let tenants = input.tenants_by_pool();
        assert!(tenants["dev-shop"].contains("shop") && !tenants.contains_key("dev"));
    }
}
