//! Croft's own kinds, checked by the schemas and rules of their CRDs, as the API server would.
//!
//! `croft_api` fills in the defaults while it decodes. The checks aren't written a second time: [`schema`] walks
//! the OpenAPI schema that is generated from the types, and [`cel`] evaluates the rules in it, so that a rule
//! added to a type holds for files at once.

mod cel;
mod schema;

use std::sync::LazyLock;

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt as _;

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
    static SCHEMA: LazyLock<JSONSchemaProps> = LazyLock::new(|| schema_of(Tenant::crd()));
    schema::check(&SCHEMA, object, wrong);
    check::selector("spec.namespaceSelector", object.spec.namespace_selector.as_ref(), wrong);
}

fn pool(object: &TenantPool, wrong: &mut Wrong) {
    static SCHEMA: LazyLock<JSONSchemaProps> = LazyLock::new(|| schema_of(TenantPool::crd()));
    schema::check(&SCHEMA, object, wrong);
    let Some(template) = &object.spec.template else { return };
    check::labels("spec.template.metadata.labels", Some(&template.metadata.labels), wrong);
    check::taints("spec.template.spec.taints", &template.spec.taints, wrong);
    check::taints("spec.template.spec.startupTaints", &template.spec.startup_taints, wrong);
}

fn class(object: &EC2NodeClass, wrong: &mut Wrong) {
    static SCHEMA: LazyLock<JSONSchemaProps> = LazyLock::new(|| schema_of(EC2NodeClass::crd()));
    schema::check(&SCHEMA, object, wrong);
}

fn claim(object: &NodeClaim, wrong: &mut Wrong) {
    static SCHEMA: LazyLock<JSONSchemaProps> = LazyLock::new(|| schema_of(NodeClaim::crd()));
    schema::check(&SCHEMA, object, wrong);
}

fn config(object: &CroftConfig, wrong: &mut Wrong) {
    static SCHEMA: LazyLock<JSONSchemaProps> = LazyLock::new(|| schema_of(CroftConfig::crd()));
    schema::check(&SCHEMA, object, wrong);
}

/// A value cut down to what a kind of Croft's can hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fit {
    /// Fields that the kind doesn't have, and what they held.
    pub(crate) dropped: Vec<(String, serde_json::Value)>,
    /// What the API server would refuse of the rest.
    pub(crate) wrong: Wrong,
}

/// Takes out of `object` what the CRD of its kind doesn't have, and checks the rest.
pub(crate) fn fit(kind: &str, object: &mut serde_json::Value) -> Fit {
    let mut fit = Fit::default();
    let crd = croft_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    if let Some(schema) = crd.map(schema_of) {
        schema::prune(&schema, object, "", &mut fit.dropped);
        schema::check(&schema, object, &mut fit.wrong);
    }
    fit
}

fn schema_of(crd: CustomResourceDefinition) -> JSONSchemaProps {
    let version = crd.spec.versions.into_iter().find(|v| v.name == croft_api::VERSION);
    version.and_then(|v| v.schema).and_then(|s| s.open_api_v3_schema).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rule of every CRD, wherever it stands, can be evaluated here; a rule that needs more of CEL fails.
    #[test]
    fn every_rule_of_the_crds_is_understood() {
        fn walk(kind: &str, schema: &JSONSchemaProps, found: &mut usize) {
            for rule in schema.x_kubernetes_validations.iter().flatten() {
                *found += 1;
                cel::parse(&rule.rule).unwrap_or_else(|e| panic!("{kind}: {}: {e}", rule.rule));
            }
            let items = schema.items.iter().filter_map(|i| match i {
                k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray::Schema(s) => Some(&**s),
                _ => None,
            });
            for inner in schema.properties.iter().flatten().map(|(_, s)| s).chain(items) {
                walk(kind, inner, found);
            }
        }
        let mut found = 0;
        for crd in croft_api::crds() {
            walk(&crd.spec.names.kind.clone(), &schema_of(crd.clone()), &mut found);
        }
        assert!(found > 10, "{found} rules");
    }
}
