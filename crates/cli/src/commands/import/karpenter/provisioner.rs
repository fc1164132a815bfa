//! Provisioners (`karpenter.sh/v1alpha5`).

use std::collections::BTreeMap;

use croft_api::definitions::KARPENTER_PROVISIONER_LABEL;
use croft_manifest::RawObject;
use serde_json::{Map, Value, json};

use super::{
    class::ClassNames,
    pool::{PoolParts, draft},
    requirements::{CAPACITY_TYPE, assume, is_named},
};
use crate::commands::import::{
    fields::{Fields, Report},
    imported::take_metadata,
    pools::PoolDraft,
};

/// Labels of which Karpenter assumed nothing where a Provisioner chose instances by one of them.
const CHOOSE_TYPES: &[&str] = &[
    "node.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-generation",
];

/// The pool of a Provisioner.
pub(super) fn of_provisioner(object: &RawObject, classes: &ClassNames, report: &mut Report<'_>) -> PoolDraft {
    let mut fields = Fields::of(object);
    let metadata = take_metadata(&mut fields, report);
    let mut old = fields.object("spec", report);
    fields.end(report);
    let (labels, annotations) = (old.text_map("labels", report), old.text_map("annotations", report));
    let (taints, startup_taints) = (old.objects("taints", report), old.objects("startupTaints", report));
    let requirements = old.objects("requirements", report);
    let class = class(&mut old, classes, report);
    let mut spec = Map::new();
    let mut limits = old.object("limits", report);
    let resources = limits.object("resources", report).into_map();
    let limits: Map<String, Value> = resources.into_iter().chain(limits.into_map()).collect();
    if !limits.is_empty() {
        spec.insert("limits".to_owned(), Value::Object(limits));
    }
    spec.insert("disruption".to_owned(), disruption(&mut old, report));
    let mut template = Map::new();
    if let Some(seconds) = seconds(&mut old, "ttlSecondsUntilExpired") {
        template.insert("expireAfter".to_owned(), seconds);
    }
    if let Some(kubelet) = old.take("kubeletConfiguration") {
        report.note_loss(format_args!(
            "{} isn't carried over, the kubelet's settings are the class's: {}",
            kubelet.path(),
            kubelet.left()
        ));
    }
    // The rest keeps its name: fields that the CRD doesn't have get a note.
    spec.extend(old.into_map());
    let assumed = defaults(&requirements, &labels);
    let own_label = KARPENTER_PROVISIONER_LABEL;
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
    assume(&mut draft, &assumed);
    draft
}

/// The requirements that Karpenter added to a Provisioner without any on the same labels.
fn defaults(requirements: &[Fields], labels: &BTreeMap<String, String>) -> Vec<Value> {
    let has = |key: &str| labels.contains_key(key) || is_named(requirements, key);
    let mut assumed = Vec::new();
    for (key, value) in
        [("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64"), (CAPACITY_TYPE, "on-demand")]
    {
        if !has(key) {
            assumed.push(json!({"key": key, "operator": "In", "values": [value]}));
        }
    }
    if !CHOOSE_TYPES.iter().any(|key| has(key)) {
        assumed.push(json!({"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]}));
        assumed
            .push(json!({"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]}));
    }
    assumed
}

/// The name of the class: of a reference, or of an inline provider.
fn class(old: &mut Fields, classes: &ClassNames, report: &mut Report<'_>) -> String {
    let provider = old.object("provider", report);
    let has_provider = provider.left().as_object().is_some_and(|fields| !fields.is_empty());
    let inline = classes.get(&("provider", provider.left().to_string())).filter(|_| has_provider);
    let mut reference = old.object("providerRef", report);
    let name = reference.text("name", report);
    for (field, known) in [("kind", "AWSNodeTemplate"), ("apiVersion", "karpenter.k8s.aws/v1alpha1")] {
        if let Some(text) = reference.text(field, report).filter(|text| text != known) {
            report.note_loss(format_args!("spec.providerRef.{field} isn't carried over: {text:?}"));
        }
    }
    reference.end(report);
    match (name, inline) {
        (Some(name), None) => classes.get(&("AWSNodeTemplate", name.clone())).cloned().unwrap_or(name),
        (Some(name), Some(_)) => {
            report.note_loss(format_args!("spec.providerRef isn't carried over, its provider is: {name:?}"));
            inline.cloned().unwrap_or(name)
        }
        (None, Some(name)) => name.clone(),
        (None, None) => {
            report.note("it has neither provider nor providerRef: write the EC2NodeClass default for it");
            "default".to_owned()
        }
    }
}

fn disruption(old: &mut Fields, report: &mut Report<'_>) -> Value {
    let mut consolidation = old.object("consolidation", report);
    let enabled = consolidation.take("enabled").map(Fields::into_left);
    consolidation.end(report);
    if let Some(other) = enabled.as_ref().filter(|enabled| !enabled.is_boolean()) {
        report.note_loss(format_args!("spec.consolidation.enabled isn't carried over: {other}"));
    }
    let after = seconds(old, "ttlSecondsAfterEmpty");
    match (enabled, after) {
        (Some(Value::Bool(true)), after) => {
            if let Some(after) = after {
                report.note_loss(format_args!(
                    "spec.ttlSecondsAfterEmpty isn't carried over beside consolidation: {after}"
                ));
            }
            json!({"consolidationPolicy": "WhenEmptyOrUnderutilized"})
        }
        (_, Some(after)) => json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": after}),
        // A Provisioner without either field never removes nodes.
        (_, None) => json!({"consolidateAfter": "Never"}),
    }
}

/// A number of seconds as a duration. Another value is refused with the output.
fn seconds(old: &mut Fields, field: &str) -> Option<Value> {
    old.take(field).map(|found| match found.left() {
        Value::Number(seconds) => json!(format!("{seconds}s")),
        other => other.clone(),
    })
}
