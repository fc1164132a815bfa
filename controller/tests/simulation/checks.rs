//! Invariants: at every moment, and once nothing changes any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_cloud::tags;
use croft_controller::definitions::keys;
use croft_ec2_sim::world::World;
use croft_simkit::{Id, Store, Workload, cluster_id, is_of_daemonset};
use serde_json::{Value, json};

use crate::{budgets, run::Limits, templates};

/// A claim that replaces nodes as drifted, while nothing can have drifted.
pub fn drift(store: &Store, name: &str, claim: &Value) -> Option<String> {
    let is_drift = !store.edited && claim["metadata"]["annotations"][keys::DISRUPTION_REASON] == "Drifted";
    is_drift.then(|| format!("claim {name} replaces nodes that nothing has changed"))
}

/// Violations of a pod on a node that isn't its pool's.
pub fn placement(store: &Store, id: &Id, pod: &Value) -> Vec<String> {
    let node = pod["spec"]["nodeName"].as_str().filter(|_| !is_of_daemonset(pod));
    let Some(node) = node.and_then(|node| store.get(&cluster_id("Node", node))) else { return Vec::new() };
    let mut broken = Vec::new();
    let pool = &pod["spec"]["nodeSelector"]["node-pool"];
    if node["metadata"]["labels"]["node-pool"] != *pool {
        broken.push(format!("pod {} runs outside its pool", id.2));
    }
    let is_pools = |taint: &Value| taint["key"] == "node-pool" && taint["value"] == *pool;
    if !node["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(is_pools)) {
        broken.push(format!("pod {} runs on a node without the taint of its pool", id.2));
    }
    broken
}

/// Claims with more than one instance.
pub fn launched_twice(world: &World) -> Vec<String> {
    let mut per_claim: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, instance) in world.instances() {
        if let Some(uid) = instance.tags.get(tags::CLAIM_UID) {
            per_claim.entry(uid).or_default().push(id);
        }
    }
    let twice = per_claim.iter().filter(|(_, instances)| instances.len() > 1);
    twice.map(|(uid, instances)| format!("claim {uid} was launched twice: {instances:?}")).collect()
}

/// Limits that are exceeded, and whether one holds only without the instances that no controller could count. `known` are
/// the uids of claims that count from their creation on.
pub fn over_limits(
    store: &Store,
    world: &World,
    limits: &Limits,
    cpus: &BTreeMap<String, i64>,
    known: &BTreeSet<&str>,
) -> (Vec<String>, bool) {
    // CPU of each pool: what counts, and all.
    let mut cpu: BTreeMap<&str, [i64; 2]> = BTreeMap::new();
    for (id, instance) in world.instances().filter(|(_, instance)| instance.state.is_alive()) {
        // Objects created after the backup are unknown until the cloud is asked. An instance that was hidden counts towards
        // limits once it is found, but what was launched meanwhile may exceed them.
        let unknown = store.hidden.contains(id)
            || (store.restored || store.blind)
                && instance.tags.get(tags::CLAIM_UID).is_none_or(|uid| !known.contains(uid.as_str()));
        if let Some(pool) = instance.tags.get(tags::POOL) {
            let [counted, all] = cpu.entry(pool).or_default();
            let own = cpus[&instance.instance_type];
            *counted += if unknown { 0 } else { own };
            *all += own;
        }
    }
    let mut broken = Vec::new();
    let mut is_excused = false;
    let mut hold = |what: String, [counted, all]: [i64; 2], limit: i64| {
        if counted > limit {
            broken.push(format!("{what} has {counted}m cpu of at most {limit}m"));
        } else if all > limit {
            tracing::debug!(what, all, limit, "excused: some of them no controller could count");
            is_excused = true;
        }
    };
    for (pool, limit) in &limits.pools {
        hold(format!("pool {pool}"), cpu.get(pool.as_str()).copied().unwrap_or_default(), *limit);
    }
    if let Some(limit) = limits.cluster {
        let sum = |n: usize| cpu.values().map(|amounts| amounts[n]).sum();
        hold("the cluster".to_owned(), [sum(0), sum(1)], limit);
    }
    (broken, is_excused)
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
        let runs = |pod: &&&Arc<Value>| {
            pod["status"]["phase"] == json!("Running") && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let running = pods.iter().filter(runs).count() as u64;
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
    let ending = store.of_kind("Pod").filter(|(_, pod)| !pod["metadata"]["deletionTimestamp"].is_null());
    broken.extend(ending.map(|(id, _)| format!("pod {} doesn't come to its end", id.2)));
    broken.extend(idle(store));
    broken.extend(unlike_planned(store));
    if instances != claims {
        broken.push(format!("instances {instances:?} and claims {claims:?} differ"));
    }
    if instances != nodes {
        broken.push(format!("instances {instances:?} and nodes {nodes:?} differ"));
    }
    broken
}

/// Nodes without work, beyond those that a size or a share keeps, and one for each pod of headroom: nothing will come to them. To a
/// replacement the pods come that a budget of users holds on the node before it.
fn idle(store: &Store) -> Vec<String> {
    let mut busy = budgets::works(store);
    let is_there = |name: &str| store.get(&cluster_id("NodeClaim", name)).is_some();
    let replacements = store.of_kind("NodeClaim").filter(|(_, claim)| budgets::replaces(claim).any(is_there));
    busy.extend(replacements.filter_map(|(_, claim)| claim["status"]["nodeName"].as_str()));
    let mut empty: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, node) in store.of_kind("Node") {
        let Some(pool) = node["metadata"]["labels"]["node-pool"].as_str() else { continue };
        if !busy.contains(id.2.as_str()) && !templates::kept_by_shares(store, pool).contains(&id.2) {
            empty.entry(pool).or_default().push(&id.2);
        }
    }
    let spare = |pool: &str| {
        let spec = store.get(&cluster_id("TenantPool", pool)).map(|pool| &pool["spec"]);
        let headroom = spec.and_then(|spec| spec["headroom"]["pods"].as_u64()).unwrap_or(0);
        let is_fixed = spec.is_some_and(|spec| spec["replicas"].is_u64());
        let fixed = spec.map_or(0, templates::kept);
        if is_fixed { usize::MAX } else { usize::try_from(headroom + fixed).unwrap() }
    };
    let idle = empty.iter().filter(|(pool, nodes)| nodes.len() > spare(pool));
    idle.map(|(pool, nodes)| format!("nodes of {pool} have no pod: {nodes:?}")).collect()
}

/// Nodes without a label or a taint that pods were planned by: those of their claim, and of its instance.
fn unlike_planned(store: &Store) -> Vec<String> {
    let mut broken = Vec::new();
    for (_, claim) in store.of_kind("NodeClaim") {
        let Some(name) = claim["status"]["nodeName"].as_str() else { continue };
        let Some(node) = store.get(&cluster_id("Node", name)) else { continue };
        let labels =
            [&claim["spec"]["labels"], &claim["status"]["labels"]].into_iter().filter_map(Value::as_object);
        let missing =
            labels.flatten().filter(|(key, value)| node["metadata"]["labels"][key.as_str()] != **value);
        broken.extend(missing.map(|(key, value)| format!("node {name} lacks the label {key}={value}")));
        let held = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
        let is_held = |taint: &&Value| {
            held.iter().any(|own| ["key", "value", "effect"].iter().all(|field| own[field] == taint[field]))
        };
        let taints = claim["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
        let missing = taints.iter().filter(|taint| !is_held(taint));
        broken.extend(missing.map(|taint| format!("node {name} lacks the taint {taint}")));
    }
    broken
}
