//! Invariants: at every moment, and once nothing changes any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_cloud::tags;
use croft_controller::definitions::keys;
use croft_ec2_sim::world::World;
use croft_simkit::{Store, Workload, cluster_id};
use serde_json::{Value, json};

use crate::run::Limits;

/// Violations of invariants that hold at every moment.
pub fn always(store: &Store, world: &World, limits: &Limits, cpus: &BTreeMap<String, i64>) -> Vec<String> {
    let mut broken = Vec::new();
    // A claim that adopts an instance was made when the cloud showed it: what was launched before didn't count it.
    let known: BTreeSet<&str> = store
        .of_kind("NodeClaim")
        .filter(|(_, claim)| claim["metadata"]["annotations"][keys::ADOPTS].is_null())
        .filter_map(|(_, claim)| claim["metadata"]["uid"].as_str())
        .collect();
    let mut per_claim: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut cpu: BTreeMap<&str, i64> = BTreeMap::new();
    for (id, instance) in world.instances() {
        if let Some(uid) = instance.tags.get(tags::CLAIM_UID) {
            per_claim.entry(uid).or_default().push(id);
        }
        // Objects created after the backup are unknown until the cloud is asked. An instance that was hidden counts towards
        // limits once it is found, but what was launched meanwhile may exceed them.
        let unknown = store.hidden.contains(id)
            || (store.restored || store.blind)
                && instance.tags.get(tags::CLAIM_UID).is_none_or(|uid| !known.contains(uid.as_str()));
        if instance.state.is_alive()
            && !unknown
            && let Some(pool) = instance.tags.get(tags::POOL)
        {
            *cpu.entry(pool).or_default() += cpus[&instance.instance_type];
        }
    }
    for (uid, instances) in per_claim.iter().filter(|(_, instances)| instances.len() > 1) {
        broken.push(format!("claim {uid} was launched twice: {instances:?}"));
    }
    for (pool, limit) in &limits.pools {
        let used = cpu.get(pool.as_str()).copied().unwrap_or(0);
        if used > *limit {
            broken.push(format!("pool {pool} has {used}m cpu of at most {limit}m"));
        }
    }
    let used: i64 = cpu.values().sum();
    if let Some(limit) = limits.cluster.filter(|limit| used > *limit) {
        broken.push(format!("the cluster has {used}m cpu of at most {limit}m"));
    }
    // Neither the pools nor the class change in a run.
    for (id, claim) in store.of_kind("NodeClaim") {
        if claim["metadata"]["annotations"]["croft.dev/disruption-reason"] == json!("Drifted") {
            broken.push(format!("claim {} replaces nodes that nothing has changed", id.2));
        }
    }
    for (id, pod) in store.of_kind("Pod") {
        let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
        let Some(node) = store.get(&cluster_id("Node", node)) else { continue };
        if node["metadata"]["labels"]["node-pool"] != pod["spec"]["nodeSelector"]["node-pool"] {
            broken.push(format!("pod {} runs outside its pool", id.2));
        }
    }
    broken.extend(store.broken.iter().cloned());
    broken
}

/// CPU of the smallest type that takes every pod here: a pool with less left under its limit is full.
const ROOM_FOR_ANY_POD: i64 = 4_000;

/// Violations of invariants that hold once nothing changes any more.
pub fn at_rest(
    store: &Store,
    world: &World,
    workloads: &[Workload],
    limits: &Limits,
    cpus: &BTreeMap<String, i64>,
    replicas: u64,
) -> Vec<String> {
    let mut broken = Vec::new();
    let all: i64 =
        world.instances().filter(|(_, i)| i.state.is_alive()).map(|(_, i)| cpus[&i.instance_type]).sum();
    let cluster_is_full = limits.cluster.is_some_and(|limit| all + ROOM_FOR_ANY_POD > limit);
    let fixed =
        store.of_kind("NodeClaim").filter(|(_, claim)| claim["spec"]["pool"] == json!("pool-fixed")).count();
    if fixed as u64 != replicas && !cluster_is_full {
        broken.push(format!("the pool of a fixed size has {fixed} of {replicas} nodes"));
    }
    for workload in workloads {
        let used: i64 = world
            .instances()
            .filter(|(_, i)| i.state.is_alive() && i.tags.get(tags::POOL) == Some(&workload.pool))
            .map(|(_, i)| cpus[&i.instance_type])
            .sum();
        let full = cluster_is_full || used + ROOM_FOR_ANY_POD > limits.pools[&workload.pool];
        let pods: Vec<&Arc<Value>> = store
            .of_kind("Pod")
            .filter(|(id, p)| {
                id.1 == workload.namespace && p["metadata"]["labels"]["app"] == json!(workload.app)
            })
            .map(|(_, pod)| pod)
            .collect();
        let running = pods.iter().filter(|p| p["status"]["phase"] == json!("Running")).count() as u64;
        if running != workload.replicas && !full {
            let shown: Vec<String> = pods
                .iter()
                .map(|p| format!("{} {} {}", p["metadata"]["name"], p["spec"]["nodeName"], p["status"]))
                .collect();
            broken
                .push(format!("{running} of {} pods of {} run: {shown:?}", workload.replicas, workload.app));
        }
    }
    let instances: BTreeSet<String> = world
        .instances()
        .filter(|(_, i)| i.state.is_alive())
        .map(|(id, i)| format!("aws:///{}/{id}", i.zone))
        .collect();
    let text = |value: &Value| value.as_str().unwrap_or("nothing").to_owned();
    let claims: BTreeSet<String> =
        store.of_kind("NodeClaim").map(|(_, c)| text(&c["status"]["providerId"])).collect();
    let nodes: BTreeSet<String> =
        store.of_kind("Node").map(|(_, n)| text(&n["spec"]["providerID"])).collect();
    if instances != claims {
        broken.push(format!("instances {instances:?} and claims {claims:?} differ"));
    }
    if instances != nodes {
        broken.push(format!("instances {instances:?} and nodes {nodes:?} differ"));
    }
    broken
}
