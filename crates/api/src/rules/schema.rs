//! Checks a value against the structure of an OpenAPI v3 schema as CRDs use it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex_lite::Regex;
use serde_json::Value;

use crate::bounds::LABEL_CHARACTERS;

/// Findings: the path of a field, and a sentence that says what is wrong with it and what to write instead.
pub type Findings = Vec<(String, String)>;

/// Adds a finding for every field of `value` that its schema doesn't allow.
pub(super) fn check(schema: &JSONSchemaProps, value: &Value, wrong: &mut Findings) {
    walk(schema, value, "", wrong);
}

/// Removes and records every field of `value` that its schema doesn't have.
pub(super) fn prune(
    schema: &JSONSchemaProps,
    value: &mut Value,
    path: &str,
    dropped: &mut Vec<(String, Value)>,
) {
    match value {
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                let inside = join(path, &name);
                if path.is_empty() && matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
                    continue;
                }
                let known = schema.properties.as_ref().and_then(|p| p.get(&name));
                let other = match &schema.additional_properties {
                    Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(&**schema),
                    _ => None,
                };
                match known.or(other) {
                    Some(inner) => {
                        if let Some(field) = fields.get_mut(&name) {
                            prune(inner, field, &inside, dropped);
                        }
                    }
                    None => {
                        if let Some(field) = fields.remove(&name) {
                            dropped.push((inside, field));
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
                for (i, item) in items.iter_mut().enumerate() {
                    prune(inner, item, &format!("{path}[{i}]"), dropped);
                }
            }
        }
        _ => {}
    }
}

/// Writes numbers as text where both are allowed.
pub(super) fn write_amounts(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Number(number) if schema.x_kubernetes_int_or_string == Some(true) => {
            *value = Value::String(number.to_string());
        }
        Value::Object(fields) => {
            let other = match &schema.additional_properties {
                Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(&**schema),
                _ => None,
            };
            for (name, field) in fields {
                if let Some(inner) = schema.properties.as_ref().and_then(|p| p.get(name)).or(other) {
                    write_amounts(inner, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
                items.iter_mut().for_each(|item| write_amounts(inner, item));
            }
        }
        _ => {}
    }
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, wrong: &mut Findings) {
    if value.is_null() {
        return;
    }
    if let Some(message) = other_type(schema, value) {
        wrong.push((path.to_owned(), message));
        return;
    }
    match value {
        Value::Object(fields) => {
            for name in schema.required.iter().flatten().filter(|name| !fields.contains_key(*name)) {
                wrong.push((join(path, name), "this is required".to_owned()));
            }
            for (name, field) in fields {
                // `metadata` is checked as that of any object.
                if path.is_empty() && name == "metadata" {
                    continue;
                }
                let known = schema.properties.as_ref().and_then(|p| p.get(name));
                let other = match &schema.additional_properties {
                    Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(&**schema),
                    _ => None,
                };
                if let Some(inner) = known.or(other) {
                    walk(inner, field, &join(path, name), wrong);
                }
            }
            let count = i64::try_from(fields.len()).unwrap_or(i64::MAX);
            between(count, schema.min_properties, schema.max_properties, "entries", path, wrong);
        }
        Value::Array(items) => {
            let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
            between(count, schema.min_items, schema.max_items, "entries", path, wrong);
            if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    walk(inner, item, &format!("{path}[{i}]"), wrong);
                }
            }
            duplicates(schema, items, path, wrong);
        }
        Value::String(text) => string(schema, text, path, wrong),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(0.0);
            if let Some(least) = schema.minimum.filter(|least| number < *least) {
                wrong.push((path.to_owned(), format!("{number} is below {least}")));
            }
            if let Some(most) = schema.maximum.filter(|most| number > *most) {
                wrong.push((path.to_owned(), format!("{number} is above {most}")));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Why a value isn't of its schema's type. An amount may be text or number.
fn other_type(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    let wanted = schema.type_.as_deref().filter(|_| schema.x_kubernetes_int_or_string != Some(true))?;
    let (expected, is_it) = match wanted {
        "string" => ("a string", value.is_string()),
        "boolean" => ("true or false", value.is_boolean()),
        "integer" => ("a whole number", value.is_i64() || value.is_u64()),
        "number" => ("a number", value.is_number()),
        "array" => ("a list", value.is_array()),
        "object" => ("an object", value.is_object()),
        _ => return None,
    };
    let found = match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(found) => format!("the boolean {found}"),
        Value::Number(found) => format!("the number {found}"),
        Value::String(found) => format!("the string {found:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    let is_scalar = value.is_boolean() || value.is_number();
    let hint = if wanted == "string" && is_scalar { "; write the value in quotes" } else { "" };
    (!is_it).then(|| format!("expected {expected}, found {found}{hint}"))
}

fn string(schema: &JSONSchemaProps, text: &str, path: &str, wrong: &mut Findings) {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    between(length, schema.min_length, schema.max_length, "characters", path, wrong);
    let allowed: Vec<&str> = schema.enum_.iter().flatten().filter_map(|v| v.0.as_str()).collect();
    if !allowed.is_empty() && !allowed.contains(&text) {
        wrong.push((path.to_owned(), format!("{text:?} isn't one of {}", allowed.join(", "))));
    }
    let Some(pattern) = &schema.pattern else { return };
    // Quantities are the only strings that may be numbers, and have a message of their own.
    if schema.x_kubernetes_int_or_string == Some(true) {
        if text.parse::<croft_scheduler::Quantity>().is_err() {
            let message = format!(
                "{text:?} isn't a quantity; write a number with an optional suffix, such as \"500m\", \"2\" or \"64Gi\""
            );
            wrong.push((path.to_owned(), message));
        }
    } else if Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text)) {
        // The one pattern of text that no rule with words stands beside.
        let words =
            if pattern == LABEL_CHARACTERS { ": write letters, digits, '-', '_' and '.' alone" } else { "" };
        wrong.push((path.to_owned(), format!("{text:?} must match {pattern}{words}")));
    }
}

fn between(count: i64, least: Option<i64>, most: Option<i64>, what: &str, path: &str, wrong: &mut Findings) {
    if let Some(least) = least.filter(|least| count < *least) {
        wrong.push((path.to_owned(), format!("{count} {what}, at least {least} are needed")));
    }
    if let Some(most) = most.filter(|most| count > *most) {
        wrong.push((path.to_owned(), format!("{count} {what}, at most {most} are allowed")));
    }
}

/// `x-kubernetes-list-type: set` and `map` allow each value or key once.
fn duplicates(schema: &JSONSchemaProps, items: &[Value], path: &str, wrong: &mut Findings) {
    let keys = schema.x_kubernetes_list_map_keys.as_deref().unwrap_or_default();
    let key = |item: &Value| match schema.x_kubernetes_list_type.as_deref() {
        Some("set") => Some(item.clone()),
        Some("map") => Some(keys.iter().map(|k| item.get(k).cloned().unwrap_or_default()).collect()),
        _ => None,
    };
    let mut seen: Vec<Value> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let Some(key) = key(item) else { return };
        if seen.contains(&key) {
            wrong.push((format!("{path}[{i}]"), format!("{key} is there twice")));
        }
        seen.push(key);
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
