//! Objects of Croft's whose stored spec can't be read: the held version stays in force, with the metadata and
//! status of the newest. Without a held version, as after a restart, a stand-in launches and terminates nothing.

use croft_api::stored::Flaw;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{records::InvalidObject, snapshot::Snapshot};
use crate::{
    kube_api::{Change, Kind, Object, Version},
    time::Now,
};

impl Snapshot {
    /// Records whether the newest version of an object is valid, as a watch shows it in `change`, which is taken in after
    /// that. Returns true if it is news. Calls return valid objects only, and perhaps not the newest.
    pub fn observe_validity(&mut self, change: &Change) -> bool {
        match change {
            Change::Version(Version { object, flaw: Some(flaw), .. }) => {
                let invalid = self.invalid_object(object, flaw);
                self.invalid.insert(object.kind(), object.name(), invalid)
            }
            Change::Version(Version { object, flaw: None, .. }) => {
                self.invalid.remove(object.kind(), object.name())
            }
            Change::Gone(id) => {
                let held = self.metadata_of(id.kind, &id.name).and_then(|held| held.uid.as_deref());
                let is_another = id.uid.as_deref().zip(held).is_some_and(|(gone, held)| gone != held);
                !is_another && self.invalid.remove(id.kind, &id.name)
            }
            Change::Synced(_) | Change::Release(_) => false,
        }
    }

    fn invalid_object(&self, newest: &Object, flaw: &Flaw) -> InvalidObject {
        let kind = newest.kind();
        let held = self.metadata_of(kind, newest.name());
        let is_held = held.is_some_and(|held| newest.metadata().is_some_and(|new| new.uid == held.uid));
        let before = self.invalid.get(kind, newest.name());
        let concerns_admission = flaw.concerns_admission && matches!(kind, Kind::Tenant | Kind::TenantPool);
        InvalidObject {
            why: flaw.why.clone(),
            stands_in: !is_held || before.is_some_and(|before| before.stands_in),
            has_no_valid_version: concerns_admission
                && (!is_held || before.is_some_and(|before| before.has_no_valid_version)),
        }
    }

    /// The metadata of an object of Croft's that is held.
    pub(super) fn metadata_of(&self, kind: Kind, name: &str) -> Option<&ObjectMeta> {
        match kind {
            Kind::NodeClaim => self.claims.get(name).map(|o| &o.metadata),
            Kind::TenantPool => self.pools.get(name).map(|o| &o.metadata),
            Kind::EC2NodeClass => self.classes.get(name).map(|class| &class.object.metadata),
            Kind::Tenant => self.tenants.get(name).map(|o| &o.metadata),
            Kind::CroftConfig => {
                self.config.as_ref().map(|o| &o.metadata).filter(|held| held.name.as_deref() == Some(name))
            }
            _ => None,
        }
    }

    /// True if a stand-in is in force for an object, since no version of it was valid.
    #[must_use]
    pub fn is_stand_in(&self, kind: Kind, name: &str) -> bool {
        self.invalid.get(kind, name).is_some_and(|invalid| invalid.stands_in)
    }

    /// Takes in the newest version of an invalid object.
    pub(super) fn observe_invalid(&mut self, newest: Object, flaw: &Flaw, now: Now) {
        let name = newest.name().to_owned();
        let is_held = !self.is_stand_in(newest.kind(), &name);
        match newest {
            Object::TenantPool(mut pool) => {
                if let Some(held) = self.declared_pool(&name).filter(|_| is_held) {
                    pool.spec = held.spec.clone();
                }
                self.observe_pool(*pool, now);
                self.pool_versions.bump(&name);
            }
            Object::EC2NodeClass(mut class) => {
                match self.classes.get(&name).filter(|_| is_held) {
                    Some(held) => {
                        class.spec = held.object.spec.clone();
                        self.observe_class(*class);
                    }
                    // An absent class launches nothing, and no node drifts from it.
                    None => {
                        self.classes.remove(&name);
                        self.update_cluster_pools_of_class(&name);
                    }
                }
            }
            Object::Tenant(mut tenant) => {
                if let Some(held) = self.tenants.get(&name).filter(|_| is_held) {
                    tenant.spec = held.spec.clone();
                }
                self.observe_tenant(*tenant);
            }
            Object::CroftConfig(mut config) => {
                // Admission leaves out single entries of lists; limits, the pause and closed zones are enforced here.
                let is_of = |field: &str| flaw.why.starts_with(field);
                if let Some(held) = self.config.as_ref().filter(|_| is_held) {
                    if is_of("spec.limits") {
                        config.spec.limits.clone_from(&held.spec.limits);
                    } else if is_of("spec.disruption") {
                        config.spec.disruption.clone_from(&held.spec.disruption);
                    } else if is_of("spec.zones") {
                        config.spec.zones.clone_from(&held.spec.zones);
                    }
                }
                self.observe_config(*config);
            }
            Object::NodeClaim(mut claim) => {
                if let Some(held) = self.claims.get(&name).filter(|_| is_held) {
                    claim.spec = held.spec.clone();
                }
                self.observe_claim(*claim, now);
            }
            _ => {}
        }
    }
}
