//! Karpenter's pools and classes, of every version still in use, to TenantPools and EC2NodeClasses.

use croft_manifest::RawObject;
use serde_json::{Map, Value, json};

use super::imported::{Imported, ImportedObject, pool_name, set, take};
use crate::croft_object::text;

pub(super) const KINDS: &[&str] = &["NodePool", "Provisioner", "EC2NodeClass", "AWSNodeTemplate"];

/// An imported pool with the label and taint of its nodes.
#[derive(Clone, Debug)]
pub(super) struct ImportedPool {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) value: String,
}

/// Labels that Karpenter itself writes on nodes, without meaning in Croft.
const OWN_LABELS: &[&str] = &["karpenter.sh/nodepool", "karpenter.sh/provisioner-name"];

pub(super) fn import(objects: &[RawObject], imported: &mut Imported) -> Vec<ImportedPool> {
    let mut pools = Vec::new();
    for object in objects.iter().filter(|o| o.group().starts_with("karpenter.")) {
        let mut source = object.value.clone();
        let spec = take(&mut source, "spec").unwrap_or_else(|| json!({}));
        match object.kind.as_str() {
            "NodePool" => pools.push(pool(object, spec, imported)),
            "Provisioner" => {
                let (spec, notes) = from_provisioner(object, spec);
                pools.push(pool(object, spec, imported));
                if let Some(made) = imported.pools.get_mut(&pool_name(&object.name)) {
                    made.notes.extend(notes);
                }
            }
            "EC2NodeClass" => class(object, spec, Vec::new(), imported),
            "AWSNodeTemplate" => {
                let (spec, notes) = from_node_template(object, spec);
                class(object, spec, notes, imported);
            }
            _ => {}
        }
    }
    pools
}

fn pool(object: &RawObject, mut spec: Value, imported: &mut Imported) -> ImportedPool {
    let mut notes = Vec::new();
    let name = pool_name(&object.name);
    if name != object.name {
        notes.push(format!(
            "{} is called {name} here: a pool's name has lower case letters, digits and '-', at most 40",
            object.title()
        ));
    }
    let mut template = take(&mut spec, "template").unwrap_or_else(|| json!({}));
    let mut inner = take(&mut template, "spec").unwrap_or_else(|| json!({}));
    let mut metadata = take(&mut template, "metadata").unwrap_or_else(|| json!({}));
    let mut labels = match take(&mut metadata, "labels") {
        Some(Value::Object(labels)) => labels,
        _ => Map::new(),
    };
    for label in OWN_LABELS {
        labels.remove(*label);
    }
    let taints = match take(&mut inner, "taints") {
        Some(Value::Array(taints)) => taints,
        _ => Vec::new(),
    };
    let PoolTaint { key, value, effects, others } =
        pool_taint(object, &name, taints, &mut labels, &mut notes);
    if !labels.is_empty() {
        set(&mut metadata, "labels", Value::Object(labels));
    }
    if !others.is_empty() {
        set(&mut inner, "taints", Value::Array(others));
    }
    if let Some(class) = inner.get("nodeClassRef").map(|c| text(c, "name").to_owned()) {
        set(&mut inner, "nodeClassRef", json!({"name": class}));
    }
    if metadata.as_object().is_some_and(|m| !m.is_empty()) {
        set(&mut template, "metadata", metadata);
    }
    set(&mut template, "spec", inner);
    set(&mut spec, "template", template);
    set(&mut spec, "key", json!(key));
    set(&mut spec, "effects", json!(effects));
    if value != name {
        set(&mut spec, "value", json!(value));
    }
    let mut made = ImportedObject::new("TenantPool", &name, spec);
    made.notes = notes;
    made.prune("TenantPool", &object.title());
    imported.pools.insert(name.clone(), made);
    ImportedPool { name, key, value }
}

/// The taint of a pool, and further taints of its nodes.
struct PoolTaint {
    key: String,
    value: String,
    effects: Vec<String>,
    others: Vec<Value>,
}

/// Takes the pool's own taint, and the label equal to it, out of its nodes' taints and labels.
fn pool_taint(
    object: &RawObject,
    name: &str,
    taints: Vec<Value>,
    labels: &mut Map<String, Value>,
    notes: &mut Vec<String>,
) -> PoolTaint {
    let Some((key, value)) = own_taint(&taints, labels) else {
        let key = croft_api::pool::DEFAULT_KEY.to_owned();
        notes.push(format!(
            "{} has no taint of its own: Croft taints its nodes {key}={name}:NoSchedule, so that only its tenants' pods run there",
            object.title()
        ));
        let effects = vec!["NoSchedule".to_owned()];
        return PoolTaint { key, value: name.to_owned(), effects, others: taints };
    };
    let is_own = |t: &Value| {
        let is_enforced = matches!(text(t, "effect"), "NoSchedule" | "NoExecute");
        is_enforced && text(t, "key") == key && text(t, "value") == value
    };
    let (own, others): (Vec<Value>, Vec<Value>) = taints.into_iter().partition(is_own);
    let effects = own.iter().map(|taint| text(taint, "effect").to_owned()).collect();
    match labels.remove(&key) {
        Some(label) if label.as_str() != Some(&value) => {
            notes.push(format!(
                "{}: its label {key} is {label}, its taint's value {value}: in Croft both are equal, {value}",
                object.title()
            ));
        }
        Some(_) => {}
        None => notes.push(format!(
            "{}: its nodes also get the label {key}={value}, beside the taint",
            object.title()
        )),
    }
    PoolTaint { key, value, effects, others }
}

/// The taint that identifies the pool: one that is also a label of the nodes, else the first with a value.
fn own_taint(taints: &[Value], labels: &Map<String, Value>) -> Option<(String, String)> {
    let hard =
        |t: &&Value| matches!(text(t, "effect"), "NoSchedule" | "NoExecute") && !text(t, "value").is_empty();
    let labelled = |t: &&Value| labels.get(text(t, "key")).and_then(Value::as_str) == Some(text(t, "value"));
    let chosen = taints.iter().filter(hard).find(labelled).or_else(|| taints.iter().find(hard))?;
    Some((text(chosen, "key").to_owned(), text(chosen, "value").to_owned()))
}

/// A Provisioner (`karpenter.sh/v1alpha5`) as the spec of a NodePool v1.
fn from_provisioner(object: &RawObject, mut old: Value) -> (Value, Vec<String>) {
    let mut notes = Vec::new();
    let mut spec = json!({});
    let mut inner = json!({});
    let mut metadata = json!({});
    for (from, to) in [("labels", "labels"), ("annotations", "annotations")] {
        if let Some(value) = take(&mut old, from) {
            set(&mut metadata, to, value);
        }
    }
    for field in ["requirements", "taints", "startupTaints"] {
        if let Some(value) = take(&mut old, field) {
            set(&mut inner, field, value);
        }
    }
    if let Some(weight) = take(&mut old, "weight") {
        set(&mut spec, "weight", weight);
    }
    if let Some(mut limits) = take(&mut old, "limits") {
        if let Some(resources) = take(&mut limits, "resources") {
            set(&mut spec, "limits", resources);
        }
        merge_rest(&mut spec, "limits", limits);
    }
    match take(&mut old, "providerRef").or_else(|| take(&mut old, "provider")) {
        Some(reference) if !text(&reference, "name").is_empty() => {
            set(&mut inner, "nodeClassRef", json!({"name": text(&reference, "name")}));
        }
        other => {
            set(&mut inner, "nodeClassRef", json!({"name": "default"}));
            notes.push(format!(
                "{}: write the EC2NodeClass default for it{}",
                object.title(),
                other.map(|v| format!(", of {v}")).unwrap_or_default()
            ));
        }
    }
    let mut disruption = json!({});
    match (take(&mut old, "consolidation"), take(&mut old, "ttlSecondsAfterEmpty")) {
        (Some(consolidation), _) if consolidation.get("enabled") == Some(&Value::Bool(true)) => {
            set(&mut disruption, "consolidationPolicy", json!("WhenEmptyOrUnderutilized"));
        }
        (_, Some(seconds)) => {
            set(&mut disruption, "consolidationPolicy", json!("WhenEmpty"));
            set(&mut disruption, "consolidateAfter", json!(format!("{seconds}s")));
        }
        // A Provisioner without either field never removes nodes.
        _ => set(&mut disruption, "consolidateAfter", json!("Never")),
    }
    if let Some(seconds) = take(&mut old, "ttlSecondsUntilExpired") {
        set(&mut inner, "expireAfter", json!(format!("{seconds}s")));
    }
    if let Some(kubelet) = take(&mut old, "kubeletConfiguration") {
        set(&mut inner, "kubelet", kubelet);
    }
    set(&mut spec, "disruption", disruption);
    set(&mut spec, "template", json!({"metadata": metadata, "spec": inner}));
    // Remaining fields keep their names; those that the CRD doesn't have are noted.
    if let (Value::Object(rest), Value::Object(fields)) = (old, &mut spec) {
        fields.extend(rest);
    }
    (spec, notes)
}

fn merge_rest(spec: &mut Value, field: &str, rest: Value) {
    if let (Value::Object(rest), Some(fields)) = (rest, spec.get_mut(field).and_then(Value::as_object_mut)) {
        fields.extend(rest);
    }
}

fn class(object: &RawObject, mut spec: Value, notes: Vec<String>, imported: &mut Imported) {
    let mut made = ImportedObject::new("EC2NodeClass", &object.name, json!({}));
    made.notes = notes;
    // Before v1 the family alone selected the image.
    if spec.get("amiSelectorTerms").is_none() {
        let alias = match text(&spec, "amiFamily") {
            "AL2" => Some("al2@latest"),
            "AL2023" => Some("al2023@latest"),
            "Bottlerocket" => Some("bottlerocket@latest"),
            _ => None,
        };
        if let Some(alias) = alias {
            set(&mut spec, "amiSelectorTerms", json!([{ "alias": alias }]));
        }
    }
    set(&mut made.value, "spec", spec);
    made.prune("EC2NodeClass", &object.title());
    imported.classes.insert(object.name.clone(), made);
}

/// An AWSNodeTemplate (`karpenter.k8s.aws/v1alpha1`) as the spec of an EC2NodeClass v1.
fn from_node_template(object: &RawObject, mut old: Value) -> (Value, Vec<String>) {
    let mut notes = Vec::new();
    for (from, to) in [
        ("subnetSelector", "subnetSelectorTerms"),
        ("securityGroupSelector", "securityGroupSelectorTerms"),
        ("amiSelector", "amiSelectorTerms"),
    ] {
        if let Some(Value::Object(selector)) = take(&mut old, from) {
            set(&mut old, to, Value::Array(terms(&selector)));
        }
    }
    if old.get("instanceProfile").is_none() && old.get("role").is_none() {
        notes.push(format!(
            "{}: write role or instanceProfile: the global default in Karpenter's settings isn't imported",
            object.title()
        ));
    }
    (old, notes)
}

/// Selector terms from a selector of tags, where a comma means "or" and `aws-ids` lists ids.
fn terms(selector: &Map<String, Value>) -> Vec<Value> {
    let parts = |value: &Value| -> Vec<String> {
        value
            .as_str()
            .unwrap_or_default()
            .split(',')
            .map(|p| p.trim().to_owned())
            .filter(|p| !p.is_empty())
            .collect()
    };
    let mut ids = Vec::new();
    let mut combinations: Vec<Map<String, Value>> = vec![Map::new()];
    for (key, value) in selector {
        if matches!(key.as_str(), "aws-ids" | "aws::ids") {
            ids.extend(parts(value).into_iter().map(|id| json!({ "id": id })));
            continue;
        }
        combinations = combinations
            .iter()
            .flat_map(|tags| {
                parts(value).into_iter().map(|part| {
                    let mut tags = tags.clone();
                    tags.insert(key.clone(), Value::String(part));
                    tags
                })
            })
            .collect();
    }
    let tags = combinations.into_iter().filter(|tags| !tags.is_empty()).map(|tags| json!({ "tags": tags }));
    ids.into_iter().chain(tags).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comma_in_a_tag_becomes_two_terms() {
        let selector = json!({"a": "x,y", "b": "z"});
        assert_eq!(
            terms(selector.as_object().unwrap()),
            [json!({"tags": {"a": "x", "b": "z"}}), json!({"tags": {"a": "y", "b": "z"}})]
        );
        assert_eq!(
            terms(json!({"aws-ids": "i-1, i-2"}).as_object().unwrap()),
            [json!({"id": "i-1"}), json!({"id": "i-2"})]
        );
    }
}
