//! The answers of `explain`, `plan` and `simulate` for a loaded input, as data. Called by the page; no I/O.
//!
//! Each function calls those that the commands call, so that page and command line give the same answers.

use std::collections::{BTreeMap, BTreeSet};

use croft_manifest::{Input, InputError, KindGroup, Objects, each_kind};
use croft_scheduler::{Options, PlannedInstance, PodKey, Price, Unschedulable};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use serde::Serialize;

use crate::{
    admission::Admission,
    advice::{Advice, ConstraintPrice, Focus, LEAST_SAVING_MICROS, Request, advise},
    commands::{explain, plan},
    inventory,
    simulation::{DENIED, Simulation, simulate, time_of},
};
pub use crate::{commands::plan::Planned, inventory::NodeInfo};

/// The tenants of an input.
pub struct Tenancy(Admission);

impl Tenancy {
    /// Reads the Tenants, pools, settings, namespaces and nodes of `input`.
    ///
    /// # Errors
    /// A Tenant whose selector can't be read.
    pub fn new(input: &Input) -> Result<Self, InputError> {
        Admission::new(input).map(Self)
    }

    /// The tenant of each namespace that belongs to one.
    #[must_use]
    pub fn tenants_by_namespace(&self, input: &Input) -> BTreeMap<String, String> {
        inventory::tenants_by_namespace(input, self.0.tenants())
    }

    /// The placement violations of an existing pod, as sentences.
    #[must_use]
    pub fn violations(&self, pod: &Pod) -> Vec<String> {
        inventory::placement_violations(self.0.tenants(), pod)
    }
}

/// Every node of the input, by name.
#[must_use]
pub fn nodes(input: &Input) -> Vec<NodeInfo> {
    inventory::node_infos(input, &croft_cloud::builtin_catalog())
}

/// Why a pool can't take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReason {
    /// The pool; empty where no pool is concerned.
    pub pool: String,
    /// One of a closed set: `croft explain reason` lists them.
    pub reason: String,
    /// In words, with the number that would have been enough.
    pub detail: String,
    /// The meaning of the reason, and what would help.
    pub remedy: Option<&'static str>,
}

/// An instance that a plan launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewInstance {
    /// The pool.
    pub pool: String,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// Its price, in millionths of a dollar per hour.
    pub price: i64,
    /// True if the price is an estimate.
    pub estimated: bool,
    /// Its pods, as `namespace/name`.
    pub pods: Vec<String>,
}

/// A node that gets pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExistingNode {
    /// The node, or the NodeClaim of a coming one.
    pub node: String,
    /// True if the node isn't there yet.
    pub coming: bool,
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
}

/// The place of a pending pod in a plan: an instance, a node, or the reasons for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// The instance that can be launched for it.
    pub instance: Option<NewInstance>,
    /// The node that has room for it.
    pub node: Option<ExistingNode>,
    /// Why it stays pending.
    pub reasons: Vec<PendingReason>,
}

/// The place that the scheduler's plan gives the pending pod `namespace/name` of `input`.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn outlook(input: &Input, namespace: &str, name: &str) -> Result<Outlook, InputError> {
    let simulation = simulate(input, croft_cloud::builtin_catalog(), &Options::default())?;
    let key = PodKey::new(namespace, name);
    let is_it = |pod: &PodKey| *pod == key;
    let plan = &simulation.plan;
    let mut reasons: Vec<PendingReason> =
        plan.unschedulable.iter().filter(|left| is_it(&left.pod)).flat_map(reasons).collect();
    reasons.extend(denied(&simulation, is_it).into_iter().map(|(_, reason)| reason));
    Ok(Outlook {
        instance: plan.instances.iter().find_map(|instance| new_instance(&simulation, instance, is_it)),
        node: existing_nodes(&simulation, is_it).into_iter().next(),
        reasons,
    })
}

/// A constraint and what it costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdviceRow {
    /// The savings without it, in millionths of a dollar per hour.
    pub saving: i64,
    /// The namespace of its object; none for an object of the cluster.
    pub namespace: Option<String>,
    /// Its kind, in CamelCase.
    pub kind: &'static str,
    /// Kind and name of its object.
    pub object: String,
    /// The constraint.
    pub constraint: String,
    /// The edit that takes it out.
    pub change: String,
}

/// The prices of a tenant's constraints, ranked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantAdvice {
    /// The dearest constraint first.
    pub rows: Vec<AdviceRow>,
    /// The savings without all of them at once, in millionths of a dollar per hour.
    pub together: i64,
    /// Number of constraints that could have a price.
    pub constraints: usize,
    /// Number of constraints that weren't tried.
    pub not_tried: usize,
}

/// The prices of a tenant's constraints in `input`, as `croft advise --tenant` has them. At most `most` clusters without a
/// constraint are searched.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn advice(input: &Input, tenant: &str, most: usize) -> Result<TenantAdvice, InputError> {
    let request = Request {
        focus: Focus::All,
        tenant: Some(tenant.to_owned()),
        namespace: None,
        min_saving: Price::from_micros(LEAST_SAVING_MICROS),
        most,
        now: time_of(input),
    };
    let Advice { prices, cost: _, together, constraints, not_tried } =
        advise(input, &croft_cloud::builtin_catalog(), &request, &mut || {})?;
    let row = |price: ConstraintPrice| {
        let ConstraintPrice { saving, tenants: _, namespace, kind, object, constraint, change } = price;
        AdviceRow { saving: micros(saving), namespace, kind, object, constraint, change }
    };
    let rows = prices.into_iter().map(row).collect();
    Ok(TenantAdvice { rows, together: micros(together), constraints, not_tried })
}

/// Pods that stay pending for the same reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPods {
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
    /// The reasons, one for each pool.
    pub reasons: Vec<PendingReason>,
}

/// The effect of further objects.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// The admission of each workload.
    pub workloads: Vec<Planned>,
    /// The instances that are launched for its pods.
    pub instances: Vec<NewInstance>,
    /// The nodes that get some of its pods.
    pub existing: Vec<ExistingNode>,
    /// The pods that stay pending.
    pub pending: Vec<PendingPods>,
    /// The cost that it adds, in millionths of a dollar per hour: the plan with it less the plan without.
    pub adds: i64,
    /// Findings that don't make the objects invalid.
    pub warnings: Vec<String>,
}

/// The plan for `input` with the objects of `added`, which replace those of the same name.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn what_if(input: &Input, added: &Input) -> Result<WhatIf, InputError> {
    let types = croft_cloud::builtin_catalog();
    let before = simulate(input, types.clone(), &Options::default())?;
    let mut after = input.clone();
    merge(&mut after, added);
    let known: BTreeSet<(&str, &str)> = input.pods.iter().map(|pod| key_of(pod)).collect();
    let simulation = simulate(&after, types, &Options::default())?;
    let is_new = |pod: &PodKey| !known.contains(&(&*pod.namespace, &*pod.name));

    let mut pending: BTreeMap<Vec<PendingReason>, Vec<String>> = BTreeMap::new();
    for left in simulation.plan.unschedulable.iter().filter(|left| is_new(&left.pod)) {
        pending.entry(reasons(left).collect()).or_default().push(left.pod.to_string());
    }
    for (pod, reason) in denied(&simulation, is_new) {
        pending.entry(vec![reason]).or_default().push(pod);
    }
    let mut subject = added.clone();
    subject.limit_ranges.clone_from(&after.limit_ranges);
    subject.priority_classes.clone_from(&after.priority_classes);
    subject.runtime_classes.clone_from(&after.runtime_classes);
    let instances = simulation.plan.instances.iter();
    Ok(WhatIf {
        workloads: plan::plan(&subject, &Admission::new(&after)?),
        instances: instances.filter_map(|one| new_instance(&simulation, one, is_new)).collect(),
        existing: existing_nodes(&simulation, is_new),
        pending: pending.into_iter().map(|(reasons, pods)| PendingPods { pods, reasons }).collect(),
        adds: micros(simulation.plan.cost).saturating_sub(micros(before.plan.cost)),
        warnings: simulation
            .warnings
            .iter()
            .filter(|warning| !before.warnings.contains(warning))
            .cloned()
            .collect(),
    })
}

/// The number of pods that the workloads of `input` ask for, at most; a DaemonSet counts as one.
#[must_use]
pub fn pods_asked_for(input: &Input) -> usize {
    let of_workloads = crate::workload::workloads(input).into_iter().map(|workload| workload.missing.max(1));
    of_workloads.fold(input.pods.len(), usize::saturating_add)
}

/// Puts the settings, namespaces and workloads of `added` into `input`. Objects of other kinds stay those of the cluster.
fn merge(input: &mut Input, added: &Input) {
    fn put<K: Resource + Clone>(into: &mut Objects<K>, added: &Objects<K>) {
        for one in added {
            into.put(one.object.clone(), one.origin.clone());
        }
    }
    macro_rules! put {
        ($($field:ident: $group:ident),*) => { $(
            if matches!(KindGroup::$group, KindGroup::Settings | KindGroup::Workloads) {
                put(&mut input.$field, &added.$field);
            }
        )* };
    }
    each_kind!(put);
    put(&mut input.namespaces, &added.namespaces);
}

fn key_of(pod: &Pod) -> (&str, &str) {
    let metadata = &pod.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn micros(price: Price) -> i64 {
    price.micros()
}

fn named(pods: &[PodKey], is_wanted: impl Fn(&PodKey) -> bool) -> Vec<String> {
    pods.iter().filter(|pod| is_wanted(pod)).map(ToString::to_string).collect()
}

/// The instance, if it is launched for a pod that is wanted.
fn new_instance(
    simulation: &Simulation,
    instance: &PlannedInstance,
    is_wanted: impl Fn(&PodKey) -> bool,
) -> Option<NewInstance> {
    let pods = named(&instance.pods, is_wanted);
    (!pods.is_empty()).then(|| NewInstance {
        pool: instance.pool.clone(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        capacity_type: instance.capacity_type.to_string(),
        price: micros(instance.price),
        estimated: simulation.is_estimate(instance),
        pods,
    })
}

fn existing_nodes(simulation: &Simulation, is_wanted: impl Fn(&PodKey) -> bool) -> Vec<ExistingNode> {
    let nodes = simulation.plan.existing.iter().map(|place| ExistingNode {
        node: place.node.clone(),
        coming: place.coming,
        pods: named(&place.pods, &is_wanted),
    });
    nodes.filter(|node| !node.pods.is_empty()).collect()
}

fn reasons(left: &Unschedulable) -> impl Iterator<Item = PendingReason> {
    left.reasons.iter().map(|reason| PendingReason {
        pool: reason.pool.clone(),
        reason: reason.reason.as_str().to_owned(),
        detail: reason.detail.clone(),
        remedy: explain::meaning(reason.reason.as_str()),
    })
}

fn denied(simulation: &Simulation, is_wanted: impl Fn(&PodKey) -> bool) -> Vec<(String, PendingReason)> {
    let reason = |refusal: &str| PendingReason {
        pool: String::new(),
        reason: DENIED.to_owned(),
        detail: refusal.to_owned(),
        remedy: explain::meaning(DENIED),
    };
    let of_all = simulation.denied.iter().flat_map(|denied| {
        let pods = named(&denied.pods, &is_wanted);
        pods.into_iter().map(|pod| (pod, reason(&denied.refusal)))
    });
    of_all.collect()
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    const CLUSTER: &str = "
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: shop}
spec: {namespaces: [shop], pools: [pool-shop]}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-shop}
spec:
  template:
    spec:
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]
      nodeClassRef: {group: croft.dev, kind: EC2NodeClass, name: default}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

    fn workload(cpu: &str) -> Input {
        let text = format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: nginx, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}
"
        );
        parse("web.yaml", &text, &LoadOptions::default()).unwrap()
    }

    #[test]
    fn what_if_shows_instances_cost_and_pool_of_a_new_workload() {
        let cluster = parse("cluster.yaml", CLUSTER, &LoadOptions::default()).unwrap();
        let answer = what_if(&cluster, &workload("500m")).unwrap();
        assert_eq!(answer.workloads.len(), 1);
        assert_eq!(answer.workloads[0].pool.as_deref(), Some("pool-shop"));
        let pods: usize = answer.instances.iter().map(|instance| instance.pods.len()).sum();
        assert_eq!((pods, answer.pending.len()), (2, 0), "{answer:?}");
        assert_eq!(answer.adds, answer.instances.iter().map(|one| one.price).sum::<i64>());
        assert!(answer.adds > 0);
    }

    #[test]
    fn what_if_says_why_pods_of_a_new_workload_would_stay_pending() {
        let cluster = parse("cluster.yaml", CLUSTER, &LoadOptions::default()).unwrap();
        let answer = what_if(&cluster, &workload("50")).unwrap();
        assert_eq!((answer.instances.len(), answer.adds, answer.pending.len()), (0, 0, 1), "{answer:?}");
        let reason = &answer.pending[0].reasons[0];
        assert_eq!((reason.pool.as_str(), reason.reason.as_str()), ("pool-shop", "InsufficientResources"));
        assert!(reason.remedy.is_some());
        assert_eq!(answer.pending[0].pods.len(), 2);
    }
}
