//! From Gatekeeper's mutations of pods to tenants: which namespaces get which label and toleration.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Imported, Made, karpenter::PoolMade, set, slug, take, text};
use crate::input::RawObject;

pub(super) const KINDS: &[&str] = &["Assign", "ModifySet", "AssignMetadata"];

/// What the mutations of one set of namespaces say together.
#[derive(Clone, Debug, Default)]
struct Ground {
    namespaces: Vec<String>,
    selector: Option<Value>,
    /// Names of the mutations, which is also the order in which Gatekeeper applies them.
    sources: Vec<String>,
    /// Key and value of the node selector, the last one first: it wins.
    pins: Vec<(String, String)>,
    tolerations: Vec<Value>,
    notes: Vec<String>,
}

pub(super) fn import(objects: &[RawObject], pools: &[PoolMade], imported: &mut Imported) {
    let mut sorted: Vec<&RawObject> =
        objects.iter().filter(|o| o.group() == "mutations.gatekeeper.sh").collect();
    sorted.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    let mut grounds: BTreeMap<String, Ground> = BTreeMap::new();
    for object in sorted {
        if object.kind == "AssignMetadata" {
            imported.notes.push(format!(
                "{} isn't carried over: Croft writes no labels of a tenant's choice",
                object.title()
            ));
            continue;
        }
        read(object, &mut grounds, imported);
    }
    for ground in grounds.into_values() {
        tenant(ground, pools, imported);
    }
}

/// Adds what one mutation says to the ground of its namespaces.
fn read(object: &RawObject, grounds: &mut BTreeMap<String, Ground>, imported: &mut Imported) {
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
    let mut wanted = Ground::default();
    if let Err(note) = place(&location, value, &mut wanted) {
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
            "{title}: match.{field} isn't carried over, the tenant's every pod is meant: {left}"
        ));
    }
    for (field, left) in parameters.as_object().into_iter().flatten() {
        if !(field == "operation" && left == "merge") {
            wanted.notes.push(format!("{title}: parameters.{field} isn't carried over: {left}"));
        }
    }
    if wanted.namespaces.is_empty() && wanted.selector.is_none() {
        wanted.notes.push(format!(
            "{title} names no namespace: write those of the tenant, a Tenant can't own all of them"
        ));
    }
    let key = json!([wanted.namespaces, wanted.selector]).to_string();
    let ground = grounds.entry(key).or_default();
    ground.namespaces = wanted.namespaces;
    ground.selector = wanted.selector;
    ground.sources.push(object.name.clone());
    for pin in wanted.pins {
        if let Some(before) = ground.pins.iter().find(|p| p.0 == pin.0 && p.1 != pin.1) {
            ground.notes.push(format!(
                "{title} overrides the {}={} of an earlier one, as Gatekeeper did",
                before.0, before.1
            ));
        }
        ground.pins.retain(|p| p.0 != pin.0);
        ground.pins.insert(0, pin);
    }
    ground.tolerations.extend(wanted.tolerations);
    ground.notes.extend(wanted.notes);
}

/// What `value` at `location` pins or tolerates.
fn place(location: &str, value: Value, ground: &mut Ground) -> Result<(), String> {
    let selector = location.strip_prefix("spec.nodeSelector");
    match (selector, value) {
        (Some(""), Value::Object(fields)) => {
            for (key, value) in fields {
                ground.pins.push((key, value.as_str().unwrap_or_default().to_owned()));
            }
            Ok(())
        }
        (Some(key), Value::String(value)) => {
            let key = key.trim_start_matches('.').trim_matches(['[', ']', '"', '\'']);
            ground.pins.push((key.to_owned(), value));
            Ok(())
        }
        (None, Value::Array(tolerations)) if location == "spec.tolerations" => {
            ground.tolerations = tolerations;
            Ok(())
        }
        (_, value) => Err(format!("Croft has nothing for the location {location}: {value}")),
    }
}

fn tenant(ground: Ground, pools: &[PoolMade], imported: &mut Imported) {
    let Ground { namespaces, selector, sources, mut pins, tolerations, mut notes } = ground;
    let tolerates = |t: &Value, key: &str, value: &str| {
        text(t, "key") == key && (text(t, "value") == value || text(t, "operator") == "Exists")
    };
    // Of several keys, the one that is a pool's or has a toleration is the pool's.
    let is_pool = |pin: &(String, String)| pools.iter().any(|p| p.key == pin.0 && p.value == pin.1);
    let chosen = pins
        .iter()
        .position(is_pool)
        .or_else(|| pins.iter().position(|(k, v)| tolerations.iter().any(|t| tolerates(t, k, v))))
        .or(if pins.is_empty() { None } else { Some(0) });
    let Some(chosen) = chosen else {
        imported.notes.push(format!(
            "{} give only tolerations and no node selector: their pods may go anywhere, so no tenant is made of them",
            sources.join(", ")
        ));
        imported.notes.extend(notes);
        return;
    };
    let (key, value) = pins.remove(chosen);
    for (key, value) in pins {
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
            let name = slug(&value);
            if !imported.pools.contains_key(&name) {
                let mut spec = json!({"key": key, "effects": effects, "provisioner": "None"});
                if name != value {
                    set(&mut spec, "value", json!(value));
                }
                let mut made = Made::new("TenantPool", &name, spec);
                made.notes.push("its nodes come from elsewhere: write spec.template and provisioner: Croft for Croft to make them".to_owned());
                made.fit("TenantPool", &sources.join(", "));
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
    // What Gatekeeper's Assign did to a pod that asked for something else.
    spec.insert("onConflict".to_owned(), json!("Override"));
    let name = match namespaces.as_slice() {
        [one] => one.clone(),
        _ => free_name(sources.first().map(String::as_str).unwrap_or("tenant"), imported),
    };
    let mut made = Made::new("Tenant", &name, Value::Object(spec));
    made.notes = notes;
    made.fit("Tenant", &sources.join(", "));
    imported.tenants.insert(name, made);
}

/// The mutation's name without what it does, and a number if there is such a tenant already.
fn free_name(source: &str, imported: &Imported) -> String {
    let mut stem = slug(source);
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
