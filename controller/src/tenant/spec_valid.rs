//! Objects with an invalid spec: their last good version stays in force, and the condition SpecValid reports the problem.

use croft_api::{
    Tenant, TenantPool,
    condition::{SPEC_VALID, Statement},
    convert::policy as convert,
    stored::{Flaw, INVALID_SPEC},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use crate::{
    definitions::conditions::VALID,
    kube_api::{Kind, Object},
    state::{InvalidObject, InvalidObjects},
    tenant::{class_facts::ClassFacts, state::State},
};

impl State {
    /// Applies the newest version of an object with an invalid spec. Returns true if a fact changed.
    pub(super) fn observe_invalid(&mut self, newest: &Object, flaw: &Flaw, invalid: &InvalidObjects) -> bool {
        match newest {
            Object::Tenant(tenant) => self.observe_invalid_tenant(tenant, flaw, invalid),
            Object::TenantPool(pool) => self.observe_invalid_pool(pool, flaw, invalid),
            Object::EC2NodeClass(class) => {
                self.classes.insert(class.name_any(), ClassFacts::new(class));
                false
            }
            Object::CroftConfig(config) => {
                self.observe_config(config);
                false
            }
            _ => false,
        }
    }

    fn observe_invalid_tenant(&mut self, newest: &Tenant, flaw: &Flaw, invalid: &InvalidObjects) -> bool {
        let name = newest.name_any();
        self.absences.end(&name);
        let mut tenant = newest.clone();
        let has_no_valid_version = invalid.has_no_valid_version(Kind::Tenant, &name);
        let held = self.tenants.get(&name).filter(|held| held.metadata.uid == newest.metadata.uid);
        if let Some(held) = held.filter(|_| flaw.concerns_admission && !has_no_valid_version) {
            tenant.spec = held.spec.clone();
        }
        if let Ok(mut read) = convert::tenant(&tenant) {
            read.unreadable_claims = has_no_valid_version;
            self.indexed(|index| index.upsert_tenant(read));
        }
        self.tenants.insert(name, tenant.into());
        true
    }

    fn observe_invalid_pool(&mut self, newest: &TenantPool, flaw: &Flaw, invalid: &InvalidObjects) -> bool {
        let name = newest.name_any();
        let mut pool = newest.clone();
        let has_no_valid_version = invalid.has_no_valid_version(Kind::TenantPool, &name);
        let held = self.pools.get(&name).filter(|held| held.metadata.uid == newest.metadata.uid);
        if let Some(held) = held.filter(|_| flaw.concerns_admission && !has_no_valid_version) {
            pool.spec = held.spec.clone();
        }
        if has_no_valid_version {
            // Pods of its tenants are refused, as with a pool that doesn't exist.
            self.indexed(|index| index.remove_pool(&name));
        } else {
            self.indexed(|index| index.upsert_pool(convert::pool(&pool)));
        }
        self.pools.insert(name, pool.into());
        true
    }
}

/// The condition SpecValid of an object. It is True only for an object that was invalid before. NodeClaims have no
/// such condition: they are Croft's own record.
pub(super) fn spec_valid(
    invalid: &InvalidObjects,
    kind: Kind,
    name: &str,
    conditions: &[Condition],
) -> Option<Statement> {
    let was = conditions.iter().find(|c| c.type_ == SPEC_VALID);
    match invalid.get(kind, name) {
        Some(invalid) => Some(statement(invalid)),
        None => was.map(|_| Statement {
            kind: SPEC_VALID,
            status: Some(true),
            reason: VALID,
            message: "its spec is in force".to_owned(),
        }),
    }
}

/// The condition that reports a problem.
fn statement(invalid: &InvalidObject) -> Statement {
    let then = if invalid.has_no_valid_version {
        "until it is corrected, nothing new is launched or admitted for it"
    } else {
        "until it is corrected, its last good version stays in force"
    };
    let message = format!("{}; {then}", invalid.why);
    Statement { kind: SPEC_VALID, status: Some(false), reason: INVALID_SPEC, message }
}
