//! Gatekeeper's mutations of pods to Tenants: which namespaces get which node selector and tolerations.

use std::collections::BTreeMap;

use croft_manifest::RawObject;
use serde_json::{Map, Value, json};

use super::{
    imported::{Imported, ImportedObject, pool_name, set, take},
    karpenter::ImportedPool,
};
use crate::croft_object::text;

pub(super) const KINDS: &[&str] = &["Assign", "ModifySet", "AssignMetadata"];

/// All mutations of one set of namespaces.
#[derive(Clone, Debug, Default)]
struct Mutations {
    namespaces: Vec<String>,
    selector: Option<Value>,
    /// Names of the mutations, in the order in which Gatekeeper applies them.
    sources: Vec<String>,
    /// Keys and values of the node selector, the last one first, since it overrides the others.
    selectors: Vec<(String, String)>,
    tolerations: Vec<Value>,
    notes: Vec<String>,
}

pub(super) fn import(objects: &[RawObject], pools: &[ImportedPool], imported: &mut Imported) {
    let mut sorted: Vec<&RawObject> =
        objects.iter().filter(|o| o.group() == "mutations.gatekeeper.sh").collect();
    sorted.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    let mut by_namespaces: BTreeMap<String, Mutations> = BTreeMap::new();
    for object in sorted {
        if object.kind == "AssignMetadata" {
            imported.notes.push(format!(
                "{} isn't carried over: Croft writes no labels that a tenant chooses",
                object.title()
            ));
            continue;
        }
        read(object, &mut by_namespaces, imported);
    }
    for mutations in by_namespaces.into_values() {
        add_tenant(mutations, pools, imported);
    }
}

/// Adds one mutation to those of its namespaces.
fn read(object: &RawObject, by_namespaces: &mut BTreeMap<String, Mutations>, imported: &mut Imported) {
    let title = object.title();
    let mut spec = object.value.get("spec").cloned().unwrap_or_default();
    let location =
        take(&mut spec, "location").and_then(|l| l.as_str().map(str::to_owned)).unwrap_or_default();
    let on_pods = spec.get("applyTo").and_then(Value::as_array).is_some_and(|list| {
        list.iter()
            .any(|a| a.get("kinds").and_then(Value::as_array).is_some_and(|k| k.contains(&json!("Pod"))))
    });
    let mut parameters = take(&mut spec, "parameters").unwrap_or_else(|| json!({}));
    let values = match object.kind.as_str() {
        "ModifySet" => take(&mut parameters, "values").and_then(|mut v| take(&mut v, "fromList")),
        _ => take(&mut parameters, "assign").and_then(|mut a| take(&mut a, "value")),
    };
    let (Some(value), true) = (values, on_pods) else {
        imported.notes.push(format!("{title} isn't carried over: it assigns no constant value to pods"));
        return;
    };
    let mut wanted = Mutations::default();
    if let Err(note) = read_location(&location, value, &mut wanted) {
        imported.notes.push(format!("{title} isn't carried over: {note}"));
        return;
    }
    let mut matched = take(&mut spec, "match").unwrap_or_else(|| json!({}));
    if let Some(Value::Array(names)) = take(&mut matched, "namespaces") {
        for name in names.iter().filter_map(Value::as_str) {
            if name.contains('*') {
                wanted.notes.push(format!(
                    "{title}: match.namespaces {name:?} is a pattern: write the names, or a namespaceSelector"
                ));
            } else {
                wanted.namespaces.push(name.to_owned());
            }
        }
    }
    wanted.namespaces.sort();
    wanted.selector = take(&mut matched, "namespaceSelector");
    for harmless in ["scope", "kinds"] {
        take(&mut matched, harmless);
    }
    for (field, left) in matched.as_object().into_iter().flatten() {
        wanted.notes.push(format!(
            "{title}: match.{field} isn't carried over, a Tenant concerns all pods of its namespaces: {left}"
        ));
    }
    for (field, left) in parameters.as_object().into_iter().flatten() {
        if !(field == "operation" && left == "merge") {
            wanted.notes.push(format!("{title}: parameters.{field} isn't carried over: {left}"));
        }
    }
    if wanted.namespaces.is_empty() && wanted.selector.is_none() {
        wanted.notes.push(format!(
            "{title} names no namespace: write those of the tenant, since a Tenant can't own all of them"
        ));
    }
    let key = json!([wanted.namespaces, wanted.selector]).to_string();
    let mutations = by_namespaces.entry(key).or_default();
    mutations.namespaces = wanted.namespaces;
    mutations.selector = wanted.selector;
    mutations.sources.push(object.name.clone());
    for pin in wanted.selectors {
        if let Some(before) = mutations.selectors.iter().find(|p| p.0 == pin.0 && p.1 != pin.1) {
            mutations.notes.push(format!(
                "{title} overrides the {}={} of an earlier one, as Gatekeeper did",
                before.0, before.1
            ));
        }
        mutations.selectors.retain(|p| p.0 != pin.0);
        mutations.selectors.insert(0, pin);
    }
    mutations.tolerations.extend(wanted.tolerations);
    mutations.notes.extend(wanted.notes);
}

/// Reads `value` at `location` as node selector or tolerations.
fn read_location(location: &str, value: Value, mutations: &mut Mutations) -> Result<(), String> {
    let selector = location.strip_prefix("spec.nodeSelector");
    match (selector, value) {
        (Some(""), Value::Object(fields)) => {
            for (key, value) in fields {
                mutations.selectors.push((key, value.as_str().unwrap_or_default().to_owned()));
            }
            Ok(())
        }
        (Some(key), Value::String(value)) => {
            let key = key.trim_start_matches('.').trim_matches(['[', ']', '"', '\'']);
            mutations.selectors.push((key.to_owned(), value));
            Ok(())
        }
        (None, Value::Array(tolerations)) if location == "spec.tolerations" => {
            mutations.tolerations = tolerations;
            Ok(())
        }
        (_, value) => Err(format!("Croft has no field for the location {location}: {value}")),
    }
}

fn add_tenant(mutations: Mutations, pools: &[ImportedPool], imported: &mut Imported) {
    let Mutations { namespaces, selector, sources, mut selectors, tolerations, mut notes } = mutations;
    let tolerates = |t: &Value, key: &str, value: &str| {
        text(t, "key") == key && (text(t, "value") == value || text(t, "operator") == "Exists")
    };
    // Of several keys the pool's is the one that an imported pool has, or that has a toleration.
    let is_pool = |pin: &(String, String)| pools.iter().any(|p| p.key == pin.0 && p.value == pin.1);
    let chosen = selectors
        .iter()
        .position(is_pool)
        .or_else(|| selectors.iter().position(|(k, v)| tolerations.iter().any(|t| tolerates(t, k, v))))
        .or(if selectors.is_empty() { None } else { Some(0) });
    let Some(chosen) = chosen else {
        imported.notes.push(format!(
            "{} set tolerations without a node selector: their pods may run anywhere, so no Tenant is made of them",
            sources.join(", ")
        ));
        imported.notes.extend(notes);
        return;
    };
    let (key, value) = selectors.remove(chosen);
    for (key, value) in selectors {
        notes.push(format!("the node selector {key}={value} isn't carried over: write it into the pool's requirements, or into the pods"));
    }
    let mut effects: Vec<&str> = tolerations
        .iter()
        .filter(|t| tolerates(t, &key, &value))
        .map(|t| text(t, "effect"))
        .filter(|e| matches!(*e, "NoSchedule" | "NoExecute"))
        .collect();
    effects.sort_unstable();
    effects.dedup();
    if effects.is_empty() {
        effects.push("NoSchedule");
    }
    for toleration in tolerations.iter().filter(|t| text(t, "key") != key) {
        notes.push(format!("a toleration isn't carried over, write it into the pods: {toleration}"));
    }
    let pool = match pools.iter().find(|p| p.key == key && p.value == value) {
        Some(pool) => pool.name.clone(),
        None => {
            let name = pool_name(&value);
            if !imported.pools.contains_key(&name) {
                let mut spec = json!({"key": key, "effects": effects, "provisioner": "None"});
                if name != value {
                    set(&mut spec, "value", json!(value));
                }
                let mut made = ImportedObject::new("TenantPool", &name, spec);
                made.notes.push("its nodes come from another provisioner: write spec.template and provisioner: Croft for Croft to launch them".to_owned());
                made.prune("TenantPool", &sources.join(", "));
                imported.pools.insert(name.clone(), made);
            }
            name
        }
    };
    let mut spec = Map::new();
    if !namespaces.is_empty() {
        spec.insert("namespaces".to_owned(), json!(namespaces));
    }
    if let Some(selector) = selector {
        spec.insert("namespaceSelector".to_owned(), selector);
    }
    spec.insert("pools".to_owned(), json!([pool]));
    // Gatekeeper's Assign overwrote the pod's own choice.
    spec.insert("onConflict".to_owned(), json!("Override"));
    let name = match namespaces.as_slice() {
        [one] => one.clone(),
        _ => free_name(sources.first().map(String::as_str).unwrap_or("tenant"), imported),
    };
    let mut made = ImportedObject::new("Tenant", &name, Value::Object(spec));
    made.notes = notes;
    made.prune("Tenant", &sources.join(", "));
    imported.tenants.insert(name, made);
}

/// The mutation's name without suffixes such as `-nodeselector`, and with a number if the name is taken.
fn free_name(source: &str, imported: &Imported) -> String {
    let mut stem = pool_name(source);
    for suffix in ["-nodeselector", "-node-selector", "-selector", "-tolerations", "-toleration", "-assign"] {
        if let Some(short) = stem.strip_suffix(suffix).filter(|s| !s.is_empty()) {
            stem = short.to_owned();
        }
    }
    let taken = |name: &String| imported.tenants.contains_key(name);
    std::iter::once(stem.clone())
        .chain((2..).map(|n| format!("{stem}-{n}")))
        .find(|n| !taken(n))
        .unwrap_or(stem)
}
