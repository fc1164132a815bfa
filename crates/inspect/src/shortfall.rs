//! Workloads of which a limit leaves nodes for fewer pods than they have.
//!
//! Pods of one workload are admitted one by one, and each looks right. The plan says how many of them get a node, and which limit
//! keeps the others waiting.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use croft_api::sentence::counted;
use croft_manifest::Input;
use croft_scheduler::{LimitOwner, REPLICAS, ReachedLimit, SHARES};
use serde::{Deserialize, Serialize};

use crate::{
    simulation::Simulation,
    workload::{WorkloadName, is_active, workload_of, workloads_of_created_pods},
};

/// Pods of a workload that get a node, and the limits that the others wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortfall {
    /// Pods of the workload, existing ones included.
    pub pods: usize,
    /// Pods that have a node or get one.
    pub placed: usize,
    /// The limits that leave no room for the others.
    pub limits: Vec<Limit>,
    /// The same in words, and the remedy.
    pub message: String,
}

/// An object's limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// `Tenant`, `TenantPool` or `CroftConfig`.
    pub kind: Cow<'static, str>,
    /// Its name.
    pub name: String,
    /// The fields that leave no room, such as `spec.limits.cpu`.
    pub fields: Vec<String>,
}

impl Limit {
    fn new(reached: &ReachedLimit) -> Self {
        let spec = "spec".to_owned();
        let (kind, name, within) = match &reached.owner {
            LimitOwner::Template { pool, name } => {
                ("TenantPool", pool.clone(), format!("spec.templates[{name}]"))
            }
            LimitOwner::Pool(name) => ("TenantPool", name.clone(), spec),
            LimitOwner::Tenant(name) => ("Tenant", name.clone(), spec),
            LimitOwner::Cluster => ("CroftConfig", "default".to_owned(), spec),
        };
        let field = |of: &String| match of.as_str() {
            REPLICAS => format!("{within}.replicas"),
            SHARES => "spec.shares".to_owned(),
            of => format!("{within}.limits.{of}"),
        };
        Self { kind: kind.into(), name, fields: reached.resources.iter().map(field).collect() }
    }
}

/// A workload and its shortfall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadShortfall {
    /// Kind of the workload, or Pod.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many pods wait, and for which limit.
    #[serde(flatten)]
    pub shortfall: Shortfall,
}

/// Pods of one workload.
#[derive(Default)]
struct Pods {
    all: usize,
    waiting: usize,
    limits: BTreeSet<ReachedLimit>,
}

/// The workloads of `input` with pods that `simulation` leaves pending for a limit, by kind, namespace and name.
#[must_use]
pub fn shortfalls(input: &Input, simulation: &Simulation) -> Vec<WorkloadShortfall> {
    let unschedulable = &simulation.plan.unschedulable;
    if !unschedulable.iter().any(|left| left.reasons.iter().any(|reason| reason.limit.is_some())) {
        return Vec::new();
    }
    let mut owners = workloads_of_created_pods(input);
    for pod in input.pods.iter().filter(|pod| is_active(pod)) {
        let (namespace, name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        owners.insert((namespace.unwrap_or_default(), name.unwrap_or_default()), workload_of(input, pod));
    }
    let mut workloads: BTreeMap<&WorkloadName, Pods> = BTreeMap::new();
    for owner in owners.values() {
        workloads.entry(owner).or_default().all += 1;
    }
    for left in unschedulable {
        let key = (left.pod.namespace.to_string(), left.pod.name.to_string());
        let Some(pods) = owners.get(&key).and_then(|owner| workloads.get_mut(owner)) else { continue };
        pods.waiting += 1;
        pods.limits.extend(left.reasons.iter().filter_map(|reason| reason.limit.clone()));
    }
    let short = workloads.into_iter().filter(|(_, pods)| !pods.limits.is_empty());
    short
        .map(|(of, pods)| WorkloadShortfall {
            kind: of.kind.clone(),
            namespace: of.namespace.clone(),
            name: of.name.clone(),
            shortfall: shortfall(&of.kind, &pods),
        })
        .collect()
}

fn shortfall(kind: &str, pods: &Pods) -> Shortfall {
    let limits: Vec<Limit> = pods.limits.iter().map(Limit::new).collect();
    let placed = pods.all.saturating_sub(pods.waiting);
    Shortfall { pods: pods.all, placed, message: message(kind, pods, &limits), limits }
}

/// The pods of a Job make room for each other as they end; those of other workloads don't end.
fn message(kind: &str, Pods { all, waiting, .. }: &Pods, limits: &[Limit]) -> String {
    let named = |limit: &Limit| format!("{} of {} {}", limit.fields.join(" and "), limit.kind, limit.name);
    let fields = limits.iter().map(|limit| limit.fields.len()).sum::<usize>();
    let (verb, remedy) = if fields == 1 { ("leaves", "it is raised") } else { ("leave", "they are raised") };
    let limits = limits.iter().map(named).collect::<Vec<_>>().join(" and ");
    let placed = all.saturating_sub(*waiting);
    if placed == 0 {
        let pods =
            if *all == 1 { "its pod, which stays".to_owned() } else { format!("its {all} pods, which stay") };
        return format!("{limits} {verb} no node for {pods} pending for ever unless {remedy}");
    }
    let others =
        if *waiting == 1 { "the other stays".to_owned() } else { format!("the other {waiting} stay") };
    let start = format!("{limits} {verb} nodes for {placed} of {}: {others} pending", counted(*all, "pod"));
    match kind {
        "Job" | "CronJob" => format!(
            "{start} until a pod ends or {remedy}. Its nodes are paid for meanwhile, and a Job whose pods wait for each other never \
             finishes: raise the limit, or lower its parallelism"
        ),
        _ => format!("{start} for ever unless {remedy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(owner: LimitOwner, resources: &[&str]) -> ReachedLimit {
        ReachedLimit { owner, resources: resources.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn said(kind: &str, all: usize, waiting: usize, limits: &[ReachedLimit]) -> String {
        shortfall(kind, &Pods { all, waiting, limits: limits.iter().cloned().collect() }).message
    }

    #[test]
    fn shortfall_counts_pods_that_exist_and_leaves_other_workloads_alone() {
        const OBJECTS: &str = "
{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: lim}, spec: {namespaces: [lim], pools: [lim]}}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: lim}
spec:
  key: node-pool
  limits: {nodes: 1}
  template: {spec: {nodeClassRef: {name: default}, requirements: [
    {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: lim, uid: j}
spec:
  parallelism: 3
  completions: 3
  template: {spec: {restartPolicy: Never, containers: [{name: a, image: a, resources: {requests: {cpu: '1'}}}]}}
---
apiVersion: v1
kind: Pod
metadata:
  name: train-x
  namespace: lim
  uid: p
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: j, controller: true}]
spec: {nodeName: elsewhere, containers: [{name: a, image: a, resources: {requests: {cpu: '1'}}}]}
status: {phase: Running}
---
{apiVersion: v1, kind: Pod, metadata: {name: small, namespace: lim}, spec: {containers: [{name: a, image: a}]}}
";
        let input =
            croft_manifest::parse("a.yaml", OBJECTS, &croft_manifest::LoadOptions::default()).unwrap();
        let types = croft_cloud::builtin_catalog();
        let simulation =
            crate::simulation::simulate(&input, types, &croft_scheduler::Options::default()).unwrap();
        let found = shortfalls(&input, &simulation);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.kind.as_str(), one.name.as_str()), ("Job", "train"));
        assert_eq!((one.shortfall.pods, one.shortfall.placed), (3, 2), "{one:?}");
    }

    #[test]
    fn message_names_the_limit_the_pods_and_what_to_write() {
        let tenant = reached(LimitOwner::Tenant("lim".to_owned()), &["cpu"]);
        let pool = reached(LimitOwner::Pool("gpu".to_owned()), &["costPerHour", "nodes"]);
        let fixed = reached(LimitOwner::Pool("gpu".to_owned()), &[REPLICAS]);
        assert_eq!(
            said("Job", 4, 3, std::slice::from_ref(&tenant)),
            "spec.limits.cpu of Tenant lim leaves nodes for 1 of 4 pods: the other 3 stay pending until a pod ends or it is raised. \
             Its nodes are paid for meanwhile, and a Job whose pods wait for each other never finishes: raise the limit, or lower \
             its parallelism"
        );
        assert_eq!(
            said("Deployment", 4, 1, &[pool, tenant]),
            "spec.limits.costPerHour and spec.limits.nodes of TenantPool gpu and spec.limits.cpu of Tenant lim leave nodes for 3 of \
             4 pods: the other stays pending for ever unless they are raised"
        );
        assert_eq!(
            said("Job", 2, 2, &[fixed]),
            "spec.replicas of TenantPool gpu leaves no node for its 2 pods, which stay pending for ever unless it is raised"
        );
        assert_eq!(
            said("Pod", 1, 1, &[reached(LimitOwner::Cluster, &["nodes"])]),
            "spec.limits.nodes of CroftConfig default leaves no node for its pod, which stays pending for ever unless it is raised"
        );
    }
}
