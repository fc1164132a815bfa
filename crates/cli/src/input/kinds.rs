//! From documents to typed objects: which kinds there are, and what each goes through.

use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

use super::{
    Input, LoadOptions, Objects, Origin, Problem, check, crd,
    decode::decode,
    defaults,
    files::Source,
    tree::{self, Node, Tree},
};

/// API versions of kinds that Kubernetes served once, and what took their place.
const GONE: &[(&str, &str)] = &[
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

/// Reads the objects of one file into `input`.
pub(super) fn read(source: &Source, options: &LoadOptions, input: &mut Input, problems: &mut Vec<Problem>) {
    let mut odd = Vec::new();
    let documents = match tree::read(&source.text, &mut odd) {
        Ok(documents) => documents,
        Err(error) => {
            problems.push(Problem {
                origin: Origin { file: source.file.clone(), line: error.line },
                object: String::new(),
                field: String::new(),
                message: error.message,
            });
            return;
        }
    };
    input.warnings.extend(odd.iter().map(|o| format!("{}:{}: {}", source.file, o.line, o.message)));
    let mut reader = Reader { source, options, input, problems, generated: 0 };
    for document in &documents {
        reader.document(document, None);
    }
}

struct Reader<'r> {
    source: &'r Source,
    options: &'r LoadOptions,
    input: &'r mut Input,
    problems: &'r mut Vec<Problem>,
    /// How many names had to be made up in this file.
    generated: usize,
}

/// What an object of a kind goes through after it is decoded.
pub(super) struct Steps<T> {
    pub(super) namespaced: bool,
    pub(super) default: fn(&mut T),
    pub(super) check: fn(&T, &mut Vec<(String, String)>),
}

impl<T> Steps<T> {
    pub(super) const CLUSTER: Self = Self { namespaced: false, default: |_| {}, check: |_, _| {} };
    pub(super) const NAMESPACED: Self = Self { namespaced: true, ..Self::CLUSTER };
}

impl Reader<'_> {
    /// `inherited` is what the items of a `PodList` are, which needn't say so themselves.
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
        match (version, kind) {
            ("croft.dev/v1alpha1", "Tenant") => self.put(kind, tree, |i| &mut i.tenants, crd::TENANT),
            ("croft.dev/v1alpha1", "TenantPool") => self.put(kind, tree, |i| &mut i.pools, crd::POOL),
            ("croft.dev/v1alpha1", "EC2NodeClass") => self.put(kind, tree, |i| &mut i.classes, crd::CLASS),
            ("croft.dev/v1alpha1", "NodeClaim") => self.put(kind, tree, |i| &mut i.claims, crd::CLAIM),
            ("croft.dev/v1alpha1", "CroftConfig") => self.put(kind, tree, |i| &mut i.configs, crd::CONFIG),
            ("v1", "Namespace") => self.put(
                kind,
                tree,
                |i| &mut i.namespaces,
                Steps { default: check::name_label, ..Steps::CLUSTER },
            ),
            ("v1", "Node") => {
                self.put(kind, tree, |i| &mut i.nodes, Steps { check: check::node, ..Steps::CLUSTER })
            }
            ("v1", "Pod") => self.put(
                kind,
                tree,
                |i| &mut i.pods,
                Steps { default: defaults::pod, check: check::pod, ..Steps::NAMESPACED },
            ),
            ("v1", "ReplicationController") => self.put(
                kind,
                tree,
                |i| &mut i.replication_controllers,
                Steps {
                    default: defaults::replication_controller,
                    check: check::replication_controller,
                    ..Steps::NAMESPACED
                },
            ),
            ("apps/v1", "Deployment") => self.put(
                kind,
                tree,
                |i| &mut i.deployments,
                Steps { default: defaults::deployment, check: check::deployment, ..Steps::NAMESPACED },
            ),
            ("apps/v1", "ReplicaSet") => self.put(
                kind,
                tree,
                |i| &mut i.replica_sets,
                Steps { default: defaults::replica_set, check: check::replica_set, ..Steps::NAMESPACED },
            ),
            ("apps/v1", "StatefulSet") => self.put(
                kind,
                tree,
                |i| &mut i.stateful_sets,
                Steps { default: defaults::stateful_set, check: check::stateful_set, ..Steps::NAMESPACED },
            ),
            ("apps/v1", "DaemonSet") => self.put(
                kind,
                tree,
                |i| &mut i.daemon_sets,
                Steps { default: defaults::daemon_set, check: check::daemon_set, ..Steps::NAMESPACED },
            ),
            ("batch/v1", "Job") => self.put(
                kind,
                tree,
                |i| &mut i.jobs,
                Steps { default: defaults::job, check: check::job, ..Steps::NAMESPACED },
            ),
            ("batch/v1", "CronJob") => self.put(
                kind,
                tree,
                |i| &mut i.cron_jobs,
                Steps { default: defaults::cron_job, check: check::cron_job, ..Steps::NAMESPACED },
            ),
            ("v1", "PersistentVolumeClaim") => {
                self.put(kind, tree, |i| &mut i.volume_claims, Steps::NAMESPACED)
            }
            ("v1", "PersistentVolume") => self.put(kind, tree, |i| &mut i.volumes, Steps::CLUSTER),
            ("v1", "LimitRange") => self.put(kind, tree, |i| &mut i.limit_ranges, Steps::NAMESPACED),
            ("policy/v1", "PodDisruptionBudget") => {
                self.put(kind, tree, |i| &mut i.budgets, Steps::NAMESPACED)
            }
            ("storage.k8s.io/v1", "StorageClass") => {
                self.put(kind, tree, |i| &mut i.storage_classes, Steps::CLUSTER)
            }
            ("storage.k8s.io/v1", "CSINode") => self.put(kind, tree, |i| &mut i.csi_nodes, Steps::CLUSTER),
            ("scheduling.k8s.io/v1", "PriorityClass") => {
                self.put(kind, tree, |i| &mut i.priority_classes, Steps::CLUSTER)
            }
            ("node.k8s.io/v1", "RuntimeClass") => {
                self.put(kind, tree, |i| &mut i.runtime_classes, Steps::CLUSTER)
            }
            _ => self.other(version, kind, tree),
        }
    }

    fn other(&mut self, version: &str, kind: &str, tree: &Tree) {
        let object = named(kind, tree, None);
        if let Some((_, now)) = GONE.iter().find(|(gone, _)| *gone == version) {
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
                let hint =
                    super::closest(kind, KINDS).map(|k| format!("; did you mean {k}?")).unwrap_or_default();
                let message = format!("{} has no kind {kind}{hint}", croft_api::GROUP);
                self.problem(tree.line_of("kind"), &object, "kind", message);
            }
            return;
        }
        *self.input.passed_over.entry(kind.to_owned()).or_default() += 1;
    }

    fn put<'t, T>(
        &mut self,
        kind: &str,
        tree: &'t Tree,
        list: fn(&mut Input) -> &mut Objects<T>,
        steps: Steps<T>,
    ) where
        T: Resource + Deserialize<'t>,
    {
        let namespace = steps.namespaced.then_some(self.options.namespace.as_str());
        let object_name = named(kind, tree, namespace);
        let mut object: T = match decode(tree) {
            Ok(object) => object,
            Err(error) => {
                self.problem(error.line, &object_name, &error.field(), error.message().to_owned());
                return;
            }
        };
        if let Err((field, message)) = self.name(&mut object, namespace) {
            self.problem(tree.line_of(field), &object_name, field, message);
            return;
        }
        (steps.default)(&mut object);
        let mut wrong = Vec::new();
        check::metadata(object.meta(), &mut wrong);
        (steps.check)(&object, &mut wrong);
        if !wrong.is_empty() {
            wrong.sort_by_key(|(field, _)| tree.line_of(field));
            for (field, message) in wrong {
                self.problem(tree.line_of(&field), &object_name, &field, message);
            }
            return;
        }
        let origin = Origin { file: self.source.file.clone(), line: tree.line };
        if let Some(earlier) = list(self.input).put(object, origin.clone()) {
            self.input.warnings.push(format!(
                "{origin}: {object_name} is given twice; this one takes the place of that at {earlier}"
            ));
        }
    }

    /// Gives the object its namespace, and a name where it leaves that to the API server.
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
            // `kubectl` drops the namespace of a cluster-scoped object without a word.
            None => meta.namespace = None,
        }
        if meta.name.as_deref().unwrap_or_default().is_empty() {
            match meta.generate_name.as_deref().filter(|prefix| !prefix.is_empty()) {
                Some(prefix) => {
                    self.generated += 1;
                    meta.name = Some(format!("{prefix}{}", self.generated));
                }
                None => return Err(("metadata.name", "this is required: give the object a name".to_owned())),
            }
        }
        check::object_name(object.name_any().as_str()).map_err(|message| ("metadata.name", message))
    }

    fn problem(&mut self, line: u32, object: &str, field: &str, message: String) {
        self.problems.push(Problem {
            origin: Origin { file: self.source.file.clone(), line },
            object: object.to_owned(),
            field: field.to_owned(),
            message,
        });
    }
}

/// Kind and name as messages give them, from whatever of the metadata can be read.
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
