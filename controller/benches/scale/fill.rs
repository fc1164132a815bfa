//! A settled cluster of any size: Croft fills one node of each tenant, and copies of that node, its claim, its instance and its
//! pods are the others.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use croft_api::EC2NodeClass;
use croft_cloud::{CloudProvider, LaunchRequest, Launched};
use croft_controller::config::settings::Settings;
use croft_ec2_sim::world::{Settings as Account, World};
use croft_scheduler::{CapacityType, InstanceType};
use croft_simkit::{
    ClusterModel, Environment, Id, Placement, Process, Random, SimClock, Store, Timing, Workload, cluster_id,
    objects,
};
use serde_json::{Value, json};
use tokio::time::sleep;

const TYPE: &str = "m5.xlarge";
/// Ten pods fill a node's 3.92 cpu.
pub const PODS_ON_EACH: u64 = 10;
const CPU_MILLIS: i64 = 390;
const MEMORY_MI: i64 = 512;
/// Nothing takes time that the measurement isn't about.
const TIMING: Timing =
    Timing { boot_ms: (0, 0), ready_ms: (0, 0), start_ms: 0, end_ms: 0, scheduler_lag_ms: 0 };
/// Time in which the first node of each tenant settles.
const SETTLES_WITHIN: Duration = Duration::from_secs(300);

/// A cluster of `tenants` with `each` nodes, without a controller.
pub async fn fill(tenants: u64, each: u64) -> Arc<Environment> {
    let environment = build(tenants);
    let workloads = (0..tenants).map(|n| Workload {
        namespace: name(n),
        app: name(n),
        pool: name(n),
        replicas: PODS_ON_EACH,
        cpu_millis: CPU_MILLIS,
        memory_mi: MEMORY_MI,
        max_unavailable: Some(1),
        ..Workload::default()
    });
    let (types, random) = (environment.types(), Random::new(2));
    let model = ClusterModel::new(workloads.collect(), types, TIMING, Placement::LeastAllocated, random, ());
    let models = ClusterModel::run_on_change(&Arc::new(Mutex::new(model)), &environment);
    let process = Process::start(&environment, 0, Settings::default(), 0);
    sleep(SETTLES_WITHIN).await;
    drop(process);
    models.abort();
    let templates: Vec<Template> = {
        let store = environment.store.lock().unwrap();
        store.of_kind("NodeClaim").map(|(id, claim)| Template::of(&store, id, claim)).collect()
    };
    assert_eq!(templates.len() as u64, tenants, "a tenant has other than one node");
    let cloud = croft_simkit::cloud(&environment);
    for template in &templates {
        for copy in 1..each {
            template.copy(&environment, &*cloud, copy).await;
        }
        template.count(&mut environment.store.lock().unwrap(), each);
    }
    // The copied instances run.
    sleep(Duration::from_secs(60)).await;
    let now = environment.now_ms();
    environment.world.lock().unwrap().advance(now);
    environment.store.lock().unwrap().forget_but(0);
    environment
}

/// The name of a tenant, its namespace, its pool and its workload.
pub fn name(tenant: u64) -> String {
    format!("tenant-{tenant:02}")
}

/// A pod of the first tenant that only a new node has room for.
pub fn create_waiting_pod(environment: &Environment) {
    let mut store = environment.store.lock().unwrap();
    let mut pod = store.of_kind("Pod").next().map(|(_, pod)| Value::clone(pod)).unwrap();
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    pod["status"] = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 nodes are available",
        "lastTransitionTime": environment.clock.true_wall().to_string(),
    }]});
    let id = ("Pod", name(0), "waiting".to_owned());
    assert!(store.create(id, without_identity(pod), environment.clock.true_wall()));
    drop(store);
    environment.changed.notify_waiters();
}

fn build(tenants: u64) -> Arc<Environment> {
    let clock = SimClock::start();
    let now = clock.true_wall();
    let account =
        Account { template_quota: usize::MAX, subnet_addresses: 60_000, seed: 7, ..Account::default() };
    let world = World::new(account, u64::try_from(now.as_millisecond()).unwrap());
    let mut store = Store::default();
    store.create(cluster_id("EC2NodeClass", "class"), objects::node_class(), now);
    for pool in (0..tenants).map(name) {
        let body = objects::tenant_pool("karpenter.sh/capacity-type", &["on-demand"]);
        store.create(cluster_id("TenantPool", &pool), body, now);
        store.create(cluster_id("Tenant", &pool), objects::tenant(&pool, &pool), now);
    }
    Environment::new(store, world, types(), clock, Random::new(1))
}

fn types() -> Arc<[InstanceType]> {
    let mut types: Vec<InstanceType> =
        croft_cloud::builtin_catalog().iter().filter(|kind| kind.name == TYPE).cloned().collect();
    for kind in &mut types {
        kind.offerings.retain(|o| o.capacity_type == CapacityType::OnDemand && o.zone != "us-east-1e");
        kind.offerings.truncate(3);
    }
    types.into()
}

/// A settled node of a pool, with all that belongs to it.
struct Template {
    pool: String,
    claim: Value,
    node: Value,
    pods: Vec<Value>,
    request: LaunchRequest,
}

impl Template {
    fn of(store: &Store, id: &Id, claim: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (pool, node) = (text(&claim["spec"]["pool"]), text(&claim["status"]["nodeName"]));
        let consolidatable = &claim["status"]["conditions"][4];
        assert_eq!(consolidatable["type"], json!("Consolidatable"), "{} hasn't settled: {claim}", id.2);
        let class: EC2NodeClass =
            serde_json::from_value(store.get(&cluster_id("EC2NodeClass", "class")).unwrap().clone()).unwrap();
        let request = LaunchRequest {
            claim_name: String::new(),
            claim_uid: String::new(),
            pool: pool.clone(),
            tenant: Some(pool.clone()),
            attempt: 1,
            class: Arc::new(class),
            instance_types: vec![TYPE.to_owned()],
            zones: vec![text(&claim["status"]["zone"])],
            capacity_type: CapacityType::OnDemand,
            requests: croft_scheduler::Resources::default(),
            labels: serde_json::from_value(claim["spec"]["labels"].clone()).unwrap(),
            taints: serde_json::from_value(claim["spec"]["taints"].clone()).unwrap(),
            tags: std::collections::BTreeMap::new(),
        };
        let pods = store.of_kind("Pod").filter(|(id, _)| id.1 == pool);
        Self {
            claim: claim.clone(),
            node: store.get(&cluster_id("Node", &node)).unwrap().clone(),
            pods: pods.map(|(_, pod)| Value::clone(pod)).collect(),
            pool,
            request,
        }
    }

    /// Creates one more node like this.
    async fn copy(&self, environment: &Environment, cloud: &dyn CloudProvider, number: u64) {
        let claim = format!("{}-copy-{number}", self.pool);
        let id = cluster_id("NodeClaim", &claim);
        let now = environment.clock.true_wall();
        let claim_uid = {
            let mut store = environment.store.lock().unwrap();
            assert!(store.create(id.clone(), without_identity(self.claim.clone()), now));
            store.get(&id).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
        };
        let request = LaunchRequest { claim_name: claim.clone(), claim_uid, ..self.request.clone() };
        let prepared = cloud.prepare(&request).await.unwrap();
        let Launched { instance, .. } = cloud.launch(&prepared).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let own_id = text(&self.claim["status"]["providerId"]);
        let names = [
            (croft_cloud::instance_id(&own_id).to_owned(), instance.id),
            (text(&self.claim["status"]["nodeName"]), instance.node_name.clone()),
            (text(&self.claim["metadata"]["name"]), claim),
        ];
        let renamed = |object: &Value| {
            let from = object.to_string();
            let text = names.iter().fold(from, |text, (old, new)| text.replace(old.as_str(), new));
            without_identity(serde_json::from_str(&text).unwrap())
        };
        let mut store = environment.store.lock().unwrap();
        let status = renamed(&self.claim)["status"].clone();
        store.change(&id, |claim| claim["status"] = status);
        assert!(store.create(cluster_id("Node", &instance.node_name), renamed(&self.node), now));
        for (n, pod) in self.pods.iter().enumerate() {
            let id = ("Pod", self.pool.clone(), format!("{}-{number}-{n}", self.pool));
            let mut pod = without_identity(pod.clone());
            pod["spec"]["nodeName"] = json!(instance.node_name);
            assert!(store.create(id, pod, now));
        }
    }

    /// Writes the number of pods into the tenant's PodDisruptionBudget.
    fn count(&self, store: &mut Store, nodes: u64) {
        let pods = nodes * PODS_ON_EACH;
        let id = ("PodDisruptionBudget", self.pool.clone(), self.pool.clone());
        store.change(&id, |budget| {
            budget["status"] = json!({
                "expectedPods": pods, "desiredHealthy": pods - 1, "currentHealthy": pods, "disruptionsAllowed": 1,
            });
        });
    }
}

/// The object without what the store gives it.
fn without_identity(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(field);
    }
    object
}
