//! Invariants at every moment, and invariants of a settled cluster, on the real control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use croft_api::NodeClaim;
use croft_cloud::tags;
use croft_testkit::http;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::stack::{label, node_of};

/// Between two checks of instances, nodes and pods.
const LOOK: Duration = Duration::from_millis(300);
/// The label `app` of pods whose budget is checked.
pub const GUARDED: &str = "guarded";

/// The initial state of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Pool of each namespace; its nodes have the label `node-pool=<pool>`.
    pub pools: BTreeMap<String, String>,
    /// Limit of each pool, in milli-cpu.
    pub limits: BTreeMap<String, i64>,
    /// Number of pods with the label `app=guarded` in each of these namespaces, and the minimum that a budget allows.
    pub guarded: BTreeMap<String, (usize, usize)>,
}

/// An instance, as the cloud describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// Its state.
    pub state: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

impl Instance {
    /// True until it terminates.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "running")
    }
}

/// Every instance that the cloud still shows, terminated ones included.
///
/// # Errors
/// If the simulator doesn't answer.
pub async fn instances(cloud: SocketAddr) -> anyhow::Result<Vec<Instance>> {
    #[derive(Deserialize)]
    struct Report {
        instances: Vec<Instance>,
    }
    let answer = http::get(cloud, "/_control/state").await?;
    Ok(serde_json::from_str::<Report>(&answer.body)?.instances)
}

/// Checks the cluster continuously. Dropping it ends the checks.
#[derive(Debug)]
pub struct Monitor {
    broken: Arc<Mutex<BTreeSet<String>>>,
    looks: Arc<Mutex<u64>>,
    _tasks: JoinSet<()>,
}

impl Monitor {
    /// Starts the checks.
    #[must_use]
    pub fn start(client: &Client, cloud: SocketAddr, expected: Expected) -> Self {
        let broken = Arc::new(Mutex::new(BTreeSet::new()));
        let looks = Arc::new(Mutex::new(0));
        let expected = Arc::new(expected);
        let mut tasks = JoinSet::new();
        for (namespace, (count, least)) in expected.guarded.clone() {
            let api = Api::namespaced(client.clone(), &namespace);
            tasks.spawn(budget(api, namespace, count, least, Arc::clone(&broken)));
        }
        let (client, found, looked) = (client.clone(), Arc::clone(&broken), Arc::clone(&looks));
        tasks.spawn(async move {
            loop {
                // A server without an answer is being restarted.
                if let Ok(instances) = instances(cloud).await {
                    lock(&found).extend(paid_twice(&instances));
                    lock(&found).extend(over_limit(&instances, &expected.limits));
                }
                if let Ok(misplaced_pods) = misplaced_pods(&client, &expected.pools).await {
                    lock(&found).extend(misplaced_pods);
                    *lock(&looked) += 1;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { broken, looks, _tasks: tasks }
    }

    /// Violations so far.
    #[must_use]
    pub fn broken(&self) -> Vec<String> {
        lock(&self.broken).iter().cloned().collect()
    }

    /// Number of complete checks.
    #[must_use]
    pub fn looks(&self) -> u64 {
        *lock(&self.looks)
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows the covered pods, event by event: once all exist, at least `least` must be ready.
async fn budget(
    api: Api<Pod>,
    namespace: String,
    count: usize,
    least: usize,
    broken: Arc<Mutex<BTreeSet<String>>>,
) {
    let config = watcher::Config::default().labels(&format!("app={GUARDED}"));
    let mut stream = pin!(watcher::watcher(api, config).default_backoff());
    let mut ready: BTreeMap<String, bool> = BTreeMap::new();
    let mut listed = BTreeMap::new();
    let (mut armed, mut listing) = (false, false);
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                listing = true;
                listed.clear();
            }
            Ok(watcher::Event::InitApply(pod)) => {
                listed.insert(pod.name_any(), is_ready(&pod));
            }
            Ok(watcher::Event::InitDone) => {
                listing = false;
                ready = std::mem::take(&mut listed);
            }
            Ok(watcher::Event::Apply(pod)) => {
                ready.insert(pod.name_any(), is_ready(&pod));
            }
            Ok(watcher::Event::Delete(pod)) => {
                ready.remove(&pod.name_any());
            }
            Err(_) => {}
        }
        let healthy = ready.values().filter(|ready| **ready).count();
        armed |= healthy >= count;
        if armed && !listing && healthy < least {
            let what =
                format!("{healthy} of at least {least} guarded pods in {namespace} were ready: {ready:?}");
            lock(&broken).insert(what);
        }
    }
}

/// As in the disruption controller, a terminating pod is not healthy.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    ready && pod.metadata.deletion_timestamp.is_none()
}

fn paid_twice(instances: &[Instance]) -> Vec<String> {
    let mut by_claim: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for instance in instances {
        if let Some(claim) = instance.tags.get(tags::CLAIM_UID) {
            by_claim.entry(claim).or_default().push(&instance.id);
        }
    }
    let twice = by_claim.into_iter().filter(|(_, instances)| instances.len() > 1);
    twice.map(|(claim, instances)| format!("claim {claim} was launched twice: {instances:?}")).collect()
}

fn over_limit(instances: &[Instance], limits: &BTreeMap<String, i64>) -> Vec<String> {
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for instance in instances.iter().filter(|instance| instance.is_alive()) {
        if let Some(pool) = instance.tags.get(tags::POOL) {
            *used.entry(pool).or_default() += milli_cpu(&instance.instance_type);
        }
    }
    let over = limits.iter().filter_map(|(pool, limit)| {
        let used = used.get(pool.as_str()).copied().unwrap_or_default();
        (used > *limit).then(|| format!("pool {pool} had {used}m cpu of at most {limit}m"))
    });
    over.collect()
}

/// The CPU of an instance type, in milli-cpu.
#[must_use]
pub fn milli_cpu(instance_type: &str) -> i64 {
    let catalog = croft_cloud::builtin_catalog();
    catalog.iter().find(|kind| kind.name == instance_type).map_or(0, |kind| kind.capacity.get("cpu"))
}

async fn misplaced_pods(client: &Client, pools: &BTreeMap<String, String>) -> kube::Result<Vec<String>> {
    // Lists from the API server's cache, which is cheap. Pods first: a node may be removed together with its pods.
    let params = ListParams::default().match_any();
    let pods = Api::<Pod>::all(client.clone()).list(&params).await?;
    let nodes = Api::<Node>::all(client.clone()).list(&params).await?;
    let pools_of: BTreeMap<String, String> =
        nodes.items.iter().map(|node| (node.name_any(), label(node, "node-pool"))).collect();
    let misplaced_pods = pods.items.iter().filter_map(|pod| {
        let wanted = pools.get(&pod.namespace()?)?;
        let on = node_of(pod);
        let pool = pools_of.get(&on)?;
        (pool != wanted).then(|| format!("{} of {wanted} is on {on} of {pool:?}", pod.name_any()))
    });
    Ok(misplaced_pods.collect())
}

/// Differences between instances, claims and nodes, which keep the cluster from being settled.
///
/// # Errors
/// If a server doesn't answer.
pub async fn unsettled(client: &Client, cloud: SocketAddr) -> anyhow::Result<Vec<String>> {
    let instances: BTreeSet<String> = instances(cloud)
        .await?
        .iter()
        .filter(|instance| instance.is_alive())
        .map(|instance| format!("aws:///{}/{}", instance.zone, instance.id))
        .collect();
    let all = ListParams::default();
    let claims = Api::<NodeClaim>::all(client.clone()).list(&all).await?;
    let claims: BTreeSet<String> = claims
        .items
        .iter()
        .map(|claim| claim.status.as_ref().and_then(|status| status.provider_id.clone()).unwrap_or_default())
        .collect();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await?;
    let nodes: BTreeSet<String> = nodes
        .items
        .iter()
        .map(|node| node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default())
        .collect();
    let mut unsettled = Vec::new();
    if instances != claims {
        unsettled.push(format!("instances {instances:?} and claims {claims:?} differ"));
    }
    if instances != nodes {
        unsettled.push(format!("instances {instances:?} and nodes {nodes:?} differ"));
    }
    Ok(unsettled)
}
