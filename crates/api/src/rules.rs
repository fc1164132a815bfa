//! What the API server holds Croft's objects to: the schemas and the rules in CEL of their CRDs, evaluated here.
//!
//! ```text
//!  types + bounds ──▶ CRDs ──▶ API server          (an edit is refused)
//!                      └─────▶ Rules::check ──▶ files: croft plan, simulate
//!                                          └──▶ stored objects: what an older CRD let in
//! ```
//!
//! The checks aren't written a second time: `schema` walks the OpenAPI schema that is generated from the types, and
//! [`kube_cel`] evaluates the rules in it. What CEL can't say, such as a crontab's reversed range, is checked here too,
//! for objects that are stored or in files.

mod schema;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube_cel::{CompiledSchema, ErrorKind, ValidationError, ValidationErrors, Validator, compile_schema};
use serde::Serialize;
use serde_json::Value;

use crate::budget;

/// Findings: the path of a field, and a sentence that says what is wrong with it and what to write.
pub type Findings = Vec<(String, String)>;

/// How a rule asks for a number where a string may stand, too. The evaluation here has no `type`: it gets every amount
/// as text, which it may always be.
const IS_INT: [&str; 2] = ["type(self[k]) == int", "type(self['nodes']) == int"];

/// What the objects of one kind are held to.
pub struct Rules {
    kind: String,
    schema: JSONSchemaProps,
    compiled: CompiledSchema,
}

/// The rules of the kind that is named `kind`, if it is one of Croft's.
#[must_use]
pub fn of(kind: &str) -> Option<&'static Rules> {
    static ALL: LazyLock<Vec<Rules>> = LazyLock::new(|| crate::crds().into_iter().map(Rules::new).collect());
    ALL.iter().find(|rules| rules.kind == kind)
}

impl Rules {
    fn new(crd: CustomResourceDefinition) -> Self {
        let version = crd.spec.versions.into_iter().find(|v| v.name == crate::VERSION);
        let schema = version.and_then(|v| v.schema).and_then(|s| s.open_api_v3_schema).unwrap_or_default();
        let text = serde_json::to_string(&schema).unwrap_or_default();
        let text = IS_INT.iter().fold(text, |text, is_int| text.replace(is_int, "false"));
        let compiled = compile_schema(&serde_json::from_str(&text).unwrap_or_default());
        Self { kind: crd.spec.names.kind, schema, compiled }
    }

    /// What is wrong with `object`.
    pub fn check<T: Serialize>(&self, object: &T) -> Findings {
        serde_json::to_value(object).map(|value| self.check_value(&value)).unwrap_or_default()
    }

    /// What is wrong with `value`. The API server evaluates the rules only on what has the right structure. Here all
    /// findings come at once, so that a rule counts where nothing about it is wrong with the structure. There is no
    /// earlier state: rules about a change don't apply.
    #[must_use]
    pub fn check_value(&self, value: &Value) -> Findings {
        let mut value = value.clone();
        schema::write_amounts(&self.schema, &mut value);
        let value = &value;
        let mut findings = Findings::new();
        schema::check(&self.schema, value, &mut findings);
        let failed = Validator::new().validate_compiled(&self.compiled, value, None);
        let failed = failed.err().map(ValidationErrors::into_vec).unwrap_or_default();
        let structure = findings.clone();
        let follows = |error: &ValidationError| {
            !structure.is_empty() && error.kind != ErrorKind::ValidationFailure
                || structure
                    .iter()
                    .any(|(at, _)| at.starts_with(&error.field_path) || error.field_path.starts_with(at))
        };
        let failed = failed.into_iter().filter(|error| !follows(error));
        let mut failed: Findings = failed.map(|error| (error.field_path, error.message)).collect();
        // They come in the order of a hash map.
        failed.sort();
        findings.extend(failed);
        for (path, message) in schedules(value) {
            if findings.iter().all(|(at, _)| *at != path) {
                findings.push((path, message));
            }
        }
        findings
    }

    /// Takes out of `value` every field that the kind doesn't have; these come back with what they held.
    pub fn prune(&self, value: &mut Value) -> Vec<(String, Value)> {
        let mut dropped = Vec::new();
        schema::prune(&self.schema, value, "", &mut dropped);
        dropped
    }
}

/// Schedules of budgets that a regular expression takes, and crontab doesn't.
fn schedules(value: &Value) -> Findings {
    let budgets = value.pointer("/spec/disruption/budgets").and_then(Value::as_array);
    let wrong = budgets.into_iter().flatten().enumerate().filter_map(|(i, budget)| {
        let problem = budget::check_schedule(budget.get("schedule")?.as_str()?).err()?;
        Some((format!("spec.disruption.budgets[{i}].schedule"), problem.to_string()))
    });
    wrong.collect()
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
        for crd in crate::crds() {
            walk(&crd.spec.names.kind.clone(), &Rules::new(crd).compiled, &mut found);
        }
        assert!(found > 60, "{found} rules");
    }
}
