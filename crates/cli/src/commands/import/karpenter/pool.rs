//! NodePools.

use std::collections::BTreeMap;

use croft_api::definitions::KARPENTER_NODE_POOL_LABEL;
use croft_manifest::RawObject;
use serde_json::{Map, Value, json};

use super::{
    class::ClassNames,
    requirements::{CAPACITY_TYPE, assume, carried, is_named, of_labels},
};
use crate::commands::import::{
    fields::{Fields, Report},
    imported::take_metadata,
    pools::{HardTaint, NodeDraft, NodeFacts, PoolDraft},
};

/// The fields of a pool, whatever its version calls them.
pub(super) struct PoolParts {
    /// The label by which the provisioner itself marks the pool's nodes.
    pub(super) own_label: &'static str,
    pub(super) metadata: Map<String, Value>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) taints: Vec<Fields>,
    pub(super) startup_taints: Vec<Fields>,
    pub(super) requirements: Vec<Fields>,
    /// The name of its class.
    pub(super) class: String,
    /// Further fields of `spec.template.spec`.
    pub(super) template: Map<String, Value>,
    /// Further fields of `spec`.
    pub(super) spec: Map<String, Value>,
}

/// The pool of a NodePool.
pub(super) fn of_node_pool(object: &RawObject, classes: &ClassNames, report: &mut Report<'_>) -> PoolDraft {
    let mut fields = Fields::of(object);
    let metadata = take_metadata(&mut fields, report);
    let mut spec = fields.object("spec", report);
    fields.end(report);
    let mut template = spec.object("template", report);
    let mut nodes = template.object("metadata", report);
    let (labels, annotations) = (nodes.text_map("labels", report), nodes.text_map("annotations", report));
    nodes.end(report);
    let mut inner = template.object("spec", report);
    template.end(report);
    let (taints, startup_taints) = (inner.objects("taints", report), inner.objects("startupTaints", report));
    let requirements = inner.objects("requirements", report);
    let class = class(&mut inner, classes, report);
    let mut disruption = spec.object("disruption", report);
    let expire_after = disruption.text("expireAfter", report);
    let mut template = Map::new();
    if let Some(expire_after) = expire_after {
        if inner.left().get("expireAfter").is_some() {
            report
                .note_loss(format_args!("spec.disruption.expireAfter isn't carried over: {expire_after:?}"));
        } else {
            report.note(format_args!(
                "spec.disruption.expireAfter is spec.template.spec.expireAfter here, {expire_after}, as in Karpenter's v1"
            ));
            template.insert("expireAfter".to_owned(), json!(expire_after));
        }
    }
    template.extend(inner.into_map());
    // Since v1beta1 the API server writes it into a NodePool without it.
    template.entry("expireAfter").or_insert_with(|| json!("720h"));
    // Since v1beta1 a NodePool that names no capacity type launches each of them.
    let is_open = !is_named(&requirements, CAPACITY_TYPE) && !labels.contains_key(CAPACITY_TYPE);
    let mut spec = spec.into_map();
    let disruption = policy(disruption, report);
    if !disruption.is_empty() {
        spec.insert("disruption".to_owned(), Value::Object(disruption));
    }
    let own_label = KARPENTER_NODE_POOL_LABEL;
    let parts = PoolParts {
        own_label,
        metadata,
        labels,
        annotations,
        taints,
        startup_taints,
        requirements,
        class,
        template,
        spec,
    };
    let mut draft = draft(object, parts, report);
    if is_open {
        assume(&mut draft, &[json!({"key": CAPACITY_TYPE, "operator": "Exists"})]);
    }
    draft
}

/// The disruption of a NodePool, with the name that its policy has here.
fn policy(mut disruption: Fields, report: &mut Report<'_>) -> Map<String, Value> {
    let policy = "WhenEmptyOrUnderutilized";
    match disruption.left().get("consolidationPolicy").and_then(Value::as_str) {
        Some(old @ "WhenUnderutilized") => report.note(format_args!(
            "spec.disruption.consolidationPolicy {old} is called {policy} since Karpenter's v1"
        )),
        // Karpenter's 1.14 weighs savings against the disruption of pods by this name; Croft does so always.
        Some(balanced @ "Balanced") => report.note(format_args!(
            "spec.disruption.consolidationPolicy {balanced} is {policy} here, with the preference Balanced, the default: pods are moved \
             for savings that are worth it"
        )),
        _ => return disruption.into_map(),
    }
    disruption.take("consolidationPolicy");
    let mut disruption = disruption.into_map();
    disruption.insert("consolidationPolicy".to_owned(), json!(policy));
    disruption
}

/// The name of the class that a NodePool refers to.
fn class(inner: &mut Fields, classes: &ClassNames, report: &mut Report<'_>) -> String {
    let mut reference = inner.object("nodeClassRef", report);
    let text = |reference: &mut Fields, field: &str, report: &mut Report<'_>| {
        reference.text(field, report).unwrap_or_default()
    };
    let name = text(&mut reference, "name", report);
    let group = text(&mut reference, "group", report);
    let kind = text(&mut reference, "kind", report);
    let version = text(&mut reference, "apiVersion", report);
    let is_known = matches!(group.as_str(), "" | "karpenter.k8s.aws")
        && matches!(kind.as_str(), "" | "EC2NodeClass")
        && matches!(version.as_str(), "" | "karpenter.k8s.aws/v1beta1" | "karpenter.k8s.aws/v1");
    if !is_known {
        let group = if group.is_empty() { &version } else { &group };
        report.note_loss(format_args!(
            "its class is the {kind} {name} of {group}, which isn't carried over: write an EC2NodeClass {name}"
        ));
    } else if name.is_empty() {
        report.note("it has no nodeClassRef: write the name of an EC2NodeClass");
    }
    reference.end(report);
    classes.get(&("EC2NodeClass", name.clone())).cloned().unwrap_or(name)
}

/// A taint of the input.
struct Taint {
    hard: HardTaint,
    fields: Fields,
    original: Value,
}

impl Taint {
    fn new(mut fields: Fields, report: &mut Report<'_>) -> Self {
        let original = fields.left().clone();
        let mut text = |field: &str| fields.text(field, report).unwrap_or_default();
        let hard = HardTaint { key: text("key"), value: text("value"), effect: text("effect") };
        Self { hard, fields, original }
    }

    fn is_hard(&self) -> bool {
        matches!(self.hard.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

/// The pool of these parts.
pub(super) fn draft(object: &RawObject, parts: PoolParts, report: &mut Report<'_>) -> PoolDraft {
    let PoolParts {
        own_label,
        metadata,
        mut labels,
        annotations,
        taints,
        startup_taints,
        requirements,
        class,
        mut template,
        mut spec,
    } = parts;
    let taints: Vec<Taint> = taints.into_iter().map(|fields| Taint::new(fields, report)).collect();
    let mut facts = NodeFacts {
        labels: labels.clone(),
        taints: taints.iter().filter(|taint| taint.is_hard()).map(|taint| taint.hard.clone()).collect(),
        ..NodeFacts::default()
    };
    facts.labels.insert(own_label.to_owned(), object.name.clone());
    let label = own_taint(&taints, &labels);
    let key = label.as_ref().map_or(croft_api::pool::DEFAULT_KEY, |(key, _)| key.as_str());
    let (effects, others) = divide(taints, label.as_ref(), report);
    take_labels(&mut labels, label.as_ref(), own_label, &object.name, report);
    let mut carried = carried(requirements, label.as_ref(), &labels, &mut facts, report);
    carried.extend(of_labels(&mut labels, report));
    let startup = startup_taints.into_iter().map(|fields| Taint::new(fields, report)).collect();
    let startup = without_key(startup, key, "startupTaints", report);
    let mut lists = [("requirements", carried), ("taints", others), ("startupTaints", startup)];
    for (field, list) in &mut lists {
        if !list.is_empty() {
            template.insert((*field).to_owned(), Value::Array(std::mem::take(list)));
        }
    }
    template.insert("nodeClassRef".to_owned(), json!({ "name": class }));
    let mut nodes = Map::new();
    for (field, texts) in [("labels", labels), ("annotations", annotations)] {
        if !texts.is_empty() {
            nodes.insert(field.to_owned(), json!(texts));
        }
    }
    let mut whole = Map::from_iter([("spec".to_owned(), Value::Object(template))]);
    if !nodes.is_empty() {
        whole.insert("metadata".to_owned(), Value::Object(nodes));
    }
    let (source, wanted) = (object.title(), object.name.clone());
    let disruption = spec.remove("disruption").map(|disruption| ("disruption".to_owned(), disruption));
    let nodes = NodeDraft {
        source: source.clone(),
        wanted: wanted.clone(),
        fields: spec,
        template: Some(whole),
        facts,
    };
    PoolDraft {
        source,
        wanted,
        label,
        effects,
        spec: disruption.into_iter().collect(),
        metadata,
        nodes: vec![nodes],
        notes: std::mem::take(&mut report.notes),
    }
}

/// Key and value of the taint that identifies the pool: one that is also a label of the nodes, else the first with a value.
fn own_taint(taints: &[Taint], labels: &BTreeMap<String, String>) -> Option<(String, String)> {
    let valued = || taints.iter().filter(|taint| taint.is_hard() && !taint.hard.value.is_empty());
    let is_label = |taint: &&Taint| labels.get(&taint.hard.key) == Some(&taint.hard.value);
    let chosen = valued().find(is_label).or_else(|| valued().next())?;
    Some((chosen.hard.key.clone(), chosen.hard.value.clone()))
}

/// The effects of the pool's own taint, and the other taints.
fn divide(
    taints: Vec<Taint>,
    label: Option<&(String, String)>,
    report: &mut Report<'_>,
) -> (Vec<String>, Vec<Value>) {
    let Some((key, value)) = label else {
        let key = croft_api::pool::DEFAULT_KEY;
        return (vec!["NoSchedule".to_owned()], without_key(taints, key, "taints", report));
    };
    let mut effects: Vec<String> = Vec::new();
    let mut others = Vec::new();
    for taint in taints {
        if taint.is_hard() && taint.hard.key == *key && taint.hard.value == *value {
            taint.fields.end(report);
            if !effects.contains(&taint.hard.effect) {
                effects.push(taint.hard.effect);
            }
        } else {
            others.push(taint);
        }
    }
    (effects, without_key(others, key, "taints", report))
}

/// Further taints of the nodes. One of the pool's key is left out, since a node has one value of it.
fn without_key(taints: Vec<Taint>, key: &str, field: &str, report: &mut Report<'_>) -> Vec<Value> {
    let mut carried = Vec::new();
    for taint in taints {
        if taint.hard.key == key {
            report.note_loss(format_args!(
                "{field}: a further taint of the pool's key isn't carried over: {}",
                taint.original
            ));
        } else {
            carried.push(taint.original);
        }
    }
    carried
}

/// Takes the pool's own label out of the labels of its nodes, and the provisioner's if Karpenter gives it another value.
fn take_labels(
    labels: &mut BTreeMap<String, String>,
    label: Option<&(String, String)>,
    own_label: &str,
    name: &str,
    report: &mut Report<'_>,
) {
    if let Some(value) = labels.get(own_label).filter(|value| *value != name).cloned() {
        labels.remove(own_label);
        report.note_loss(format_args!(
            "the label {own_label}={value} isn't carried over: Karpenter gives its nodes {own_label}={name}"
        ));
    }
    let Some((key, value)) = label else { return };
    match labels.remove(key) {
        Some(other) if other != *value => report.note_loss(format_args!(
            "its label {key}={other} isn't carried over: its taint has the value {value}, and in Croft both are equal, {key}={value}"
        )),
        Some(_) => {}
        None => report.note(format_args!("its nodes also get the label {key}={value}, beside the taint")),
    }
}
