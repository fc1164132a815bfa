//! values.schema.json, values.yaml and the reference page of the chart's values.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::{CHART, HEADER, settings::PROCESSES};
use crate::{
    generated::File,
    references::{self, one_line},
};

const DATA: &str = include_str!("../../data/chart-values.yaml");
/// Columns of values.yaml.
const WIDTH: usize = 120;

pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let schema = schema()?;
    let properties = properties(&schema).context("the schema has no properties")?;
    let mut values = format!("{HEADER}# Every value with its type and bounds: docs/reference/chart.md.\n");
    write_values(&mut values, properties, 0)?;
    Ok(vec![
        File::new(CHART, "values.schema.json", format!("{}\n", serde_json::to_string_pretty(&schema)?)),
        File::new(CHART, "values.yaml", values),
        references::page("chart.md", &page(properties)?),
    ])
}

pub(super) fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

/// The schema of the values, draft 7: the newest that every version of Helm with schemas reads.
fn schema() -> anyhow::Result<Value> {
    let mut data: Value =
        serde_saphyr::from_str(DATA).context("failed to read crates/xtask/data/chart-values.yaml")?;
    let each = data.pointer("/each").cloned().context("chart-values.yaml has no `each`")?;
    let values =
        data.get_mut("values").and_then(Value::as_object_mut).context("chart-values.yaml has no `values`")?;
    for process in PROCESSES {
        let own = values.get_mut(process.values).and_then(Value::as_object_mut);
        let own = own.with_context(|| format!("chart-values.yaml has no {}", process.values))?;
        let mut properties = each.clone();
        merge(&mut properties, own.get("properties").cloned().unwrap_or_default());
        let flags: Map<String, Value> =
            process.settings()?.into_iter().map(|(name, setting)| (name, setting.schema)).collect();
        let by_others: Vec<String> =
            process.owned().iter().map(|(flag, by)| format!("--{flag} by {by}")).collect();
        let settings = json!({
            "type": "object", "additionalProperties": false, "properties": flags, "default": {},
            "description": format!(
                "Settings of the process, one for each of its flags. Decided elsewhere: {}.", by_others.join(", ")
            ),
        });
        if let Some(map) = properties.as_object_mut() {
            map.insert("settings".to_owned(), settings);
        }
        let defaults = own.remove("defaults");
        for (path, default) in defaults.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let pointer = format!("/{}", path.replace('.', "/properties/"));
            let property = properties.pointer_mut(&pointer).and_then(Value::as_object_mut);
            let property = property.with_context(|| format!("{} has no value {path}", process.values))?;
            property.insert("default".to_owned(), default.clone());
        }
        own.insert("properties".to_owned(), properties);
    }
    Ok(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Helm chart croft",
        "type": "object",
        "additionalProperties": false,
        "properties": values,
    }))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn write_values(out: &mut String, properties: &Map<String, Value>, depth: usize) -> anyhow::Result<()> {
    let indent = "  ".repeat(depth);
    for (name, schema) in properties {
        let default = schema.get("default");
        let inner = self::properties(schema).filter(|_| default.is_none());
        if default.is_none() && inner.is_none() {
            continue;
        }
        if depth == 0 {
            out.push('\n');
        }
        comment(out, &indent, &description(schema))?;
        if let Some(inner) = inner {
            writeln!(out, "{indent}{name}:")?;
            write_values(out, inner, depth + 1)?;
            continue;
        }
        if name == "settings" {
            for (setting, schema) in self::properties(schema).into_iter().flatten() {
                let default = schema.get("default").map(Value::to_string).unwrap_or_default();
                writeln!(out, "{}", format!("{indent}#   {setting}: {default}").trim_end())?;
            }
        }
        let default = default.unwrap_or(&Value::Null);
        let is_block = default.as_object().is_some_and(|map| !map.is_empty())
            || default.as_array().is_some_and(|list| !list.is_empty());
        if is_block {
            writeln!(out, "{indent}{name}:")?;
            let extra = if default.is_object() { "  " } else { "" };
            for line in serde_saphyr::to_string(default)?.lines() {
                writeln!(out, "{indent}{extra}{line}")?;
            }
        } else {
            writeln!(out, "{indent}{name}: {default}")?;
        }
    }
    Ok(())
}

/// Wraps `text` into comment lines.
pub(super) fn comment(out: &mut String, indent: &str, text: &str) -> anyhow::Result<()> {
    let mut line = format!("{indent}#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            writeln!(out, "{line}")?;
            line = format!("{indent}#");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(out, "{line}")?;
    Ok(())
}

fn description(schema: &Value) -> String {
    schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn page(all: &Map<String, Value>) -> anyhow::Result<String> {
    let mut out = String::from(
        "# Values of the Helm chart\n\nEvery value of `manifests/chart/croft`; the chart refuses others. The chart `croft-crds` has none. \
         [Installing](../install.md) shows the usual ones.\n\n\
         A setting without a value leaves the default of the process, which is shown.\n",
    );
    let is_process = |name: &str| PROCESSES.iter().any(|process| process.values == name);
    writeln!(out, "\n## The whole\n\n| value | type | default | meaning |\n|---|---|---|---|")?;
    for (name, schema) in all.iter().filter(|(name, _)| !is_process(name)) {
        rows(&mut out, name, schema)?;
    }
    for process in PROCESSES {
        let Some(schema) = all.get(process.values) else { continue };
        writeln!(
            out,
            "\n## {}\n\n{}\n\n| value | type | default | meaning |\n|---|---|---|---|",
            process.values,
            description(schema)
        )?;
        for (name, schema) in properties(schema).into_iter().flatten() {
            rows(&mut out, &format!("{}.{name}", process.values), schema)?;
        }
    }
    Ok(out)
}

/// The rows of the reference for a value and those inside of it.
///
/// # Errors
/// If one has no description.
pub(super) fn rows(out: &mut String, path: &str, schema: &Value) -> anyhow::Result<()> {
    anyhow::ensure!(!description(schema).is_empty(), "the value {path} has no description");
    let default = match schema.get("default") {
        Some(Value::String(text)) if text.is_empty() => String::new(),
        Some(default) => format!("`{default}`"),
        None => String::new(),
    };
    writeln!(
        out,
        "| `{path}` | {} | {default} | {} |",
        type_of(schema).replace('|', "\\|"),
        one_line(&description(schema))
    )?;
    for (name, inner) in properties(schema).into_iter().flatten() {
        rows(out, &format!("{path}.{name}"), inner)?;
    }
    Ok(())
}

/// The type with its bounds.
fn type_of(schema: &Value) -> String {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let words: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        return words.join(" or ");
    }
    let name = match schema.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    let bound = |key: &str| schema.get(key).filter(|value| !value.is_null());
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!("{name}, {least} to {most}"),
        (Some(least), None) => format!("{name}, at least {least}"),
        _ => name,
    }
}
