//! The scheduler's `Cluster` from an input: pools, limits, nodes, storage, namespaces, and admitted pods.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{
    NodeClaim, TenantPool,
    convert::{
        nodes::{in_flight_node, planned_node},
        scheduler as convert, static_capacity,
    },
};
use croft_manifest::{Input, InputError, Origin, Problem};
use croft_scheduler::{Cluster, ComingNode, PodKey};
use k8s_openapi::{
    api::core::v1::{Namespace, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;

use super::outcome::Denied;
use crate::{
    admission::{Admission, Outcome},
    class_types::ClassTypes,
    node_index::NodeIndex,
    workload::{PodNames, WorkloadKind, create_pods, prototype, workloads},
};

/// Inputs with more pods are refused, so that a typing mistake in `replicas` doesn't exhaust memory.
const MAX_PODS: usize = 1_000_000;

/// The scheduler's cluster, and the pods that admission refused.
pub(super) struct Demand {
    pub(super) cluster: Cluster,
    pub(super) denied: Vec<Denied>,
    pub(super) warnings: Vec<String>,
    pub(super) created: Created,
}

/// The objects that controllers would create from the input: pods after admission, and the claims of StatefulSets' pods.
#[derive(Default)]
pub(super) struct Created {
    pub(super) pods: Vec<(Pod, Origin)>,
    pub(super) volume_claims: Vec<(PersistentVolumeClaim, Origin)>,
}

/// Builds the cluster. Pods that don't exist yet go through the admission plugins and Croft's admission. They are kept in
/// [`Demand::created`] if `keep_created` is set. Without `admission`, pods and DaemonSets are as it left them, and other workloads
/// don't count.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub(super) fn build(
    input: &Input,
    types: &ClassTypes,
    admission: Option<&Admission>,
    keep_created: bool,
) -> Result<Demand, InputError> {
    let mut builder = Builder {
        cluster: Cluster::new(),
        denied: Vec::new(),
        warnings: types.warning().map(str::to_owned).into_iter().collect(),
        problems: Vec::new(),
        created: keep_created.then(Created::default),
    };
    builder.pools(input, types);
    builder.settings(input);
    builder.nodes(input, types);
    builder.storage(input);
    builder.namespaces(input);
    builder.pods(input, admission);
    builder.workloads(input, admission);
    let Builder { cluster, denied, mut warnings, problems, created } = builder;
    warnings.extend(admission.into_iter().flat_map(Admission::warnings));
    if problems.is_empty() {
        Ok(Demand { cluster, denied, warnings, created: created.unwrap_or_default() })
    } else {
        Err(InputError::Problems(problems))
    }
}

struct Builder {
    cluster: Cluster,
    denied: Vec<Denied>,
    warnings: Vec<String>,
    problems: Vec<Problem>,
    created: Option<Created>,
}

impl Builder {
    fn report(&mut self, origin: &Origin, result: Result<(), croft_scheduler::InputError>) {
        if let Err(error) = result {
            self.problems.push(Problem {
                origin: Origin { file: origin.file.clone(), line: origin.line_of(&error.field) },
                object: format!("{} {}", error.kind, error.name),
                field: error.field,
                message: error.problem,
            });
        }
    }

    fn pools(&mut self, input: &Input, types: &ClassTypes) {
        for pool in &input.pools {
            let types = |template: &TenantPool| Arc::clone(types.of_pool(template));
            let result = convert::pool(&pool.object, types).and_then(|p| self.cluster.upsert_templates(p));
            self.report(&pool.origin, result);
            for pod in static_capacity::headroom_pods(&pool.object) {
                let result = self.cluster.upsert_pod(&pod);
                self.report(&pool.origin, result);
            }
            // A pool for many tenants has no nodes: those that are made from it say so.
            let nodes = pool.spec.node_specs().filter(|_| !pool.spec.per_tenant);
            let classes = nodes.map(|nodes| &nodes.node_class_ref);
            let mut named = BTreeSet::new();
            for class in classes.filter(|class| class.group == croft_api::GROUP) {
                if input.classes.get("", &class.name).is_some() || !named.insert(&class.name) {
                    continue;
                }
                self.warnings.push(format!(
                    "TenantPool {} is simulated although its {} {} isn't in the input",
                    pool.name_any(),
                    class.kind,
                    class.name
                ));
            }
        }
        for tenant in &input.tenants {
            match convert::tenant_limits(
                &tenant.object,
                input.pools_of_tenant(tenant).map(Cow::into_owned).collect(),
            ) {
                Ok(limits) => self.cluster.upsert_tenant_limits(limits),
                Err(error) => self.report(&tenant.origin, Err(error)),
            }
        }
    }

    fn settings(&mut self, input: &Input) {
        for config in &input.configs {
            match convert::cluster_limits(&config.object) {
                Ok(limits) => self.cluster.set_limits(limits),
                Err(error) => self.report(&config.origin, Err(error)),
            }
            match convert::pods_without_requests(&config.object) {
                Ok(requests) => self.cluster.set_pods_without_requests(&requests),
                Err(error) => self.report(&config.origin, Err(error)),
            }
            self.cluster.ignore_schedulers(config.spec.ignored_schedulers.iter().map(String::as_str));
        }
    }

    fn nodes(&mut self, input: &Input, types: &ClassTypes) {
        let index = NodeIndex::new(input);
        for node in &input.nodes {
            let planned = planned_node(&node.object, index.claim_of(&node.object));
            let result = self.cluster.upsert_node(&planned);
            self.report(&node.origin, result);
        }
        for claim in &input.claims {
            if index.node_of(&claim.object).is_none() {
                self.cluster.upsert_coming(coming_node(claim, types));
            }
        }
    }

    fn storage(&mut self, input: &Input) {
        for class in &input.storage_classes {
            let result = self.cluster.upsert_storage_class(&class.object);
            self.report(&class.origin, result);
        }
        for volume in &input.volumes {
            let result = self.cluster.upsert_pv(&volume.object);
            self.report(&volume.origin, result);
        }
        for claim in &input.volume_claims {
            let result = self.cluster.upsert_pvc(&claim.object);
            self.report(&claim.origin, result);
        }
        for node in &input.csi_nodes {
            let result = self.cluster.upsert_csi_node(&node.object);
            self.report(&node.origin, result);
        }
    }

    /// A namespace that the input lacks gets the label that the API server writes on every namespace.
    fn namespaces(&mut self, input: &Input) {
        let mut named: BTreeSet<String> =
            input.pods.iter().filter_map(|p| p.metadata.namespace.clone()).collect();
        named.extend(workloads(input).into_iter().map(|w| w.namespace));
        for namespace in &input.namespaces {
            named.remove(&namespace.name_any());
            self.cluster.upsert_namespace(&namespace.object);
        }
        for name in named {
            self.cluster.upsert_namespace(&Namespace {
                metadata: ObjectMeta {
                    labels: Some(BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.clone())])),
                    name: Some(name),
                    ..ObjectMeta::default()
                },
                ..Namespace::default()
            });
        }
    }

    fn pods(&mut self, input: &Input, admission: Option<&Admission>) {
        for pod in &input.pods {
            let Some(admission) = admission.filter(|_| !is_created(&pod.object)) else {
                let result = self.cluster.upsert_pod(&convert::as_recreated(&pod.object));
                self.report(&pod.origin, result);
                continue;
            };
            match admit(&pod.object, input, admission) {
                Ok(admitted) => {
                    let result = self.cluster.upsert_pod(&admitted);
                    self.report(&pod.origin, result);
                    if let Some(created) = &mut self.created {
                        created.pods.push((admitted, pod.origin.clone()));
                    }
                }
                Err(refusal) => self.refuse(vec![key(&pod.object)], refusal),
            }
        }
    }

    fn workloads(&mut self, input: &Input, admission: Option<&Admission>) {
        let mut names = PodNames::new(input);
        let mut total = input.pods.len();
        for workload in workloads(input) {
            total = total.saturating_add(workload.missing);
            if total > MAX_PODS {
                self.problems.push(Problem {
                    origin: workload.origin.clone(),
                    object: workload.title(),
                    field: "spec.replicas".to_owned(),
                    message: format!("the input asks for more than {MAX_PODS} pods"),
                });
                return;
            }
            if let Some(set) = workload.daemon_set {
                let created = admission
                    .map_or_else(|| Ok(set.clone()), |admission| admission.create_pods_of(set, input));
                match created {
                    Ok(set) => {
                        let result = self.cluster.upsert_daemonset(&set);
                        self.report(workload.origin, result);
                    }
                    Err(refusal) => {
                        self.warnings.push(format!("{} creates no pods: {refusal}", workload.title()));
                    }
                }
                continue;
            }
            let Some(admission) = admission.filter(|_| workload.missing > 0) else { continue };
            if workload.kind == WorkloadKind::CronJob {
                self.warnings.push(format!("{} counts for one run", workload.title()));
            }
            let template_pod = prototype(&workload);
            let admitted = admit(&template_pod, input, admission);
            let (pods, claims) =
                create_pods(&workload, admitted.as_ref().unwrap_or(&template_pod), &mut names, input);
            if let Err(refusal) = admitted {
                self.refuse(pods.iter().map(key).collect(), refusal);
                continue;
            }
            for claim in claims {
                let result = self.cluster.upsert_pvc(&claim);
                self.report(workload.origin, result);
                if let Some(created) = &mut self.created {
                    created.volume_claims.push((claim, workload.origin.clone()));
                }
            }
            for pod in pods {
                let result = self.cluster.upsert_pod(&pod);
                if result.is_err() {
                    // All pods have the same template, so one error is enough.
                    self.report(workload.origin, result);
                    break;
                }
                if let Some(created) = &mut self.created {
                    created.pods.push((pod, workload.origin.clone()));
                }
            }
        }
    }

    fn refuse(&mut self, pods: Vec<PodKey>, refusal: String) {
        self.denied.push(Denied { pods, refusal });
    }
}

/// The pod as it would be stored, or the message with which it would be refused.
fn admit(pod: &Pod, input: &Input, admission: &Admission) -> Result<Pod, String> {
    let (created, verdict) = admission.create(pod, input);
    match verdict.outcome {
        Outcome::Unchanged => Ok(created),
        Outcome::Changed(changed) => Ok(*changed),
        Outcome::Denied(refusal) => Err(refusal),
    }
}

/// True for a pod that counts as one of the cluster: it is stored, or has a node.
#[must_use]
pub fn is_created(pod: &Pod) -> bool {
    is_stored(pod) || pod.spec.as_ref().is_some_and(|s| s.node_name.as_deref().is_some_and(|n| !n.is_empty()))
}

/// True for a pod that an API server has stored (it has a uid or a phase), which isn't admitted again. A manifest may name a node.
pub(crate) fn is_stored(pod: &Pod) -> bool {
    pod.metadata.uid.is_some() || pod.status.as_ref().is_some_and(|s| s.phase.is_some())
}

fn key(pod: &Pod) -> PodKey {
    PodKey::new(
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// The coming node of a claim whose Node doesn't exist yet.
pub(super) fn coming_node(claim: &NodeClaim, types: &ClassTypes) -> ComingNode {
    let types = types.of_class(&claim.spec.node_class_ref.name);
    in_flight_node(claim, |name| types.iter().find(|kind| kind.name == name))
}
