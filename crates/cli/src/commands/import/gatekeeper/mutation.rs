//! One mutation: what it writes into pods, and in which namespaces.

use std::collections::BTreeSet;

use croft_manifest::RawObject;
use serde_json::{Value, json};

use crate::commands::import::{
    fields::{Fields, Report},
    imported::take_head,
    note::Note,
};

/// True for an object of Gatekeeper's that mutates others.
pub(in crate::commands::import) fn is_mutation(object: &RawObject) -> bool {
    object.group() == "mutations.gatekeeper.sh"
        && matches!(object.kind.as_str(), "Assign" | "ModifySet" | "AssignMetadata" | "AssignImage")
}

/// The part of a pod that a mutation writes.
pub(super) enum Change {
    /// The whole node selector, or further keys of it.
    Selector { is_whole: bool, pins: Vec<(String, String)> },
    /// All tolerations, or further ones.
    Tolerations { is_whole: bool, tolerations: Vec<Value> },
}

/// The namespaces of a mutation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// These.
    Names(BTreeSet<String>),
    /// Namespaces that a selector of labels (as JSON, `null` for none) matches, as far as can be said.
    Labels(String),
}

/// A mutation that a Tenant can stand for.
pub(super) struct Mutation {
    pub(super) title: String,
    pub(super) name: String,
    pub(super) scope: Scope,
    pub(super) change: Change,
    pub(super) notes: Vec<Note>,
}

/// Reads a mutation.
///
/// # Errors
/// Why no Tenant stands for it.
pub(super) fn read(object: &RawObject, report: &mut Report<'_>) -> Result<Mutation, String> {
    if object.kind == "AssignMetadata" {
        return Err("Croft writes no labels that a tenant chooses".to_owned());
    }
    if object.kind == "AssignImage" {
        return Err("Croft changes no images".to_owned());
    }
    let mut fields = Fields::of(object);
    take_head(&mut fields, report).end(report);
    let mut spec = fields.object("spec", report);
    fields.end(report);
    if !applies_to_pods(&mut spec, report) {
        return Err("it doesn't apply to pods".to_owned());
    }
    let location = spec.text("location", report).unwrap_or_default();
    let mut parameters = spec.object("parameters", report);
    let (value, is_whole) = if object.kind == "ModifySet" {
        if let Some(operation) = parameters.text("operation", report).filter(|operation| operation != "merge")
        {
            return Err(format!("Croft has nothing like the operation {operation}"));
        }
        let mut values = parameters.object("values", report);
        let list = values.take("fromList");
        values.end(report);
        (list, false)
    } else {
        let mut assign = parameters.object("assign", report);
        let value = assign.take("value");
        assign.end(report);
        (value, true)
    };
    let value = value.ok_or("it assigns no constant value")?;
    let change = change(&location, value, is_whole, report)?;
    parameters.end_because("Croft asks for no condition", report);
    let scope = scope(&mut spec, report)?;
    spec.end(report);
    Ok(Mutation {
        title: object.title(),
        name: object.name.clone(),
        scope,
        change,
        notes: std::mem::take(&mut report.notes),
    })
}

/// Notes `others`: groups, kinds and versions in `one` that aren't those of pods.
fn note_others(one: &Fields, others: &[&String], report: &mut Report<'_>) {
    if !others.is_empty() {
        report.note_loss(format_args!(
            "{} isn't carried over, Croft changes pods: {}",
            one.path(),
            json!(others)
        ));
    }
}

/// Takes `applyTo`, of which `v1` pods are what Croft decides about.
fn applies_to_pods(spec: &mut Fields, report: &mut Report<'_>) -> bool {
    let mut found = false;
    for mut one in spec.objects("applyTo", report) {
        let groups = one.texts("groups", report);
        let kinds = one.texts("kinds", report);
        let versions = one.texts("versions", report);
        let matches = |list: &[String], wanted: &str| list.iter().any(|text| text == wanted || text == "*");
        found |= matches(&groups, "") && matches(&kinds, "Pod") && matches(&versions, "v1");
        let others = groups.iter().filter(|text| !text.is_empty() && *text != "*");
        let others = others.chain(kinds.iter().filter(|kind| *kind != "Pod"));
        let others: Vec<&String> =
            others.chain(versions.iter().filter(|version| !matches!(version.as_str(), "v1" | "*"))).collect();
        note_others(&one, &others, report);
        one.end(report);
    }
    found
}

/// Reads the value at `location` as node selector or tolerations.
fn change(location: &str, value: Fields, is_whole: bool, report: &mut Report<'_>) -> Result<Change, String> {
    let no_field = |value: &Value| Err(format!("Croft has no field for the location {location}: {value}"));
    if location == "spec.tolerations" && value.left().is_array() {
        let tolerations = value.into_left().as_array().cloned().unwrap_or_default();
        return Ok(Change::Tolerations { is_whole, tolerations });
    }
    let of_key = location.strip_prefix("spec.tolerations[").and_then(|rest| rest.strip_suffix(']'));
    if of_key.is_some_and(|key| !key.contains('.')) && value.left().is_object() {
        return Ok(Change::Tolerations { is_whole: false, tolerations: vec![value.into_left()] });
    }
    if let Some(pins) = in_affinity(location, value.left()).filter(|_| is_whole) {
        return Ok(Change::Selector { is_whole: false, pins });
    }
    match location.strip_prefix("spec.nodeSelector") {
        Some("") if is_whole && value.left().is_object() => {
            let keys: Vec<String> =
                value.left().as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
            let mut fields = value;
            let pins = keys.into_iter().filter_map(|key| Some((key.clone(), fields.text(&key, report)?)));
            Ok(Change::Selector { is_whole: true, pins: pins.collect() })
        }
        Some(key) if is_whole && !value.left().is_object() && !value.left().is_array() => {
            let key = key.trim_start_matches('.').trim_matches(['[', ']', '"', '\'']).to_owned();
            let pins = value.into_text(report).map(|value| (key, value));
            Ok(Change::Selector { is_whole: false, pins: pins.into_iter().collect() })
        }
        _ => no_field(value.left()),
    }
}

/// The labels that a required node affinity at `location` asks for, if it says as much as a node selector could: one term, with one
/// value for each label.
fn in_affinity(location: &str, value: &Value) -> Option<Vec<(String, String)>> {
    let required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let written = location.strip_prefix("spec.").filter(|written| written.starts_with("affinity"))?;
    let mut inside = required.strip_prefix(written)?.split('.').filter(|field| !field.is_empty());
    let only = |value: &Value, field: &str| -> Option<Value> {
        let fields = value.as_object().filter(|fields| fields.len() == 1)?;
        fields.get(field).cloned()
    };
    let terms = inside.try_fold(value.clone(), |value, field| only(&value, field))?;
    let [term] = terms.as_array()?.as_slice() else { return None };
    let expressions = only(term, "matchExpressions")?;
    let pin = |expression: &Value| {
        let [value] = expression.get("values")?.as_array()?.as_slice() else { return None };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if expression.get("operator")? != "In" {
            return None;
        }
        Some((text(expression.get("key")?)?, text(value)?))
    };
    expressions.as_array()?.iter().map(pin).collect()
}

/// Takes `match`.
///
/// # Errors
/// If no namespace is left.
fn scope(spec: &mut Fields, report: &mut Report<'_>) -> Result<Scope, String> {
    let mut matched = spec.object("match", report);
    if let Some(scope) =
        matched.text("scope", report).filter(|scope| !matches!(scope.as_str(), "Namespaced" | "*"))
    {
        return Err(format!("its match has the scope {scope}, and pods are in namespaces"));
    }
    let mut of_pods = None;
    for mut one in matched.objects("kinds", report) {
        let (groups, kinds) = (one.texts("apiGroups", report), one.texts("kinds", report));
        let is_pods = groups.iter().any(|group| matches!(group.as_str(), "" | "*"))
            && kinds.iter().any(|kind| matches!(kind.as_str(), "Pod" | "*"));
        of_pods = Some(of_pods.unwrap_or(false) || is_pods);
        let others = groups.iter().filter(|group| !matches!(group.as_str(), "" | "*"));
        let others: Vec<&String> =
            others.chain(kinds.iter().filter(|kind| !matches!(kind.as_str(), "Pod" | "*"))).collect();
        note_others(&one, &others, report);
        one.end(report);
    }
    if of_pods == Some(false) {
        return Err("its match leaves out pods".to_owned());
    }
    let (patterns, mut names): (Vec<String>, Vec<String>) =
        matched.texts("namespaces", report).into_iter().partition(|name| name.contains('*'));
    for pattern in &patterns {
        report.note_loss(format_args!(
            "match.namespaces {pattern:?} is a pattern: write the names, or a namespaceSelector"
        ));
    }
    let had_names = !names.is_empty();
    let excluded = matched.texts("excludedNamespaces", report);
    names.retain(|name| !excluded.iter().any(|pattern| is_like(name, pattern)));
    let selector = matched.take("namespaceSelector").map(Fields::into_left);
    if !excluded.is_empty() && (!had_names || !patterns.is_empty()) {
        report.note_loss(format_args!(
            "match.excludedNamespaces isn't carried over, a Tenant has the namespaces that it names or selects: {}",
            json!(excluded)
        ));
    }
    matched.end_because("a Tenant concerns all pods of its namespaces", report);
    match (names.is_empty(), selector) {
        (true, _) if had_names && patterns.is_empty() => {
            Err("its match excludes each namespace that it names".to_owned())
        }
        (false, selector) => {
            if let Some(selector) = selector {
                report.note_loss(format_args!(
                    "match.namespaceSelector isn't carried over: of the namespaces that it names, Gatekeeper took those that this matches, \
                     and the Tenant has all: {selector}"
                ));
            }
            if !excluded.is_empty() {
                report.note(format_args!(
                    "match.excludedNamespaces is carried over: its names are left out: {}",
                    json!(excluded)
                ));
            }
            Ok(Scope::Names(names.into_iter().collect()))
        }
        (true, selector) => {
            if selector.is_none() {
                report.note_loss(
                    "it names no namespace: write those of the tenant, since a Tenant can't own all of them",
                );
            }
            if let Some(selector) = selector.as_ref().filter(|_| !patterns.is_empty()) {
                report.note(format_args!(
                    "the Tenant has every namespace that its namespaceSelector matches, whatever its name: {selector}"
                ));
            }
            Ok(Scope::Labels(json!(selector).to_string()))
        }
    }
}

/// True if a name of `match` stands for a namespace: `*` at its ends stands for any text.
fn is_like(name: &str, pattern: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_that_says_what_a_selector_could_is_read_at_each_depth() {
        let expression = json!({"key": "node-pool", "operator": "In", "values": ["a"]});
        let terms = json!([{"matchExpressions": [expression]}]);
        let required = json!({"nodeSelectorTerms": terms});
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        let pins = Some(vec![("node-pool".to_owned(), "a".to_owned())]);
        for (location, value) in [
            (format!("{path}.nodeSelectorTerms"), &terms),
            (path.to_owned(), &required),
            ("spec.affinity.nodeAffinity".to_owned(), &affinity),
            ("spec.affinity".to_owned(), &json!({"nodeAffinity": affinity})),
        ] {
            assert_eq!(in_affinity(&location, value), pins, "{location}");
        }
        let several = json!([{"matchExpressions": [expression]}, {"matchExpressions": [expression]}]);
        let choice = json!([{"matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]}]);
        let not = json!([{"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["a"]}]}]);
        for value in [several, choice, not, json!([{}]), json!("text")] {
            assert_eq!(in_affinity(&format!("{path}.nodeSelectorTerms"), &value), None, "{value}");
        }
        let more = json!({"nodeAffinity": affinity, "podAffinity": {}});
        assert_eq!(in_affinity("spec.affinity", &more), None, "the rest would be lost");
        assert_eq!(in_affinity("spec.affinities", &terms), None);
    }
}
