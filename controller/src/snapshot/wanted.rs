//! What users ask for: pools, classes, tenants; and what else placement depends on.

use std::sync::Arc;

use croft_api::{EC2NodeClass, Tenant, TenantPool};
use croft_scheduler::TenantLimits;
use kube::ResourceExt;

use super::{Change, ClassState, Snapshot, full_name, is_stale, views::version};

impl Snapshot {
    pub(super) fn pool(&mut self, pool: TenantPool) {
        let name = pool.name_any();
        let new = version(pool.metadata.resource_version.as_deref());
        let old = self.pools.get(&name);
        if old.is_some_and(|old| {
            old.metadata.uid == pool.metadata.uid
                && !self.listing
                && is_stale(version(old.metadata.resource_version.as_deref()), new)
        }) {
            return;
        }
        let changed = old.is_none_or(|old| {
            old.spec != pool.spec
                || old.metadata.deletion_timestamp.is_some() != pool.metadata.deletion_timestamp.is_some()
        });
        // Its annotations may ask to be left alone; its status is Croft's own word.
        let asks_otherwise = old.is_none_or(|old| old.metadata.annotations != pool.metadata.annotations);
        self.pools.insert(name.clone(), Arc::new(pool));
        if changed || asks_otherwise {
            self.touch_pool(&name);
        }
        if changed {
            self.feed_pool(&name);
            self.feed_headroom(&name);
        }
    }

    pub(super) fn class(&mut self, class: EC2NodeClass) {
        let name = class.name_any();
        let new = version(class.metadata.resource_version.as_deref());
        match self.classes.get_mut(&name) {
            Some(state)
                if state.object.metadata.uid == class.metadata.uid
                    && !self.listing
                    && is_stale(version(state.object.metadata.resource_version.as_deref()), new) => {}
            Some(state) => {
                state.object = Arc::new(class);
                self.plan_version += 1;
                self.touch_all();
            }
            None => {
                let state = ClassState { object: Arc::new(class), types: None, types_error: None };
                self.classes.insert(name.clone(), state);
                self.feed_pools_of(&name);
            }
        }
    }

    pub(super) fn tenant(&mut self, tenant: Tenant) {
        let name = tenant.name_any();
        if self.tenants.get(&name).is_some_and(|old| old.spec == tenant.spec) {
            return;
        }
        match croft_api::convert::scheduler::tenant_limits(&tenant) {
            Ok(limits) => {
                self.problems.remove(&format!("Tenant {name}"));
                self.cluster.upsert_tenant_limits(limits);
            }
            Err(problem) => {
                // Limits that can't be read must not count as none: nothing is launched until they can be.
                let spec = &tenant.spec;
                let zero = [(croft_scheduler::LIMIT_NODES.to_owned(), croft_scheduler::Quantity::ZERO)];
                self.cluster.upsert_tenant_limits(TenantLimits {
                    tenant: name.clone(),
                    pools: spec.pools.clone(),
                    limits: zero.into(),
                });
                self.problems.insert(format!("Tenant {name}"), problem);
            }
        }
        self.tenants.insert(name, Arc::new(tenant));
        self.plan_version += 1;
        self.touch_all();
    }

    pub(super) fn placement_input(&mut self, change: Change) {
        self.plan_version += 1;
        match change {
            Change::Namespace(o) => self.cluster.upsert_namespace(&o),
            Change::NamespaceGone(name) => self.cluster.remove_namespace(&name),
            Change::DaemonSet(o) => {
                let read = self.cluster.upsert_daemonset(&o);
                self.judge("DaemonSet", &full_name(&*o), read);
            }
            Change::DaemonSetGone(namespace, name) => self.cluster.remove_daemonset(&namespace, &name),
            Change::Pvc(o) => {
                let read = self.cluster.upsert_pvc(&o);
                self.judge("PersistentVolumeClaim", &full_name(&*o), read);
            }
            Change::PvcGone(namespace, name) => self.cluster.remove_pvc(&namespace, &name),
            Change::Pv(o) => {
                let read = self.cluster.upsert_pv(&o);
                self.judge("PersistentVolume", &full_name(&*o), read);
            }
            Change::PvGone(name) => self.cluster.remove_pv(&name),
            Change::StorageClass(o) => {
                let read = self.cluster.upsert_storage_class(&o);
                self.judge("StorageClass", &full_name(&*o), read);
            }
            Change::StorageClassGone(name) => self.cluster.remove_storage_class(&name),
            Change::CsiNode(o) => {
                let read = self.cluster.upsert_csi_node(&o);
                self.judge("CSINode", &full_name(&*o), read);
            }
            Change::CsiNodeGone(name) => self.cluster.remove_csi_node(&name),
            _ => {}
        }
    }
}
