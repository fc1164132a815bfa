//! Objects of Croft's whose stored spec can't be read: the version that is held stays in force, with what the newest one
//! says of metadata and status. Where none is held, as after a restart, a stand-in launches and terminates nothing.

use std::sync::Arc;

use croft_api::stored::Flaw;
use kube::{Resource, ResourceExt};

use super::{Change, Snapshot};
use crate::time::Now;

/// What is wrong with the newest version of an object.
#[derive(Clone, Debug)]
pub struct Unread {
    /// The path of a field, and a sentence.
    pub why: String,
    /// No earlier version is held: a stand-in is in force.
    pub stands_in: bool,
}

impl Snapshot {
    /// True if an object of Croft's, by kind and name, is in force only by a stand-in.
    #[must_use]
    fn is_stand_in(&self, kind: &'static str, name: &str) -> bool {
        self.unread.get(&(kind, name.to_owned())).is_some_and(|unread| unread.stands_in)
    }

    /// Takes in the newest version of an object that can't be read.
    pub(super) fn unread(&mut self, newest: Change, flaw: Flaw, now: Now) {
        match newest {
            Change::Pool(mut pool) => {
                let held = self.pools.get(&pool.name_any()).map(Arc::clone);
                if let Some(held) = self.in_force("TenantPool", &*pool, held.as_deref(), flaw) {
                    pool.spec = held.spec.clone();
                }
                let name = pool.name_any();
                self.pool(*pool);
                self.touch_pool(&name);
            }
            Change::Class(mut class) => {
                let held = self.classes.get(&class.name_any()).map(|state| Arc::clone(&state.object));
                match self.in_force("EC2NodeClass", &*class, held.as_deref(), flaw) {
                    Some(held) => {
                        class.spec = held.spec.clone();
                        self.class(*class);
                    }
                    // Nothing is launched by a class that isn't there, and none of its nodes is compared with it.
                    None => {
                        self.classes.remove(&class.name_any());
                        self.feed_pools_of(&class.name_any());
                    }
                }
            }
            Change::Tenant(mut tenant) => {
                let held = self.tenants.get(&tenant.name_any()).map(Arc::clone);
                if let Some(held) = self.in_force("Tenant", &*tenant, held.as_deref(), flaw) {
                    tenant.spec = held.spec.clone();
                }
                self.tenant(*tenant);
            }
            Change::Config(mut config) => {
                let held = self.config.clone();
                // Admission leaves out entries of lists without regard to what was; limits are the engine's.
                let of_limits = flaw.why.starts_with("spec.limits");
                let held = self.in_force("CroftConfig", &*config, held.as_deref(), flaw);
                if let Some(held) = held.filter(|_| of_limits) {
                    config.spec.limits.clone_from(&held.spec.limits);
                }
                self.config(*config);
            }
            Change::Claim(mut claim) => {
                let held = self.claims.get(&claim.name_any()).map(Arc::clone);
                if let Some(held) = self.in_force("NodeClaim", &*claim, held.as_deref(), flaw) {
                    claim.spec = held.spec.clone();
                }
                self.claim(*claim, now);
            }
            _ => {}
        }
    }

    /// Notes the flaw of `newest`, and gives the earlier version of the same object that stays in force.
    fn in_force<'h, K: Resource<DynamicType = ()>>(
        &mut self,
        kind: &'static str,
        newest: &K,
        held: Option<&'h K>,
        flaw: Flaw,
    ) -> Option<&'h K> {
        let name = newest.name_any();
        let held = held.filter(|held| held.uid() == newest.uid() && !self.is_stand_in(kind, &name));
        self.unread.insert((kind, name), Unread { why: flaw.why, stands_in: held.is_none() });
        held
    }

    /// Forgets the flaw of an object whose newest version can be read, or that is gone.
    pub(super) fn forget_unread(&mut self, change: &Change) {
        if self.unread.is_empty() {
            return;
        }
        let (kind, name) = match change {
            Change::Pool(pool) => ("TenantPool", pool.name_any()),
            Change::PoolGone(name) => ("TenantPool", name.clone()),
            Change::Class(class) => ("EC2NodeClass", class.name_any()),
            Change::ClassGone(name) => ("EC2NodeClass", name.clone()),
            Change::Tenant(tenant) => ("Tenant", tenant.name_any()),
            Change::TenantGone(name) => ("Tenant", name.clone()),
            Change::Config(config) => ("CroftConfig", config.name_any()),
            Change::ConfigGone(name) => ("CroftConfig", name.clone()),
            Change::Claim(claim) => ("NodeClaim", claim.name_any()),
            Change::ClaimGone(name) => ("NodeClaim", name.clone()),
            _ => return,
        };
        self.unread.remove(&(kind, name));
    }
}
