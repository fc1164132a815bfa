//! Documents to typed objects: which kinds are read, and the steps of each.

use std::collections::BTreeMap;

use croft_policy::definitions::POOL_ANNOTATION;
use kube::{Resource, ResourceExt as _};
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;

use crate::{
    check, croft_kinds,
    custom::{self, CustomTemplate, CustomWorkload},
    decode::{DecodeError, decode, decode_known},
    error::Problem,
    files::Source,
    input::Input,
    mistakes::{every_error, is_within},
    objects::Objects,
    origin::Origin,
    steps::{self, Steps},
    suggestion::closest,
    tree::{self, Node, Tree},
    unknown_fields::UnknownFields,
};

/// The document of `croft debug dump` that says when and by what the others were read. Its group isn't Croft's, whose kinds are
/// read strictly.
pub const SNAPSHOT_VERSION: &str = "debug.croft.dev/v1";
/// The kind of that document.
pub const SNAPSHOT_KIND: &str = "Snapshot";

/// API versions that Kubernetes no longer serves, and their replacements.
const REMOVED_VERSIONS: &[(&str, &str)] = &[
    ("extensions/v1beta1", "apps/v1"),
    ("apps/v1beta1", "apps/v1"),
    ("apps/v1beta2", "apps/v1"),
    ("batch/v1beta1", "batch/v1"),
    ("batch/v2alpha1", "batch/v1"),
    ("policy/v1beta1", "policy/v1"),
    ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1"),
    ("node.k8s.io/v1beta1", "node.k8s.io/v1"),
    ("storage.k8s.io/v1beta1", "storage.k8s.io/v1"),
];

/// The field of an object's name.
const NAME: &str = "metadata.name";

/// Where the pods of a workload get their annotations from.
const POD_TEMPLATES: &[(&str, &str)] = &[
    ("Deployment", "spec.template"),
    ("ReplicaSet", "spec.template"),
    ("StatefulSet", "spec.template"),
    ("DaemonSet", "spec.template"),
    ("ReplicationController", "spec.template"),
    ("Job", "spec.template"),
    ("CronJob", "spec.jobTemplate.spec.template"),
];

/// Errors and unknown fields of the objects of all files.
#[derive(Default)]
pub(crate) struct Findings {
    /// Errors.
    pub(crate) problems: Vec<Problem>,
    /// Objects of any kind, those in lists too.
    objects: usize,
    /// Fields that were left out.
    pub(crate) unknown: UnknownFields,
    /// Objects of Karpenter, by kind: the first, and the number of the others.
    pub(crate) foreign: BTreeMap<String, (String, usize)>,
    /// Places in [`Input::custom_workloads`], by group and kind, namespace, and name.
    custom: FxHashMap<[String; 3], usize>,
}

impl Findings {
    /// True if no object and no error was found.
    pub(crate) fn is_nothing(&self) -> bool {
        self.objects == 0 && self.problems.is_empty()
    }

    /// Warnings about objects that launch nodes elsewhere, and here none.
    pub(crate) fn foreign_warnings(&self) -> impl Iterator<Item = String> {
        self.foreign.values().map(|(first, others)| {
            let what = match others {
                0 => format!("{first} is Karpenter's: its nodes aren't planned here"),
                _ => format!(
                    "{first}, and {others} more of its kind, are Karpenter's: their nodes aren't planned here"
                ),
            };
            format!("{what}; croft import writes Croft's objects for them")
        })
    }
}

/// Reads the objects of one file into `input`. Namespaced objects that name no namespace get `namespace`. False if it holds
/// nothing but comments.
pub(crate) fn read(source: &Source, namespace: &str, input: &mut Input, findings: &mut Findings) -> bool {
    let mut odd = Vec::new();
    let documents = match tree::read(&source.text, &mut odd) {
        Ok(documents) => documents,
        Err(error) => {
            findings.problems.push(Problem {
                origin: Origin { file: source.file.clone(), line: error.line },
                object: String::new(),
                field: String::new(),
                message: error.message,
            });
            return true;
        }
    };
    input.warnings.extend(odd.iter().map(|o| format!("{}:{}: {}", source.file, o.line, o.message)));
    let mut reader = Reader { source, namespace, input, findings, generated: 0 };
    for document in &documents {
        reader.document(document, None);
    }
    !documents.is_empty()
}

struct Reader<'r> {
    source: &'r Source,
    namespace: &'r str,
    input: &'r mut Input,
    findings: &'r mut Findings,
    /// Names generated in this file, for objects with `generateName`.
    generated: usize,
}

impl Reader<'_> {
    /// `inherited` is the apiVersion and kind of items of a `PodList`, which needn't name them.
    fn document(&mut self, tree: &Tree, inherited: Option<(&str, &str)>) {
        if !matches!(tree.node, Node::Map(_)) {
            let message = format!("expected an object with apiVersion and kind, found {}", tree.describe());
            self.problem(tree.line, "", "", message);
            return;
        }
        let version = tree.text("apiVersion").or(inherited.map(|i| i.0));
        let kind = tree.text("kind").or(inherited.map(|i| i.1));
        let (Some(version), Some(kind)) = (version, kind) else {
            let missing = if version.is_none() { "apiVersion" } else { "kind" };
            let message = match tree.get(missing) {
                Some(value) => format!("expected a string, found {}", value.describe()),
                None => "this is required: every object says what it is".to_owned(),
            };
            self.problem(tree.line_of(missing), "", missing, message);
            return;
        };
        if let Some(item) = kind.strip_suffix("List")
            && let Some(items) = tree.get("items")
        {
            let inherited = (!item.is_empty()).then_some((version, item));
            match &items.node {
                Node::List(items) => items.iter().for_each(|item| self.document(item, inherited)),
                Node::Null => {}
                _ => self.problem(
                    items.line,
                    kind,
                    "items",
                    format!("expected a list, found {}", items.describe()),
                ),
            }
            return;
        }
        self.object(version, kind, tree);
    }

    fn object(&mut self, version: &str, kind: &str, tree: &Tree) {
        self.findings.objects += 1;
        match (version, kind) {
            ("croft.dev/v1alpha1", "Tenant") => self.put(kind, tree, |i| &mut i.tenants, croft_kinds::TENANT),
            ("croft.dev/v1alpha1", "TenantPool") => self.put(kind, tree, |i| &mut i.pools, croft_kinds::POOL),
            ("croft.dev/v1alpha1", "EC2NodeClass") => {
                self.put(kind, tree, |i| &mut i.classes, croft_kinds::CLASS)
            }
            ("croft.dev/v1alpha1", "NodeClaim") => {
                self.put(kind, tree, |i| &mut i.claims, croft_kinds::CLAIM)
            }
            ("croft.dev/v1alpha1", "CroftConfig") => {
                self.put(kind, tree, |i| &mut i.configs, croft_kinds::CONFIG)
            }
            ("v1", "Namespace") => self.put(kind, tree, |i| &mut i.namespaces, steps::NAMESPACE),
            ("v1", "Node") => self.put(kind, tree, |i| &mut i.nodes, steps::NODE),
            ("v1", "Pod") => self.put(kind, tree, |i| &mut i.pods, steps::POD),
            ("v1", "ReplicationController") => {
                self.put(kind, tree, |i| &mut i.replication_controllers, steps::REPLICATION_CONTROLLER)
            }
            ("apps/v1", "Deployment") => self.put(kind, tree, |i| &mut i.deployments, steps::DEPLOYMENT),
            ("apps/v1", "ReplicaSet") => self.put(kind, tree, |i| &mut i.replica_sets, steps::REPLICA_SET),
            ("apps/v1", "StatefulSet") => self.put(kind, tree, |i| &mut i.stateful_sets, steps::STATEFUL_SET),
            ("apps/v1", "DaemonSet") => self.put(kind, tree, |i| &mut i.daemon_sets, steps::DAEMON_SET),
            ("batch/v1", "Job") => self.put(kind, tree, |i| &mut i.jobs, steps::JOB),
            ("batch/v1", "CronJob") => self.put(kind, tree, |i| &mut i.cron_jobs, steps::CRON_JOB),
            ("v1", "PersistentVolumeClaim") => {
                self.put(kind, tree, |i| &mut i.volume_claims, steps::VOLUME_CLAIM)
            }
            ("v1", "PersistentVolume") => self.put(kind, tree, |i| &mut i.volumes, steps::VOLUME),
            ("v1", "LimitRange") => self.put(kind, tree, |i| &mut i.limit_ranges, steps::LIMIT_RANGE),
            ("policy/v1", "PodDisruptionBudget") => self.put(kind, tree, |i| &mut i.budgets, steps::BUDGET),
            ("storage.k8s.io/v1", "StorageClass") => {
                self.put(kind, tree, |i| &mut i.storage_classes, steps::STORAGE_CLASS)
            }
            ("storage.k8s.io/v1", "CSINode") => self.put(kind, tree, |i| &mut i.csi_nodes, steps::CSI_NODE),
            ("scheduling.k8s.io/v1", "PriorityClass") => {
                self.put(kind, tree, |i| &mut i.priority_classes, steps::PRIORITY_CLASS)
            }
            ("node.k8s.io/v1", "RuntimeClass") => {
                self.put(kind, tree, |i| &mut i.runtime_classes, steps::RUNTIME_CLASS)
            }
            (SNAPSHOT_VERSION, SNAPSHOT_KIND) => {
                self.input.recorded_at = tree.text("time").and_then(|time| time.parse().ok());
            }
            _ => self.other(version, kind, tree),
        }
    }

    fn other(&mut self, version: &str, kind: &str, tree: &Tree) {
        let object = named(kind, tree, None);
        if let Some((_, now)) = REMOVED_VERSIONS.iter().find(|(removed, _)| *removed == version) {
            let message = format!("the API server doesn't serve {version} any more; write apiVersion: {now}");
            self.problem(tree.line_of("apiVersion"), &object, "apiVersion", message);
            return;
        }
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if group == croft_api::GROUP {
            const KINDS: &[&str] = &["Tenant", "TenantPool", "EC2NodeClass", "NodeClaim", "CroftConfig"];
            if KINDS.contains(&kind) {
                let message =
                    format!("Croft serves {kind} as {}/{} only", croft_api::GROUP, croft_api::VERSION);
                self.problem(tree.line_of("apiVersion"), &object, "apiVersion", message);
            } else {
                let hint = closest(kind, KINDS).map(|k| format!("; did you mean {k}?")).unwrap_or_default();
                let message = format!("{} has no kind {kind}{hint}", croft_api::GROUP);
                self.problem(tree.line_of("kind"), &object, "kind", message);
            }
            return;
        }
        if matches!(group, "karpenter.sh" | "karpenter.k8s.aws" | "eks.amazonaws.com") {
            let origin = Origin { file: self.source.file.clone(), line: tree.line };
            let first = || (format!("{origin}: {object}"), 0);
            let found = self.findings.foreign.entry(kind.to_owned());
            found.and_modify(|(_, others)| *others += 1).or_insert_with(first);
        }
        match custom::templates(version, kind, tree) {
            Some(templates) => self.custom(version, kind, tree, templates),
            None => *self.input.skipped.entry(kind.to_owned()).or_default() += 1,
        }
    }

    /// An object of another controller's kind. It is kept as written: what its controller refuses isn't known here.
    fn custom(&mut self, version: &str, kind: &str, tree: &Tree, templates: Vec<CustomTemplate>) {
        let meta = tree.get("metadata");
        let text = |key: &str| meta.and_then(|m| m.text(key)).filter(|t| !t.is_empty());
        let namespaced = !custom::is_cluster_scoped(version, kind);
        let namespace = namespaced.then(|| text("namespace").unwrap_or(self.namespace).to_owned());
        let name = match (text("name"), text("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => {
                self.generated += 1;
                format!("{prefix}{}", self.generated)
            }
            (None, None) => String::new(),
        };
        let origin = Origin { file: self.source.file.clone(), line: tree.line };
        let (api_version, kind) = (version.to_owned(), kind.to_owned());
        let one = CustomWorkload { api_version, kind, namespace, name, templates, origin };
        let title = one.title();
        let without = one.templates.iter().find(|template| !template.has_annotation(POOL_ANNOTATION));
        if let Some(without) = without.filter(|_| is_annotated(tree)) {
            let said = no_annotation(&without.path);
            self.input.warnings.push(format!("{}: {title}: {said}", one.origin));
        }
        let key = [
            format!("{}/{}", custom::group_of(version), one.kind),
            one.namespace.clone().unwrap_or_default(),
            one.name.clone(),
        ];
        // Objects without a name can't be told apart.
        let place = self.findings.custom.get(&key).copied().filter(|_| !one.name.is_empty());
        match place.and_then(|place| self.input.custom_workloads.get_mut(place)) {
            Some(old) => {
                self.input.warnings.push(format!(
                    "{}: {title} is given twice; this one takes the place of that at {}",
                    one.origin, old.origin
                ));
                *old = one;
            }
            None => {
                self.findings.custom.insert(key, self.input.custom_workloads.len());
                self.input.custom_workloads.push(one);
            }
        }
    }

    fn put<T>(&mut self, kind: &str, tree: &Tree, list: fn(&mut Input) -> &mut Objects<T>, steps: Steps<T>)
    where
        T: Resource + DeserializeOwned,
    {
        let object_name = named(kind, tree, steps.namespaced.then_some(self.namespace));
        let mut unknown = Vec::new();
        let object = match self.typed(tree, &steps, &mut unknown) {
            Ok(object) => object,
            Err(errors) => {
                // One of them may be a mistyped name of the field that is missing.
                for error in unknown {
                    self.problem(error.line, &object_name, &error.field(), error.message().to_owned());
                }
                for (line, field, message) in errors {
                    self.problem(line, &object_name, &field, message);
                }
                return;
            }
        };
        for error in unknown {
            let problem =
                self.problem_at(error.line, &object_name, &error.field(), error.message().to_owned());
            self.findings.unknown.add(kind, &problem);
        }
        let origin = Origin { file: self.source.file.clone(), line: tree.line };
        self.input
            .warnings
            .extend(misplaced_pool(kind, tree).map(|said| format!("{origin}: {object_name}: {said}")));
        if let Some(earlier) = list(self.input).put(object, origin.clone()) {
            self.input.warnings.push(format!(
                "{origin}: {object_name} is given twice; this one takes the place of that at {earlier}"
            ));
        }
    }

    /// The object as the API server would store it, or its errors: line, field and message. Fields that were left out are
    /// appended to `unknown`.
    fn typed<T>(
        &mut self,
        tree: &Tree,
        steps: &Steps<T>,
        unknown: &mut Vec<DecodeError>,
    ) -> Result<T, Vec<(u32, String, String)>>
    where
        T: Resource + DeserializeOwned,
    {
        let decoded = if steps.strict { decode(tree) } else { decode_known(tree, unknown) };
        let (mistakes, object) = match decoded {
            Ok(object) => (Vec::new(), Some(object)),
            Err(first) if steps.strict => every_error(first, tree, |tree| decode(tree)),
            // The last run gets farthest, and finds the unknown fields of those before it again.
            Err(first) => every_error(first, tree, |tree| {
                unknown.clear();
                decode_known(tree, unknown)
            }),
        };
        let mut errors: Vec<(u32, String, String)> =
            mistakes.iter().map(|error| (error.line, error.field(), error.message().to_owned())).collect();
        let Some(mut object): Option<T> = object else { return Err(errors) };
        let namespace = steps.namespaced.then_some(self.namespace);
        let mut found = Vec::new();
        found.extend(
            self.name(&mut object, namespace).err().map(|(field, message)| (field.to_owned(), message)),
        );
        (steps.default)(&mut object);
        check::metadata(object.meta(), &mut found);
        (steps.check)(&object, &mut found);
        if errors.is_empty() && found.is_empty() {
            return Ok(object);
        }
        for (field, message) in found {
            // The value in place of a mistake isn't the author's, and a field has one error.
            let is_said =
                |said: &(u32, String, String)| is_within(&said.1, &field) || is_within(&field, &said.1);
            let is_repeated = |said: &(u32, String, String)| said.1 == NAME && field == NAME;
            if !errors.iter().take(mistakes.len()).any(is_said) && !errors.iter().any(is_repeated) {
                errors.push((tree.line_of(&field), field, message));
            }
        }
        errors.sort_by_key(|(line, ..)| *line);
        Err(errors)
    }

    /// Sets the namespace, and the name of an object with `generateName`.
    fn name<T: Resource>(
        &mut self,
        object: &mut T,
        namespace: Option<&str>,
    ) -> Result<(), (&'static str, String)> {
        let meta = object.meta_mut();
        match namespace {
            Some(default) => {
                if meta.namespace.as_deref().unwrap_or_default().is_empty() {
                    meta.namespace = Some(default.to_owned());
                }
            }
            // `kubectl` drops the namespace of a cluster-scoped object silently.
            None => meta.namespace = None,
        }
        if meta.name.as_deref().unwrap_or_default().is_empty() {
            match meta.generate_name.as_deref().filter(|prefix| !prefix.is_empty()) {
                Some(prefix) => {
                    self.generated += 1;
                    meta.name = Some(format!("{prefix}{}", self.generated));
                }
                None => return Err((NAME, "this is required: give the object a name".to_owned())),
            }
        }
        check::object_name(object.name_any().as_str()).map_err(|message| (NAME, message))
    }

    fn problem(&mut self, line: u32, object: &str, field: &str, message: String) {
        let problem = self.problem_at(line, object, field, message);
        self.findings.problems.push(problem);
    }

    fn problem_at(&self, line: u32, object: &str, field: &str, message: String) -> Problem {
        let origin = Origin { file: self.source.file.clone(), line };
        Problem { origin, object: object.to_owned(), field: field.to_owned(), message }
    }
}

/// Kind and name for messages, from the metadata that can be read.
fn named(kind: &str, tree: &Tree, namespace: Option<&str>) -> String {
    let meta = tree.get("metadata");
    let text = |key: &str| meta.and_then(|m| m.text(key)).filter(|t| !t.is_empty());
    let name = text("name").or_else(|| text("generateName"));
    match (name, namespace) {
        (Some(name), Some(default)) => format!("{kind} {}/{name}", text("namespace").unwrap_or(default)),
        (Some(name), None) => format!("{kind} {name}"),
        (None, _) => kind.to_owned(),
    }
}

/// A warning about a workload that asks for a pool by an annotation of its own, which its pods don't get.
fn misplaced_pool(kind: &str, tree: &Tree) -> Option<String> {
    let (_, template) = POD_TEMPLATES.iter().find(|(of, _)| *of == kind)?;
    let pod = template.split('.').try_fold(tree, Tree::get);
    (is_annotated(tree) && !pod.is_some_and(is_annotated)).then(|| no_annotation(template))
}

fn is_annotated(at: &Tree) -> bool {
    let annotations = at.get("metadata").and_then(|meta| meta.get("annotations"));
    annotations.is_some_and(|annotations| annotations.get(POOL_ANNOTATION).is_some())
}

fn no_annotation(template: &str) -> String {
    format!(
        "its pods don't get the annotation {POOL_ANNOTATION}: write it into {template}.metadata.annotations"
    )
}
