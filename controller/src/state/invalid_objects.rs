//! Objects of Croft's whose stored spec can't be read: the held version stays in force, with the metadata and
//! status of the newest. Without a held version, as after a restart, a stand-in launches and terminates nothing.

use std::sync::Arc;

use croft_api::stored::Flaw;
use kube::{Resource, ResourceExt};

use super::{records::InvalidObject, snapshot::Snapshot};
use crate::{
    kube_api::{Kind, Object},
    time::Now,
};

impl Snapshot {
    /// True if a stand-in is in force for an object.
    fn is_stand_in(&self, kind: Kind, name: &str) -> bool {
        self.invalid.get(&(kind, name.to_owned())).is_some_and(|invalid| invalid.stands_in)
    }

    /// Takes in the newest version of an invalid object.
    pub(super) fn observe_invalid(&mut self, newest: Object, flaw: Flaw, now: Now) {
        match newest {
            Object::TenantPool(mut pool) => {
                let held = self.pools.get(&pool.name_any()).map(Arc::clone);
                if let Some(held) = self.record_flaw(Kind::TenantPool, &*pool, held.as_deref(), flaw) {
                    pool.spec = held.spec.clone();
                }
                let name = pool.name_any();
                self.observe_pool(*pool);
                self.pool_versions.bump(&name);
            }
            Object::EC2NodeClass(mut class) => {
                let held = self.classes.get(&class.name_any()).map(|state| Arc::clone(&state.object));
                match self.record_flaw(Kind::EC2NodeClass, &*class, held.as_deref(), flaw) {
                    Some(held) => {
                        class.spec = held.spec.clone();
                        self.observe_class(*class);
                    }
                    // An absent class launches nothing, and no node drifts from it.
                    None => {
                        self.classes.remove(&class.name_any());
                        self.update_cluster_pools_of_class(&class.name_any());
                    }
                }
            }
            Object::Tenant(mut tenant) => {
                let held = self.tenants.get(&tenant.name_any()).map(Arc::clone);
                if let Some(held) = self.record_flaw(Kind::Tenant, &*tenant, held.as_deref(), flaw) {
                    tenant.spec = held.spec.clone();
                }
                self.observe_tenant(*tenant);
            }
            Object::CroftConfig(mut config) => {
                let held = self.config.clone();
                // Admission leaves out single entries of lists; limits are enforced here.
                let of_limits = flaw.why.starts_with("spec.limits");
                let held = self.record_flaw(Kind::CroftConfig, &*config, held.as_deref(), flaw);
                if let Some(held) = held.filter(|_| of_limits) {
                    config.spec.limits.clone_from(&held.spec.limits);
                }
                self.observe_config(*config);
            }
            Object::NodeClaim(mut claim) => {
                let held = self.claims.get(&claim.name_any()).map(Arc::clone);
                if let Some(held) = self.record_flaw(Kind::NodeClaim, &*claim, held.as_deref(), flaw) {
                    claim.spec = held.spec.clone();
                }
                self.observe_claim(*claim, now);
            }
            _ => {}
        }
    }

    /// Records the flaw of `newest`. Returns the earlier version of the same object that stays in force.
    fn record_flaw<'h, K: Resource<DynamicType = ()>>(
        &mut self,
        kind: Kind,
        newest: &K,
        held: Option<&'h K>,
        flaw: Flaw,
    ) -> Option<&'h K> {
        let name = newest.name_any();
        let held = held.filter(|held| held.uid() == newest.uid() && !self.is_stand_in(kind, &name));
        self.invalid.insert((kind, name), InvalidObject { why: flaw.why, stands_in: held.is_none() });
        held
    }

    /// Forgets the flaw of an object whose newest version can be read, or that is deleted.
    pub(super) fn forget_invalid(&mut self, kind: Kind, name: &str) {
        if !self.invalid.is_empty() {
            self.invalid.remove(&(kind, name.to_owned()));
        }
    }
}
