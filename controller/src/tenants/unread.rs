//! Croft's objects whose stored spec can't be read: what admission read of them stays in force, and a condition, an event
//! and a metric say what is wrong.

use std::collections::BTreeMap;

use croft_api::{
    EC2NodeClass, Tenant, TenantPool,
    condition::{SPEC_VALID, Statement, set},
    convert::policy as convert,
    stored::{Flaw, INVALID_SPEC},
};
use croft_policy::Tenants;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::ResourceExt;

use super::{decide::Action, state::State};
use crate::snapshot::Change;

/// A kind and a name.
pub(super) type Name = (&'static str, String);

/// What is wrong with the newest version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The path of a field, and a sentence.
    pub(super) why: String,
    /// Admission has no earlier version.
    pub(super) stands_in: bool,
}

impl Wrong {
    /// What the condition says.
    fn statement(&self) -> Statement {
        let then = if self.stands_in {
            "until it is corrected, what is in force for it stays so, and nothing new is launched or admitted for it"
        } else {
            "until it is corrected, its last good version stays in force"
        };
        let message = format!("{}; {then}", self.why);
        Statement { kind: SPEC_VALID, status: Some(false), reason: INVALID_SPEC, message }
    }
}

/// What is kept of a class: enough to write its condition.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassFacts {
    version: Option<String>,
    generation: Option<i64>,
    conditions: Vec<Condition>,
}

impl ClassFacts {
    fn new(class: &EC2NodeClass) -> Self {
        let ObjectMeta { resource_version, generation, .. } = &class.metadata;
        let conditions = class.status.as_ref().map(|status| status.conditions.clone());
        Self {
            version: resource_version.clone(),
            generation: *generation,
            conditions: conditions.unwrap_or_default(),
        }
    }
}

impl State {
    /// Takes in the newest version of an object that can't be read. True if something that counts is new.
    pub(super) fn unread(&mut self, newest: &Change, flaw: &Flaw) -> bool {
        match newest {
            Change::Tenant(tenant) => self.unread_tenant(tenant, flaw),
            Change::Pool(pool) => self.unread_pool(pool, flaw),
            Change::Class(class) => {
                self.classes.insert(class.name_any(), ClassFacts::new(class));
                self.note("EC2NodeClass", class.name_any(), flaw, false)
            }
            Change::Config(config) => {
                self.observe_config(config);
                self.note("CroftConfig", config.name_any(), flaw, false)
            }
            Change::Claim(claim) => {
                self.observe_claim(claim);
                self.note("NodeClaim", claim.name_any(), flaw, false)
            }
            _ => false,
        }
    }

    fn unread_tenant(&mut self, newest: &Tenant, flaw: &Flaw) -> bool {
        let name = newest.name_any();
        self.absences.end(&name);
        let mut tenant = newest.clone();
        let held = self.tenants.get(&name).filter(|held| held.metadata.uid == newest.metadata.uid);
        let held = held.filter(|_| !self.stands_in("Tenant", &name)).cloned();
        let stands_in = flaw.concerns_admission && held.is_none();
        if let (true, Some(held)) = (flaw.concerns_admission, held) {
            tenant.spec = held.spec.clone();
        }
        if let Ok(mut read) = convert::tenant(&tenant) {
            read.unreadable_claims = stands_in;
            self.indexed(|index| index.upsert_tenant(read));
        }
        self.tenants.insert(name.clone(), tenant.into());
        self.note("Tenant", name, flaw, stands_in);
        true
    }

    fn unread_pool(&mut self, newest: &TenantPool, flaw: &Flaw) -> bool {
        let name = newest.name_any();
        let mut pool = newest.clone();
        let held = self.pools.get(&name).filter(|held| held.metadata.uid == newest.metadata.uid);
        let held = held.filter(|_| !self.stands_in("TenantPool", &name)).cloned();
        let stands_in = flaw.concerns_admission && held.is_none();
        if let (true, Some(held)) = (flaw.concerns_admission, held) {
            pool.spec = held.spec.clone();
        }
        if stands_in {
            // Its tenants' pods are refused, as with a pool that isn't there.
            self.indexed(|index| index.remove_pool(&name));
        } else {
            self.indexed(|index| index.upsert_pool(convert::pool(&pool)));
        }
        self.pools.insert(name.clone(), pool.into());
        self.note("TenantPool", name, flaw, stands_in);
        true
    }

    pub(super) fn stands_in(&self, kind: &'static str, name: &str) -> bool {
        self.wrong.get(&(kind, name.to_owned())).is_some_and(|wrong| wrong.stands_in)
    }

    /// Notes what is wrong with an object. True if that is new.
    pub(super) fn note(&mut self, kind: &'static str, name: String, flaw: &Flaw, stands_in: bool) -> bool {
        let wrong = Wrong { why: flaw.why.clone(), stands_in };
        let key = (kind, name);
        let new = self.wrong.get(&key) != Some(&wrong);
        if new {
            tracing::warn!(
                kind,
                name = key.1,
                why = wrong.why,
                "an object can't be read or breaks a rule of its CRD"
            );
            self.wrong.insert(key, wrong);
        }
        new
    }

    /// Takes in that an object's newest version can be read, or that it is gone. True if that is new.
    pub(super) fn mended(&mut self, change: &Change) -> bool {
        let key = match change {
            Change::Tenant(tenant) => ("Tenant", tenant.name_any()),
            Change::TenantGone(name) => ("Tenant", name.clone()),
            Change::Pool(pool) => ("TenantPool", pool.name_any()),
            Change::PoolGone(name) => ("TenantPool", name.clone()),
            Change::Config(config) => ("CroftConfig", config.name_any()),
            Change::ConfigGone(name) => ("CroftConfig", name.clone()),
            Change::Claim(claim) => ("NodeClaim", claim.name_any()),
            Change::ClaimGone(name) => ("NodeClaim", name.clone()),
            Change::Class(class) => {
                self.classes.insert(class.name_any(), ClassFacts::new(class));
                ("EC2NodeClass", class.name_any())
            }
            Change::ClassGone(name) => {
                self.classes.remove(name);
                ("EC2NodeClass", name.clone())
            }
            _ => return false,
        };
        !self.wrong.is_empty() && self.wrong.remove(&key).is_some()
    }

    /// How many objects of each kind can't be read.
    pub(super) fn unread_by_kind(&self) -> BTreeMap<&'static str, i64> {
        let mut counts = BTreeMap::new();
        for (kind, _) in self.wrong.keys() {
            *counts.entry(*kind).or_default() += 1;
        }
        counts
    }
}

/// What the condition SpecValid of an object has to say. That all is well is said only where something was wrong before.
/// NodeClaims have no such condition: they are Croft's own record.
pub(super) fn spec_valid(
    state: &State,
    kind: &'static str,
    name: &str,
    conditions: &[Condition],
) -> Option<Statement> {
    let was = conditions.iter().find(|c| c.type_ == SPEC_VALID);
    match state.wrong.get(&(kind, name.to_owned())) {
        Some(wrong) => Some(wrong.statement()),
        None => was.map(|_| Statement {
            kind: SPEC_VALID,
            status: Some(true),
            reason: "Valid",
            message: "its spec is in force".to_owned(),
        }),
    }
}

/// The classes whose condition SpecValid isn't what it should be.
pub(super) fn stale_classes(state: &State, wall: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, class) in &state.classes {
        let Some(statement) = spec_valid(state, "EC2NodeClass", name, &class.conditions) else { continue };
        let was = class.conditions.iter().find(|c| c.type_ == SPEC_VALID);
        let news = statement.status == Some(false) && was.is_none_or(|was| was.message != statement.message);
        let tell = news.then(|| (statement.reason, statement.message.clone()));
        let mut conditions = class.conditions.clone();
        if set(&mut conditions, statement, class.generation, Time(wall)) {
            let version = class.version.clone();
            actions.push(Action::ClassStatus { class: name.clone(), version, conditions, tell });
        }
    }
    actions
}

/// True if whose a namespace is can't be said, so that nothing about it is changed.
pub(super) fn is_held(view: &Tenants, namespace: &str) -> bool {
    matches!(view.tenancy(namespace), croft_policy::NamespaceTenancy::TenantUnreadable)
}
