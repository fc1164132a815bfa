//! From the input to what the scheduler reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{
    NodeClaim,
    convert::{scheduler as convert, static_capacity},
};
use croft_scheduler::{CapacityType, Cluster, ComingNode, InstanceType, PodKey, Quantity, Resources};
use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;

use super::Denied;
use crate::{
    admission::{Gate, Outcome},
    input::{Input, InputError, Origin, Problem, Sourced, builtin},
    workload::{Names, make, workloads},
};

/// More pods than this aren't simulated: a plan for them would help nobody, and a typing mistake shouldn't take
/// all memory.
const MAX_PODS: usize = 1_000_000;

/// The cluster and what admission refused.
pub(super) struct Demand {
    pub(super) cluster: Cluster,
    pub(super) denied: Vec<Denied>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn build(input: &Input, types: &Arc<[InstanceType]>) -> Result<Demand, InputError> {
    let gate = Gate::new(input)?;
    let mut building =
        Building { cluster: Cluster::new(), denied: Vec::new(), warnings: Vec::new(), problems: Vec::new() };
    building.pools(input, types);
    building.limits(input);
    building.nodes(input, types);
    building.storage(input);
    building.namespaces(input);
    building.pods(input, &gate);
    building.workloads(input, &gate);
    let Building { cluster, denied, mut warnings, problems } = building;
    warnings.extend(gate.warnings());
    if problems.is_empty() {
        Ok(Demand { cluster, denied, warnings })
    } else {
        Err(InputError::Problems(problems))
    }
}

struct Building {
    cluster: Cluster,
    denied: Vec<Denied>,
    warnings: Vec<String>,
    problems: Vec<Problem>,
}

impl Building {
    fn note(&mut self, origin: &Origin, result: Result<(), croft_scheduler::InputError>) {
        if let Err(error) = result {
            self.problems.push(Problem {
                origin: Origin { file: origin.file.clone(), line: origin.line_of(&error.field) },
                object: format!("{} {}", error.kind, error.name),
                field: error.field,
                message: error.problem,
            });
        }
    }

    fn pools(&mut self, input: &Input, types: &Arc<[InstanceType]>) {
        for pool in &input.pools {
            let result =
                convert::pool(&pool.object, Arc::clone(types)).and_then(|p| self.cluster.upsert_pool(p));
            self.note(&pool.origin, result);
            for place in static_capacity::headroom_pods(&pool.object) {
                let result = self.cluster.upsert_pod(&place);
                self.note(&pool.origin, result);
            }
            let class = pool.spec.template.as_ref().map(|t| &t.spec.node_class_ref);
            if let Some(class) = class
                && class.group == croft_api::GROUP
                && input.classes.get("", &class.name).is_none()
            {
                self.warnings.push(format!(
                    "TenantPool {} is simulated although its {} {} isn't in the input",
                    pool.name_any(),
                    class.kind,
                    class.name
                ));
            }
        }
        for tenant in &input.tenants {
            match convert::tenant_limits(&tenant.object) {
                Ok(limits) => self.cluster.upsert_tenant_limits(limits),
                Err(error) => self.note(&tenant.origin, Err(error)),
            }
        }
    }

    fn limits(&mut self, input: &Input) {
        for config in &input.configs {
            match convert::cluster_limits(&config.object) {
                Ok(limits) => self.cluster.set_limits(limits),
                Err(error) => self.note(&config.origin, Err(error)),
            }
        }
    }

    fn nodes(&mut self, input: &Input, types: &Arc<[InstanceType]>) {
        for node in &input.nodes {
            let result = self.cluster.upsert_node(&node.object);
            self.note(&node.origin, result);
        }
        for claim in &input.claims {
            let is_there = input.nodes.iter().any(|node| belongs(node, claim));
            if !is_there && claim.metadata.deletion_timestamp.is_none() {
                self.cluster.upsert_coming(coming(&claim.object, types));
            }
        }
    }

    fn storage(&mut self, input: &Input) {
        for class in &input.storage_classes {
            let result = self.cluster.upsert_storage_class(&class.object);
            self.note(&class.origin, result);
        }
        for volume in &input.volumes {
            let result = self.cluster.upsert_pv(&volume.object);
            self.note(&volume.origin, result);
        }
        for claim in &input.volume_claims {
            let result = self.cluster.upsert_pvc(&claim.object);
            self.note(&claim.origin, result);
        }
        for node in &input.csi_nodes {
            let result = self.cluster.upsert_csi_node(&node.object);
            self.note(&node.origin, result);
        }
    }

    /// A namespace that no file holds has the one label that the API server gives every namespace.
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

    fn pods(&mut self, input: &Input, gate: &Gate) {
        for pod in &input.pods {
            if is_created(&pod.object) {
                let result = self.cluster.upsert_pod(&convert::as_recreated(&pod.object));
                self.note(&pod.origin, result);
                continue;
            }
            match admit(&pod.object, input, gate) {
                Ok(admitted) => {
                    let result = self.cluster.upsert_pod(&admitted);
                    self.note(&pod.origin, result);
                }
                Err(refusal) => self.refuse(vec![key(&pod.object)], refusal),
            }
        }
    }

    fn workloads(&mut self, input: &Input, gate: &Gate) {
        let mut names = Names::new(input);
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
                let result = match gate.daemon_set(set).outcome {
                    Outcome::Unchanged => self.cluster.upsert_daemonset(set),
                    Outcome::Changed(changed) => self.cluster.upsert_daemonset(&changed),
                    Outcome::Denied(refusal) => {
                        self.warnings.push(format!("{} makes no pods: {refusal}", workload.title()));
                        continue;
                    }
                };
                self.note(workload.origin, result);
                continue;
            }
            if workload.missing == 0 {
                continue;
            }
            if workload.kind == crate::workload::Kind::CronJob {
                self.warnings.push(format!("{} counts for one run", workload.title()));
            }
            let prototype = workload.prototype();
            let admitted = admit(&prototype, input, gate);
            let (pods, claims) = make(&workload, admitted.as_ref().unwrap_or(&prototype), &mut names, input);
            if let Err(refusal) = admitted {
                self.refuse(pods.iter().map(key).collect(), refusal);
                continue;
            }
            for claim in claims {
                let result = self.cluster.upsert_pvc(&claim);
                self.note(workload.origin, result);
            }
            for pod in pods {
                let result = self.cluster.upsert_pod(&pod);
                if result.is_err() {
                    // The pods are alike: what is wrong with one is wrong with the template.
                    self.note(workload.origin, result);
                    break;
                }
            }
        }
    }

    fn refuse(&mut self, pods: Vec<PodKey>, refusal: String) {
        self.denied.push(Denied { pods, refusal });
    }
}

/// The pod as it would be once created, or the words with which it would be refused.
fn admit(pod: &Pod, input: &Input, gate: &Gate) -> Result<Pod, String> {
    let mut created = pod.clone();
    builtin::admit(&mut created, input)?;
    match gate.pod(&created).outcome {
        Outcome::Unchanged => Ok(created),
        Outcome::Changed(changed) => Ok(*changed),
        Outcome::Denied(refusal) => Err(refusal),
    }
}

/// A pod that a cluster holds already (it has a uid, or a node) isn't admitted again.
pub(crate) fn is_created(pod: &Pod) -> bool {
    pod.metadata.uid.is_some()
        || pod.status.as_ref().is_some_and(|s| s.phase.is_some())
        || pod.spec.as_ref().is_some_and(|s| s.node_name.as_deref().is_some_and(|n| !n.is_empty()))
}

fn key(pod: &Pod) -> PodKey {
    PodKey::new(
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// The node is the claim's machine: same provider id, or the name that the cloud gave it.
pub(crate) fn belongs(node: &Sourced<k8s_openapi::api::core::v1::Node>, claim: &Sourced<NodeClaim>) -> bool {
    let Some(status) = &claim.status else { return false };
    let id = node.spec.as_ref().and_then(|s| s.provider_id.as_deref());
    match (&status.provider_id, id) {
        (Some(ours), Some(its)) => ours == its,
        _ => status.node_name.is_some() && status.node_name == node.metadata.name,
    }
}

/// A claim without its Node is a node that is on its way.
fn coming(claim: &NodeClaim, types: &Arc<[InstanceType]>) -> ComingNode {
    let spec = &claim.spec;
    let status = claim.status.clone().unwrap_or_default();
    let first = |list: &[String]| list.first().cloned().unwrap_or_default();
    let instance_type = status.instance_type.clone().unwrap_or_else(|| first(&spec.instance_types));
    let zone = status.zone.clone().unwrap_or_else(|| first(&spec.zones));
    let capacity_type = status.capacity_type.clone().unwrap_or_else(|| spec.capacity_type.clone());
    let known = types.iter().find(|t| t.name == instance_type);
    let amounts = |given: &BTreeMap<String, croft_api::amount::Amount>, catalogued: Option<Resources>| {
        if given.is_empty() {
            return catalogued.unwrap_or_default();
        }
        let mut amounts = Resources::new();
        for (name, amount) in given {
            if let Ok(quantity) = amount.0.parse::<Quantity>() {
                amounts.set_quantity(name, quantity);
            }
        }
        amounts
    };
    let mut labels = known.map(|t| t.labels.clone()).unwrap_or_default();
    labels.extend(spec.labels.clone());
    for (label, value) in [
        ("node.kubernetes.io/instance-type", instance_type.as_str()),
        ("topology.kubernetes.io/zone", zone.as_str()),
        ("karpenter.sh/capacity-type", capacity_type.as_str()),
        ("kubernetes.io/arch", known.map_or("", |t| t.arch.as_str())),
        ("kubernetes.io/os", known.and_then(|t| t.os.first()).map_or("linux", String::as_str)),
    ] {
        if !value.is_empty() {
            labels.entry(label.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    ComingNode {
        claim: claim.name_any(),
        pool: spec.pool.clone(),
        capacity_type: CapacityType::parse(&capacity_type).unwrap_or_default(),
        labels,
        taints: spec.taints.clone(),
        allocatable: amounts(&status.allocatable, known.map(InstanceType::allocatable)),
        capacity: amounts(&status.capacity, known.map(|t| t.capacity.clone())),
        instance_type,
        zone,
    }
}
