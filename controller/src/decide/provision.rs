//! From a plan to claims, nominations and reasons.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{
    NodeClaimSpec, TenantPool,
    amount::Amount,
    definitions::FINALIZER,
    pool::{self, NodeClassRef},
};
use croft_scheduler::{
    CapacityType, InstanceType, LIMIT_COST, LIMIT_NODES, Machine, Operator, Plan, PodKey, Price, Reason,
    ReasonKind, Requirement,
};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::json;

use super::{backoff, disrupt::drift, requirements};
use crate::{
    action::{NewClaim, NewClaims, Notice},
    events::NOMINATED,
    names,
    snapshot::{Snapshot, is_accepted},
};

/// The longest note that the API server takes in an Event, in bytes.
const NOTE_BYTES: usize = 1000;

/// What a plan comes to.
#[derive(Debug, Default)]
pub struct Provision {
    /// Claims to create, by pool.
    pub claims: Vec<NewClaims>,
    /// Pods and the claims that the plan means for them.
    pub nominations: Vec<(PodKey, String)>,
    /// Nodes that are there and are about to receive pods.
    pub expected: BTreeSet<String>,
    /// Why pods stay pending, and what others wait for.
    pub notices: Vec<Notice>,
}

/// Turns `plan` into claims. Machines of pools that have gone meanwhile are left out.
#[must_use]
pub fn provision(snapshot: &Snapshot, plan: &Plan) -> Provision {
    let mut result = Provision::default();
    let mut by_pool: BTreeMap<&str, Vec<&Machine>> = BTreeMap::new();
    for machine in &plan.machines {
        by_pool.entry(&machine.pool).or_default().push(machine);
    }
    for (pool_name, machines) in by_pool {
        let Some(pool) = snapshot.pools.get(pool_name) else { continue };
        if snapshot.is_ending(pool_name, pool) || !is_accepted(pool) {
            continue;
        }
        let Some(class) = pool.spec.template.as_ref().map(|t| t.spec.node_class_ref.clone()) else {
            continue;
        };
        let state = snapshot.classes.get(&class.name);
        let types = state.and_then(|c| c.types.clone()).unwrap_or_default();
        let stamp = state.map(|c| drift::stamp(pool, &c.object));
        let limited = limited(snapshot, pool_name, pool);
        let machines = backoff::admit(snapshot, pool, machines);
        if machines.is_empty() {
            continue;
        }
        let marks = Marks {
            launched_with: stamp,
            launched_for: backoff::launched_for(snapshot, pool),
            probe: backoff::probe(snapshot, pool),
        };
        let first = pool.status.as_ref().and_then(|s| s.claim_counter).unwrap_or(0);
        let mut counter = first;
        let uid = pool.metadata.uid.as_deref().unwrap_or_default();
        let mut claims = Vec::with_capacity(machines.len());
        for machine in machines {
            let unmet = requirements::unmet(pool, machine, &types);
            if !unmet.is_empty() {
                result
                    .notices
                    .extend(machine.pods.iter().map(|pod| refused(snapshot, pod, pool_name, &unmet)));
                continue;
            }
            counter = counter.saturating_add(1);
            let name = names::claim(pool_name, uid, counter);
            for pod in &machine.pods {
                result.nominations.push((pod.clone(), name.clone()));
                result.notices.extend(nominated(snapshot, pod, &name, machine));
            }
            let mut spec = spec(machine, &class, pool, &types, &limited);
            spec.instance_types.retain(|kind| {
                *kind == machine.instance_type || !backoff::has_failed(snapshot, pool, machine, kind)
            });
            claims.push(NewClaim { object: object(&name, &spec, pool, &marks), name, spec });
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
        } else if !placement.pods.iter().all(Snapshot::is_headroom) {
            result.expected.insert(placement.node.clone());
        }
    }
    for left in plan.unschedulable.iter().filter(|left| !Snapshot::is_headroom(&left.pod)) {
        result.notices.extend(unplaced(snapshot, &left.pod, &left.reasons));
    }
    result
}

/// Resources that some limit counts for the pool.
fn limited(snapshot: &Snapshot, pool_name: &str, pool: &TenantPool) -> BTreeSet<String> {
    let tenants = snapshot.tenants.values().filter(|t| t.spec.pools.iter().any(|p| p == pool_name));
    let of_tenants = tenants.flat_map(|t| t.spec.limits.keys());
    let of_cluster = snapshot.config.iter().flat_map(|config| config.spec.limits.keys());
    pool.spec
        .limits
        .keys()
        .chain(of_tenants)
        .chain(of_cluster)
        .filter(|key| *key != LIMIT_NODES)
        .cloned()
        .collect()
}

fn spec(
    machine: &Machine,
    class: &NodeClassRef,
    pool: &TenantPool,
    types: &[InstanceType],
    limited: &BTreeSet<String>,
) -> NodeClaimSpec {
    let template = pool.spec.template.as_ref();
    let planned = types.iter().find(|t| t.name == machine.instance_type);
    let mut labels = machine.labels.clone();
    // What follows from the machine is known only once there is one.
    labels.retain(|key, _| !follows_from_machine(key, planned));
    NodeClaimSpec {
        pool: machine.pool.clone(),
        node_class_ref: class.clone(),
        instance_types: options(machine, types, limited),
        zones: machine.zones.clone(),
        capacity_type: machine.capacity_type.as_str().to_owned(),
        requirements: machine.requirements.iter().map(requirement).collect(),
        requests: amounts(&machine.requests),
        taints: machine.taints.clone(),
        startup_taints: machine.startup_taints.clone(),
        labels,
        termination_grace_period: template.and_then(|t| t.spec.termination_grace_period.clone()),
    }
}

pub(super) fn follows_from_machine(key: &str, planned: Option<&InstanceType>) -> bool {
    const OF_EVERY_MACHINE: [&str; 9] = [
        names::INSTANCE_TYPE_LABEL,
        names::ZONE_LABEL,
        names::CAPACITY_TYPE_LABEL,
        names::CROFT_CAPACITY_TYPE_LABEL,
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "kubernetes.io/hostname",
        "topology.kubernetes.io/region",
        "node.kubernetes.io/windows-build",
    ];
    OF_EVERY_MACHINE.contains(&key)
        || key.starts_with("beta.kubernetes.io/")
        || key.starts_with("failure-domain.beta.kubernetes.io/")
        || planned.is_some_and(|t| t.labels.contains_key(key))
}

/// The types that may be launched instead. The plan counted the planned one against the limits, so under a limit
/// no alternative may have more of what it counts: launches that are under way at once can't overrun it together.
fn options(machine: &Machine, types: &[InstanceType], limited: &BTreeSet<String>) -> Vec<String> {
    let find = |name: &str| types.iter().find(|t| t.name == name);
    let Some(planned) = find(&machine.instance_type) else { return machine.options.clone() };
    let price = |t: &InstanceType| cheapest(t, &machine.zone, machine.capacity_type);
    let within = |t: &InstanceType| {
        limited.iter().all(|name| {
            if name == LIMIT_COST {
                matches!((price(t), price(planned)), (Some(a), Some(b)) if a <= b)
            } else {
                t.capacity.get(name) <= planned.capacity.get(name)
            }
        })
    };
    let mut options: Vec<String> = machine
        .options
        .iter()
        .filter(|name| **name == machine.instance_type || find(name).is_some_and(within))
        .cloned()
        .collect();
    if !options.contains(&machine.instance_type) {
        options.insert(0, machine.instance_type.clone());
    }
    options
}

fn cheapest(kind: &InstanceType, zone: &str, capacity_type: CapacityType) -> Option<Price> {
    kind.offerings.iter().find(|o| o.zone == zone && o.capacity_type == capacity_type).and_then(|o| o.price)
}

/// What a new claim is marked with.
struct Marks {
    launched_with: Option<String>,
    launched_for: String,
    probe: Option<String>,
}

fn object(name: &str, spec: &NodeClaimSpec, pool: &Arc<TenantPool>, marks: &Marks) -> serde_json::Value {
    let marks = [
        (names::LAUNCHED_WITH, marks.launched_with.as_ref()),
        (names::LAUNCHED_FOR, Some(&marks.launched_for)),
        (names::LAUNCH_PROBE, marks.probe.as_ref()),
    ];
    let annotations: BTreeMap<&str, &String> =
        marks.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    json!({
        "apiVersion": format!("{}/{}", croft_api::GROUP, croft_api::VERSION),
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "finalizers": [FINALIZER],
            "labels": {"croft.dev/pool": pool.metadata.name},
            "annotations": annotations,
        },
        "spec": spec,
    })
}

fn amounts(resources: &croft_scheduler::Resources) -> BTreeMap<String, Amount> {
    resources.to_quantities().into_iter().map(|(name, q)| (name, Amount(q.to_string()))).collect()
}

fn requirement(wanted: &Requirement) -> pool::Requirement {
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
fn refused(snapshot: &Snapshot, pod: &PodKey, pool: &str, unmet: &[String]) -> Notice {
    Notice {
        about: pod_reference(snapshot, pod),
        warning: true,
        reason: requirements::NEVER_MET.into(),
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
        uid: snapshot.pods.get(pod).map(|p| p.uid.to_string()),
        ..ObjectReference::default()
    }
}

fn nominated(snapshot: &Snapshot, pod: &PodKey, claim: &str, machine: &Machine) -> Option<Notice> {
    snapshot.pods.get(pod)?;
    Some(Notice {
        about: pod_reference(snapshot, pod),
        warning: false,
        reason: NOMINATED.into(),
        note: format!(
            "the pod waits for NodeClaim {claim}: {} in {}, {}",
            machine.instance_type,
            machine.zone,
            machine.capacity_type.as_str(),
        ),
    })
}

/// Why a pod stays pending, if that is Croft's business: a pod that no pool is meant for is not.
fn unplaced(snapshot: &Snapshot, pod: &PodKey, reasons: &[Reason]) -> Option<Notice> {
    let foreign = |r: &&Reason| {
        matches!(
            r.reason,
            ReasonKind::TaintNotTolerated
                | ReasonKind::NodeAffinityMismatch
                | ReasonKind::PoolNotProvisioned
                | ReasonKind::NoPools
        )
    };
    // A pod that is pinned to a pool mismatches every other: those reasons would bury the one that matters.
    let own: Vec<&Reason> = reasons.iter().filter(|r| !foreign(r)).collect();
    let pinned_mismatch: Vec<&Reason> =
        reasons.iter().filter(|r| r.reason == ReasonKind::NodeAffinityMismatch).collect();
    let told = if own.is_empty() { pinned_mismatch } else { own };
    let first = told.first()?;
    let mut note = String::new();
    for reason in &told {
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
    Some(Notice {
        about: pod_reference(snapshot, pod),
        warning: true,
        reason: first.reason.as_str().into(),
        note,
    })
}
