//! The result of an import.

use croft_manifest::{Problem, prune};
use serde_json::{Map, Value, json};

use super::fields::{Fields, Report};
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
/// The annotation that both Karpenter and Croft read.
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Croft's objects, and notes on objects that nothing was made of.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) objects: Vec<ImportedObject>,
    pub(super) notes: Vec<String>,
    /// Pools that no Tenant of the input uses.
    pub(super) without_tenant: Vec<String>,
    /// Values that no API server has stored.
    pub(super) problems: Vec<Problem>,
}

/// An object of Croft's, and notes on what was left out.
#[derive(Clone, Debug)]
pub(super) struct ImportedObject {
    pub(super) value: Value,
    pub(super) notes: Vec<String>,
}

impl ImportedObject {
    /// An object without the fields that its CRD doesn't have. Each of these gets a note that names `source`, and so does each
    /// value that the API server would refuse.
    pub(super) fn new(
        (kind, name): (&str, &str),
        metadata: Map<String, Value>,
        spec: Value,
        (source, mut notes): (&str, Vec<String>),
    ) -> Self {
        let mut value = croft_object(kind, name, spec);
        if let Some(own) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            own.extend(metadata);
        }
        let pruned = prune(kind, &mut value);
        for (path, value) in pruned.dropped {
            notes.push(format!("{source}: {path} isn't carried over, Croft has no such field: {value}"));
        }
        for (path, message) in pruned.errors {
            notes.push(format!("correct by hand: {path}: {message}"));
        }
        Self { value, notes }
    }
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
            report.note(format_args!("the finalizer {finalizer} isn't carried over"));
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
