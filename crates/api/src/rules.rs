//! The API server's checks of Croft's objects, evaluated here: the schemas of their CRDs and the CEL rules in them.
//!
//! ```text
//!  types + bounds ──▶ CRDs ──▶ API server          (an edit is refused)
//!                      └─────▶ Rules::check ──▶ files: croft plan, simulate
//!                                          └──▶ stored objects: what an older CRD accepted
//! ```
//!
//! Each check is written once: `schema` walks the OpenAPI schema that is generated from the types, and [`kube_cel`]
//! evaluates its rules. What CEL can't express, such as a crontab's reversed range or the name of a time zone, is checked here for files and
//! stored objects.

mod schema;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube_cel::{CompiledSchema, ErrorKind, ValidationError, ValidationErrors, Validator, compile_schema};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::schema::Findings;
use crate::window::{self, WindowError};

/// How a rule tests for a number where a string is allowed as well. The evaluation here has no `type`: every amount is
/// passed as text, which is always allowed.
const IS_INT: [&str; 5] = [
    "type(self) == int",
    "type(self[k]) == int",
    "type(self['nodes']) == int",
    "type(self.requests[k]) == int",
    "type(self.limits[k]) == int",
];

/// The checks of one kind.
pub struct Rules {
    kind: String,
    schema: JSONSchemaProps,
    compiled: CompiledSchema,
}

/// The checks of `kind`; `None` if it isn't one of Croft's.
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

    /// The findings of `object`.
    pub fn check<T: Serialize>(&self, object: &T) -> Findings {
        serde_json::to_value(object).map(|value| self.check_value(&value)).unwrap_or_default()
    }

    /// The findings of `value`.
    ///
    /// The API server evaluates rules only on objects with a valid structure. All findings are returned together here,
    /// so a rule counts where the structure has no finding. Rules about changes don't apply, since there is no earlier
    /// state.
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
        let mut failed: Findings = failed
            .flat_map(|error| {
                let entries = entries(&self.compiled, value, &error);
                if entries.is_empty() { vec![(error.field_path, error.message)] } else { entries }
            })
            .collect();
        // They come from a hash map, in no order.
        failed.sort();
        findings.extend(failed);
        for (path, message) in windows(value) {
            if findings.iter().all(|(at, _)| *at != path) {
                findings.push((path, message));
            }
        }
        findings
    }

    /// Removes every field from `value` that the kind doesn't have. Returns the fields with their values.
    pub fn prune(&self, value: &mut Value) -> Vec<(String, Value)> {
        let mut dropped = Vec::new();
        schema::prune(&self.schema, value, "", &mut dropped);
        dropped
    }
}

/// A finding for each entry of a list or map that breaks a rule about every one of them by itself. The rule's own error names none of
/// them, or one. Empty for other rules.
fn entries(schema: &CompiledSchema, value: &Value, error: &ValidationError) -> Findings {
    let Some(condition) = error.rule.strip_prefix("self.all(") else { return Findings::new() };
    let Some((schema, value)) = inside(schema, value, &error.field_path) else { return Findings::new() };
    let breaks = |alone: &Value| {
        let failed = Validator::new().validate_compiled(schema, alone, None);
        failed.is_err_and(|failed| failed.as_slice().iter().any(|one| one.rule == error.rule))
    };
    let is_of_values =
        |entry: &Value| entry.is_string() && (value.is_array() || condition.contains("self[k]"));
    let finding = |place: String, words: &str, entry: &Value| {
        let found = if is_of_values(entry) { format!("{entry} isn't allowed: ") } else { String::new() };
        (format!("{}{place}", error.field_path), format!("{found}{words}"))
    };
    match value {
        Value::Array(items) => {
            let broken =
                items.iter().enumerate().filter(|(_, item)| breaks(&Value::from(vec![(*item).clone()])));
            broken.map(|(i, item)| finding(format!("[{i}]"), &error.message, item)).collect()
        }
        Value::Object(fields) => {
            // The message has the first such key, in no order.
            let words = fields.keys().find_map(|key| error.message.strip_prefix(&format!("{key}: ")));
            let words = words.unwrap_or(&error.message);
            let broken =
                fields.iter().filter(|(key, entry)| breaks(&json!({ key.as_str(): (*entry).clone() })));
            broken.map(|(key, entry)| finding(format!(".{key}"), words, entry)).collect()
        }
        _ => Findings::new(),
    }
}

/// The value at a path, and its schema. Keys of maps may have dots.
fn inside<'s, 'v>(
    schema: &'s CompiledSchema,
    value: &'v Value,
    path: &str,
) -> Option<(&'s CompiledSchema, &'v Value)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return Some((schema, value));
    }
    match value {
        Value::Array(items) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            inside(schema.items.as_deref()?, items.get(index.parse::<usize>().ok()?)?, rest)
        }
        Value::Object(fields) => fields.iter().find_map(|(key, field)| {
            let rest = path
                .strip_prefix(key.as_str())
                .filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))?;
            let schema = schema.properties.get(key).or(schema.additional_properties.as_deref())?;
            inside(schema, field, rest)
        }),
        _ => None,
    }
}

/// Schedules that match the regular expression and aren't valid in a crontab, and time zones that don't exist.
fn windows(value: &Value) -> Findings {
    let check = |at: String, window: &Value, field: &str, check: fn(&str) -> Result<(), WindowError>| {
        let problem = check(window.get(field)?.as_str()?).err()?;
        Some((format!("{at}.{field}"), problem.to_string()))
    };
    ["spec.disruption.budgets", "spec.schedules"]
        .into_iter()
        .flat_map(|list| {
            let windows = value.pointer(&format!("/{}", list.replace('.', "/"))).and_then(Value::as_array);
            windows
                .into_iter()
                .flatten()
                .enumerate()
                .map(move |(number, window)| (format!("{list}[{number}]"), window))
        })
        .flat_map(|(at, window)| {
            let schedule = check(at.clone(), window, "schedule", window::check_schedule);
            schedule.into_iter().chain(check(at, window, "timeZone", window::check_time_zone))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_type_is_one_finding_in_words() {
        let spec = serde_json::json!({"spec": {"pools": ["a"], "namespaces": [true], "limits": {"nodes": 3}, "defaults": "small"}});
        let found = of("Tenant").unwrap().check_value(&spec);
        let expected = [
            ("spec.defaults", "expected an object, found the string \"small\""),
            ("spec.namespaces[0]", "expected a string, found the boolean true; write the value in quotes"),
        ];
        assert_eq!(found, expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }

    #[test]
    fn every_entry_that_breaks_a_rule_is_a_finding_with_its_value() {
        let spec = json!({
            "namespaces": ["shop", "Shop_B", "team-*"],
            "pools": ["a"],
            "limits": {"cpu": "lots", "memory": "1Gi", "costPerHour": "free", "colour": 3},
        });
        let found = of("Tenant").unwrap().check_value(&json!({"metadata": {"name": "t"}, "spec": spec}));
        let begins = [
            ("spec.limits.colour", "there are limits of cpu, memory"),
            ("spec.limits.costPerHour", "\"free\" isn't allowed: write amounts that aren't negative"),
            ("spec.limits.cpu", "\"lots\" isn't allowed: write amounts that aren't negative"),
            ("spec.namespaces[1]", "\"Shop_B\" isn't allowed: write exact names of namespaces"),
            ("spec.namespaces[2]", "\"team-*\" isn't allowed: write exact names of namespaces"),
        ];
        assert_eq!(found.len(), begins.len(), "{found:?}");
        for ((path, text), (at, begin)) in found.iter().zip(begins) {
            assert!(path == at && text.starts_with(begin), "{path}: {text}");
        }
    }

    #[test]
    fn of_karpenters_labels_a_template_may_have_those_that_name_a_pool() {
        let check = |key: &str| {
            let template = serde_json::json!({"metadata": {"labels": {key: "x"}}, "spec": {"nodeClassRef": {"name": "c"}}});
            let spec =
                serde_json::json!({"key": "node-pool", "effects": ["NoSchedule"], "template": template});
            of("TenantPool")
                .unwrap()
                .check_value(&serde_json::json!({"metadata": {"name": "p"}, "spec": spec}))
        };
        for key in crate::definitions::KARPENTER_POOL_LABELS {
            assert_eq!(check(key), [], "{key}");
        }
        for key in [
            "karpenter.sh/capacity-type",
            "karpenter.sh/registered",
            "karpenter.sh/nodepool-hash",
            "karpenter.k8s.aws/ec2nodeclass",
            "x.karpenter.sh/nodepool/y",
        ] {
            let found = check(key);
            assert!(!found.is_empty(), "{key}");
        }
    }

    /// A rule that can't be compiled here would refuse every file of its kind.
    #[test]
    fn every_rule_of_the_crds_compiles() {
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
