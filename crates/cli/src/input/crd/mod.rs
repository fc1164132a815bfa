//! Croft's own kinds, checked by the schemas and rules of their CRDs, as the API server would.
//!
//! `croft_api` fills in the defaults while it decodes. The checks aren't written a second time: [`schema`] walks
//! the OpenAPI schema that is generated from the types, and [`kube_cel`] evaluates the rules in it, so that a rule
//! added to a type holds for files at once.

mod schema;

use std::sync::LazyLock;

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt as _;
use kube_cel::{CompiledSchema, ErrorKind, ValidationError, ValidationErrors, Validator, compile_schema};
use serde::Serialize;
use serde_json::Value;

use super::{
    check::{self, Wrong},
    kinds::Steps,
};

pub(super) const TENANT: Steps<Tenant> = Steps { check: tenant, ..Steps::CLUSTER };
pub(super) const POOL: Steps<TenantPool> = Steps { check: pool, ..Steps::CLUSTER };
pub(super) const CLASS: Steps<EC2NodeClass> = Steps { check: class, ..Steps::CLUSTER };
pub(super) const CLAIM: Steps<NodeClaim> = Steps { check: claim, ..Steps::CLUSTER };
pub(super) const CONFIG: Steps<CroftConfig> = Steps { check: config, ..Steps::CLUSTER };

fn tenant(object: &Tenant, wrong: &mut Wrong) {
    static CHECKS: LazyLock<Checks> = LazyLock::new(|| Checks::of(Tenant::crd()));
    CHECKS.object(object, wrong);
    check::selector("spec.namespaceSelector", object.spec.namespace_selector.as_ref(), wrong);
}

fn pool(object: &TenantPool, wrong: &mut Wrong) {
    static CHECKS: LazyLock<Checks> = LazyLock::new(|| Checks::of(TenantPool::crd()));
    CHECKS.object(object, wrong);
    let Some(template) = &object.spec.template else { return };
    check::labels("spec.template.metadata.labels", Some(&template.metadata.labels), wrong);
    check::taints("spec.template.spec.taints", &template.spec.taints, wrong);
    check::taints("spec.template.spec.startupTaints", &template.spec.startup_taints, wrong);
}

fn class(object: &EC2NodeClass, wrong: &mut Wrong) {
    static CHECKS: LazyLock<Checks> = LazyLock::new(|| Checks::of(EC2NodeClass::crd()));
    CHECKS.object(object, wrong);
}

fn claim(object: &NodeClaim, wrong: &mut Wrong) {
    static CHECKS: LazyLock<Checks> = LazyLock::new(|| Checks::of(NodeClaim::crd()));
    CHECKS.object(object, wrong);
}

fn config(object: &CroftConfig, wrong: &mut Wrong) {
    static CHECKS: LazyLock<Checks> = LazyLock::new(|| Checks::of(CroftConfig::crd()));
    CHECKS.object(object, wrong);
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
    let mut fit = Fit::default();
    let crd = croft_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    if let Some(checks) = crd.map(Checks::of) {
        schema::prune(&checks.schema, object, "", &mut fit.dropped);
        checks.value(object, &mut fit.wrong);
    }
    fit
}

/// What the API server holds the objects of one kind to.
struct Checks {
    schema: JSONSchemaProps,
    rules: CompiledSchema,
}

impl Checks {
    fn of(crd: CustomResourceDefinition) -> Checks {
        let version = crd.spec.versions.into_iter().find(|v| v.name == croft_api::VERSION);
        let schema = version.and_then(|v| v.schema).and_then(|s| s.open_api_v3_schema).unwrap_or_default();
        let rules = compile_schema(&serde_json::to_value(&schema).unwrap_or_default());
        Checks { schema, rules }
    }

    fn object<T: Serialize>(&self, object: &T, wrong: &mut Wrong) {
        if let Ok(value) = serde_json::to_value(object) {
            self.value(&value, wrong);
        }
    }

    /// The API server evaluates the rules only on what has the right structure. Here everything that is wrong is
    /// said at once, so that a rule counts where nothing about it is wrong with the structure. A file has no
    /// earlier state: rules about a change don't apply.
    fn value(&self, value: &Value, wrong: &mut Wrong) {
        let mut structure = Wrong::new();
        schema::check(&self.schema, value, &mut structure);
        let rules = Validator::new().validate_compiled(&self.rules, value, None);
        let failed = rules.err().map(ValidationErrors::into_vec).unwrap_or_default();
        let follows = |error: &ValidationError| {
            !structure.is_empty() && error.kind != ErrorKind::ValidationFailure
                || structure
                    .iter()
                    .any(|(at, _)| at.starts_with(&error.field_path) || error.field_path.starts_with(at))
        };
        let mut failed: Wrong = failed
            .into_iter()
            .filter(|error| !follows(error))
            .map(|error| (error.field_path, error.message))
            .collect();
        // They come in the order of a hash map.
        failed.sort();
        wrong.extend(structure);
        wrong.extend(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule that can't be compiled here would refuse every file of its kind.
    #[test]
    fn every_rule_of_the_crds_is_understood() {
        fn walk(kind: &str, rules: &CompiledSchema, found: &mut usize) {
            assert!(!rules.has_errors(), "{kind}: {:?}", rules.compilation_errors());
            *found += rules.validations.len();
            for inner in rules
                .properties
                .values()
                .chain(rules.items.as_deref())
                .chain(rules.additional_properties.as_deref())
            {
                walk(kind, inner, found);
            }
        }
        let mut found = 0;
        for crd in croft_api::crds() {
            walk(&crd.spec.names.kind.clone(), &Checks::of(crd).rules, &mut found);
        }
        assert!(found > 10, "{found} rules");
    }
}
