//! Croft's own kinds: validated by the schemas and CEL rules of their CRDs ([`croft_api::rules`]).
//!
//! `croft_api` fills in the defaults while it decodes.

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool, rules};
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use crate::{check::FieldErrors, steps::Steps};

pub(crate) const TENANT: Steps<Tenant> = Steps { check, strict: true, ..Steps::CLUSTER };
pub(crate) const POOL: Steps<TenantPool> = Steps { check, strict: true, ..Steps::CLUSTER };
pub(crate) const CLASS: Steps<EC2NodeClass> = Steps { check, strict: true, ..Steps::CLUSTER };
pub(crate) const CLAIM: Steps<NodeClaim> = Steps { check, strict: true, ..Steps::CLUSTER };
pub(crate) const CONFIG: Steps<CroftConfig> = Steps { check, strict: true, ..Steps::CLUSTER };

fn check<K: Resource<DynamicType = ()> + Serialize>(object: &K, errors: &mut FieldErrors) {
    if let Some(rules) = rules::of(&K::kind(&())) {
        errors.extend(rules.check(object));
    }
}

/// The fields that [`prune`] removed, and the errors of the rest.
#[derive(Clone, Debug, Default)]
pub struct Pruned {
    /// Path and value of each removed field.
    pub dropped: Vec<(String, Value)>,
    /// Errors that the API server would report of the rest.
    pub errors: FieldErrors,
}

/// Removes the fields of `object` that the CRD of `kind` doesn't have, and validates the rest.
///
/// A kind that isn't Croft's is left as it is, without errors.
///
/// ```
/// let mut pool = serde_json::json!({"metadata": {"name": "a"}, "spec": {"provisioner": "None", "colour": "red"}});
/// let pruned = croft_manifest::prune("TenantPool", &mut pool);
/// assert_eq!(pruned.dropped, [("spec.colour".to_owned(), serde_json::json!("red"))]);
/// assert_eq!(pruned.errors, []);
/// assert_eq!(pool["spec"], serde_json::json!({"provisioner": "None"}));
/// ```
pub fn prune(kind: &str, object: &mut Value) -> Pruned {
    let Some(rules) = rules::of(kind) else { return Pruned::default() };
    Pruned { dropped: rules.prune(object), errors: rules.check_value(object) }
}
