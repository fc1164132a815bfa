//! Croft's own kinds, checked by the schemas and rules of their CRDs ([`croft_api::rules`]), as the API server would.
//! `croft_api` fills in the defaults while it decodes.

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool, rules};
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use super::{check::Wrong, kinds::Steps};

pub(super) const TENANT: Steps<Tenant> = Steps { check, ..Steps::CLUSTER };
pub(super) const POOL: Steps<TenantPool> = Steps { check, ..Steps::CLUSTER };
pub(super) const CLASS: Steps<EC2NodeClass> = Steps { check, ..Steps::CLUSTER };
pub(super) const CLAIM: Steps<NodeClaim> = Steps { check, ..Steps::CLUSTER };
pub(super) const CONFIG: Steps<CroftConfig> = Steps { check, ..Steps::CLUSTER };

fn check<K: Resource<DynamicType = ()> + Serialize>(object: &K, wrong: &mut Wrong) {
    if let Some(rules) = rules::of(&K::kind(&())) {
        wrong.extend(rules.check(object));
    }
}

/// A value cut down to what a kind of Croft's can hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fit {
    /// Fields that the kind doesn't have, and what they held.
    pub(crate) dropped: Vec<(String, Value)>,
    /// What the API server would refuse of the rest.
    pub(crate) wrong: Wrong,
}

/// Takes out of `object` what the CRD of its kind doesn't have, and checks the rest.
pub(crate) fn fit(kind: &str, object: &mut Value) -> Fit {
    let Some(rules) = rules::of(kind) else { return Fit::default() };
    Fit { dropped: rules.prune(object), wrong: rules.check_value(object) }
}
