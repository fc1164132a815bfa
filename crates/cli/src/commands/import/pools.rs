//! Pools on their way from the input to TenantPools: each gets a name and a label of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{imported::ImportedObject, names::names, note::Note};

/// Characters of the name of a pool or of a template.
const MOST: usize = 40;

/// A taint that keeps pods off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HardTaint {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) effect: String,
}

/// The input's facts about the nodes of a pool, for those who choose among pools.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeFacts {
    /// Labels, the provisioner's own included.
    pub(super) labels: BTreeMap<String, String>,
    /// Values of labels that requirements allow: any for none.
    pub(super) allowed: BTreeMap<String, Option<Vec<String>>>,
    pub(super) taints: Vec<HardTaint>,
}

/// The nodes of one pool of the input: all of a TenantPool, or those of one of its templates.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeDraft {
    /// Kind and name in the input, for notes.
    pub(super) source: String,
    /// The text that the name of its template is made of.
    pub(super) wanted: String,
    /// The weight, the limits and all else that each of several templates has for itself.
    pub(super) fields: Map<String, Value>,
    /// `metadata` and `spec` of the template; `None` for nodes of another provisioner.
    pub(super) template: Option<Map<String, Value>>,
    pub(super) facts: NodeFacts,
}

/// A pool without a name.
#[derive(Clone, Debug)]
pub(super) struct PoolDraft {
    /// Kinds and names in the input, for notes.
    pub(super) source: String,
    /// The text that its name is made of.
    pub(super) wanted: String,
    /// Key and value of its label and taint; Croft's key and the pool's name without.
    pub(super) label: Option<(String, String)>,
    pub(super) effects: Vec<String>,
    /// Fields of the spec that all its nodes share.
    pub(super) spec: Map<String, Value>,
    pub(super) metadata: Map<String, Value>,
    pub(super) nodes: Vec<NodeDraft>,
    pub(super) notes: Vec<Note>,
}

impl NodeDraft {
    /// True if they carry this label in the input.
    pub(super) fn has_label(&self, key: &str, value: &str) -> bool {
        self.facts.labels.get(key).is_some_and(|found| found == value)
    }
}

impl PoolDraft {
    /// True if some of its nodes carry this label in the input.
    pub(super) fn has_label(&self, key: &str, value: &str) -> bool {
        self.is_labelled(key, value) || self.nodes.iter().any(|nodes| nodes.has_label(key, value))
    }

    /// True if this is its own label.
    pub(super) fn is_labelled(&self, key: &str, value: &str) -> bool {
        self.label.as_ref().is_some_and(|(k, v)| k == key && v == value)
    }

    /// The highest weight of its nodes: Karpenter tries pools by weight.
    pub(super) fn weight(&self) -> i64 {
        let weights = self.nodes.iter().filter_map(|nodes| nodes.fields.get("weight")?.as_i64());
        weights.max().unwrap_or(0)
    }

    /// True if its nodes have their label already, and keep it.
    fn is_elsewhere(&self) -> bool {
        self.spec.get("provisioner").is_some_and(|provisioner| provisioner == "None")
    }

    fn key(&self) -> &str {
        self.label.as_ref().map_or(croft_api::pool::DEFAULT_KEY, |(key, _)| key)
    }
}

/// The TenantPools of drafts, in their order, with their names.
pub(super) fn finish(drafts: Vec<PoolDraft>) -> Vec<(String, ImportedObject)> {
    // Every node also has the pool's name, under Croft's own key: one that is a label there already is no other pool's.
    let mut order: Vec<(usize, &PoolDraft)> = drafts.iter().enumerate().collect();
    order.sort_by_key(|(at, draft)| (!draft.is_elsewhere(), *at));
    let wanted: Vec<_> =
        order.iter().map(|(_, draft)| (draft.wanted.clone(), draft.source.clone())).collect();
    let names: BTreeMap<usize, String> = order.iter().map(|(at, _)| *at).zip(names(&wanted, MOST)).collect();
    let names: Vec<String> = names.into_values().collect();
    let values = values(&drafts, &names);
    let made = drafts.into_iter().zip(names).zip(values).map(|((draft, name), value)| {
        let object = made(draft, &name, value);
        (name, object)
    });
    made.collect()
}

/// The value of each pool's label: no two pools have one label.
fn values(drafts: &[PoolDraft], names: &[String]) -> Vec<String> {
    let value = |draft: &PoolDraft, name: &str| {
        draft.label.as_ref().map_or_else(|| name.to_owned(), |(_, value)| value.clone())
    };
    // A pool without a label in the input can't give its own away, and one that is called as its label comes before others.
    let mut order: Vec<(usize, (&PoolDraft, &String))> = drafts.iter().zip(names).enumerate().collect();
    order.sort_by_key(|(at, (draft, name))| {
        (!draft.is_elsewhere(), draft.label.is_some(), value(draft, name) != **name, *at)
    });
    let own = croft_api::pool::DEFAULT_KEY;
    let named = drafts.iter().zip(names).filter(|(draft, _)| draft.key() != own);
    let mut taken: BTreeSet<(&str, String)> = named.map(|(_, name)| (own, name.clone())).collect();
    let mut values = BTreeMap::new();
    for (at, (draft, name)) in order {
        let others = (2..).map(|number| format!("{name}-{number}"));
        let mut candidates = [value(draft, name), name.clone()].into_iter().chain(others);
        let free = candidates.find(|value| taken.insert((draft.key(), value.clone())));
        values.insert(at, free.unwrap_or_default());
    }
    values.into_values().collect()
}

/// Writes the nodes of a pool into its spec: those of one kind as `template`, those of several as `templates`.
fn write_nodes(nodes: Vec<NodeDraft>, spec: &mut Map<String, Value>, notes: &mut Vec<Note>) {
    if nodes.len() < 2 {
        for NodeDraft { fields, template, .. } in nodes {
            spec.extend(fields);
            spec.extend(template.map(|template| ("template".to_owned(), Value::Object(template))));
        }
        return;
    }
    let wanted: Vec<_> = nodes.iter().map(|nodes| (nodes.wanted.clone(), nodes.source.clone())).collect();
    let mut templates = Vec::new();
    for (nodes, name) in nodes.into_iter().zip(names(&wanted, MOST)) {
        let NodeDraft { source, wanted, mut fields, template, .. } = nodes;
        if name != wanted {
            notes.push(Note::change(format!(
                "{source}: the template of {wanted:?} is called {name} here: its name has lower case letters, digits and '-', at most \
                 {MOST}, and is no other's"
            )));
        }
        // A pool of the input has no such fields, and a template has others of these names.
        for taken in ["name", "metadata", "spec"] {
            if let Some(value) = fields.remove(taken) {
                notes.push(Note::loss(format!(
                    "{source}: spec.{taken} isn't carried over, Croft has no such field: {value}"
                )));
            }
        }
        fields.insert("name".to_owned(), json!(name));
        fields.extend(template.unwrap_or_default());
        templates.push(Value::Object(fields));
    }
    spec.insert("templates".to_owned(), Value::Array(templates));
}

/// Taints without a value, as kubectl writes them.
fn without_values(taints: &[HardTaint]) -> String {
    let texts: Vec<String> = taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    texts.join(", ")
}

fn made(draft: PoolDraft, name: &str, value: String) -> ImportedObject {
    let key = draft.key().to_owned();
    let PoolDraft { source, wanted, label, effects, mut spec, metadata, nodes, mut notes } = draft;
    let taints: Vec<HardTaint> = nodes.iter().flat_map(|nodes| nodes.facts.taints.iter().cloned()).collect();
    if name != wanted {
        notes.insert(
            0,
            Note::change(format!(
                "{source}: the pool of {wanted:?} is called {name} here: a pool's name has lower case letters, digits and '-', at most \
                 {MOST}, and is no other's"
            )),
        );
    }
    match &label {
        None if !taints.is_empty() => notes.push(Note::change(format!(
            "{source}: no taint of its nodes ({}) has a value, by which a pool is told: Croft adds {key}={value}:NoSchedule, so that only \
             its tenants' pods run there",
            without_values(&taints)
        ))),
        None => notes.push(Note::change(format!(
            "{source} has no taint of its own: Croft taints its nodes {key}={value}:NoSchedule, so that only its tenants' pods run there"
        ))),
        Some((_, old)) if *old != value => notes.push(Note::change(format!(
            "{source}: another pool has the label {key}={old}, and a label is one pool's: its nodes get {key}={value}. Its tenants may \
             use both pools; pods that select {key}={old} run in the other one"
        ))),
        Some(_) => {}
    }
    write_nodes(nodes, &mut spec, &mut notes);
    spec.insert("key".to_owned(), json!(key));
    spec.insert("effects".to_owned(), json!(effects));
    if value != name {
        spec.insert("value".to_owned(), json!(value));
    }
    ImportedObject::new("TenantPool", name, metadata, Value::Object(spec), &source, notes)
}
