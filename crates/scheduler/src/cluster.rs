//! What is there and what is wanted.

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSINode, StorageClass},
};

use crate::{
    error::InputError,
    pool::{ComingNode, Pool, TenantLimits},
};

/// The incremental state that [`solve`](crate::solve) reads.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pools: std::collections::BTreeMap<String, Pool>,
}

#[expect(missing_docs, clippy::needless_pass_by_value, reason = "signatures first; the state follows")]
impl Cluster {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Decides by itself what is demand and what runs.
    pub fn upsert_pod(&mut self, _pod: &Pod) -> Result<(), InputError> {
        Ok(())
    }
    pub fn remove_pod(&mut self, _namespace: &str, _name: &str) {}
    /// The pod counts as running on `target` (a Node, or a coming one's NodeClaim) until released.
    pub fn nominate(&mut self, _pod: &crate::PodKey, _target: &str) {}
    pub fn release(&mut self, _pod: &crate::PodKey) {}
    pub fn upsert_node(&mut self, _node: &Node) -> Result<(), InputError> {
        Ok(())
    }
    pub fn remove_node(&mut self, _name: &str) {}
    pub fn upsert_coming(&mut self, _coming: ComingNode) {}
    pub fn remove_coming(&mut self, _claim: &str) {}
    pub fn upsert_pool(&mut self, pool: Pool) -> Result<(), InputError> {
        self.pools.insert(pool.name.clone(), pool);
        Ok(())
    }
    pub fn remove_pool(&mut self, name: &str) {
        self.pools.remove(name);
    }
    pub fn upsert_tenant_limits(&mut self, _limits: TenantLimits) {}
    pub fn remove_tenant_limits(&mut self, _tenant: &str) {}
    pub fn upsert_namespace(&mut self, _namespace: &Namespace) {}
    pub fn remove_namespace(&mut self, _name: &str) {}
    pub fn upsert_daemonset(&mut self, _daemonset: &DaemonSet) -> Result<(), InputError> {
        Ok(())
    }
    pub fn remove_daemonset(&mut self, _namespace: &str, _name: &str) {}
    pub fn upsert_pvc(&mut self, _pvc: &PersistentVolumeClaim) -> Result<(), InputError> {
        Ok(())
    }
    pub fn remove_pvc(&mut self, _namespace: &str, _name: &str) {}
    pub fn upsert_pv(&mut self, _pv: &PersistentVolume) -> Result<(), InputError> {
        Ok(())
    }
    pub fn remove_pv(&mut self, _name: &str) {}
    pub fn upsert_storage_class(&mut self, _class: &StorageClass) -> Result<(), InputError> {
        Ok(())
    }
    pub fn remove_storage_class(&mut self, _name: &str) {}
    pub fn upsert_csi_node(&mut self, _node: &CSINode) -> Result<(), InputError> {
        Ok(())
    }
    pub fn remove_csi_node(&mut self, _name: &str) {}
}
