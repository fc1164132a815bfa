//! Turns a plan into claims, nominations and events.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{
    NodeClaimSpec, TenantPool,
    amount::Amount,
    convert::declared,
    definitions::FINALIZER,
    drift,
    pool::{self, NodeClassRef},
};
use croft_scheduler::{
    CapacityType, InstanceType, LIMIT_COST, LIMIT_NODES, LimitOwner, Operator, Plan, PlannedInstance, PodKey,
    Price, ReachedLimit, Reason, ReasonKind, Requirement,
};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::json;

use crate::{
    action::{NewClaim, NewClaims, UserEvent},
    definitions::{conditions as reasons, events, keys},
    nodeclaim::launch_backoff::{FailedLaunches, launched_for},
    provisioning::requirements::{follows_from_instance, unmet_requirements},
    state::{Snapshot, is_accepted},
};

/// The longest note of an Event that the API server accepts, in bytes.
const NOTE_BYTES: usize = 1000;

/// The effects of a plan.
#[derive(Debug, Default)]
pub struct ProvisioningPlan {
    /// Claims to create, by pool.
    pub claims: Vec<NewClaims>,
    /// Pods and the claims that they are nominated to.
    pub nominations: Vec<(PodKey, String)>,
    /// Why pods stay pending, and which claims others wait for.
    pub events: Vec<UserEvent>,
}

/// Turns `plan` into claims. Instances of deleted pools are left out.
#[must_use]
pub fn provision(snapshot: &Snapshot, plan: &Plan) -> ProvisioningPlan {
    let mut result = ProvisioningPlan::default();
    let mut by_pool: BTreeMap<&str, Vec<&PlannedInstance>> = BTreeMap::new();
    for instance in &plan.instances {
        by_pool.entry(&instance.pool).or_default().push(instance);
    }
    for (pool_name, instances) in by_pool {
        let Some(pool) = snapshot.pools().get(pool_name) else { continue };
        if snapshot.is_ending(pool_name, pool) || !is_accepted(pool) {
            continue;
        }
        let failed = FailedLaunches::of(snapshot, pool);
        let instances = failed.limit_probes(instances);
        if instances.is_empty() {
            continue;
        }
        let launched_for = launched_for(snapshot, pool);
        let mut templates: BTreeMap<&str, Option<Template<'_>>> = BTreeMap::new();
        let first = pool.status.as_ref().and_then(|s| s.claim_counter).unwrap_or(0);
        let mut counter = first;
        let uid = pool.metadata.uid.as_deref().unwrap_or_default();
        let mut claims = Vec::with_capacity(instances.len());
        for instance in instances {
            let template = templates
                .entry(&instance.template)
                .or_insert_with(|| Template::of(snapshot, pool_name, &instance.template));
            let Some(template) = template else { continue };
            let unmet = unmet_requirements(template.pool, instance, &template.types);
            if !unmet.is_empty() {
                result
                    .events
                    .extend(instance.pods.iter().map(|pod| unmet_event(snapshot, pod, pool_name, &unmet)));
                continue;
            }
            counter = counter.saturating_add(1);
            let name = keys::claim_name(pool_name, uid, counter);
            for pod in &instance.pods {
                result.nominations.push((pod.clone(), name.clone()));
                result.events.extend(nominated_event(snapshot, pod, &name, instance));
            }
            let mut spec = template.claim_spec(instance);
            let planned = &instance.instance_type;
            spec.instance_types.retain(|kind| kind == planned || !failed.has(instance, kind));
            let annotations =
                [(keys::LAUNCHED_WITH, template.stamp.as_ref()), (keys::LAUNCHED_FOR, Some(&launched_for))];
            claims.push(NewClaim { object: claim_object(&name, &spec, pool, annotations), name, spec });
        }
        if claims.is_empty() {
            continue;
        }
        result.claims.push(NewClaims {
            pool: pool_name.to_owned(),
            pool_version: pool.metadata.resource_version.clone(),
            counter,
            claims,
        });
    }
    for placement in &plan.existing {
        if placement.coming {
            result.nominations.extend(placement.pods.iter().map(|pod| (pod.clone(), placement.node.clone())));
        }
    }
    let jobs = waiting_jobs(snapshot, plan);
    for left in plan.unschedulable.iter().filter(|left| !Snapshot::is_headroom(&left.pod)) {
        let job = job_of(snapshot, &left.pod).and_then(|(owner, name)| Some((name, jobs.get(owner)?)));
        let siblings = job.and_then(|(name, job)| job.describe(name));
        result.events.extend(pending_event(snapshot, &left.pod, &left.reasons, siblings.as_deref()));
    }
    result
}

/// A template of a pool, and what its launches need.
struct Template<'a> {
    /// The pool as the template describes it.
    pool: &'a Arc<TenantPool>,
    class: &'a NodeClassRef,
    types: Arc<[InstanceType]>,
    /// The hashes of what its claims are launched with, once the class is known.
    stamp: Option<String>,
    /// Resources that some limit counts for it.
    limited: BTreeSet<String>,
}

impl<'a> Template<'a> {
    /// The template of this name, which is empty for the only one of a pool; `None` if it is gone.
    fn of(snapshot: &'a Snapshot, pool_name: &str, name: &str) -> Option<Self> {
        let pool = snapshot.template(pool_name, Some(name).filter(|name| !name.is_empty()))?;
        let template = &pool.spec.template.as_ref()?.spec;
        let class = &template.node_class_ref;
        let state = snapshot.classes().get(&class.name);
        let types = state.and_then(|c| c.types.clone()).unwrap_or_default();
        let whole = snapshot.pools().get(pool_name)?;
        let own = whole.spec.templates.iter().filter(|template| template.name == name);
        let mut limited = limited_resources(snapshot, pool_name, pool);
        limited.extend(own.flat_map(|template| template.limits.keys().cloned()));
        Some(Self {
            pool,
            class,
            types: declared::instance_types(types, &template.resources),
            stamp: state.map(|c| drift::stamp(pool, &c.object)),
            limited,
        })
    }

    fn claim_spec(&self, instance: &PlannedInstance) -> NodeClaimSpec {
        let template = self.pool.spec.template.as_ref();
        let planned = self.types.iter().find(|t| t.name == instance.instance_type);
        let mut labels = instance.labels.clone();
        // Labels of the instance are known only once it is launched.
        labels.retain(|key, _| !follows_from_instance(key, planned));
        NodeClaimSpec {
            pool: instance.pool.clone(),
            node_class_ref: self.class.clone(),
            instance_types: alternatives(instance, &self.types, &self.limited),
            zones: instance.zones.clone(),
            capacity_type: instance.capacity_type.as_str().to_owned(),
            requirements: instance.requirements.iter().map(to_requirement).collect(),
            requests: to_amounts(&instance.requests),
            taints: instance.taints.clone(),
            startup_taints: instance.startup_taints.clone(),
            labels,
            resources: template.map(|t| t.spec.resources.clone()).unwrap_or_default(),
            termination_grace_period: template.and_then(|t| t.spec.termination_grace_period.clone()),
        }
    }
}

/// Pods of a Job of which some wait for a limit.
struct WaitingJob {
    /// All of them, finished ones included.
    pods: usize,
    waiting: usize,
    /// The limits, in words.
    limits: BTreeSet<String>,
}

impl WaitingJob {
    /// How many of its pods have room; `None` if the reasons of one pod say it all: none has room, or no limit is full.
    fn describe(&self, name: &str) -> Option<String> {
        let Self { pods, waiting, limits } = self;
        let placed = pods.saturating_sub(*waiting);
        let limits = limits.iter().map(String::as_str).collect::<Vec<_>>().join(" and ");
        (placed > 0 && !limits.is_empty())
            .then(|| format!("there is room for {placed} of {pods} pods of Job {name} within {limits}"))
    }
}

/// The Jobs with unschedulable pods, by uid.
fn waiting_jobs<'s>(snapshot: &'s Snapshot, plan: &Plan) -> BTreeMap<&'s str, WaitingJob> {
    let mut jobs: BTreeMap<&str, WaitingJob> = BTreeMap::new();
    for left in &plan.unschedulable {
        let Some((owner, _)) = job_of(snapshot, &left.pod) else { continue };
        let job = jobs.entry(owner).or_insert_with(|| WaitingJob {
            pods: snapshot.replicas(owner),
            waiting: 0,
            limits: BTreeSet::new(),
        });
        job.waiting += 1;
        job.limits.extend(left.reasons.iter().filter_map(|reason| reason.limit.as_ref().map(describe_limit)));
    }
    jobs
}

/// Uid and name of the Job that owns a pod.
fn job_of<'s>(snapshot: &'s Snapshot, pod: &PodKey) -> Option<(&'s str, &'s str)> {
    let pod = snapshot.pods().get(pod)?;
    Some((pod.owner.as_deref()?, pod.workload.strip_prefix("Job/")?))
}

fn describe_limit(limit: &ReachedLimit) -> String {
    let owner = match &limit.owner {
        LimitOwner::Template { pool, name } => format!("template {name} of TenantPool {pool}"),
        LimitOwner::Pool(name) => format!("TenantPool {name}"),
        LimitOwner::Tenant(name) => format!("Tenant {name}"),
        LimitOwner::Cluster => "the CroftConfig".to_owned(),
    };
    format!("limit {} of {owner}", limit.resources.join(", "))
}

/// Resources that some limit of the pool, its tenants or the cluster counts.
fn limited_resources(snapshot: &Snapshot, pool_name: &str, pool: &TenantPool) -> BTreeSet<String> {
    let of_tenants = snapshot.tenants_of_pool(pool_name).flat_map(|(_, tenant)| tenant.spec.limits.keys());
    let of_cluster = snapshot.config().into_iter().flat_map(|config| config.spec.limits.keys());
    pool.spec
        .limits
        .keys()
        .chain(of_tenants)
        .chain(of_cluster)
        .filter(|key| *key != LIMIT_NODES)
        .cloned()
        .collect()
}

/// The alternative instance types. The plan counted the planned type against the limits, so under a limit no
/// alternative may have more of a limited resource: launches in flight can't exceed the limit together.
fn alternatives(
    instance: &PlannedInstance,
    types: &[InstanceType],
    limited: &BTreeSet<String>,
) -> Vec<String> {
    let find = |name: &str| types.iter().find(|t| t.name == name);
    let Some(planned) = find(&instance.instance_type) else { return instance.options.clone() };
    let price = |t: &InstanceType| price_of(t, &instance.zone, instance.capacity_type);
    let within = |t: &InstanceType| {
        limited.iter().all(|name| {
            if name == LIMIT_COST {
                matches!((price(t), price(planned)), (Some(a), Some(b)) if a <= b)
            } else {
                t.capacity.get(name) <= planned.capacity.get(name)
            }
        })
    };
    let mut options: Vec<String> = instance
        .options
        .iter()
        .filter(|name| **name == instance.instance_type || find(name).is_some_and(within))
        .cloned()
        .collect();
    if !options.contains(&instance.instance_type) {
        options.insert(0, instance.instance_type.clone());
    }
    options
}

fn price_of(kind: &InstanceType, zone: &str, capacity_type: CapacityType) -> Option<Price> {
    kind.offerings.iter().find(|o| o.zone == zone && o.capacity_type == capacity_type).and_then(|o| o.price)
}

fn claim_object(
    name: &str,
    spec: &NodeClaimSpec,
    pool: &Arc<TenantPool>,
    annotations: [(&str, Option<&String>); 2],
) -> serde_json::Value {
    let annotations: BTreeMap<&str, &String> =
        annotations.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    json!({
        "apiVersion": format!("{}/{}", croft_api::GROUP, croft_api::VERSION),
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "finalizers": [FINALIZER],
            "labels": {keys::CLAIM_POOL_LABEL: pool.metadata.name},
            "annotations": annotations,
        },
        "spec": spec,
    })
}

fn to_amounts(resources: &croft_scheduler::Resources) -> BTreeMap<String, Amount> {
    resources.to_quantities().into_iter().map(|(name, q)| (name, Amount(q.to_string()))).collect()
}

fn to_requirement(wanted: &Requirement) -> pool::Requirement {
    pool::Requirement {
        key: wanted.key.clone(),
        operator: match wanted.operator {
            Operator::In => pool::Operator::In,
            Operator::NotIn => pool::Operator::NotIn,
            Operator::Exists => pool::Operator::Exists,
            Operator::DoesNotExist => pool::Operator::DoesNotExist,
            Operator::Gt => pool::Operator::Gt,
            Operator::Lt => pool::Operator::Lt,
            Operator::Gte => pool::Operator::Gte,
            Operator::Lte => pool::Operator::Lte,
        },
        values: wanted.values.clone(),
        min_values: wanted.min_values.and_then(|n| i32::try_from(n).ok()),
    }
}

/// A node that would not meet its own pool's requirements is not launched.
fn unmet_event(snapshot: &Snapshot, pod: &PodKey, pool: &str, unmet: &[String]) -> UserEvent {
    UserEvent {
        regarding: pod_reference(snapshot, pod),
        warning: true,
        reason: reasons::REQUIREMENT_NEVER_MET.into(),
        note: format!(
            "{pool}: no node that Croft launches has {}; change that requirement of the TenantPool",
            unmet.join(", ")
        ),
    }
}

fn pod_reference(snapshot: &Snapshot, pod: &PodKey) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.to_string()),
        name: Some(pod.name.to_string()),
        uid: snapshot.pods().get(pod).map(|p| p.uid.to_string()),
        ..ObjectReference::default()
    }
}

fn nominated_event(
    snapshot: &Snapshot,
    pod: &PodKey,
    claim: &str,
    instance: &PlannedInstance,
) -> Option<UserEvent> {
    snapshot.pods().get(pod)?;
    Some(UserEvent {
        regarding: pod_reference(snapshot, pod),
        warning: false,
        reason: events::NOMINATED.into(),
        note: format!(
            "the pod waits for NodeClaim {claim}: {} in {}, {}",
            instance.instance_type,
            instance.zone,
            instance.capacity_type.as_str(),
        ),
    })
}

/// True if the reason says that the pool isn't meant for the pod. A pod that is pinned to a pool mismatches every other
/// pool: those reasons would hide the one that matters.
const fn is_foreign(reason: ReasonKind) -> bool {
    matches!(
        reason,
        ReasonKind::TaintNotTolerated
            | ReasonKind::NodeAffinityMismatch
            | ReasonKind::PoolNotProvisioned
            | ReasonKind::NoPools
    )
}

/// The pool that is meant for a pod, and the reason why the pod stays pending. The pool is empty if none is meant for it.
pub(crate) fn main_reason(reasons: &[Reason]) -> (&str, ReasonKind) {
    let own = reasons.iter().find(|r| !is_foreign(r.reason)).map(|r| (r.pool.as_str(), r.reason));
    own.unwrap_or(("", reasons.first().map_or(ReasonKind::NoPools, |r| r.reason)))
}

/// Why a pod stays pending, and how many of its `siblings` don't. None if no pool is meant for the pod.
fn pending_event(
    snapshot: &Snapshot,
    pod: &PodKey,
    reasons: &[Reason],
    siblings: Option<&str>,
) -> Option<UserEvent> {
    let own: Vec<&Reason> = reasons.iter().filter(|r| !is_foreign(r.reason)).collect();
    let pinned_mismatch: Vec<&Reason> =
        reasons.iter().filter(|r| r.reason == ReasonKind::NodeAffinityMismatch).collect();
    let shown = if own.is_empty() { pinned_mismatch } else { own };
    let first = shown.first()?;
    let mut note = siblings.map(str::to_owned).unwrap_or_default();
    for reason in &shown {
        if !note.is_empty() {
            note.push_str("; ");
        }
        note.push_str(&reason.pool);
        note.push_str(": ");
        note.push_str(&reason.detail);
    }
    while note.len() > NOTE_BYTES {
        note.pop();
    }
    Some(UserEvent {
        regarding: pod_reference(snapshot, pod),
        warning: true,
        reason: first.reason.as_str().into(),
        note,
    })
}
