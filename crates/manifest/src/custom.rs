//! Objects of other controllers' kinds that pods are made from, such as Rollouts, JobSets and RayClusters.
//!
//! Croft reads no field of these kinds but the pod templates in them: fields whose name ends with `template`, and whose value has a
//! `spec` with `containers`. A kind that is known to make pods from fields of its own is kept without a template, so that a caller
//! can say that its pods aren't known.

use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::{
    decode::decode_known,
    defaults,
    origin::Origin,
    tree::{Node, Tree},
};

/// Kinds that make pods, by API group. Others are found by their pod templates.
const KINDS: &[(&str, &[&str])] = &[
    (
        "argoproj.io",
        &[
            "Rollout",
            "Workflow",
            "CronWorkflow",
            "WorkflowTemplate",
            "ClusterWorkflowTemplate",
            "EventSource",
            "Sensor",
        ],
    ),
    ("batch.volcano.sh", &["Job"]),
    ("jobset.x-k8s.io", &["JobSet"]),
    ("kubeflow.org", &["MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob"]),
    ("kubevirt.io", &["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"]),
    ("leaderworkerset.x-k8s.io", &["LeaderWorkerSet"]),
    ("pool.kubevirt.io", &["VirtualMachinePool"]),
    ("ray.io", &["RayCluster", "RayJob", "RayService"]),
    ("serving.knative.dev", &["Service", "Configuration", "Revision"]),
    ("sparkoperator.k8s.io", &["SparkApplication", "ScheduledSparkApplication", "SparkConnect"]),
    ("tekton.dev", &["PipelineRun", "TaskRun"]),
    ("trainer.kubeflow.org", &["TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"]),
];

/// Kinds of [`KINDS`] without a namespace. Their pods are created in the namespaces of the objects that name them.
const CLUSTER_SCOPED: [&str; 2] = ["ClusterWorkflowTemplate", "ClusterTrainingRuntime"];

/// A kind that holds copies of templates, and of which no controller makes pods.
const COPIES: (&str, &str) = ("apps", "ControllerRevision");

/// An object of a kind that Croft doesn't read, and whose controller creates pods.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CustomWorkload {
    /// `apiVersion`, such as `argoproj.io/v1alpha1`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// Its namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// `metadata.name`; empty if there is none.
    pub name: String,
    /// The pod templates in it, in the order of the file.
    pub templates: Vec<CustomTemplate>,
    /// Where it was read.
    pub origin: Origin,
}

/// A pod template in an object of another controller's kind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CustomTemplate {
    /// Its path, such as `spec.template`.
    pub path: String,
    /// The template with the API server's defaults; or the path and message of a value that no pod template can have.
    pub template: Result<PodTemplateSpec, String>,
}

impl CustomWorkload {
    /// Kind, group, namespace and name, for messages: `Rollout.argoproj.io shop/web`. Other groups have a Service or a Job, too.
    #[must_use]
    pub fn title(&self) -> String {
        let group = group_of(&self.api_version);
        let dot = if group.is_empty() { "" } else { "." };
        let Self { kind, namespace, name, .. } = self;
        match namespace {
            Some(namespace) => format!("{kind}{dot}{group} {namespace}/{name}"),
            None => format!("{kind}{dot}{group} {name}"),
        }
    }
}

impl CustomTemplate {
    /// True if pods of the template get the annotation `key`, or if that isn't known.
    pub(crate) fn has_annotation(&self, key: &str) -> bool {
        let Ok(template) = &self.template else { return true };
        let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        annotations.is_some_and(|annotations| annotations.contains_key(key))
    }
}

/// The part of `apiVersion` before the slash; empty for the core group.
pub(crate) fn group_of(version: &str) -> &str {
    version.split_once('/').map_or("", |(group, _)| group)
}

/// True for a kind of which every object has no namespace.
pub(crate) fn is_cluster_scoped(version: &str, kind: &str) -> bool {
    CLUSTER_SCOPED.contains(&kind) && is_known(version, kind)
}

fn is_known(version: &str, kind: &str) -> bool {
    let group = group_of(version);
    KINDS.iter().any(|(of, kinds)| *of == group && kinds.contains(&kind))
}

/// The pod templates in an object of a kind that Croft doesn't read; `None` if no pods are made from it, as far as is known.
pub(crate) fn templates(version: &str, kind: &str, object: &Tree) -> Option<Vec<CustomTemplate>> {
    if (group_of(version), kind) == COPIES {
        return None;
    }
    let mut found = Vec::new();
    if let Node::Map(fields) = &object.node {
        // The status of a controller's object may repeat its template.
        for field in fields.iter().filter(|field| !matches!(field.key.as_str(), "metadata" | "status")) {
            search(&field.key, &field.key, &field.value, &mut found);
        }
    }
    (!found.is_empty() || is_known(version, kind)).then_some(found)
}

/// Appends the templates in the value of the field `key` at `path`. The reader of YAML bounds the depth.
fn search(key: &str, path: &str, value: &Tree, found: &mut Vec<CustomTemplate>) {
    match &value.node {
        Node::Map(_) if is_template(key, value) => {
            found.push(CustomTemplate { path: path.to_owned(), template: read(path, value) });
        }
        Node::Map(fields) => {
            fields.iter().for_each(|one| search(&one.key, &format!("{path}.{}", one.key), &one.value, found));
        }
        Node::List(items) => {
            items.iter().enumerate().for_each(|(i, one)| search("", &format!("{path}[{i}]"), one, found));
        }
        _ => {}
    }
}

fn is_template(key: &str, value: &Tree) -> bool {
    let containers = value.get("spec").and_then(|spec| spec.get("containers"));
    key.to_ascii_lowercase().ends_with("template")
        && containers.is_some_and(|containers| matches!(containers.node, Node::List(_)))
}

/// Fields that pods lack are the controller's own, such as `containerConcurrency` of Knative.
fn read(path: &str, tree: &Tree) -> Result<PodTemplateSpec, String> {
    let mut template: PodTemplateSpec =
        decode_known(tree, &mut Vec::new()).map_err(|error| format!("{path}.{error}"))?;
    if let Some(spec) = &mut template.spec {
        defaults::pod_spec(spec);
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn found(text: &str) -> Option<Vec<(String, bool)>> {
        let tree = tree::read(text, &mut Vec::new()).unwrap().pop().unwrap();
        let (version, kind) = (tree.text("apiVersion").unwrap(), tree.text("kind").unwrap());
        let all = templates(version, kind, &tree)?;
        Some(all.into_iter().map(|one| (one.path, one.template.is_ok())).collect())
    }

    fn paths(paths: &[&str]) -> Option<Vec<(String, bool)>> {
        Some(paths.iter().map(|path| ((*path).to_owned(), true)).collect())
    }

    #[test]
    fn pod_templates_are_found_at_any_depth_with_their_path() {
        const POD: &str = "{spec: {containers: [{name: a, image: a}]}}";
        for (head, spec, expected) in [
            ("argoproj.io/v1alpha1, kind: Rollout", format!("{{template: {POD}}}"), vec!["spec.template"]),
            (
                "jobset.x-k8s.io/v1alpha2, kind: JobSet",
                format!("{{replicatedJobs: [{{name: a, template: {{spec: {{template: {POD}}}}}}}]}}"),
                vec!["spec.replicatedJobs[0].template.spec.template"],
            ),
            (
                "batch.volcano.sh/v1alpha1, kind: Job",
                format!("{{tasks: [{{template: {POD}}}, {{template: {POD}}}]}}"),
                vec!["spec.tasks[0].template", "spec.tasks[1].template"],
            ),
            (
                "kubeflow.org/v1, kind: PyTorchJob",
                format!("{{pytorchReplicaSpecs: {{Master: {{template: {POD}}}}}}}"),
                vec!["spec.pytorchReplicaSpecs.Master.template"],
            ),
            (
                "example.com/v1, kind: Unknown",
                format!("{{leaderTemplate: {POD}}}"),
                vec!["spec.leaderTemplate"],
            ),
            ("kubevirt.io/v1, kind: VirtualMachine", "{template: {spec: {domain: {}}}}".to_owned(), vec![]),
            ("tekton.dev/v1, kind: TaskRun", "{podTemplate: {nodeSelector: {a: b}}}".to_owned(), vec![]),
        ] {
            let text = format!("{{apiVersion: {head}, spec: {spec}, status: {{template: {POD}}}}}");
            assert_eq!(found(&text), paths(&expected), "{text}");
        }
    }

    #[test]
    fn kind_without_templates_and_copies_of_templates_are_left_out() {
        for text in [
            "{apiVersion: v1, kind: ConfigMap, data: {template: 'spec: {containers: []}'}}",
            "{apiVersion: example.com/v1, kind: Rollout, spec: {template: {spec: {replicas: 1}}}}",
            "{apiVersion: apps/v1, kind: ControllerRevision, data: {spec: {template: {spec: {containers: []}}}}}",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn fields_of_the_controllers_own_are_passed_over_and_wrong_values_named() {
        let service = "{apiVersion: serving.knative.dev/v1, kind: Service, spec: {template: {spec: \
                       {containerConcurrency: 5, containers: [{image: a}]}}}}";
        assert_eq!(found(service), paths(&["spec.template"]));
        let text = "{template: {spec: {containers: [{name: a, resources: {requests: {cpu: '{{cpu}}'}}}]}}}";
        let tree = tree::read(text, &mut Vec::new()).unwrap().pop().unwrap();
        let all = templates("v1", "Any", &tree).unwrap();
        let message = all[0].template.as_ref().unwrap_err();
        let start = "template.spec.containers[0].resources.requests.cpu: \"{{cpu}}\" isn't a quantity";
        assert!(message.starts_with(start), "{message}");
    }
}
