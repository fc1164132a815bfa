//! The result of an import.

use croft_manifest::{FieldErrors, Problem, prune};
use serde_json::{Map, Value, json};

use super::{
    fields::{Fields, Report},
    note::Note,
    unsupported,
};
use crate::croft_object::croft_object;

/// The versions that are read.
const VERSIONS: &[&str] = &[
    "karpenter.sh/v1",
    "karpenter.sh/v1beta1",
    "karpenter.sh/v1alpha5",
    "karpenter.k8s.aws/v1",
    "karpenter.k8s.aws/v1beta1",
    "karpenter.k8s.aws/v1alpha1",
    "mutations.gatekeeper.sh/v1",
    "mutations.gatekeeper.sh/v1beta1",
    "mutations.gatekeeper.sh/v1alpha1",
];
/// Fields of metadata that the API server and Karpenter write, and write anew: no manifest declares them.
const WRITTEN: &[&str] =
    &["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"];
/// Annotations of that kind.
const WRITTEN_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    "karpenter.sh/nodepool-hash",
    "karpenter.sh/nodepool-hash-version",
    "karpenter.sh/stored-version-migrated",
    "karpenter.k8s.aws/ec2nodeclass-hash",
    "karpenter.k8s.aws/ec2nodeclass-hash-version",
    "karpenter.k8s.aws/awsnodetemplate-hash",
];
/// Domains of labels and annotations by which a tool knows the objects that it manages.
const OF_TOOLS: &[&str] = &[
    "app.kubernetes.io",
    "argocd.argoproj.io",
    "helm.sh",
    "kubernetes.io",
    "toolkit.fluxcd.io",
    "karpenter.sh",
    "karpenter.k8s.aws",
];
/// Maps of a template's `metadata` that only add to a node: an entry that the API server would refuse is left out of them. Every other
/// field decides which nodes there are, or whose they are, so that an object with an error in one waits for its author.
const ADDITIONS: [&str; 2] = ["labels", "annotations"];
/// The annotation that both Karpenter and Croft read.
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Croft's objects, and notes on objects that nothing was made of.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) objects: Vec<ImportedObject>,
    pub(super) notes: Vec<Note>,
    /// Pools that no Tenant of the input uses.
    pub(super) without_tenant: Vec<String>,
    /// Values that no API server has stored.
    pub(super) problems: Vec<Problem>,
}

/// An object of Croft's, and notes on what was left out.
#[derive(Clone, Debug)]
pub(super) struct ImportedObject {
    pub(super) value: Value,
    pub(super) notes: Vec<Note>,
    /// True if the API server would refuse it.
    pub(super) is_refused: bool,
}

impl ImportedObject {
    /// An object without the fields that its CRD doesn't have, nor the labels and annotations of nodes that the API server would refuse.
    /// Each of these gets a note that names `source`, and so does each error of the rest.
    pub(super) fn new(
        kind: &str,
        name: &str,
        metadata: Map<String, Value>,
        spec: Value,
        source: &str,
        mut notes: Vec<Note>,
    ) -> Self {
        let mut value = croft_object(kind, name, spec);
        if let Some(own) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            own.extend(metadata);
        }
        let pruned = prune(kind, &mut value);
        for (path, value) in pruned.dropped {
            let why = unsupported::reason(kind, &path);
            notes.push(Note::loss(format!("{source}: {path} isn't carried over, {why}: {value}")));
        }
        let mut errors = pruned.errors;
        if additions(&value).iter().any(|map| concern(&errors, map)) {
            notes.extend(drop_refused_entries(kind, &mut value, source));
            errors = prune(kind, &mut value).errors;
        }
        let is_refused = !errors.is_empty();
        if is_refused {
            notes.push(Note::loss(format!(
                "{kind} {name} is written as a comment, since the API server would refuse it"
            )));
        }
        let by_hand =
            |(path, message): (String, String)| Note::loss(format!("correct by hand: {path}: {message}"));
        notes.extend(errors.into_iter().map(by_hand));
        Self { value, notes, is_refused }
    }
}

/// The paths of the maps of [`ADDITIONS`] in a pool's templates.
fn additions(value: &Value) -> Vec<String> {
    let several = value.pointer("/spec/templates").and_then(Value::as_array).map_or(0, Vec::len);
    let templates = (0..several).map(|at| format!("spec.templates[{at}]"));
    let templates = std::iter::once("spec.template".to_owned()).chain(templates);
    templates.flat_map(|at| ADDITIONS.map(|map| format!("{at}.metadata.{map}"))).collect()
}

/// True if an error concerns the map at `path` or one of its entries.
fn concern(errors: &FieldErrors, path: &str) -> bool {
    errors.iter().any(|(at, _)| at.starts_with(path))
}

/// Drops the entries of [`ADDITIONS`] that the API server would refuse, each with a note.
fn drop_refused_entries(kind: &str, value: &mut Value, source: &str) -> Vec<Note> {
    let mut notes = Vec::new();
    for path in additions(value) {
        let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
        let entries = value.pointer(&pointer).and_then(Value::as_object).cloned().unwrap_or_default();
        for (key, entry) in entries {
            // An error may name the map alone: an entry is at fault if it is refused alone.
            let mut alone = value.clone();
            if let Some(map) = alone.pointer_mut(&pointer) {
                *map = json!({key.clone(): entry});
            }
            let errors = prune(kind, &mut alone).errors;
            let Some((_, message)) = errors.into_iter().find(|(at, _)| at.starts_with(&path)) else {
                continue;
            };
            if let Some(map) = value.pointer_mut(&pointer).and_then(Value::as_object_mut) {
                map.remove(&key);
            }
            let message = message.strip_prefix(&format!("{key}: ")).unwrap_or(&message);
            notes.push(Note::loss(format!("{source}: {path}.{key} isn't carried over: {entry}: {message}")));
        }
    }
    notes
}

/// Takes apiVersion, kind, metadata and status of an object. Returns its labels and annotations, as far as they mean the same on
/// one of Croft's.
pub(super) fn take_metadata(fields: &mut Fields, report: &mut Report<'_>) -> Map<String, Value> {
    let mut metadata = take_head(fields, report);
    let mut carried = Map::new();
    for part in ["labels", "annotations"] {
        let mut texts = metadata.text_map(part, report);
        texts.retain(|key, value| {
            let of_tool = OF_TOOLS.iter().any(|domain| is_under(key, domain)) && key != DO_NOT_DISRUPT;
            if of_tool && !WRITTEN_ANNOTATIONS.contains(&key.as_str()) {
                report.note(format_args!(
                    "metadata.{part}.{key} isn't carried over, a tool knows its own objects by it: {value:?}"
                ));
            }
            !of_tool
        });
        if !texts.is_empty() {
            carried.insert(part.to_owned(), json!(texts));
        }
    }
    metadata.end(report);
    carried
}

/// Takes apiVersion, kind and status of an object, and what others than its authors write into its metadata. Returns the rest of
/// that.
pub(super) fn take_head(fields: &mut Fields, report: &mut Report<'_>) -> Fields {
    fields.take("kind");
    fields.take("status");
    if let Some(version) = fields.text("apiVersion", report).filter(|v| !VERSIONS.contains(&v.as_str())) {
        report.note(format_args!("the version {version} isn't known here: it is read as the newest that is"));
    }
    let mut metadata = fields.object("metadata", report);
    metadata.take("name");
    // The kinds are cluster-scoped: the API server clears a namespace that a manifest writes.
    metadata.take("namespace");
    for written in WRITTEN {
        metadata.take(written);
    }
    for finalizer in metadata.texts("finalizers", report) {
        if !is_under(&finalizer, "karpenter.sh") && !is_under(&finalizer, "karpenter.k8s.aws") {
            report.note_loss(format_args!("the finalizer {finalizer} isn't carried over"));
        }
    }
    metadata
}

/// True for a key under a domain or one of its subdomains.
fn is_under(key: &str, domain: &str) -> bool {
    key.split_once('/').is_some_and(|(prefix, _)| {
        prefix.strip_suffix(domain).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}
