//! Workloads: what the controllers of ReplicaSets and of PodDisruptionBudgets do.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::{Value, json};

use super::{
    index::{ClusterIndex, PodView, ZONE},
    model::Tick,
    store::Id,
    volumes,
};

/// Where the pods of a workload may be beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Anywhere.
    #[default]
    Anywhere,
    /// Required anti-affinity: each on a node of its own.
    HostEach,
    /// A hard topology spread over zones, `maxSkew` 1.
    Zones,
    /// Required affinity to each other: all in one zone.
    Together,
}

/// A Deployment, or a StatefulSet if its pods have volumes, with a budget.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Its namespace.
    pub namespace: String,
    /// The label `app` of its pods, and the name of its budget.
    pub app: String,
    /// The pool that its pods select and tolerate.
    pub pool: String,
    /// How many pods it wants.
    pub replicas: u64,
    /// CPU of each pod, in thousandths.
    pub cpu_millis: i64,
    /// Memory of each pod, in MiB.
    pub memory_mi: i64,
    /// `maxUnavailable` of its budget; without one, its pods may all be evicted.
    pub max_unavailable: Option<u64>,
    /// Where its pods may be beside each other.
    pub spread: Spread,
    /// How long a pod takes to end, in milliseconds; as [`super::Timing`] says without one. Its grace period is longer.
    pub end_ms: Option<u64>,
    /// Zones of its pods' volumes, in turns. Without one, its pods have no volumes.
    pub volume_zones: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Workloads {
    created: u64,
    /// Pods that were deleted because fewer are wanted.
    pub(crate) scaled_down: BTreeSet<Id>,
}

impl Workloads {
    /// Creates and deletes pods until there are as many as wanted.
    pub(crate) fn scale(
        &mut self,
        number: usize,
        workload: &Workload,
        index: &ClusterIndex,
        tick: &mut Tick<'_>,
    ) {
        if !workload.volume_zones.is_empty() {
            self.scale_stateful(number, workload, index, tick);
            return;
        }
        let there: Vec<(&Id, &PodView)> = index.pods_of(number).filter(|(_, pod)| !pod.deleting).collect();
        let count = there.len() as u64;
        for _ in count..workload.replicas {
            self.created += 1;
            let id = ("Pod", workload.namespace.clone(), format!("{}-{}", workload.app, self.created));
            tick.store.create(id, pod(workload, None), tick.now);
        }
        for id in surplus(&there, usize::try_from(workload.replicas).unwrap()) {
            self.scaled_down.insert(id.clone());
            tick.store.delete(id, None, tick.now);
        }
        self.scaled_down.retain(|id| index.pods().contains_key(id));
    }

    /// The same for a StatefulSet with `podManagementPolicy: Parallel`: a pod has the name and the claim of its ordinal, so
    /// it isn't created before the one before it has ended.
    fn scale_stateful(
        &mut self,
        number: usize,
        workload: &Workload,
        index: &ClusterIndex,
        tick: &mut Tick<'_>,
    ) {
        for ordinal in 0..workload.replicas {
            volumes::provide(workload, ordinal, tick);
            let id = ("Pod", workload.namespace.clone(), format!("{}-{ordinal}", workload.app));
            tick.store.create(id, pod(workload, Some(ordinal)), tick.now);
        }
        let ordinal = |id: &Id| id.2.rsplit_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
        for (id, pod) in index.pods_of(number) {
            if !pod.deleting && ordinal(id).is_some_and(|ordinal| ordinal >= workload.replicas) {
                self.scaled_down.insert(id.clone());
                tick.store.delete(id, None, tick.now);
            }
        }
        self.scaled_down.retain(|id| index.pods().contains_key(id));
    }
}

/// The pods that the ReplicaSet controller deletes if it wants fewer (`ActivePodsWithRanks` in
/// k8s.io/kubernetes/pkg/controller): pods without a node, pods that don't run, pods with most others of the workload on
/// their node, the youngest.
fn surplus<'i>(pods: &[(&'i Id, &PodView)], wanted: usize) -> Vec<&'i Id> {
    let surplus = pods.len().saturating_sub(wanted);
    if surplus == 0 {
        return Vec::new();
    }
    let mut on_node: BTreeMap<&Option<String>, usize> = BTreeMap::new();
    for (_, pod) in pods {
        *on_node.entry(&pod.node).or_default() += 1;
    }
    let mut pods = pods.to_vec();
    pods.sort_by_key(|(id, pod)| {
        (pod.node.is_some(), pod.running, Reverse((on_node[&pod.node], pod.seen_ms)), *id)
    });
    pods.into_iter().map(|(id, _)| id).take(surplus).collect()
}

/// Writes the status of a workload's budget, and creates the budget if it isn't there.
pub(crate) fn write_budget(number: usize, workload: &Workload, index: &ClusterIndex, tick: &mut Tick<'_>) {
    let Some(most) = workload.max_unavailable else { return };
    let id = ("PodDisruptionBudget", workload.namespace.clone(), workload.app.clone());
    if tick.store.get(&id).is_none() {
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {},
            "spec": {"selector": {"matchLabels": {"app": workload.app}}, "maxUnavailable": most},
            "status": {"expectedPods": 0},
        });
        tick.store.create(id.clone(), object, tick.now);
    }
    let least = workload.replicas.saturating_sub(most);
    let healthy = index.healthy(number);
    let status = json!({
        "expectedPods": workload.replicas, "desiredHealthy": least, "currentHealthy": healthy,
        "disruptionsAllowed": healthy.saturating_sub(least),
    });
    tick.store.change(&id, |budget| budget["status"] = status);
}

/// A pod, of this ordinal in a StatefulSet.
fn pod(workload: &Workload, ordinal: Option<u64>) -> Value {
    let selector = json!({"matchLabels": {"app": workload.app}});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": {"app": workload.app}, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload.app, "uid": format!("uid-{}", workload.app),
            "controller": true,
        }]},
        "spec": {
            "nodeSelector": {"node-pool": workload.pool},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": workload.pool, "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {
                "cpu": format!("{}m", workload.cpu_millis), "memory": format!("{}Mi", workload.memory_mi),
            }}}],
        },
        "status": {"phase": "Pending"},
    });
    if let Some(ordinal) = ordinal {
        pod["metadata"]["ownerReferences"][0]["kind"] = json!("StatefulSet");
        let claim = json!({"claimName": volumes::claim_name(workload, ordinal)});
        pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": claim}]);
    }
    match workload.spread {
        Spread::Anywhere => {}
        Spread::HostEach => {
            pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
            ]}});
        }
        Spread::Zones => {
            pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
        }
        Spread::Together => {
            pod["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": selector, "topologyKey": ZONE}
            ]}});
        }
    }
    if let Some(ms) = workload.end_ms {
        pod["spec"]["terminationGracePeriodSeconds"] = json!(ms / 1_000 + 10);
    }
    pod
}
