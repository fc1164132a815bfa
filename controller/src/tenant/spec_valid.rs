//! Objects with an invalid spec: their last good version stays in force, and the condition SpecValid reports the problem.

use std::collections::BTreeMap;

use croft_api::{
    Tenant, TenantPool,
    condition::{SPEC_VALID, Statement},
    convert::policy as convert,
    stored::Flaw,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use crate::{
    definitions::conditions::VALID,
    kube_api::{Kind, Object},
    tenant::{
        invalid_objects::{ClassFacts, InvalidObject},
        state::State,
    },
};

impl State {
    /// Applies the newest version of an object with an invalid spec. Returns true if a fact changed.
    pub(super) fn observe_invalid(&mut self, newest: &Object, flaw: &Flaw) -> bool {
        match newest {
            Object::Tenant(tenant) => self.observe_invalid_tenant(tenant, flaw),
            Object::TenantPool(pool) => self.observe_invalid_pool(pool, flaw),
            Object::EC2NodeClass(class) => {
                self.classes.insert(class.name_any(), ClassFacts::new(class));
                self.record(Kind::EC2NodeClass, class.name_any(), flaw, false)
            }
            Object::CroftConfig(config) => {
                self.observe_config(config);
                self.record(Kind::CroftConfig, config.name_any(), flaw, false)
            }
            Object::NodeClaim(claim) => {
                self.observe_claim(claim);
                self.record(Kind::NodeClaim, claim.name_any(), flaw, false)
            }
            _ => false,
        }
    }

    fn observe_invalid_tenant(&mut self, newest: &Tenant, flaw: &Flaw) -> bool {
        let name = newest.name_any();
        self.absences.end(&name);
        let mut tenant = newest.clone();
        let held = self.tenants.get(&name).filter(|held| held.metadata.uid == newest.metadata.uid);
        let held = held.filter(|_| !self.has_no_valid_version(Kind::Tenant, &name)).cloned();
        let has_no_valid_version = flaw.concerns_admission && held.is_none();
        if let (true, Some(held)) = (flaw.concerns_admission, held) {
            tenant.spec = held.spec.clone();
        }
        if let Ok(mut read) = convert::tenant(&tenant) {
            read.unreadable_claims = has_no_valid_version;
            self.indexed(|index| index.upsert_tenant(read));
        }
        self.tenants.insert(name.clone(), tenant.into());
        self.record(Kind::Tenant, name, flaw, has_no_valid_version);
        true
    }

    fn observe_invalid_pool(&mut self, newest: &TenantPool, flaw: &Flaw) -> bool {
        let name = newest.name_any();
        let mut pool = newest.clone();
        let held = self.pools.get(&name).filter(|held| held.metadata.uid == newest.metadata.uid);
        let held = held.filter(|_| !self.has_no_valid_version(Kind::TenantPool, &name)).cloned();
        let has_no_valid_version = flaw.concerns_admission && held.is_none();
        if let (true, Some(held)) = (flaw.concerns_admission, held) {
            pool.spec = held.spec.clone();
        }
        if has_no_valid_version {
            // Pods of its tenants are refused, as with a pool that doesn't exist.
            self.indexed(|index| index.remove_pool(&name));
        } else {
            self.indexed(|index| index.upsert_pool(convert::pool(&pool)));
        }
        self.pools.insert(name.clone(), pool.into());
        self.record(Kind::TenantPool, name, flaw, has_no_valid_version);
        true
    }

    pub(super) fn has_no_valid_version(&self, kind: Kind, name: &str) -> bool {
        self.invalid_objects.get(&(kind, name.to_owned())).is_some_and(|invalid| invalid.has_no_valid_version)
    }

    /// Records the problem of an object. Returns true if it is new.
    pub(super) fn record(
        &mut self,
        kind: Kind,
        name: String,
        flaw: &Flaw,
        has_no_valid_version: bool,
    ) -> bool {
        let invalid = InvalidObject { why: flaw.why.clone(), has_no_valid_version };
        let key = (kind, name);
        let new = self.invalid_objects.get(&key) != Some(&invalid);
        if new {
            tracing::warn!(
                kind = kind.name(),
                name = key.1,
                error = invalid.why,
                "invalid object: it can't be read or breaks a rule of its CRD"
            );
            self.invalid_objects.insert(key, invalid);
        }
        new
    }

    /// Records that an object's newest version is valid, or that it is gone. Returns true if that is new.
    pub(super) fn corrected(&mut self, kind: Kind, name: &str) -> bool {
        !self.invalid_objects.is_empty() && self.invalid_objects.remove(&(kind, name.to_owned())).is_some()
    }

    /// The number of invalid objects of each kind.
    pub(super) fn invalid_by_kind(&self) -> BTreeMap<&'static str, i64> {
        let mut counts = BTreeMap::new();
        for (kind, _) in self.invalid_objects.keys() {
            *counts.entry(kind.name()).or_default() += 1;
        }
        counts
    }
}

/// The condition SpecValid of an object. It is True only for an object that was invalid before. NodeClaims have no
/// such condition: they are Croft's own record.
pub(super) fn spec_valid(
    state: &State,
    kind: Kind,
    name: &str,
    conditions: &[Condition],
) -> Option<Statement> {
    let was = conditions.iter().find(|c| c.type_ == SPEC_VALID);
    match state.invalid_objects.get(&(kind, name.to_owned())) {
        Some(invalid) => Some(invalid.statement()),
        None => was.map(|_| Statement {
            kind: SPEC_VALID,
            status: Some(true),
            reason: VALID,
            message: "its spec is in force".to_owned(),
        }),
    }
}
